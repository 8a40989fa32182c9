"""Table 6: 90 against 150 epochs for each start of w_ρ, at a rate of 0.2."""

from wcdas.paper.claim import Claim, Finding, Setting
from wcdas.paper.tables.comparing import Answer, at_least, together
from wcdas.paper.tables.judging import TOLERANCE_IN_WORDS, check_table
from wcdas.paper.tables.printed import Cell, Numbers, PrintedTable, read_table


def agrees(table: PrintedTable, numbers: Numbers) -> Answer:
    short, long = (part.label for part in table.parts)
    return together(
        answer
        for row in table.rows
        for answer in (
            at_least(numbers, Cell(row.label, long, "all"), Cell(row.label, short, "all")),
            at_least(numbers, Cell(row.label, short, "few"), Cell(row.label, long, "few")),
        )
    )


def check(setting: Setting, table: PrintedTable | None = None) -> Finding:
    return check_table(setting, table or read_table("table-6"), agrees)


CLAIMS = (
    Claim(
        "table-6",
        "Appendix B.2, Table 6",
        "With more epochs the accuracy over all classes of ImageNet-LT rises, and that of classes "
        "with few images falls slightly, wherever w_ρ starts.",
        "20 seconds in quick mode",
        check,
        TOLERANCE_IN_WORDS,
    ),
)
