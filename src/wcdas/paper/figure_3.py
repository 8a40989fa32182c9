"""Figure 3: the gradient of the wrapped Cauchy density in ρ."""

import math

import torch
from matplotlib.figure import Figure
from torch import Tensor

from wcdas.circular import WrappedCauchy
from wcdas.paper.claim import Claim, Finding, Setting, judge
from wcdas.report.style import COLOURS, DIVERGING, draw

CONCENTRATIONS = (0.2, 0.4, 0.6, 0.8)
DEGREES = (0.0, 15.0, 30.0, 60.0, 120.0)


def gradient(rho: Tensor, angle: Tensor) -> Tensor:
    """∂f/∂ρ by automatic differentiation of the density."""
    rho = rho.detach().double().requires_grad_()
    (derivative,) = torch.autograd.grad(WrappedCauchy(rho).prob(angle.double()).sum(), rho)
    return derivative


def check(setting: Setting, near: float = 1.0, far: float = 90.0) -> Finding:
    """Is ∂f/∂ρ positive at `near` degrees and negative at `far`, and larger nearer to 0?"""
    rho = torch.linspace(0.01, 0.9, 90, dtype=torch.float64)
    at = [gradient(rho, torch.full_like(rho, math.radians(d))) for d in (near, far)]
    signs = bool((at[0] > 0).all() and (at[1] < 0).all())
    zero = _zero(rho)
    boundary = float(gradient(rho, zero).abs().max())
    at_zero = gradient(rho, torch.zeros_like(rho))
    grows = bool((at_zero > at[0]).all() and (at[0] > at[1]).all())
    sentence = (
        f"For ρ from 0.01 to 0.9 the gradient is {'positive' if (at[0] > 0).all() else 'mixed'} at "
        f"{near:g}° and {'negative' if (at[1] < 0).all() else 'mixed'} at {far:g}°, and grows "
        f"towards 0°, up to {float(at_zero.max()):.1f} at ρ = 0.9. It changes sign at "
        f"cos θ = 2ρ/(1 + ρ²): {math.degrees(float(_zero(torch.tensor(0.2)))):.0f}° for ρ = 0.2, "
        f"{math.degrees(float(_zero(torch.tensor(0.8)))):.0f}° for ρ = 0.8."
    )
    numbers = {
        "gradient at 0° and ρ = 0.9": float(at_zero[-1]),
        "largest |gradient| on cos θ = 2ρ/(1 + ρ²)": boundary,
    }
    figure = draw(setting.figures, "figure-3", (11, 3.6), _paint)
    return Finding(judge(signs and grows and boundary < 1e-10), sentence, numbers, (figure,))


def _zero(rho: Tensor) -> Tensor:
    """The angle at which ∂f/∂ρ = 0."""
    return torch.acos(2 * rho / (1 + rho.square()))


def _paint(figure: Figure) -> None:
    surface, along_rho, along_angle = figure.subplots(1, 3, width_ratios=(1.25, 1, 1))
    rho = torch.linspace(0, 0.9, 181, dtype=torch.float64)
    degrees = torch.linspace(-180, 180, 361, dtype=torch.float64)
    values = gradient(rho.expand(361, 181), torch.deg2rad(degrees)[:, None])
    mesh = surface.pcolormesh(
        rho.numpy(),
        degrees.numpy(),
        values.numpy(),
        cmap=DIVERGING,
        vmin=-2,
        vmax=2,
        rasterized=True,
    )
    for sign in (-1, 1):
        surface.plot(rho, sign * torch.rad2deg(_zero(rho)), color=COLOURS[0], linestyle="--")
    surface.annotate("positive", (0.03, 0), va="center")
    for height in (-120, 120):
        surface.annotate("negative", (0.45, height), ha="center", va="center")
    surface.set(
        xlabel="concentration ρ",
        ylabel="angle θ (degrees)",
        yticks=range(-180, 181, 90),
        title="(a) gradient of the density in ρ",
    )
    bar = figure.colorbar(mesh, ax=surface, extend="both")
    bar.set_label("gradient ∂f/∂ρ; dashed: zero")
    for degree in DEGREES:
        line = gradient(rho, torch.full_like(rho, math.radians(degree)))
        along_rho.plot(rho, line, label=f"{degree:.0f}°")
    for value in CONCENTRATIONS:
        line = gradient(torch.full_like(degrees, value), torch.deg2rad(degrees))
        along_angle.plot(degrees, line, label=f"ρ = {value:g}")
    along_rho.set(
        xlabel="concentration ρ",
        ylabel="gradient ∂f/∂ρ",
        ylim=(-2, 4),
        title="(b) along ρ, at five angles",
    )
    along_angle.set(
        xlabel="angle θ (degrees)",
        ylabel="gradient ∂f/∂ρ",
        xticks=range(-180, 181, 90),
        ylim=(-2, 8.5),
        title="(c) along the angle, for four ρ",
    )
    along_rho.legend(loc="upper left")
    along_angle.legend(loc="upper left")


CLAIMS = (
    Claim(
        "figure-3",
        "Section 3.3, Figure 3",
        "∂f/∂ρ is negative when θ is away from 0, positive around 0, and grows there.",
        "a second",
        check,
        "signs on 90 values of ρ; zero to 1e-10",
    ),
)
