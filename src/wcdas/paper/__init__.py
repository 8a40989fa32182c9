"""The paper, executable: every equation, theorem, figure and table with a verdict."""

from types import ModuleType

from wcdas.paper.claim import Claim, Finding, Setting, Table, Verdict
from wcdas.paper.order import SECTIONS

# Each module holds its claims as CLAIMS; SECTIONS puts them in the paper's order.
MODULES: tuple[ModuleType, ...] = ()
_found = {claim.name: claim for module in MODULES for claim in module.CLAIMS}
CLAIMS: dict[str, Claim] = {
    name: _found[name] for names in SECTIONS.values() for name in names if name in _found
}

__all__ = ["CLAIMS", "Claim", "Finding", "Setting", "Table", "Verdict"]
