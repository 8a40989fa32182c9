"""Table 3: ten methods on CIFAR-100-LT and CIFAR-10-LT at three imbalance factors."""

from wcdas.paper.claim import Claim, Finding, Setting
from wcdas.paper.tables.comparing import Answer, leads
from wcdas.paper.tables.judging import TOLERANCE_IN_WORDS, check_table
from wcdas.paper.tables.printed import Numbers, PrintedTable, read_table


def agrees(table: PrintedTable, numbers: Numbers) -> Answer:
    return leads(table, numbers, "WCDAS")


def check(setting: Setting, table: PrintedTable | None = None) -> Finding:
    return check_table(setting, table or read_table("table-3"), agrees)


CLAIMS = (
    Claim(
        "table-3",
        "Section 4.4, Table 3",
        "WCDAS is the most accurate of ten methods on CIFAR-100-LT and CIFAR-10-LT at imbalance "
        "200, 100 and 10.",
        "40 seconds in quick mode",
        check,
        TOLERANCE_IN_WORDS,
    ),
)
