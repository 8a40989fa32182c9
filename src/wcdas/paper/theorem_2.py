"""Theorem 2: which root of the moments belongs to which family, and does its spread tell Δ?

A family fits a mixture exactly where α_n^{1/n^power} is the same for every n, so the power that
makes the roots of its own members constant belongs to it: the wrapped Cauchy has α_n = ρ^n, the
wrapped Normal α_n = ρ^{n²}.
"""

import torch
from matplotlib.figure import Figure
from scipy.stats import spearmanr
from torch import Tensor

from wcdas.circular import WrappedCauchy, WrappedNormal, least_square_error
from wcdas.paper.claim import Claim, Finding, Setting, Table, judge
from wcdas.paper.equations.mean_of_roots import TERMS, roots
from wcdas.paper.families import Family, spelled
from wcdas.paper.theorem_3 import uniform_moments
from wcdas.report.style import COLOURS, MARKERS, draw

Pairing = dict[Family, int]
MAIN_TEXT: Pairing = {WrappedNormal: 1, WrappedCauchy: 2}
APPENDIX: Pairing = {WrappedCauchy: 1, WrappedNormal: 2}
ORDERS = 10
IMAGES = 500


def log_moments(terms: int = ORDERS) -> Tensor:
    """log α_n of 55 classes, ρ_m evenly spread between every two of 0, 0.1 … 1; row by row."""
    edge = torch.linspace(0, 1, 11, dtype=torch.float64)
    low, high = torch.triu_indices(11, 11, 1)
    middle = (torch.arange(IMAGES, dtype=torch.float64) + 0.5) / IMAGES
    rho = edge[low][:, None] + (edge[high] - edge[low])[:, None] * middle
    n = torch.arange(1, terms + 1, dtype=torch.float64)
    log_kernels = rho.log()[..., None] * n.square()
    return log_kernels.logsumexp(1) - torch.tensor(float(IMAGES)).double().log()


def spread(logs: Tensor, power: int) -> Tensor:
    """SD over n of α_n^{1/n^power}, from log α_n."""
    n = torch.arange(1, logs.shape[-1] + 1, dtype=torch.float64)
    return torch.exp(logs / n**power).std(-1, correction=0)


def own_spread(family: Family, power: int) -> float:
    """The same for a member of the family itself: 0 where the power is the family's own."""
    member = family(torch.tensor(0.6, dtype=torch.float64))
    return float(spread(member.cosine_moment(torch.arange(1, ORDERS + 1)).log(), power))


def smallest_error(family: Family, logs: Tensor) -> Tensor:
    moments = logs.exp()
    return least_square_error(family.fit_moments(moments), moments)


def rank_correlation(family: Family, power: int, terms: int = ORDERS) -> float:
    logs = log_moments(terms)
    return float(spearmanr(spread(logs, power), smallest_error(family, logs)).statistic)


def _uniform_spread(power: int) -> float:
    return float(spread(uniform_moments(10_000).log(), power))


def check(setting: Setting, pairing: Pairing = MAIN_TEXT) -> Finding:
    """Are the exponents the families' own, and does Δ rise with the spread of the roots?"""
    own = {family: own_spread(family, power) for family, power in pairing.items()}
    ranks = {family: rank_correlation(family, power) for family, power in pairing.items()}
    right = max(own.values()) < 1e-10 and min(ranks.values()) > 0.5
    swapped = {family: 3 - power for family, power in pairing.items()}
    own_swapped = max(own_spread(family, power) for family, power in swapped.items())
    ranks_swapped = {family: rank_correlation(family, power) for family, power in swapped.items()}
    sentence = (
        f"{_told(pairing, own, ranks)}."
        + (
            ""
            if right
            else " Swapped, as in the appendix, they vanish, and the rank correlations are "
            + " and ".join(f"{rank:+.2f}" for rank in ranks_swapped.values())
            + "."
        )
        + f" All with {ORDERS} orders. Over all n the spread says nothing: the roots converge, so "
        f"for ρ_m uniform on [0, 1) it falls to {_uniform_spread(1):.3f} (1/n) and "
        f"{_uniform_spread(2):.3f} (1/n²) with 10,000 orders."
    )
    numbers = {f"rank correlation, {spelled(f)} with 1/n^{pairing[f]}": ranks[f] for f in pairing}
    numbers |= {
        f"rank correlation, {spelled(f)} with 1/n^{swapped[f]}": ranks_swapped[f] for f in swapped
    }
    return Finding(
        judge(right, own_swapped < 1e-10 and min(ranks_swapped.values()) > 0.5),
        sentence,
        numbers,
        (draw(setting.figures, "theorem-2", (9, 4), _paint),),
        (_table(), _best_and_mean()),
    )


def check_9(setting: Setting, pairing: Pairing = MAIN_TEXT) -> Finding:
    """Is Δ proportional to the spread? Then Δ ÷ SD is the same for every class."""
    logs = log_moments()
    ranges = {}
    for family, power in pairing.items():
        ratio = smallest_error(family, logs) / spread(logs, power)
        ranges[spelled(family)] = float(ratio.max() / ratio.min())
    return Finding(
        judge(max(ranges.values()) < 1.1),
        "Over 55 classes the ratio of Δ to the spread varies by a factor of "
        + " and ".join(f"{r:.1e} for {name}" for name, r in ranges.items())
        + "; it would be constant. The main text also leaves out the 1/M of the mean.",
        {f"largest ÷ smallest Δ/SD, {name}": r for name, r in ranges.items()},
    )


def _told(pairing: Pairing, own: dict[Family, float], ranks: dict[Family, float]) -> str:
    return "; ".join(
        f"The {spelled(family)} with the root 1/n{'²' if power == 2 else ''}: the roots of its own "
        f"members spread by {own[family]:.3g}, rank correlation of spread and Δ over 55 classes "
        f"{ranks[family]:+.2f}"
        for family, power in pairing.items()
    )


def _best_and_mean() -> Table:
    """The exact ρ of the least error beside the mean of the roots, for ρ_m uniform on [0, 1)."""
    moments = uniform_moments()
    rows = []
    for family, power in APPENDIX.items():
        exact = float(family.fit_moments(moments).concentration)
        means = [float(roots(moments[:terms], power).mean()) for terms in TERMS]
        cells = (f"{mean:.4f} ({mean - exact:+.4f})" for mean in means)
        rows.append((spelled(family), f"{exact:.6f}", *cells))
    return Table(
        "ρ_m uniform on [0, 1): the exact ρ_min, and the mean of the roots with its gap to it",
        ("family", "exact ρ_min", *(f"{terms:,} roots" for terms in TERMS)),
        tuple(rows),
    )


def _table() -> Table:
    terms = (5, 10, 30, 100)
    rows = tuple(
        (
            spelled(family),
            f"1/n{'²' if power == 2 else ''}",
            f"{own_spread(family, power):.3g}",
            *(f"{rank_correlation(family, power, t):+.2f}" for t in terms),
        )
        for family in APPENDIX
        for power in (1, 2)
    )
    return Table(
        "Rank correlation of Δ with the spread of the roots, by the number of orders",
        ("family", "root", "spread for its own members", *(f"{t} orders" for t in terms)),
        rows,
    )


def _paint(figure: Figure) -> None:
    logs = log_moments()
    axes = figure.subplots(1, 2, sharey=True)
    for ax, pairing, title in (
        (axes[0], MAIN_TEXT, "as the main text pairs them"),
        (axes[1], APPENDIX, "as the appendix pairs them"),
    ):
        for i, family in enumerate((WrappedCauchy, WrappedNormal)):
            power = pairing[family]
            ax.plot(
                spread(logs, power),
                smallest_error(family, logs),
                MARKERS[i],
                color=COLOURS[i],
                fillstyle="none",
                zorder=3 - i,
                linestyle="none",
                label=f"{spelled(family)}, root 1/n{'²' if power == 2 else ''}",
            )
        ax.set(
            yscale="log",
            xlim=(0, 0.22),
            xticks=(0, 0.1, 0.2),
            xlabel="spread of the roots over n = 1 … 10",
            title=title,
        )
        ax.legend(loc="lower right")
    axes[0].set_ylabel("least-square error Δ")


CLAIMS = (
    Claim(
        "equation-9",
        "Section 3.2, Equation 9",
        "Δ_WN ∝ SD of (Σ_m ρ_m^(n²))^(1/n) and Δ_WC ∝ SD of (Σ_m ρ_m^(n²))^(1/n²).",
        "a second",
        check_9,
        "Δ/SD constant to 10 %",
    ),
    Claim(
        "theorem-2",
        "Section 3.2, Theorem 2",
        "The least-square error of the wrapped Normal goes with the spread over n of "
        "(Σ_m ρ_m^(n²))^(1/n), that of the wrapped Cauchy with (Σ_m ρ_m^(n²))^(1/n²).",
        "2 seconds",
        check,
        "roots of a family's own members constant to 1e-10; rank correlation above 0.5",
    ),
)
