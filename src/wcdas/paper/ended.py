"""How ρ goes with the number of training images where a run of WCDAS ends, and where its s started:
what the files of a run tell."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

import wcdas
from wcdas.errors import InputError
from wcdas.paper.concentrations import REPRESENTATION
from wcdas.paper.printed import recipe_of_the_paper
from wcdas.paper.runs import PROTOCOLS, STAND_IN
from wcdas.run import RunFolder

LEVEL = 0.05


@dataclass(frozen=True)
class Correlation:
    """Spearman's, of ρ with the class counts; negative where the tail has the larger ρ."""

    value: float
    p: float

    @property
    def is_clear(self) -> bool:
        return self.p < LEVEL

    def __str__(self) -> str:
        return f"{self.value:+.2f}" if self.is_clear else f"({self.value:+.2f})"


@dataclass(frozen=True)
class Ended:
    """What was trained, where s started, and the correlation at the end of each stage."""

    what: str
    start: float
    stages: Mapping[str, Correlation]
    decides: bool


def correlation(rho: Any, counts: Any) -> Correlation:
    return Correlation(*map(float, spearmanr(rho, counts)))


def read_ended(run: Path) -> Ended:
    table = RunFolder(run).read_run()
    counts, data = table["info"]["class_counts"], table["info"]["data"]
    imbalance = f", imbalance {data['imbalance']:g}" if "imbalance" in data else ""
    epochs = table["stages"][REPRESENTATION]["epochs"]
    return Ended(
        f"{table['data']['source']}{imbalance}, {table['backbone']['name']}, "
        f"{epochs} epoch{'s' * (epochs != 1)}",
        start_of_s(run),
        {stage: correlation(rho, counts) for stage, rho in rho_by_stage(run).items()},
        trains_as_the_paper(table),
    )


def rho_by_stage(run: Path) -> dict[str, list[float]]:
    """Return ρ of every class at the end of each stage; nothing of a run that cannot tell."""
    folder = RunFolder(run)
    table = folder.read_run()
    ends = {line["stage"]: line.get("rho_by_class", []) for line in folder.read_log()}
    differ = all(len(set(values)) > 1 for values in (table["info"]["class_counts"], *ends.values()))
    return ends if table["head"]["name"] == "wcdas" and REPRESENTATION in ends and differ else {}


def start_of_s(run: Path) -> float:
    """Return s of a new head like the run's, to three digits."""
    head, options = wcdas.load(run, device="cpu").classifier.head, RunFolder(run).read_run()["head"]
    new: Any = wcdas.create_head(
        in_features=head.in_features, num_classes=head.num_classes, **options
    )
    return float(f"{new.scale.item():.3g}")


def trains_as_the_paper(table: Mapping[str, Any]) -> bool:
    """Return whether network, head and first stage of a run are the paper's, but for s."""
    data = table["data"]["source"]
    if data == STAND_IN or data not in PROTOCOLS:
        return False
    paper = recipe_of_the_paper(data)
    first = json.loads(json.dumps(asdict(paper.stages[REPRESENTATION])))  # tuples become lists
    return (
        table["backbone"]["name"] == paper.backbone.name
        and _but_for_s(table["head"]) == _but_for_s(paper.head)
        and all(first[key] == value for key, value in table["stages"][REPRESENTATION].items())
    )


def _but_for_s(head: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in head.items() if key not in ("scale", "scale_init")}


def find_runs(folders: Iterable[str | Path]) -> tuple[Path, ...]:
    """Return the finished runs in folders that tell how ρ goes with the class counts."""
    found: dict[Path, None] = {}
    for folder in folders:
        runs = [path.parent for path in sorted(Path(folder).rglob("run.toml"))]
        able = [run for run in runs if RunFolder(run).is_finished and rho_by_stage(run)]
        if not able:
            raise InputError(
                f"--runs is {folder}, which holds no finished run of wcdas with a ρ for every "
                "class of a long tail; expected a folder of runs of wcdas train --method wcdas"
            )
        found |= dict.fromkeys(able)
    return tuple(found)
