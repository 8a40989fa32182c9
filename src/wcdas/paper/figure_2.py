"""Figure 2: both least-square errors, and which family they prefer, for ρ_m ~ N(μ_ρ, σ_ρ)."""

import math
from collections.abc import Callable

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from torch import Tensor
from torch.distributions import Normal

from wcdas.circular import WrappedCauchy, WrappedNormal, least_square_error
from wcdas.paper.claim import Claim, Finding, Setting, Table, judge
from wcdas.report.style import SEQUENTIAL, draw

VALUES = torch.arange(1, 10, dtype=torch.float64) / 10
TERMS = 100
OTHER_TERMS = (10, 1000, 4096)
Rule = Callable[[Tensor, Tensor], Tensor]


def printed_rule(mean: Tensor, spread: Tensor) -> Tensor:
    """Where the paper says that the wrapped Cauchy is preferred."""
    return spread > 0.1 + 1e-9


def check(setting: Setting, rule: Rule = printed_rule, terms: int = TERMS) -> Finding:
    """Compare a rule for the preferred family with the errors on the paper's grid."""
    cauchy, normal = errors(mixture_moments(terms))
    prefers_cauchy = cauchy < normal
    other = {t: preferred(mixture_moments(t)) for t in OTHER_TERMS}
    changed = sum(int((o != prefers_cauchy).sum()) for o in other.values())
    moved = preferred(mixture_moments(terms, clipped=False)) != prefers_cauchy
    spread, mean = torch.meshgrid(VALUES, VALUES, indexing="ij")
    wrong = rule(mean, spread) != prefers_cauchy
    numbers = {
        "terms of the series": terms,
        "cells in which the rule is wrong": int(wrong.sum()),
        "cells that change with the number of terms": changed,
        "cells that change when the mass at ρ = 1 is left out": int(moved.sum()),
    }
    cells = ", ".join(
        f"({m:g}, {s:g})" for m, s in zip(mean[wrong].tolist(), spread[wrong].tolist(), strict=True)
    )
    sentence = (
        f"With {terms} terms of the series the rule is right in {int((~wrong).sum())} of 81 cells"
        + (f"; it is wrong at (μ_ρ, σ_ρ) = {cells}" if cells else "")
        + ". The boundary depends on μ_ρ too. Clipping puts mass on ρ = 1, where the sum of "
        "squares grows with every term, but the map is "
        + ("the same" if changed == 0 else f"different in {changed} cells")
        + f" with {', '.join(f'{t:,}' for t in OTHER_TERMS)} terms; leaving that mass out changes "
        f"{int(moved.sum())} cells, {int(prefers_cauchy[moved].sum())} of them to the wrapped "
        "Normal."
    )
    nearly = int(wrong.sum()) <= 8 and changed == 0
    figure = draw(
        setting.figures,
        "figure-2",
        (11, 3.7),
        lambda f: _paint(f, terms, cauchy, normal, prefers_cauchy),
    )
    return Finding(
        judge(not wrong.any() and changed == 0, nearly),
        sentence,
        numbers,
        (figure,),
        (_table(prefers_cauchy),),
    )


def mixture_moments(terms: int, clipped: bool = True) -> Tensor:
    """α_n = E ρ^{n²} in shape [σ_ρ, μ_ρ, n], for ρ ~ N(μ_ρ, σ_ρ) clipped to [0, 1].

    With ρ = exp(−e^{2v}) the integrand is smooth in v at both ends, so equal steps of v suffice.
    """
    v = torch.linspace(math.log(1e-9), math.log(6.5), 2001, dtype=torch.float64)
    rho = torch.exp(-torch.exp(2 * v))
    law = Normal(VALUES[None, :, None], VALUES[:, None, None])
    weights = law.log_prob(rho).exp() * 2 * torch.exp(2 * v) * rho * (v[1] - v[0])
    at_one = 1 - law.cdf(torch.ones(1, dtype=torch.float64))
    at_zero = law.cdf(torch.zeros(1, dtype=torch.float64))
    kernels = WrappedNormal(rho.clamp(max=1 - 2**-53))
    inside = weights @ kernels.cosine_moment(torch.arange(1, terms + 1))
    return inside + at_one if clipped else inside / (1 - at_one - at_zero)


def errors(moments: Tensor) -> tuple[Tensor, Tensor]:
    """The least Δ of the wrapped Cauchy and of the wrapped Normal."""
    cauchy, normal = WrappedCauchy.fit_moments(moments), WrappedNormal.fit_moments(moments)
    return least_square_error(cauchy, moments), least_square_error(normal, moments)


def preferred(moments: Tensor) -> Tensor:
    cauchy, normal = errors(moments)
    return cauchy < normal


def _table(prefers_cauchy: Tensor) -> Table:
    rows = [
        (f"{spread:g}", *("C" if c else "N" for c in row.tolist()))
        for spread, row in zip(VALUES.tolist(), prefers_cauchy, strict=True)
    ]
    columns = ("σ_ρ \\ μ_ρ", *(f"{mean:g}" for mean in VALUES.tolist()))
    return Table("Preferred family: wrapped Cauchy (C) or wrapped Normal (N)", columns, tuple(rows))


def _paint(
    figure: Figure, terms: int, cauchy: Tensor, normal: Tensor, prefers_cauchy: Tensor
) -> None:
    axes = figure.subplots(1, 3, sharey=True)
    both = torch.stack([cauchy, normal]).log10()
    low, high = float(both.min()), float(both.max())
    for ax, values, title in (
        (axes[0], normal, "(a) wrapped Normal"),
        (axes[1], cauchy, "(b) wrapped Cauchy"),
    ):
        image = _map(ax, values.log10(), title, SEQUENTIAL, low, high)
    bar = figure.colorbar(image, ax=list(axes[:2]))
    bar.set_label(f"log₁₀ of the least-square error, {terms} terms")
    title = "(c) better fit: Cauchy (C), Normal (N)"
    _map(axes[2], prefers_cauchy.double(), title, "gray_r", -0.6, 1.6)
    for i, row in enumerate(prefers_cauchy.tolist()):
        for j, is_cauchy in enumerate(row):
            letter, colour = ("C", "white") if is_cauchy else ("N", "black")
            axes[2].text(VALUES[j], VALUES[i], letter, color=colour, ha="center", va="center")
    axes[2].tick_params(left=False)
    axes[0].set_ylabel("standard deviation of ρ")


def _map(ax: Axes, values: Tensor, title: str, colours: str, low: float, high: float) -> AxesImage:
    ax.set(xlabel="mean of ρ", title=title, xticks=VALUES.tolist(), yticks=VALUES.tolist())
    ax.spines[:].set_visible(False)
    return ax.imshow(
        values.numpy(),
        origin="lower",
        extent=(0.05, 0.95, 0.05, 0.95),
        cmap=colours,
        vmin=low,
        vmax=high,
    )


CLAIMS = (
    Claim(
        "figure-2",
        "Section 3.2, Figure 2",
        "For ρ_m ~ N(μ_ρ, σ_ρ), clipped, the wrapped Normal is preferred when σ_ρ ≤ 0.1, otherwise "
        "the wrapped Cauchy.",
        "5 seconds",
        check,
        "every cell of the 9 × 9 grid; corrected if at most a tenth differ",
    ),
)
