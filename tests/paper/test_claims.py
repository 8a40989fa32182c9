"""Everything that the paper shows has a line, and its room uses what the others hand out."""

import ast
from importlib import import_module
from pathlib import Path

import wcdas.paper
from wcdas.paper import CLAIMS, MODULES, SECTIONS

NOTHING = (25, 42)  # an empty line and one of dots have numbers, too


def test_everything_has_a_line() -> None:
    expected = [f"equation-{n}" for n in range(1, 52) if n not in NOTHING]
    expected += [f"theorem-{n}" for n in range(1, 5)] + ["corollary-1.1", "algorithm-1"]
    expected += [f"figure-{n}" for n in range(1, 8)] + [f"table-{n}" for n in range(1, 9)]
    assert set(expected) <= set(CLAIMS)


def test_every_claim_is_in_the_order_once() -> None:
    placed = [name for names in SECTIONS.values() for name in names]
    assert len(set(placed)) == len(placed)
    assert list(CLAIMS) == placed


def test_every_check_is_that_of_a_claim() -> None:
    kinds = ("equation_", "theorem_", "corollary_", "algorithm_", "figure_", "table_")
    functions = [vars(m)[name] for m in MODULES for name in vars(m) if name.startswith(kinds)]
    checks = [claim.check for claim in CLAIMS.values()]
    assert all(function in checks for function in functions if callable(function))


def test_every_check_says_what_it_does() -> None:
    assert all(claim.check.__doc__ for claim in CLAIMS.values())


def test_every_claim_says_what_where_and_how_long() -> None:
    for name, claim in CLAIMS.items():
        assert claim.name == name
        assert claim.place
        assert claim.cost
        assert claim.statement.endswith(".")
    assert CLAIMS["equation-26"].place == "Appendix A.2, Equation 26"
    assert CLAIMS["corollary-1.1"].place == "Section 3.1, Corollary 1.1"


def test_the_room_uses_what_the_others_hand_out() -> None:
    for file in Path(wcdas.paper.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            if module.startswith("wcdas.") and not module.startswith("wcdas.paper"):
                names = {alias.name for alias in node.names}
                assert module.count(".") == 1, f"{file.name} looks into {module}"
                assert names <= set(getattr(import_module(module), "__all__", names))
