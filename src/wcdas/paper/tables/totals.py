"""Do Many, Medium, Few and All of a printed row belong together?

The test sets are balanced, so that All = Σ_g C_g·accuracy_g / Σ_g C_g over the groups g of C_g
classes.
"""

from collections.abc import Iterable

from wcdas.groups import GROUPS
from wcdas.paper.claim import Claim, Finding, Setting, Table, judge
from wcdas.paper.tables.printed import Cell, PrintedTable, read_table, read_toml

TABLES = ("table-1", "table-2", "table-4", "table-6", "table-7", "table-8")
ROUNDING = 0.1  # points: 0.05 of All and at most 0.05 of the mean of the groups


def check(setting: Setting, tables: Iterable[PrintedTable] | None = None) -> Finding:
    totals = [row for table in tables or map(read_table, TABLES) for row in _totals(table)]
    # A row that stands in several tables is counted once.
    distinct: dict[tuple[str, str, float, float], str] = {}
    for name, *row in totals:
        distinct.setdefault(tuple(row), name)  # type: ignore[arg-type]
    off = [
        (name, data, label, printed, mean)
        for (data, label, printed, mean), name in distinct.items()
        if abs(printed - mean) > ROUNDING
    ]
    worst = max(off, key=lambda row: abs(row[3] - row[4]), default=None)
    sentence = (
        f"Of {len(distinct)} rows with all four numbers, {len(distinct) - len(off)} agree with "
        f"themselves to {ROUNDING} points and {len(off)} do not"
        + (
            f"; the largest gap is {worst[2]} on {worst[1]} ({worst[0]}), whose groups give "
            f"{worst[4]:.1f} where {worst[3]:.1f} is printed."
            if worst
            else "."
        )
    )
    return Finding(
        judge(not off),
        sentence,
        {"rows": len(distinct), "rows that contradict themselves": len(off)},
        tables=(_table(off),) if off else (),
    )


Total = tuple[str, str, str, float, float]


def _totals(table: PrintedTable) -> list[Total]:
    """Table, dataset, row, printed All, and All from the groups, of the rows that have all four."""
    sizes, numbers, found = read_toml("printed/groups.toml"), table.numbers, []
    for part in table.parts:
        classes = sizes[part.data]
        for row in table.rows:
            cells = {metric: Cell(row.label, part.label, metric) for metric in (*GROUPS, "all")}
            if all(cell in numbers for cell in cells.values()):
                weighted = sum(classes[group] * numbers[cells[group]].mean for group in GROUPS)
                mean = weighted / sum(classes[group] for group in GROUPS)
                found.append((table.name, part.data, row.label, numbers[cells["all"]].mean, mean))
    return found


def _table(off: list[Total]) -> Table:
    rows = tuple(
        (name, data, label, f"{printed:.1f}", f"{mean:.2f}", f"{printed - mean:+.2f}")
        for name, data, label, printed, mean in off
    )
    columns = ("table", "dataset", "row", "All, printed", "All, from the groups", "gap")
    return Table("Rows whose All does not follow from Many, Medium and Few", columns, rows)


CLAIMS = (
    Claim(
        "table-totals",
        "Tables 1, 2, 4, 6, 7 and 8",
        "All is the accuracy over all classes of a balanced test set, so it is the mean of Many, "
        "Medium and Few weighted by their classes.",
        "a moment",
        check,
        f"{ROUNDING} points, what rounding to one decimal can do",
    ),
)
