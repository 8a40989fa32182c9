"""The paper, executable: every equation, theorem, figure and table with a verdict."""

from types import ModuleType

from wcdas.paper import (
    algorithm_1,
    corollary_1_1,
    figure_1,
    figure_2,
    figure_3,
    figure_4,
    figure_5,
    figure_6,
    figure_7,
    label_awareness,
    theorem_1,
    theorem_2,
    theorem_3,
    theorem_4,
)
from wcdas.paper.claim import Claim, Finding, Setting, Table, Verdict
from wcdas.paper.equations import (
    density,
    faulhaber,
    kernel,
    least_squares,
    margin_steps,
    mean_of_roots,
    mixture,
    softmax,
)
from wcdas.paper.order import SECTIONS
from wcdas.paper.tables import (
    initialisation_spread,
    table_1,
    table_2,
    table_3,
    table_4,
    table_5,
    table_6,
    table_7,
    table_8,
    tail_and_head,
    totals,
)

# Each module holds its claims as CLAIMS; SECTIONS puts them in the paper's order.
MODULES: tuple[ModuleType, ...] = (
    *(softmax, kernel, mixture, least_squares, mean_of_roots, faulhaber, density, margin_steps),
    *(theorem_1, corollary_1_1, theorem_2, theorem_3, theorem_4, algorithm_1),
    *(figure_1, figure_2, figure_3, figure_4, figure_5, figure_6, figure_7, label_awareness),
    *(table_1, table_2, table_3, table_4, table_5, table_6, table_7, table_8),
    *(initialisation_spread, tail_and_head, totals),
)
_found = {claim.name: claim for module in MODULES for claim in module.CLAIMS}
CLAIMS: dict[str, Claim] = {name: _found[name] for names in SECTIONS.values() for name in names}

__all__ = ["CLAIMS", "Claim", "Finding", "Setting", "Table", "Verdict"]
