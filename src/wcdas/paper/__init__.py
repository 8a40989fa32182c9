"""The paper, executable: every equation, theorem, figure and table with a verdict."""

import re
from typing import Any

from wcdas.paper import (
    awareness,
    concentrations,
    head,
    printed,
    tables,
    theorem_1,
    theorem_2,
    theorem_3,
    theorem_4,
)
from wcdas.paper.claim import TOLERANCE, Claim, Finding, Setting, Table, Verdict
from wcdas.paper.runs import read_toml

MODULES = (
    head,
    theorem_1,
    theorem_2,
    theorem_3,
    theorem_4,
    tables,
    printed,
    concentrations,
    awareness,
)


def _claim(section: str, name: str, check: str = "", **words: str) -> Claim:
    """Return a claim of `claims.toml`, where it says what may be left out."""
    number = section.split()[0]
    part = "Section" if number[0].isdigit() else "Appendix"
    function = re.sub("[-.]", "_", check or name)
    (found,) = (vars(module)[function] for module in MODULES if function in vars(module))
    left_out = {
        "place": f"{part} {number}, {name.replace('-', ' ').capitalize()}",
        "cost": "a second",
        "tolerance": f"{TOLERANCE:g} of the largest value",
    }
    return Claim(name=name, check=found, **left_out | words)


_SECTIONS: list[dict[str, Any]] = read_toml("claims.toml")["sections"]
CLAIMS = {
    claim["name"]: _claim(section["title"], **claim)
    for section in _SECTIONS
    for claim in section["claims"]
}
SECTIONS = {
    section["title"]: [claim["name"] for claim in section["claims"]] for section in _SECTIONS
}

__all__ = ["CLAIMS", "SECTIONS", "Claim", "Finding", "Setting", "Table", "Verdict"]
