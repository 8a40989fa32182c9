"""ρ of trained WCDAS heads: by group over the epochs, and of every class when a stage ended."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from wcdas.data import TAILED
from wcdas.paper.claim import Setting
from wcdas.paper.tables.protocols import STAND_IN, protocol
from wcdas.paper.tables.training import run_folders, train
from wcdas.report.style import COLOURS, HATCHES
from wcdas.run.folder import RunFolder

GROUPS = ("few", "medium", "many")
IN_WORDS = {
    "few": "few (< 20 images)",
    "medium": "medium (20 to 100)",
    "many": "many (> 100)",
}
REPRESENTATION, CLASSIFIER = "representation", "classifier"

Groups = dict[str, float]


@dataclass(frozen=True)
class Place:
    """A dataset that WCDAS is trained on, what the paper calls it, and for how long if not by its
    recipe."""

    data: str
    imbalance: float | None = None
    label: str = ""
    epochs: int | None = None

    @property
    def is_of_the_paper(self) -> bool:
        return self.data != STAND_IN

    @property
    def name(self) -> str:
        return self.label or f"{self.data}, imbalance {self.imbalance:g}"

    @property
    def settings(self) -> dict[str, Any]:
        return {} if self.epochs is None else {"stages.representation.epochs": self.epochs}


IMAGENET = Place("imagenet-lt", label="ImageNet-LT")
INATURALIST = Place("inat2018", label="iNaturalist 2018")
CIFAR_100 = Place("cifar100-lt", 100, "CIFAR-100-LT, imbalance 100")
CIFAR_10 = Place("cifar10-lt", 100, "CIFAR-10-LT, imbalance 100")
# ρ moves slowly: more epochs than the tables have, as many as quick mode can afford.
DIGITS = Place(STAND_IN, 100, epochs=80)
MILDER_DIGITS = Place(STAND_IN, 10, epochs=80)


def trained(
    setting: Setting, places: Sequence[Place], variants: Sequence[Mapping[str, Any]] = ({},)
) -> dict[Place, list[list[RunFolder]]]:
    """The runs of every variant, by seed, at the places that have them all."""
    wanted = {
        place: [
            protocol("wcdas", place.data, place.imbalance, place.settings | dict(v))
            for v in variants
        ]
        for place in places
    }
    train(setting, [(one, "wcdas") for protocols in wanted.values() for one in protocols])
    runs = {
        place: [run_folders(setting, one, "wcdas") for one in protocols]
        for place, protocols in wanted.items()
    }
    return {place: found for place, found in runs.items() if all(found)}


def epochs(runs: Sequence[RunFolder], stage: str) -> list[Groups]:
    """The mean ρ of each group after each epoch of a stage, over the seeds."""
    logs = [[line["rho"] for line in run.read_log() if line["stage"] == stage] for run in runs]
    return [
        {group: fmean(line[group] for line in lines) for group in GROUPS if group in lines[0]}
        for lines in zip(*logs, strict=True)
    ]


def by_class(runs: Sequence[RunFolder], stage: str) -> NDArray[np.float64]:
    """ρ of every class at the end of a stage, over the seeds."""
    ends = [
        line["rho_by_class"]
        for run in runs
        for line in run.read_log()
        if line["stage"] == stage and "rho_by_class" in line
    ]
    rho: NDArray[np.float64] = np.asarray(ends, dtype=np.float64).mean(0)
    return rho


def class_counts(run: RunFolder) -> list[int]:
    counts: list[int] = run.read_run()["info"]["class_counts"]
    return counts


def tail_is_larger(groups: Groups) -> bool:
    """Few above medium above many, of the groups that there are."""
    values = [groups[group] for group in GROUPS if group in groups]
    return all(tail > head for tail, head in pairwise(values))


def bars(axes: Axes, groups: Mapping[str, Groups], lowest: float = 0.0) -> None:
    """Three bars, few, medium and many, for each name, with their values above them."""
    width = 0.27
    for i, group in enumerate(GROUPS):
        places = [x for x, values in enumerate(groups.values()) if group in values]
        heights = [values[group] for values in groups.values() if group in values]
        drawn = axes.bar(
            [x + (i - 1) * width for x in places],
            heights,
            width,
            label=IN_WORDS[group],
            color=("#555555", "#56B4E9", "white")[i],
            edgecolor=COLOURS[0],
            hatch=("", HATCHES[1], "")[i],
            linewidth=0.8,
        )
        axes.bar_label(drawn, fmt="%.2f", fontsize=7, padding=1)
    axes.set_xticks(range(len(groups)), list(groups))
    axes.set_ylim(lowest, 1.0)
    axes.set_ylabel("mean ρ of the classes")


def not_measured(claim: str, places: Sequence[Place], found: Iterable[Place]) -> str:
    """Which of the paper's datasets are missing, and the command that trains on them."""
    missing = [place for place in places if place.is_of_the_paper and place not in set(found)]
    if not missing:
        return ""
    root = "" if all(place.data in TAILED for place in missing) else " --data-root IMAGES"
    return (
        f" Not measured: {'; '.join(place.name for place in missing)}. "
        f"`wcdas paper {claim} --mode real{root} --out DIR` trains on them."
    )


def told(groups: Groups) -> str:
    return ", ".join(f"{group} {groups[group]:.3f}" for group in GROUPS if group in groups)
