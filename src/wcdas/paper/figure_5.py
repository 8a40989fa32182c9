"""Figure 5: mean ρ of few, medium and many on several datasets."""

from matplotlib.figure import Figure

from wcdas.paper.claim import Claim, Finding, Setting, Verdict, judge
from wcdas.paper.concentrations import (
    CIFAR_10,
    CIFAR_100,
    DIGITS,
    INATURALIST,
    MILDER_DIGITS,
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

PLACES = (CIFAR_100, CIFAR_10, INATURALIST, DIGITS, MILDER_DIGITS)


def check(setting: Setting, places: tuple[Place, ...] = PLACES) -> Finding:
    found = trained(setting, places)
    rest = not_measured("figure-5", places, found)
    if not found:
        return Finding(Verdict.NEEDS_DATA, rest.strip())
    ends = {place: epochs(runs, REPRESENTATION)[-1] for place, (runs,) in found.items()}

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        bars(axes, {place.name.replace(", ", ",\n"): groups for place, groups in ends.items()})
        axes.set_title("WCDAS when representation learning ends")
        figure.legend(loc="outside lower center", ncols=3)

    sentence = "When representation learning ends: " + "; ".join(
        f"{place.name}: {told(groups)}, so the tail "
        f"{'has' if tail_is_larger(groups) else 'does not have'} the larger ρ"
        for place, groups in ends.items()
    )
    return Finding(
        judged({place: groups for place, groups in ends.items() if place.is_of_the_paper}),
        f"{sentence}.{rest}",
        {f"ρ of {g}, {place.name}": v for place, groups in ends.items() for g, v in groups.items()},
        (draw(setting.figures, "figure-5", (max(6.0, 1.9 * len(ends)), 3.6), paint),),
    )


def judged(ends: dict[Place, Groups]) -> Verdict:
    """By the paper's datasets alone."""
    if not ends:
        return Verdict.NEEDS_DATA
    larger = [tail_is_larger(groups) for groups in ends.values()]
    return judge(all(larger), any(larger))


CLAIMS = (
    Claim(
        "figure-5",
        "Section 4.3, Figure 5",
        "On CIFAR-100-LT, CIFAR-10-LT and iNaturalist 2018 too, ρ depends on the class: it is "
        "larger for classes with fewer images.",
        "20 seconds in quick mode",
        check,
        "none: means are compared",
    ),
)
