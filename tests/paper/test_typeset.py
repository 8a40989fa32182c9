import pytest

from wcdas.paper import CLAIMS
from wcdas.paper.typeset import typeset


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Σ_m ρ_m^(n²)", "Σ<sub>m</sub> ρ<sub>m</sub><sup>n²</sup>"),
        ("ρ^(n^a)", "ρ<sup>n<sup>a</sup></sup>"),
        ("(Σ_m ρ^(n²))^(1/n)", "(Σ<sub>m</sub> ρ<sup>n²</sup>)<sup>1/n</sup>"),
        ("α_mixed,n^(1/n), w_ρ, w", "α<sub>mixed,n</sub><sup>1/n</sup>, w<sub>ρ</sub>, w"),
        ("nμ_j, a_{n−1}", "nμ<sub>j</sub>, a<sub>n−1</sub>"),
        ("1e-10, 4.6e+04, 0.0e+00", "10<sup>−10</sup>, 4.6·10<sup>4</sup>, 0"),
        ("-1.6 points, 2-3, paper-1", "−1.6 points, 2-3, paper-1"),
        ("as `a_b --c <d>` does", "as <code>a_b --c &lt;d&gt;</code> does"),
        ("wcdas.paper.theorem_1, fit_moments", "wcdas.paper.theorem_1, fit_moments"),
        ("<b>&amp;^(x", "&lt;b&gt;&amp;amp;^(x"),
    ],
)
def test_text_is_set(text: str, expected: str) -> None:
    assert str(typeset(text)) == expected


def test_no_formula_of_a_claim_is_left_plain() -> None:
    for claim in CLAIMS.values():
        assert not set("_^") & set(typeset(claim.statement).striptags())
