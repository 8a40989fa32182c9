"""Figure 4: mean ρ of few, medium and many at several epochs, and after the classifier stage."""

from itertools import pairwise

from matplotlib.figure import Figure

from wcdas.paper.claim import Claim, Finding, Setting, Verdict, judge
from wcdas.paper.concentrations import (
    CIFAR_100,
    CLASSIFIER,
    DIGITS,
    IMAGENET,
    REPRESENTATION,
    Groups,
    Place,
    bars,
    epochs,
    not_measured,
    tail_is_larger,
    told,
    trained,
)
from wcdas.report.style import draw

SHARES = (10 / 90, 40 / 90, 1.0)  # of the epochs: the paper's 10th, 40th and 90th


def check(setting: Setting, places: tuple[Place, ...] = (IMAGENET, CIFAR_100, DIGITS)) -> Finding:
    """At the first of the places that has runs; only the paper's own data decides."""
    found = trained(setting, places)
    rest = not_measured("figure-4", places, found)
    if not found:
        return Finding(Verdict.NEEDS_DATA, rest.strip())
    place, (runs,) = next(iter(found.items()))
    first, second = epochs(runs, REPRESENTATION), epochs(runs, CLASSIFIER)
    shown = {
        f"epoch {n}": first[n - 1] for n in (max(1, round(share * len(first))) for share in SHARES)
    }
    bars_shown = shown | {f"classifier, epoch {len(second)}": second[-1]}
    verdict, sentence = judged(list(shown.values()), second[-1])

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        bars(axes, bars_shown)
        axes.set_title(f"WCDAS on {place.name}: representation learning, then the classifier alone")
        figure.legend(loc="outside lower center", ncols=3)

    return Finding(
        verdict if place.is_of_the_paper else Verdict.NEEDS_DATA,
        f"On {place.name}, {sentence}{rest}",
        {f"ρ of {g}, {when}": v for when, groups in bars_shown.items() for g, v in groups.items()},
        (draw(setting.figures, "figure-4", (7, 3.6), paint),),
    )


def judged(during: list[Groups], after: Groups) -> tuple[Verdict, str]:
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


CLAIMS = (
    Claim(
        "figure-4",
        "Section 4.3, Figure 4",
        "On ImageNet-LT ρ grows with the epochs, few has a larger ρ than medium and medium than "
        "many in representation learning, and the classifier stage makes the difference smaller.",
        "10 seconds in quick mode",
        check,
        "none: means are compared",
    ),
)
