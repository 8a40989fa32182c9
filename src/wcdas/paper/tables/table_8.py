"""Table 8: thirteen rows on ImageNet-LT and iNaturalist 2018, the rivals as they were published."""

from wcdas.paper.claim import Claim, Finding, Setting
from wcdas.paper.tables.comparing import Answer, leads
from wcdas.paper.tables.judging import TOLERANCE_IN_WORDS, check_table
from wcdas.paper.tables.printed import Numbers, PrintedTable, read_table


def agrees(table: PrintedTable, numbers: Numbers) -> Answer:
    return leads(table, numbers, "WCDAS (class-balanced)")


def check(setting: Setting, table: PrintedTable | None = None) -> Finding:
    return check_table(setting, table or read_table("table-8"), agrees)


CLAIMS = (
    Claim(
        "table-8",
        "Appendix B.5, Table 8",
        "WCDAS with the class-balanced sampler is more accurate over all classes of ImageNet-LT "
        "and of iNaturalist 2018 than what other methods' papers report.",
        "40 seconds in quick mode",
        check,
        TOLERANCE_IN_WORDS,
    ),
)
