"""The page on the paper says what the checks find."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from wcdas.paper import CLAIMS
from wcdas.paper.claim import Finding

Found = Callable[[Callable[..., Finding]], Finding]
PAGE = Path(__file__).parents[2] / "docs" / "paper.md"
THEORY = re.compile(r"equation|theorem|corollary|algorithm|figure-[1236]$")


def rows() -> dict[str, str]:
    """The verdict that the page gives for each claim."""
    found = {}
    for line in PAGE.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 4 and cells[0].startswith("`"):
            found |= dict.fromkeys(re.findall(r"`([a-z0-9.-]+)`", cells[0]), cells[2])
    return found


def test_every_theory_claim_is_on_the_page() -> None:
    theory = {name for name in CLAIMS if THEORY.match(name)}
    assert theory == {name for name in rows() if THEORY.match(name)}


@pytest.mark.parametrize("name", [name for name in CLAIMS if THEORY.match(name)])
def test_verdict_of_the_page(name: str, found: Found) -> None:
    assert rows()[name] == found(CLAIMS[name].check).verdict
