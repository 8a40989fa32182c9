"""ρ of trained WCDAS heads, by group over the epochs: Figures 4, 5 and 7."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from wcdas.paper.claim import Finding, Setting, Verdict, judge
from wcdas.paper.runs import STAND_IN, finished_runs, protocol, read_toml, train
from wcdas.report import COLOURS, HATCHES, draw
from wcdas.run import RunFolder

GROUPS = {"few": "few (< 20 images)", "medium": "medium (20 to 100)", "many": "many (> 100)"}
REPRESENTATION, CLASSIFIER = BOTH = ("representation", "classifier")

Groups = dict[str, float]
Runs = list[Path]  # of one protocol, by seed


@dataclass(frozen=True)
class Dataset:
    """What WCDAS is trained on, and for how long if not by its recipe."""

    name: str
    data: str
    imbalance: float | None = None
    epochs: int | None = None

    @property
    def is_of_the_paper(self) -> bool:
        return self.data != STAND_IN


GIVEN = read_toml("concentrations.toml")
DATASETS = {name: Dataset(name, **of) for name, of in GIVEN["datasets"].items()}
SHOWN_IN = {claim: [DATASETS[name] for name in names] for claim, names in GIVEN["shown_in"].items()}
CONDITIONS: dict[str, dict[str, Any]] = GIVEN["conditions"]
AS_IN_THE_PAPER, *_ = CONDITIONS


def runs_for(
    setting: Setting, claim: str, variants: Collection[Mapping[str, Any]] = ({},)
) -> tuple[dict[Dataset, list[Runs]], str]:
    """Return the runs of every variant on the datasets that have them all, and in words which of
    the paper's are missing and what trains on them."""
    wanted = {}
    for dataset in SHOWN_IN[claim]:
        own = {"stages.representation.epochs": dataset.epochs} if dataset.epochs else {}
        wanted[dataset] = [
            protocol("wcdas", dataset.data, dataset.imbalance, {**own, **v}) for v in variants
        ]
    train(setting, [(one, "wcdas") for protocols in wanted.values() for one in protocols])
    runs = {of: [finished_runs(setting, p, "wcdas") for p in wanted[of]] for of in wanted}
    found = {dataset: variants for dataset, variants in runs.items() if all(variants)}
    missing = [one for one in wanted if one.is_of_the_paper and one not in found]
    if not missing:
        return found, ""
    root = "" if all(one.imbalance for one in missing) else " --data-root IMAGES"
    return found, (
        f" Not measured: {'; '.join(one.name for one in missing)}. "
        f"`wcdas paper {claim} --mode real{root} --out DIR` trains on them."
    )


def _log(run: Path, stage: str) -> list[dict[str, Any]]:
    return [line for line in RunFolder(run).read_log() if line["stage"] == stage]


def epochs(runs: Runs, stage: str) -> list[Groups]:
    """Return the mean ρ of each group after each epoch of a stage, over the seeds."""
    logs = [[line["rho"] for line in _log(run, stage)] for run in runs]
    return [
        {group: fmean(line[group] for line in lines) for group in GROUPS if group in lines[0]}
        for lines in zip(*logs, strict=True)
    ]


def tail_is_larger(groups: Groups) -> bool:
    """Return whether few is above medium and medium above many, of the groups that there are."""
    values = [groups[group] for group in GROUPS if group in groups]
    return all(tail > head for tail, head in pairwise(values))


def told(groups: Groups) -> str:
    return ", ".join(f"{group} {groups[group]:.3f}" for group in GROUPS if group in groups)


def draw_bars(
    setting: Setting,
    name: str,
    size: tuple[float, float],
    groups: Mapping[str, Groups],
    title: str,
    xlabel: str = "",
) -> Path:
    """Draw three bars, few, medium and many, for each name, with their values above them."""

    def paint(figure: Figure) -> None:
        axes, width = figure.subplots(), 0.27
        for i, (group, words) in enumerate(GROUPS.items()):
            bars = {x: of[group] for x, of in enumerate(groups.values()) if group in of}
            places = [x + (i - 1) * width for x in bars]
            colour, hatch = ("#555555", "#56B4E9", "white")[i], ("", HATCHES[1], "")[i]
            look: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": COLOURS[0]}
            heights = list(bars.values())
            drawn = axes.bar(places, heights, width, label=words, linewidth=0.8, **look)
            axes.bar_label(drawn, fmt="%.2f", fontsize=7, padding=1)
        axes.set_xticks(range(len(groups)), list(groups))
        axes.set(ylim=(0.0, 1.0), ylabel="mean ρ of the classes", title=title, xlabel=xlabel)
        figure.legend(loc="outside lower center", ncols=3)

    return draw(setting.figures, name, size, paint)


def figure_4(setting: Setting) -> Finding:
    """At the first of the datasets that has runs; only the paper's own data decides."""
    found, rest = runs_for(setting, "figure-4")
    if not found:
        return Finding(Verdict.NEEDS_DATA, rest.strip())
    dataset, (runs,) = next(iter(found.items()))
    first, second = epochs(runs, REPRESENTATION), epochs(runs, CLASSIFIER)
    shares = (10 / 90, 40 / 90, 1.0)  # of the epochs: the paper's 10th, 40th and 90th
    numbers = [max(1, round(share * len(first))) for share in shares]
    shown = {f"epoch {n}": first[n - 1] for n in numbers}
    verdict, sentence = judged_4(list(shown.values()), second[-1])
    shown[f"classifier, epoch {len(second)}"] = second[-1]
    title = f"WCDAS on {dataset.name}: representation learning, then the classifier alone"
    return Finding(
        verdict if dataset.is_of_the_paper else Verdict.NEEDS_DATA,
        f"On {dataset.name}, {sentence}{rest}",
        {f"ρ of {g}, {when}": v for when, groups in shown.items() for g, v in groups.items()},
        (draw_bars(setting, "figure-4", (7, 3.6), shown, title),),
    )


def judged_4(during: list[Groups], after: Groups) -> tuple[Verdict, str]:
    """ρ grows, the tail's is larger when representation learning ends, and then they approach."""
    last = during[-1]
    grows = all(later[g] > sooner[g] for sooner, later in pairwise(during) for g in last)
    larger = tail_is_larger(last)
    tail, *_, head = last
    gap, gap_after = last[tail] - last[head], after[tail] - after[head]
    approach = abs(gap_after) < abs(gap)
    sentence = (
        f"ρ {'grows' if grows else 'does not grow'} in every group from one shown epoch to the "
        f"next; representation learning ends at {told(last)}, so the tail "
        f"{'has' if larger else 'does not have'} the larger ρ; the difference between {tail} and "
        f"{head} {'shrinks' if approach else 'does not shrink'} in the classifier stage, from "
        f"{gap:+.3f} to {gap_after:+.3f}."
    )
    return judge(grows and larger and approach, corrected=larger), sentence


def figure_5(setting: Setting) -> Finding:
    """On every dataset that has runs; only the paper's own decide."""
    found, rest = runs_for(setting, "figure-5")
    if not found:
        return Finding(Verdict.NEEDS_DATA, rest.strip())
    ends = {dataset: epochs(runs, REPRESENTATION)[-1] for dataset, (runs,) in found.items()}
    sentence = "When representation learning ends: " + "; ".join(
        f"{dataset.name}: {told(groups)}, so the tail "
        f"{'has' if tail_is_larger(groups) else 'does not have'} the larger ρ"
        for dataset, groups in ends.items()
    )
    shown = {dataset.name.replace(", ", ",\n"): groups for dataset, groups in ends.items()}
    size, title = (max(6.0, 1.9 * len(ends)), 3.6), "WCDAS when representation learning ends"
    return Finding(
        judged_5([groups for dataset, groups in ends.items() if dataset.is_of_the_paper]),
        f"{sentence}.{rest}",
        {f"ρ of {g}, {of.name}": v for of, groups in ends.items() for g, v in groups.items()},
        (draw_bars(setting, "figure-5", size, shown, title),),
    )


def judged_5(ends: list[Groups]) -> Verdict:
    """Judge by the paper's datasets alone."""
    larger = [tail_is_larger(groups) for groups in ends]
    return judge(all(larger), any(larger)) if larger else Verdict.NEEDS_DATA


STARTS = (-2.0, -1.0, 0.0, 1.0, 2.0)
SIMILAR = 0.05


def figure_7(setting: Setting) -> Finding:
    """From every start of w_ρ, at the first of the datasets that has runs from all."""
    found, rest = runs_for(setting, "figure-7", [{"head.init": start} for start in STARTS])
    if not found:
        return Finding(Verdict.NEEDS_DATA, rest.strip())
    dataset, variants = next(iter(found.items()))
    last = [epochs(runs, REPRESENTATION)[-1] for runs in variants]
    ends = {f"{start:g}": groups for start, groups in zip(STARTS, last, strict=True)}
    verdict, sentence = judged_7(last)
    title = f"WCDAS on {dataset.name}, when representation learning ends"
    xlabel = r"value at which $w_\rho$ starts"
    return Finding(
        verdict if dataset.is_of_the_paper else Verdict.NEEDS_DATA,
        f"On {dataset.name}, {sentence}{rest}",
        {f"ρ of {g}, start {start}": v for start, of in ends.items() for g, v in of.items()},
        (draw_bars(setting, "figure-7", (7, 3.8), ends, title, xlabel),),
    )


def judged_7(ends: list[Groups]) -> tuple[Verdict, str]:
    """Judge whether every group ends alike from all starts, and has the paper's order from each."""
    spreads = {g: max(end[g] for end in ends) - min(end[g] for end in ends) for g in ends[0]}
    widest = max(spreads, key=spreads.__getitem__)
    similar = spreads[widest] <= SIMILAR
    ordered = sum(map(tail_is_larger, ends))
    sentence = (
        f"ρ from {len(ends)} starts differs at the end by up to {spreads[widest]:.3f} ({widest}), "
        f"which is {'within' if similar else 'more than'} {SIMILAR}; few > medium > many holds for "
        f"{ordered} of them."
    )
    return judge(similar and ordered == len(ends), similar), sentence
