"""Theorem 1: kernels scattered around 0 as kernels at 0, and what that costs as they scatter more.

With centres μ_m ~ N(c, σ) the expected mixture is again one of wrapped Normals, because
E cos nμ = e^{−n²σ²/2} cos nc:

    E f_mixed = (1/2πM) Σ_m (1 + 2 Σ_n (ρ_m e^{−σ²/2})^{n²} cos n(θ − c))
"""

import math

import torch
from matplotlib.figure import Figure
from torch import Tensor

from wcdas.circular import WrappedNormal
from wcdas.paper.circle import angles, integral
from wcdas.paper.claim import Claim, Finding, Setting, Table, judge
from wcdas.paper.identity import TOLERANCE_TEXT, identity
from wcdas.report.style import draw

KERNELS = (0.2, 0.5, 0.8, 0.9)
SPREADS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
SHOWN = (0.5, 0.9, 0.99, 0.999)


def scattered(rho: Tensor, spread: float, centre: float = 0.0) -> Tensor:
    """The expected mixture, by quadrature over the centres μ_m."""
    z = torch.linspace(-9, 9, 721, dtype=torch.float64)
    weights = torch.exp(-z.square() / 2)
    kernels = WrappedNormal(rho[:, None, None], centre + spread * z[:, None])
    return torch.cat(
        [(weights / weights.sum()) @ kernels.prob(part).mean(0) for part in angles(512).split(128)]
    )


def centred(rho: Tensor) -> Tensor:
    """The right side of Equation 5: all kernels at 0."""
    return WrappedNormal(rho[:, None]).prob(angles(512)).mean(0)


def relative_error(rho: Tensor, spread: float, centre: float = 0.0) -> float:
    """‖E f_mixed − approximation‖ / ‖approximation‖."""
    exact, approximate = scattered(rho, spread, centre), centred(rho)
    squares = [integral(v.square()) for v in (exact - approximate, approximate)]
    return math.sqrt(float(squares[0] / squares[1]))


def cost(rho: float, spread: Tensor) -> Tensor:
    """The same for one kernel, in closed form from the moments."""
    n = torch.arange(1, 400, dtype=torch.float64)
    moments = rho ** n.square()
    lost = -torch.expm1(-(n * spread[:, None]).square() / 2)
    return ((moments * lost).square().sum(1) / (0.5 + moments.square().sum())).sqrt()


def check(setting: Setting, centre: float = 0.0) -> Finding:
    """Does the error vanish as σ → 0, and how fast, when μ_m ~ N(centre, σ)?"""
    rho = torch.tensor(KERNELS, dtype=torch.float64)
    errors = {sigma: relative_error(rho, sigma, centre) for sigma in (0.02, 0.01)}
    order = math.log2(errors[0.02] / errors[0.01])
    spread = torch.tensor(SPREADS, dtype=torch.float64)
    rows = tuple(
        (f"{sigma:g}", *(f"{100 * float(cost(r, spread)[i]):.3g} %" for r in SHOWN))
        for i, sigma in enumerate(SPREADS)
    )
    one_percent = {r: _spread_of(r, 0.01) for r in SHOWN}
    sentence = (
        f"With σ halved from 0.02 to 0.01 the error falls from {100 * errors[0.02]:.3g} % to "
        f"{100 * errors[0.01]:.3g} %, order {order:.2f} in σ. The expected mixture is the "
        "approximation with ρ_m·exp(−σ²/2) for ρ_m, so the cost depends on how narrow the kernels "
        "are: it reaches 1 % at "
        + ", ".join(f"σ = {s:.3g} for ρ = {r:g}" for r, s in one_percent.items())
        + "."
    )
    numbers = {
        "order in σ": order,
        "relative error at σ = 0.01": errors[0.01],
        **{f"σ of 1 % error, ρ = {r:g}": s for r, s in one_percent.items()},
    }
    return Finding(
        judge(order > 1.9 and errors[0.01] < 0.01),
        sentence,
        numbers,
        (draw(setting.figures, "theorem-1", (6, 4), _paint),),
        (
            Table(
                "Relative error of the density by the spread σ of the centres (radians)",
                ("σ", *(f"ρ = {r:g}" for r in SHOWN)),
                rows,
            ),
        ),
    )


def check_5(setting: Setting, spread: float = 1e-3) -> Finding:
    """The approximation at a small σ."""
    error = relative_error(torch.tensor(KERNELS, dtype=torch.float64), spread)
    return Finding(
        judge(error < 1e-3),
        f"At σ = {spread:g} both sides differ by {error:.1e} of the norm.",
        {"relative error": error},
    )


def check_21(setting: Setting, spread: float = 0.3) -> Finding:
    """The same with an equals sign, at a σ that is not 0."""
    rho = torch.tensor(KERNELS, dtype=torch.float64)
    return identity(
        centred(rho),
        scattered(rho, spread),
        f"At σ = {spread:g}",
        centred(rho * math.exp(-(spread**2) / 2)),
        "With ρ_m·exp(−σ²/2) in place of ρ_m it is an equality of the expected mixture",
    )


def _spread_of(rho: float, error: float) -> float:
    spread = torch.logspace(-4, 0, 4001, dtype=torch.float64)
    return float(spread[int((cost(rho, spread) < error).sum())])


def _paint(figure: Figure) -> None:
    axes = figure.subplots()
    spread = torch.logspace(-3, 0.3, 200, dtype=torch.float64)
    for rho in SHOWN:
        axes.plot(spread, 100 * cost(rho, spread), label=f"kernels of ρ = {rho:g}")
    axes.axhline(1, color="0.5", linestyle="-", linewidth=0.8)
    axes.set(
        xscale="log",
        yscale="log",
        ylim=(1e-5, 200),
        xlabel="spread σ of the kernels' centres (radians)",
        ylabel="relative error of the density (%)",
    )
    axes.legend(loc="lower right")


CLAIMS = (
    Claim(
        "equation-5",
        "Section 3.1, Equation 5",
        "f_mixed ∼ (1/2πM) Σ_m (1 + 2 Σ_n ρ_m^(n²) cos nθ) when σ → 0.",
        "a second",
        check_5,
        "0.1 % of the norm at σ = 0.001",
    ),
    Claim(
        "theorem-1",
        "Section 3.1, Theorem 1",
        "A mixture of wrapped Normals whose centres follow N(0, σ) can be approximated by one "
        "centred at 0 as σ → 0.",
        "a second",
        check,
        "order of the error in σ above 1.9",
    ),
    Claim(
        "equation-21",
        "Appendix A.1, Equation 21",
        "f_mixed = (1/2πM) Σ_m (1 + 2 Σ_n ρ_m^(n²) cos nθ), with an equals sign.",
        "a second",
        check_21,
        TOLERANCE_TEXT,
    ),
)
