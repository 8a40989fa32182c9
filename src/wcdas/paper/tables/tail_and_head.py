"""Does WCDAS gain in the tail "from 22.5 to 25.3 … without compromising the head class"?"""

from wcdas.paper.claim import Claim, Finding, Setting, judge
from wcdas.paper.tables.printed import Cell, PrintedTable, read_table

CLAIMED_BEFORE, CLAIMED_AFTER = 22.5, 25.3
PART = "ImageNet-LT"


def check(setting: Setting, tables: tuple[PrintedTable, ...] | None = None) -> Finding:
    """`tables` are Tables 4 and 8, as printed."""
    tables = tables or (read_table("table-4"), read_table("table-8"))
    few, many = (_column(tables, metric) for metric in ("few", "many"))
    rivals = [row for row in few if not row[1].startswith("WCDAS")]
    ours = max((row for row in few if row[1].startswith("WCDAS")), key=few.__getitem__)
    best = max(rivals, key=few.__getitem__)
    head = max(rivals, key=many.__getitem__)
    tail_gain, head_gain = few[ours] - few[best], many[ours] - many[head]
    numbers = {
        "few, WCDAS": few[ours],
        "few, best rival": few[best],
        "many, the same row of WCDAS": many[ours],
        "many, best rival": many[head],
    }
    sentence = (
        f"The row with {few[ours]:.1f} on the tail is {ours[1]}. The best rival's tail is "
        f"{few[best]:.1f} ({best[1]}, {best[0]}), not {CLAIMED_BEFORE}, a gain of "
        f"{tail_gain:+.1f} points; that row's head is {many[ours]:.1f}, {head_gain:+.1f} points "
        f"from the best rival's {many[head]:.1f} ({head[1]}, {head[0]})."
    )
    as_stated = few[best] <= CLAIMED_BEFORE and few[ours] >= CLAIMED_AFTER and head_gain >= 0
    return Finding(judge(as_stated, tail_gain > 0 and head_gain >= 0), sentence, numbers)


def _column(tables: tuple[PrintedTable, ...], metric: str) -> dict[tuple[str, str], float]:
    """By table and row."""
    return {
        (table.name, row.label): table.numbers[cell].mean
        for table in tables
        for row in table.rows
        if (cell := Cell(row.label, PART, metric)) in table.numbers
    }


CLAIMS = (
    Claim(
        "tail-and-head",
        "Section 4.4, Tables 4 and 8",
        "On ImageNet-LT the accuracy of the tail rises from 22.5 to 25.3 without compromising the "
        "head class.",
        "a moment",
        check,
        "none: printed numbers are compared",
    ),
)
