"""Does ρ know the label? The rank correlation of ρ with the number of training images.

The paper holds that classes with fewer images end with a larger ρ. Here WCDAS is trained under its
protocol and with one thing changed at a time, and Spearman's correlation is taken at the end of
both stages.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import spearmanr, t

from wcdas.paper.claim import Claim, Finding, Setting, Table, Verdict, judge
from wcdas.paper.concentrations import (
    CIFAR_100,
    CLASSIFIER,
    DIGITS,
    REPRESENTATION,
    Place,
    by_class,
    class_counts,
    not_measured,
    trained,
)
from wcdas.report.style import COLOURS, MARKERS, draw
from wcdas.run.folder import RunFolder

LEVEL = 0.05
BOTH = (REPRESENTATION, CLASSIFIER)


def _in_both(key: str, value: Any) -> dict[str, Any]:
    return {f"stages.{stage}.{key}": value for stage in BOTH}


AS_IN_THE_PAPER = "the paper's protocol"
CONDITIONS: dict[str, Mapping[str, Any]] = {
    AS_IN_THE_PAPER: {},
    "no weight decay on w_ρ and s": _in_both("concentration_weight_decay", 0.0),
    "weight decay 0.0005 on w_ρ and s": _in_both("concentration_weight_decay", 5e-4),
    "weight decay 0.01 on w_ρ and s": _in_both("concentration_weight_decay", 1e-2),
    "weight decay 0.0005 on everything": _in_both("weight_decay", 5e-4),
    "stage 1: square-root sampler": {"stages.representation.sampler": "square-root"},
    "stage 1: class-balanced sampler": {"stages.representation.sampler": "class-balanced"},
    "stage 1: class prior in the loss": {"stages.representation.prior": 1.0},
    "w_ρ starts at −2": {"head.init": -2.0},
    "w_ρ starts at −1": {"head.init": -1.0},
    "w_ρ starts at 1": {"head.init": 1.0},
    "w_ρ starts at 2": {"head.init": 2.0},
}
SHOWN = (
    AS_IN_THE_PAPER,
    "stage 1: class-balanced sampler",
    "stage 1: class prior in the loss",
)


@dataclass(frozen=True)
class Correlation:
    """Spearman's, of ρ with the class counts; negative where the tail has the larger ρ."""

    value: float
    p: float

    @property
    def is_clear(self) -> bool:
        return self.p < LEVEL

    def __str__(self) -> str:
        return f"{self.value:+.2f} (p = {self.p:.2g})"


def check(
    setting: Setting,
    places: tuple[Place, ...] = (CIFAR_100, DIGITS),
    conditions: Mapping[str, Mapping[str, Any]] = CONDITIONS,
) -> Finding:
    found = trained(setting, places, list(conditions.values()))
    rest = not_measured("label-awareness", places, found)
    if not found:
        return Finding(Verdict.NEEDS_DATA, rest.strip())
    place, variants = next(iter(found.items()))
    runs = dict(zip(conditions, variants, strict=True))
    counts = class_counts(variants[0][0])
    correlations = {
        name: {stage: correlation(by_class(of, stage), counts) for stage in BOTH}
        for name, of in runs.items()
    }
    first = {name: of[REPRESENTATION] for name, of in correlations.items()}
    images = f"{place.name}: {len(counts)} classes, {counts[0]} to {min(counts)} images"
    return Finding(
        judged(first),
        f"{conclusion(first)} (At the end of representation learning, clear where p < {LEVEL:g}; "
        f"{images}.){rest}",
        {f"{name}, {stage}": of[stage].value for name, of in correlations.items() for stage in of},
        (
            draw(
                setting.figures,
                "label-awareness",
                (10, 4.4),
                lambda f: _paint(f, runs, correlations),
            ),
        ),
        (_table(correlations, images),),
    )


def correlation(rho: Any, counts: Any) -> Correlation:
    found = spearmanr(rho, counts)
    return Correlation(float(found.statistic), float(found.pvalue))


def judged(first: Mapping[str, Correlation]) -> Verdict:
    """Holds under every condition, or under the paper's own alone; else refuted, if anything is
    clear."""
    tail, head = _sides(first)
    if not tail and not head:
        return Verdict.NEEDS_DATA
    return judge(len(tail) == len(first), corrected=AS_IN_THE_PAPER in tail)


def conclusion(first: Mapping[str, Correlation]) -> str:
    tail, head = _sides(first)
    unclear = [name for name in first if name not in (*tail, *head)]
    known = {
        "tail": "ρ knows the label as the paper says: the fewer images, the larger ρ",
        "head": "ρ knows the label, but the other way round: the fewer images, the smaller ρ",
        "": "ρ shows no clear relation to the class count",
    }
    own = "tail" if AS_IN_THE_PAPER in tail else "head" if AS_IN_THE_PAPER in head else ""
    parts = [f"{known[own]}, {first[AS_IN_THE_PAPER]} under {AS_IN_THE_PAPER}."]
    for what, names in (
        ("The tail has clearly the larger ρ", tail),
        ("The head has clearly the larger ρ", head),
        ("Not clear", unclear),
    ):
        told = "; ".join(f"{name} {first[name].value:+.2f}" for name in names)
        parts.append(
            f"{what} under {len(names)} of {len(first)} conditions{': ' * bool(told)}{told}."
        )
    return " ".join(parts)


def _sides(first: Mapping[str, Correlation]) -> tuple[list[str], list[str]]:
    clear = {name: of.value for name, of in first.items() if of.is_clear}
    tail = [name for name, value in clear.items() if value < 0]
    return tail, [name for name in clear if name not in tail]


def _table(correlations: Mapping[str, Mapping[str, Correlation]], title: str) -> Table:
    rows = tuple((name, *(str(of[stage]) for stage in BOTH)) for name, of in correlations.items())
    columns = ("condition", *(f"end of the {stage} stage" for stage in BOTH))
    note = "Negative: classes with fewer images have the larger ρ, as the paper says."
    return Table(f"Spearman's correlation of ρ with the class count, {title}", columns, rows, note)


def _paint(
    figure: Figure,
    runs: Mapping[str, list[RunFolder]],
    correlations: Mapping[str, Mapping[str, Correlation]],
) -> None:
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.1))
    _scatter(left, runs)
    names = list(correlations)
    looks: tuple[dict[str, Any], ...] = (
        {"markersize": 5},
        {"markersize": 10, "markerfacecolor": "none"},
    )
    for stage, marker, look in zip(BOTH, MARKERS, looks, strict=False):
        values = [correlations[name][stage].value for name in names]
        label = f"end of the {stage} stage"
        right.plot(values, range(len(names)), marker, color=COLOURS[0], label=label, **look)
    unclear = _largest_unclear(len(class_counts(next(iter(runs.values()))[0])))
    right.axvspan(-unclear, unclear, color="#eeeeee", label=f"not clear, p ≥ {LEVEL:g}")
    right.axvline(0, color="#888888", linewidth=0.8, linestyle="-")
    right.set_yticks(range(len(names)), [_mathematical(name) for name in names])
    right.invert_yaxis()
    right.set_xlim(-1.08, 1.08)
    right.set_xlabel("rank correlation of ρ with the class count\n← tail larger    head larger →")
    right.grid(axis="y", alpha=0.3, linewidth=0.6)
    right.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0))


def _scatter(axes: Axes, runs: Mapping[str, list[RunFolder]]) -> None:
    for name, marker, colour in zip(SHOWN, MARKERS, COLOURS, strict=False):
        if name in runs:
            counts, rho = class_counts(runs[name][0]), by_class(runs[name], REPRESENTATION)
            style = f"{marker}:"
            axes.plot(counts, rho, style, color=colour, markersize=5, linewidth=0.8, label=name)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(0, 1)
    axes.set_xlabel("training images of the class")
    axes.set_ylabel("ρ when representation learning ends")
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0))


def _largest_unclear(classes: int) -> float:
    """The correlation whose p is the level, from r·√((C − 2)/(1 − r²)) ~ t with C − 2 degrees."""
    quantile = float(t.ppf(1 - LEVEL / 2, classes - 2))
    return quantile / math.sqrt(classes - 2 + quantile**2)


def _mathematical(name: str) -> str:
    return name.replace("w_ρ", r"$w_\rho$")


CLAIMS = (
    Claim(
        "label-awareness",
        "Sections 1, 4.3 and 5",
        "The concentrations are label-aware: classes with fewer training images end with a larger "
        "ρ.",
        "50 seconds in quick mode",
        check,
        f"a rank correlation is clear where p < {LEVEL:g}",
    ),
)
