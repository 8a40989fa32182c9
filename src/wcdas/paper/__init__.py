"""The paper, executable: every equation, theorem, figure and table with a verdict.

Each module has its claims as CLAIMS; the order of MODULES is that of the paper.
"""

from types import ModuleType

from wcdas.paper.claim import Claim, Finding, Setting, Table, Verdict

MODULES: tuple[ModuleType, ...] = ()
CLAIMS: dict[str, Claim] = {claim.name: claim for module in MODULES for claim in module.CLAIMS}

__all__ = ["CLAIMS", "Claim", "Finding", "Setting", "Table", "Verdict"]
