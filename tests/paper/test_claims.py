"""Everything that the paper shows has a line."""

from wcdas.paper import CLAIMS, MODULES
from wcdas.paper.order import SECTIONS


def test_everything_has_a_line() -> None:
    expected = [f"equation-{n}" for n in range(1, 52)]
    expected += [f"theorem-{n}" for n in range(1, 5)] + ["corollary-1.1", "algorithm-1"]
    expected += [f"figure-{n}" for n in range(1, 8)] + [f"table-{n}" for n in range(1, 9)]
    assert set(expected) <= set(CLAIMS)


def test_every_claim_is_in_the_order_once() -> None:
    made = [claim.name for module in MODULES for claim in module.CLAIMS]
    placed = [name for names in SECTIONS.values() for name in names]
    assert sorted(made) == sorted(placed)
    assert len(set(made)) == len(made)
    assert list(CLAIMS) == placed


def test_every_check_of_the_theory_says_what_it_does() -> None:
    for name, claim in CLAIMS.items():
        if name.startswith(("equation", "theorem", "corollary", "algorithm")):
            assert claim.check.__doc__


def test_every_claim_says_what_where_and_how_long() -> None:
    for name, claim in CLAIMS.items():
        assert claim.name == name
        assert claim.place
        assert claim.cost
        assert claim.statement.endswith(".")
