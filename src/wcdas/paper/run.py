"""Judge claims one after the other, and leave one page."""

import os
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from wcdas.errors import InputError, InterruptedRunError, WorkError
from wcdas.interrupt import number_of
from wcdas.listing import wrapped
from wcdas.paper import CLAIMS
from wcdas.paper.claim import Setting, Verdict
from wcdas.paper.ended import find_runs
from wcdas.paper.folder import Result, begin, chosen, read_result, write_result
from wcdas.paper.page import tally, write_page
from wcdas.run import next_folder

READS_RUNS = "label-awareness"
STYLES = dict(zip(Verdict, ("green", "yellow", "red", "dim"), strict=True))


@dataclass(frozen=True)
class PaperRun:
    """What was judged, what could not be, and the page that shows it."""

    page: Path
    results: dict[str, Result]
    failures: dict[str, str]

    @property
    def counts(self) -> str:
        return tally(self.results)

    def raise_failures(self) -> None:
        if self.failures:
            raise WorkError(
                f"{len(self.failures)} of {len(self.results) + len(self.failures)} claims could "
                f"not be judged: {', '.join(self.failures)}; try them again with: "
                f"{_again(self.page.parent)}"
            )


def _again(out: Path) -> str:
    return f"wcdas paper --out {shlex.quote(str(out))} --resume"


def list_claims(width: int | None = None) -> list[str]:
    """Return a line for each claim: its name, what it costs, where it stands, what it says."""
    name, cost = (max(len(getattr(c, of)) for c in CLAIMS.values()) for of in ("name", "cost"))
    lines = [
        f"{claim.name:<{name}}  {claim.cost:<{cost}}  {claim.place}: {claim.statement}"
        for claim in CLAIMS.values()
    ]
    return wrapped(lines, name + cost + 4, width)


def run_paper(
    names: Sequence[str] = (),
    *,
    everything: bool = False,
    out: str | Path | None = None,
    resume: bool = False,
    mode: str = "quick",
    data_root: str | Path | None = None,
    device: str = "auto",
    runs: Sequence[str | Path] = (),
    measured: str | Path | None = None,
    console: Console | None = None,
) -> PaperRun:
    """Judge claims of the paper and write a page with their verdicts.

    Args:
        names: claims, as `wcdas paper` lists them.
        everything: all of them.
        out: the folder for page, figures and runs; `runs/paper-<n>` without it.
        resume: go on with the folder in `out`; what is judged there is not judged again.
        mode: "quick" trains a small network on the digits, "real" follows the paper.
        data_root: where the paper's datasets lie; $WCDAS_DATA without it.
        device: auto, cpu, cuda or cuda:N.
        runs: folders with runs of one's own, which label-awareness is judged by.
        measured: the folder of a real mode, whose numbers quick mode shows.
        console: where progress is shown; None is silent.
    """
    asked = chosen(names, everything)
    if resume and out is None:
        raise InputError("--resume needs to know which folder; name it with --out")
    if runs and READS_RUNS not in asked:
        raise InputError(f"--runs was given, which {READS_RUNS} alone reads; name that claim too")
    console = console or Console(quiet=True)
    root = data_root or os.environ.get("WCDAS_DATA")
    setting = Setting(
        Path(out) if out else next_folder("paper"),
        mode,
        Path(root) if root else None,
        device,
        console,
        Path(measured) if measured else None,
        find_runs(runs),
    )
    asked = begin(asked, setting, resume)
    results: dict[str, Result] = {}
    failures: dict[str, str] = {}
    try:
        for number, name in enumerate(asked, 1):
            which = f"{number}/{len(asked)} {name}"
            try:
                results[name], took = _judge(name, which, setting, console)
            except (InterruptedRunError, KeyboardInterrupt) as stop:
                told = f"stopped at {name}; go on with: {_again(setting.out)}"
                raise InterruptedRunError(told, number_of(stop)) from None
            except (InputError, WorkError, OSError) as error:
                failures[name] = str(error)
                console.print(f"{which} could not be judged: {error}")
            else:
                verdict = results[name].finding.verdict
                coloured = (verdict, STYLES[verdict])
                console.print(Text.assemble(f"{which} ", coloured, f" ({took})"))
    finally:
        page = write_page(setting, results, failures)
    return PaperRun(page, results, failures)


def _judge(name: str, which: str, setting: Setting, console: Console) -> tuple[Result, str]:
    """Return the result of a claim, and how long it took in words."""
    if kept := read_result(setting, name):
        return kept, "kept"
    start = time.monotonic()
    with console.status(f"{which}: {CLAIMS[name].cost}"):
        finding = CLAIMS[name].check(setting)
    result = Result(finding, time.monotonic() - start)
    write_result(setting, name, result)
    return result, f"{result.seconds:.1f} s"


def show(run: PaperRun, console: Console) -> None:
    """Print what was found in words and tables, claim by claim."""
    for name, result in run.results.items():
        finding = result.finding
        console.print(f"\n{name}: {CLAIMS[name].statement}", style="bold")
        console.print(Text.assemble((finding.verdict, STYLES[finding.verdict]), ". "), end="")
        console.print(finding.sentence)
        for table in finding.tables:
            grid = RichTable(*table.columns, title=table.title, title_justify="left", box=None)
            for row in table.rows:
                grid.add_row(*row)
            console.print(grid)
        for figure in finding.figures:
            console.print(str(figure))
