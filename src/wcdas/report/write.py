"""From finished runs to pages."""

import shlex
from pathlib import Path
from typing import Any

from torch import Tensor

from wcdas.data.dataset import Dataset
from wcdas.deploy import load
from wcdas.deploy.model import Source, dataset_for, run_split
from wcdas.deploy.output import check_new
from wcdas.errors import InputError
from wcdas.evaluation.predictions import Predictions, predictions
from wcdas.heads import Head
from wcdas.report.measure import measure
from wcdas.report.page import write_comparison, write_page
from wcdas.report.record import Record, read_record, write_measured
from wcdas.run.folder import RunFolder, finished_runs, next_folder
from wcdas.sweeps.folder import SweepFolder, again

PAGE = "report.html"
MOST = 10  # runs on a page, as many as there are colours


def report_on(
    folder: Path, head: Head, features: Tensor, found: Predictions, dataset: Dataset
) -> Path:
    """At the end of a run, measure its test outputs once and write its page."""
    metrics = RunFolder(folder).read_metrics()
    write_measured(folder, measure(head, features, found, dataset, metrics))
    return write_report(folder)


def write_report(
    *runs: Source, out: str | Path | None = None, overwrite: bool = False, figures: bool = False
) -> Path:
    """Write report.html for a run, or one page that compares several.

    No data is needed, but for a run that was never measured for a page.

    Args:
        runs: runs or their folders.
        out: the folder for page and figures; the run's own, for several `runs/report-<n>`.
        overwrite: replace a page that is in `out`; a run's own page in its folder always is.
        figures: write the charts as PNG and SVG files too, in figures/ beside the page.
    """
    folders = list(dict.fromkeys(Path(run) for run in runs))
    if not folders:
        raise InputError("no run was named; expected one folder or several")
    records = [_record(folder) for folder in folders]
    if len(records) == 1:
        if out:
            check_new(Path(out) / PAGE, overwrite)
        path = Path(out or folders[0]) / PAGE
        write_page(path, records[0], figures)
        return path
    if len(records) > MOST:
        raise InputError(
            f"{len(records)} runs were named; expected at most {MOST}, as many as can be told apart"
        )
    folder = Path(out) if out else next_folder("report")
    if any((folder / name).exists() for name in ("run.toml", "sweep.toml")):
        raise InputError(
            f"{folder} is a run's folder, whose own report would be lost; choose another with --out"
        )
    check_new(folder / PAGE, overwrite)
    write_comparison(folder / PAGE, records, figures)
    return folder / PAGE


def _record(folder: Path) -> Record:
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; expected a run's folder, such as runs/NAME")
    if not RunFolder(folder).exists:
        _refuse_folder_of_runs(folder)
    record = read_record(folder)
    if record is None:
        write_measured(folder, _measured_again(folder))
        record = read_record(folder)
    assert record is not None
    return record


def _refuse_folder_of_runs(folder: Path) -> None:
    """Raise an error for a folder that holds runs and is none, with a command that works."""
    sweep = SweepFolder(folder)
    if sweep.exists:
        what, planned = "a sweep's folder", map(sweep.run, sweep.read()[0].runs)
        runs = [run.path for run in planned if run.is_finished]
        if not runs:
            raise InputError(
                f"{folder} is {what}, and none of its runs is finished; go on with: {again(folder)}"
            )
    else:
        what, runs = "a folder of runs", finished_runs(folder)
    if runs:
        command = shlex.join(["wcdas", "report", *map(str, runs[:MOST])])
        raise InputError(f"{folder} is {what}; expected runs, such as: {command}")


def _measured_again(folder: Path) -> dict[str, Any]:
    """Measure a run without report.json, from its model and its data."""
    model = load(folder)
    dataset = dataset_for(model, folder, None, {})
    features, logits = run_split(model, dataset.test, workers=0)
    metrics = RunFolder(folder).read_metrics()
    found = predictions(model.calibrated(logits), dataset.test.labels)
    return measure(model.classifier.head, features, found, dataset, metrics)
