"""What a person is told before the runs of a sweep start."""

from rich.console import Console

from wcdas.data.dataset import Dataset
from wcdas.data.description import describe
from wcdas.sweeps.folder import SweepFolder
from wcdas.sweeps.plan import Plan


def announce(
    console: Console | None, plan: Plan, dataset: Dataset, folder: SweepFolder, notes: list[str]
) -> None:
    if console is None:
        return
    left = len(folder.unfinished(plan))
    todo = "" if left == len(plan.runs) else f", {left} of them to do"
    lines = [
        *describe(dataset),
        *(f"note: {note}" for note in notes),
        f"{_count(plan.methods, 'method')} × {_count(range(plan.seeds), 'seed')}{todo}: "
        f"{', '.join(plan.methods)}",
        f"sweep folder: {folder.path}",
    ]
    for line in lines:
        console.print(line, highlight=False, markup=False)


def _count(things: tuple[str, ...] | range, name: str) -> str:
    return f"{len(things)} {name}{'s' * (len(things) > 1)}"
