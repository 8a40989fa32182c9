"""Table 2: where w_ρ starts, at a rate of 0.4."""

from wcdas.paper.claim import Claim, Finding, Setting
from wcdas.paper.tables.comparing import Answer, spread, together
from wcdas.paper.tables.judging import TOLERANCE_IN_WORDS, check_table
from wcdas.paper.tables.printed import Numbers, PrintedTable, read_table

ROBUST = 1.0  # points


def agrees(table: PrintedTable, numbers: Numbers) -> Answer:
    spreads = (spread(table, numbers, part.label) for part in table.parts)
    return together(None if s is None else s <= ROBUST for s in spreads)


def check(setting: Setting, table: PrintedTable | None = None) -> Finding:
    return check_table(setting, table or read_table("table-2"), agrees)


CLAIMS = (
    Claim(
        "table-2",
        "Section 4.3, Table 2",
        "WCDAS is robust: where w_ρ starts hardly changes the accuracy on ImageNet-LT.",
        "10 seconds in quick mode",
        check,
        f"a spread of {ROBUST:g} point over the starting values; {TOLERANCE_IN_WORDS}",
    ),
)
