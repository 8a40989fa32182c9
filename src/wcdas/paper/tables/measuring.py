"""What the sweeps say of the cells of a table."""

from collections.abc import Callable

from wcdas.paper.claim import Setting
from wcdas.paper.tables.printed import Cell, Number, Part, PrintedTable, Row
from wcdas.paper.tables.protocols import Protocol, of_cell, of_stand_in
from wcdas.paper.tables.training import run_folders, train
from wcdas.sweeps import mean_and_std

METRICS = {"many": "many", "medium": "medium", "few": "few", "all": "top1"}

Reasons = dict[str, str]  # by the part of the table


def measure(setting: Setting, table: PrintedTable) -> tuple[dict[Cell, Number], Reasons]:
    """Our numbers on the paper's data, and why parts are missing; real mode trains them."""
    cells = [(row, part, of_cell(row, part)) for row in table.rows for part in table.parts]
    failed = train(setting, [(protocol, row.method) for row, _, protocol in cells])
    reasons = {part.label: failed[one] for _, part, one in cells if one in failed}
    return _cells(setting, table, of_cell), reasons


def stand_in(setting: Setting, table: PrintedTable) -> dict[Cell, Number]:
    """The same cells on the digits; quick mode trains them."""
    protocols = [(of_stand_in(row, part), row) for row in table.rows for part in table.parts]
    train(setting, ((protocol, row.method) for protocol, row in protocols if protocol is not None))
    return _cells(setting, table, of_stand_in)


def _cells(
    setting: Setting, table: PrintedTable, protocol_of: Callable[[Row, Part], Protocol | None]
) -> dict[Cell, Number]:
    found = {}
    for row in table.rows:
        for part in table.parts:
            protocol = protocol_of(row, part)
            runs = [] if protocol is None else run_folders(setting, protocol, row.method)
            metrics = [run.read_metrics() for run in runs]
            for metric in part.metrics:
                found_in = [m[METRICS[metric]] for m in metrics]
                values = [100 * value for value in found_in if value is not None]
                if values:
                    mean, deviation = mean_and_std(values)
                    cell = Cell(row.label, part.label, metric)
                    found[cell] = Number(mean, deviation, len(values))
    return found
