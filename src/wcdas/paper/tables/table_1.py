"""Table 1: wrapped Normal against wrapped Cauchy, one ρ against one for every class."""

from wcdas.paper.claim import Claim, Finding, Setting
from wcdas.paper.tables.comparing import Answer, at_least, together
from wcdas.paper.tables.judging import TOLERANCE_IN_WORDS, check_table
from wcdas.paper.tables.printed import Cell, Numbers, PrintedTable, read_table

BETTER_THAN = (
    ("WNDAS, one ρ", "Angular Softmax"),
    ("WCDAS, one ρ", "WNDAS, one ρ"),
    ("WCDAS, class-wise ρ", "WNDAS, class-wise ρ"),
    ("WNDAS, class-wise ρ", "WNDAS, one ρ"),
    ("WCDAS, class-wise ρ", "WCDAS, one ρ"),
)


def agrees(table: PrintedTable, numbers: Numbers) -> Answer:
    return together(
        at_least(numbers, Cell(better, part.label, "all"), Cell(worse, part.label, "all"))
        for part in table.parts
        for better, worse in BETTER_THAN
    )


def check(setting: Setting, table: PrintedTable | None = None) -> Finding:
    return check_table(setting, table or read_table("table-1"), agrees)


CLAIMS = (
    Claim(
        "table-1",
        "Section 4.2, Table 1",
        "On ImageNet-LT, WCDAS is more accurate than WNDAS and both than angular softmax, and a ρ "
        "for every class is better than one ρ for all.",
        "20 seconds in quick mode",
        check,
        TOLERANCE_IN_WORDS,
    ),
)
