"""Does ρ know the label? The paper holds that classes with fewer images end with a larger ρ.

Spearman's correlation of ρ with the number of training images is taken run by run, beside where
the run's s started: the sign goes with it. A run decides if it trains as the paper does, wherever s
starts; what else is trained, such as the digits, is shown and decides nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import cycle
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from wcdas.paper.claim import Finding, Setting, Table, Verdict, judge
from wcdas.paper.concentrations import (
    AS_IN_THE_PAPER,
    BOTH,
    CONDITIONS,
    GIVEN,
    REPRESENTATION,
    runs_for,
)
from wcdas.paper.ended import LEVEL, Correlation, Ended, read_ended
from wcdas.report import COLOURS, MARKERS, draw

STARTS: list[float] = GIVEN["starts_of_s"]
NEEDED = (
    " A run decides if it trains as the recipe paper-wcdas-DATA of its data does, wherever s "
    "starts, and one start tells nothing; `wcdas paper label-awareness --mode real --out DIR` "
    f"trains on CIFAR-100-LT from {len(STARTS) + 1} starts."
)
WHOSE = {-1: "the tail has the larger ρ", 1: "the head has the larger ρ", 0: "it is not clear"}

Groups = Mapping[str, Sequence[Ended]]  # runs by all that tells them apart but the start of s


def protocols() -> list[tuple[str, dict[str, Any]]]:
    """Return the conditions and their settings; the paper's own from several starts of s."""
    others = [(AS_IN_THE_PAPER, {"head.scale_init": start}) for start in STARTS]
    first, *rest = CONDITIONS.items()
    return [first, *others, *rest]


def groups_for(setting: Setting) -> Groups:
    """Return the runs that were named, else those of the first dataset that has them all."""
    groups: dict[str, list[Ended]] = defaultdict(list)
    for run in map(read_ended, setting.runs):
        groups[run.what].append(run)
    if not setting.runs:
        asked = protocols()
        found, _ = runs_for(setting, "label-awareness", [settings for _, settings in asked])
        for (name, _), runs in zip(asked, next(iter(found.values()), ()), strict=False):
            groups[name] += map(read_ended, runs)
    return groups


def by_start(runs: Iterable[Ended], stage: str = REPRESENTATION) -> dict[float, list[Correlation]]:
    found: dict[float, list[Correlation]] = {}
    for run in sorted(runs, key=lambda run: run.start):
        found.setdefault(run.start, []).extend([run.stages[stage]] if stage in run.stages else [])
    return found


def side(correlations: Iterable[Correlation]) -> int:
    """Return −1 where the tail has clearly the larger ρ in every run, 1 where the head has."""
    signs = {(1 if of.value > 0 else -1) if of.is_clear else 0 for of in correlations}
    return signs.pop() if len(signs) == 1 else 0


def judged(runs: Iterable[Ended]) -> Verdict:
    """Judge by the runs that decide whether the tail has the larger ρ from every start of s, or
    from some; one start tells nothing."""
    sides = [side(of) for of in by_start(run for run in runs if run.decides).values()]
    if len(sides) < 2 or not any(sides):
        return Verdict.NEEDS_DATA
    return judge(set(sides) == {-1}, -1 in sides)


def told(runs: Iterable[Ended]) -> str:
    """Return whose ρ is larger, by where s starts."""
    starts: dict[int, list[str]] = defaultdict(list)
    for start, of in by_start(runs).items():
        starts[side(of)].append(f"{start:g}")
    parts = (f"{WHOSE[which]} where s starts at {', '.join(at)}" for which, at in starts.items())
    return "; ".join(parts)


def label_awareness(setting: Setting) -> Finding:
    """Spearman's correlation of ρ with the class counts, run by run, beside where s starts."""
    groups = groups_for(setting)
    runs = [run for of in groups.values() for run in of]
    verdict = judged(runs)
    needed = NEEDED if verdict == Verdict.NEEDS_DATA else ""
    if not runs:
        return Finding(verdict, needed.strip())
    shown = [of for of in groups.values() if len(by_start(of)) > 1] or list(groups.values())
    sentences = " ".join(f"{of[0].what}: {told(of)}." for of in shown)
    deciding = sum(run.decides for run in runs) or "none"
    return Finding(
        verdict,
        f"When representation learning ends, {sentences} Of {len(runs)} runs {deciding} decide."
        f"{needed}",
        {
            f"{name}, s from {start:g}": fmean(one.value for one in correlations)
            for name, of in groups.items()
            for start, correlations in by_start(of).items()
        },
        (draw(setting.figures, "label-awareness", (7, 4.4), partial(_paint, groups=shown)),),
        (_table(groups),),
    )


def _table(groups: Groups) -> Table:
    rows = []
    for name, runs in groups.items():
        ends = [by_start(runs, stage) for stage in BOTH]
        for start in ends[0]:
            cells = (", ".join(map(str, of[start])) for of in ends)
            rows.append(("" if start > min(ends[0]) else name, f"{start:g}", *cells))
    return Table(
        "Spearman's correlation of ρ with the class count",
        ("", "s starts at", *(f"end of the {stage} stage" for stage in BOTH)),
        tuple(rows),
        "One number a run, in brackets where it is not clear, p ≥ "
        f"{LEVEL:g}. Negative: classes with fewer images have the larger ρ, as the paper says.",
    )


def _paint(figure: Figure, groups: Sequence[Sequence[Ended]]) -> None:
    axes = figure.subplots()
    axes.axhline(0, color="#888888", linewidth=0.8, linestyle="-")
    looks = zip(cycle(COLOURS), cycle(MARKERS), strict=True)
    for runs, (colour, marker) in zip(groups, looks, strict=False):
        ends = by_start(runs)
        for start, correlations in ends.items():
            for of in correlations:
                fill = colour if of.is_clear else "white"
                axes.plot(start, of.value, marker, color=colour, markerfacecolor=fill)
        means = [fmean(one.value for one in correlations) for correlations in ends.values()]
        axes.plot(list(ends), means, color=colour, label=runs[0].what, zorder=1)
    axes.set_title(f"one dot a run, hollow where p ≥ {LEVEL:g}; the line goes through their means")
    axes.set(xscale="log", xlabel="start of s", ylim=(-1.08, 1.08))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.set_ylabel("rank correlation of ρ with the class count\n← tail larger    head larger →")
    figure.legend(loc="outside lower center")
