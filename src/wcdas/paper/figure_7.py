"""Figure 7: ρ at the end of representation learning, wherever w_ρ started."""

from matplotlib.figure import Figure

from wcdas.paper.claim import Claim, Finding, Setting, Verdict, judge
from wcdas.paper.concentrations import (
    CIFAR_100,
    DIGITS,
    IMAGENET,
    REPRESENTATION,
    Groups,
    Place,
    bars,
    epochs,
    not_measured,
    tail_is_larger,
    trained,
)
from wcdas.report.style import draw

STARTS = (-2.0, -1.0, 0.0, 1.0, 2.0)
SIMILAR = 0.05


def check(
    setting: Setting,
    places: tuple[Place, ...] = (IMAGENET, CIFAR_100, DIGITS),
    starts: tuple[float, ...] = STARTS,
) -> Finding:
    found = trained(setting, places, [{"head.init": start} for start in starts])
    rest = not_measured("figure-7", places, found)
    if not found:
        return Finding(Verdict.NEEDS_DATA, rest.strip())
    place, variants = next(iter(found.items()))
    ends = {
        start: epochs(runs, REPRESENTATION)[-1]
        for start, runs in zip(starts, variants, strict=True)
    }
    verdict, sentence = judged(ends)

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        bars(axes, {f"{start:g}": groups for start, groups in ends.items()})
        axes.set_xlabel(r"value at which $w_\rho$ starts")
        axes.set_title(f"WCDAS on {place.name}, when representation learning ends")
        figure.legend(loc="outside lower center", ncols=3)

    return Finding(
        verdict if place.is_of_the_paper else Verdict.NEEDS_DATA,
        f"On {place.name}, {sentence}{rest}",
        {f"ρ of {g}, start {s:g}": v for s, groups in ends.items() for g, v in groups.items()},
        (draw(setting.figures, "figure-7", (7, 3.8), paint),),
    )


def judged(ends: dict[float, Groups]) -> tuple[Verdict, str]:
    """Whether every group ends alike from all starts, and has the paper's order from each."""
    groups = next(iter(ends.values()))
    spreads = {
        g: max(e[g] for e in ends.values()) - min(e[g] for e in ends.values()) for g in groups
    }
    widest = max(spreads, key=spreads.__getitem__)
    similar = spreads[widest] <= SIMILAR
    ordered = sum(tail_is_larger(end) for end in ends.values())
    sentence = (
        f"ρ from {len(ends)} starts differs at the end by up to {spreads[widest]:.3f} ({widest}), "
        f"which is {'within' if similar else 'more than'} {SIMILAR}; few > medium > many holds for "
        f"{ordered} of them."
    )
    return judge(similar and ordered == len(ends), similar), sentence


CLAIMS = (
    Claim(
        "figure-7",
        "Appendix B.3, Figure 7",
        "Wherever w_ρ starts, ρ converges to similar values, and few has a larger ρ than medium "
        "and medium than many.",
        "20 seconds in quick mode",
        check,
        f"{SIMILAR} between the starts",
    ),
)
