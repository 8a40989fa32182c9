"""Table 7: the sampler of the classifier stage."""

from wcdas.paper.claim import Claim, Finding, Setting
from wcdas.paper.tables.comparing import Answer, leads
from wcdas.paper.tables.judging import TOLERANCE_IN_WORDS, check_table
from wcdas.paper.tables.printed import Numbers, PrintedTable, read_table


def agrees(table: PrintedTable, numbers: Numbers) -> Answer:
    return leads(table, numbers, "Class balanced sampling")


def check(setting: Setting, table: PrintedTable | None = None) -> Finding:
    return check_table(setting, table or read_table("table-7"), agrees)


CLAIMS = (
    Claim(
        "table-7",
        "Appendix B.4, Table 7",
        "Over all classes of ImageNet-LT the class-balanced sampler is better than the meta "
        "sampler at each of three rates.",
        "15 seconds in quick mode",
        check,
        TOLERANCE_IN_WORDS,
    ),
)
