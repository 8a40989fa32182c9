"""Table 4: eleven rows on ImageNet-LT and iNaturalist 2018, all under one protocol."""

from wcdas.paper.claim import Claim, Finding, Setting
from wcdas.paper.tables.comparing import Answer, leads
from wcdas.paper.tables.judging import TOLERANCE_IN_WORDS, check_table
from wcdas.paper.tables.printed import Numbers, PrintedTable, read_table


def agrees(table: PrintedTable, numbers: Numbers) -> Answer:
    return leads(table, numbers, "WCDAS (class-balanced)")


def check(setting: Setting, table: PrintedTable | None = None) -> Finding:
    return check_table(setting, table or read_table("table-4"), agrees)


CLAIMS = (
    Claim(
        "table-4",
        "Section 4.4, Table 4",
        "WCDAS with the class-balanced sampler is the most accurate over all classes of "
        "ImageNet-LT and of iNaturalist 2018, every method having its learning rate of 0.4.",
        "30 seconds in quick mode",
        check,
        TOLERANCE_IN_WORDS,
    ),
)
