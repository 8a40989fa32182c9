"""Sections 3 and 3.3: angular softmax, the density and its gradient in ρ, and Algorithm 1."""

import math

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from wcdas.circular import SymmetricWrappedStable, WrappedCauchy
from wcdas.heads import WCDASHead, create_head
from wcdas.paper.circle import angles, double
from wcdas.paper.claim import TOLERANCE, Finding, Setting, gap, identity, judge
from wcdas.report import COLOURS, DIVERGING, draw
from wcdas.rng import seeded

HEAD = "cosine"  # of the library, which computes Equations 1 and 2
SCALE = 16.0
EXPONENT = 1.0  # of the series that has the closed form of Equation 10
START = 1.5  # of w_ρ in Equation 13
NEAR, FAR = 1.0, 90.0  # degrees, around 0 and away from it
RHO = double(0.0, 0.3, 0.6, 0.9)[:, None]
THETA = angles(512)


def cosines(x: Tensor, w: Tensor) -> Tensor:
    """x·w/(‖x‖‖w‖)."""
    return x @ w.mT / (x.norm(dim=1, keepdim=True) * w.norm(dim=1))


def logits_and_cosines() -> tuple[Tensor, Tensor]:
    """Return the head's logits for random features, and the cosines behind them."""
    random = torch.Generator().manual_seed(0)
    head = create_head(HEAD, 8, 5, scale=SCALE).double()
    with torch.no_grad():
        head.weight.copy_(torch.randn(5, 8, generator=random))
        x = torch.randn(64, 8, generator=random, dtype=torch.float64)
        return head(x), cosines(x, head.weight)


def equation_1(setting: Setting) -> Finding:
    """The printed probabilities against the softmax of the head's logits."""
    logits, cosine = logits_and_cosines()
    powers = torch.exp(SCALE * cosine)
    printed = powers / powers.sum(1, keepdim=True)
    return identity(printed, logits.softmax(1), f"64 features, 5 classes, head {HEAD!r}")


def equation_2(setting: Setting) -> Finding:
    """s cos θ of random vectors against the head's logits."""
    logits, cosine = logits_and_cosines()
    return identity(SCALE * cosine, logits, f"64 features, 5 classes, head {HEAD!r}")


def density(rho: Tensor, cosine: Tensor) -> Tensor:
    """Return the right side of Equation 10."""
    return (1 - rho**2) / (2 * math.pi * (1 + rho**2 - 2 * rho * cosine))


def equation_10(setting: Setting) -> Finding:
    """The closed form against the series of Equation 3 with exponent a."""
    series = SymmetricWrappedStable(RHO.clamp(min=1e-12), EXPONENT).prob(THETA)
    closed = density(RHO, torch.cos(THETA))
    return identity(closed, series, f"Series with a = {EXPONENT:g}, ρ to 0.9")


def gradient(rho: Tensor, angle: Tensor) -> Tensor:
    """∂f/∂ρ by automatic differentiation of the density."""
    rho = rho.detach().double().requires_grad_()
    (derivative,) = torch.autograd.grad(WrappedCauchy(rho).prob(angle.double()).sum(), rho)
    return derivative


def equation_12(setting: Setting) -> Finding:
    """(−2ρ + (1 + ρ²) cos θ) / (π D²) against automatic differentiation."""
    cosine = torch.cos(THETA)
    numerator = -2 * RHO + (1 + RHO**2) * cosine
    printed = numerator / (math.pi * (1 + RHO**2 - 2 * RHO * cosine) ** 2)
    return identity(printed, gradient(RHO.expand(4, 512), THETA), "ρ to 0.9, 512 angles")


def zero(rho: Tensor) -> Tensor:
    """Return the angle at which ∂f/∂ρ = 0."""
    return torch.acos(2 * rho / (1 + rho.square()))


def figure_3(setting: Setting) -> Finding:
    """Is ∂f/∂ρ positive at 1° and negative at 90°, and larger nearer to 0?"""
    rho = torch.linspace(0.01, 0.9, 90, dtype=torch.float64)
    at_zero, near, far = (
        gradient(rho, torch.full_like(rho, math.radians(d))) for d in (0.0, NEAR, FAR)
    )
    positive, negative = bool((near > 0).all()), bool((far < 0).all())
    boundary = float(gradient(rho, zero(rho)).abs().max())
    grows = bool((at_zero > near).all() and (near > far).all())
    turns = [math.degrees(float(zero(torch.tensor(r)))) for r in (0.2, 0.8)]
    return Finding(
        judge(positive and negative and grows and boundary < 1e-10),
        f"For ρ from 0.01 to 0.9 the gradient is {'positive' if positive else 'mixed'} at "
        f"{NEAR:g}° and {'negative' if negative else 'mixed'} at {FAR:g}°, and grows towards 0°, "
        f"up to {float(at_zero.max()):.1f} at ρ = 0.9. It changes sign at cos θ = 2ρ/(1 + ρ²): "
        f"{turns[0]:.0f}° for ρ = 0.2, {turns[1]:.0f}° for ρ = 0.8.",
        {
            "gradient at 0° and ρ = 0.9": float(at_zero[-1]),
            "largest |gradient| on cos θ = 2ρ/(1 + ρ²)": boundary,
        },
        (draw(setting.figures, "figure-3", (11, 3.6), _paint_gradient),),
    )


def _paint_gradient(figure: Figure) -> None:
    surface, along_rho, along_angle = figure.subplots(1, 3, width_ratios=(1.25, 1, 1))
    rho = torch.linspace(0, 0.9, 181, dtype=torch.float64)
    degrees = torch.linspace(-180, 180, 361, dtype=torch.float64)
    values = gradient(rho.expand(361, 181), torch.deg2rad(degrees)[:, None]).numpy()
    look = {"cmap": DIVERGING, "vmin": -2, "vmax": 2, "rasterized": True}
    mesh = surface.pcolormesh(rho.numpy(), degrees.numpy(), values, **look)
    for sign in (-1, 1):
        surface.plot(rho, sign * torch.rad2deg(zero(rho)), color=COLOURS[0], linestyle="--")
    surface.annotate("positive", (0.03, 0), va="center")
    for height in (-120, 120):
        surface.annotate("negative", (0.45, height), ha="center", va="center")
    surface.set(xlabel="concentration ρ", title="(a) gradient of the density in ρ")
    surface.set(ylabel="angle θ (degrees)", yticks=range(-180, 181, 90))
    figure.colorbar(mesh, ax=surface, extend="both").set_label("gradient ∂f/∂ρ; dashed: zero")
    for degree in (0.0, 15.0, 30.0, 60.0, 120.0):
        line = gradient(rho, torch.full_like(rho, math.radians(degree)))
        along_rho.plot(rho, line, label=f"{degree:.0f}°")
    for value in (0.2, 0.4, 0.6, 0.8):
        line = gradient(torch.full_like(degrees, value), torch.deg2rad(degrees))
        along_angle.plot(degrees, line, label=f"ρ = {value:g}")
    along_rho.set(xlabel="concentration ρ", ylim=(-2, 4), title="(b) along ρ, at five angles")
    along_angle.set(xlabel="angle θ (degrees)", xticks=range(-180, 181, 90))
    along_angle.set(ylim=(-2, 8.5), title="(c) along the angle, for four ρ")
    for axes in (along_rho, along_angle):
        axes.set_ylabel("gradient ∂f/∂ρ")
        axes.legend(loc="upper left")


def equation_13(setting: Setting) -> Finding:
    """The head's concentration against 1/(1 + e^{−w}) for one w_ρ, and is it inside (0, 1)?"""
    head = WCDASHead(4, 3, init=START, start="paper").double()
    w_rho, rho = head.w_rho.detach(), head.concentration.detach()
    difference = gap(1 / (1 + torch.exp(-w_rho)), rho)
    inside = bool(((rho > 0) & (rho < 1)).all())
    return Finding(
        judge(difference <= TOLERANCE and inside),
        f"At w_ρ = {START:g} the head has ρ = {float(rho[0]):.6f}, "
        f"{'inside' if inside else 'rounded out of'} (0, 1), {difference:.1e} from the formula.",
        {"ρ": float(rho[0]), "largest relative difference": difference},
    )


CLASSES, FEATURES, IMAGES = 100, 16, 32
HEAD_SCALE, PRINTED_SCALE = 30.0, 1.0  # s of the head; line 8 of Algorithm 1 is printed without


def printed_loss(x: Tensor, w: Tensor, w_rho: Tensor, labels: Tensor, scale: float) -> Tensor:
    """Return lines 5 to 9 as printed, with f multiplied by `scale`; line 8 has no s."""
    f = density(1 / (1 + torch.exp(-w_rho)), cosines(x, w))
    powers = torch.exp(scale * f)
    return -(powers[torch.arange(len(x)), labels] / powers.sum(1)).log().mean()


def algorithm_1(setting: Setting) -> Finding:
    """Loss and gradients of the printed lines against the head's, with and without s in line 8."""
    random = torch.Generator().manual_seed(0)
    with seeded(0):
        head = WCDASHead(FEATURES, CLASSES, scale=HEAD_SCALE, start="paper").double()
    x = torch.randn(IMAGES, FEATURES, generator=random, dtype=torch.float64)
    labels = torch.randint(CLASSES, (IMAGES,), generator=random)
    loss = head.loss(x, labels)
    gradients = torch.autograd.grad(loss, (head.weight, head.w_rho))

    def difference(scale: float) -> float:
        printed = printed_loss(x, head.weight, head.w_rho, labels, scale)
        its_own = torch.autograd.grad(printed, (head.weight, head.w_rho))
        pairs = [(printed, loss), *zip(its_own, gradients, strict=True)]
        return max(gap(one.detach(), other.detach()) for one, other in pairs)

    as_printed, with_scale = difference(PRINTED_SCALE), difference(HEAD_SCALE)
    best, best_with_scale = map(_best_probability, (1.0, HEAD_SCALE))
    # −∂L/∂f is positive for the image's own class alone.
    logits = head(x).detach().requires_grad_()
    (gradient_of_f,) = torch.autograd.grad(F.cross_entropy(logits, labels), logits)
    signs = ((-gradient_of_f > 0) == F.one_hot(labels, CLASSES).bool()).double().mean()
    return Finding(
        judge(as_printed <= TOLERANCE, with_scale <= TOLERANCE),
        f"Loss and gradients of w and w_ρ differ by {as_printed:.2g} from the head's with line 8 "
        f"as printed, without s, and by {with_scale:.1e} with s·f in it. Without s, {CLASSES} "
        f"classes and ρ = 0.5, no image can have a probability above {100 * best:.1f} %; with "
        f"s = {HEAD_SCALE:g} it is {100 * best_with_scale:.1f} %. For an image's own class the "
        "loss moves ρ along ∂f/∂ρ, for the other classes against it: true of "
        f"{100 * float(signs):.0f} % of the images' terms.",
        {
            "difference as printed": as_printed,
            "difference with s·f": with_scale,
            "largest probability without s": best,
        },
    )


def _best_probability(scale: float) -> float:
    """Return that of an image at angle 0 of its class and π of all others, with ρ = ½."""
    peak, trough = 1.5 / 0.5, 0.5 / 1.5  # (1 + ρ)/(1 − ρ) and its inverse
    return 1 / (1 + (CLASSES - 1) * math.exp(-scale * (peak - trough) / (2 * math.pi)))
