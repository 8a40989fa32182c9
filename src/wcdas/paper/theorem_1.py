"""Section 3.1, Appendices A.1 and A.2: kernels of images, their sum, and its cosine moments.

Kernels that scatter around 0 are taken as kernels at 0 (Theorem 1). With centres μ_m ~ N(c, σ) the
expected mixture is again one of wrapped Normals, because E cos nμ = e^{−n²σ²/2} cos nc:

    E f_mixed = (1/2πM) Σ_m (1 + 2 Σ_n (ρ_m e^{−σ²/2})^{n²} cos n(θ − c))
"""

import math
from collections.abc import Callable

import torch
from matplotlib.figure import Figure
from torch import Tensor

from wcdas.circular import SymmetricWrappedStable, WrappedCauchy, WrappedNormal, least_square_error
from wcdas.paper.circle import Family, angles, double, integral, mixed, orders, spelled
from wcdas.paper.claim import Finding, Setting, identity, judge
from wcdas.report import draw

THETA = angles(512)
N = orders(128)
RHO = double(0.1, 0.5, 0.9)[:, None]
FAMILIES: dict[float, Family] = {1.0: WrappedCauchy, 2.0: WrappedNormal}  # by the exponent a
POWER = 2  # the wrapped Normal has α_n = ρ^{n²}
CENTRE = 0.4
MEAN = 0.0  # of the centres μ_m ~ N(0, σ)
SMALL, LARGE = 0.001, 0.3  # σ → 0, and a σ that is not small
CLASS = (0.3, 0.5, 0.7, 0.85, 0.95)  # ρ_m of the images in Figure 1
SCATTERED = double(0.2, 0.5, 0.8, 0.9)
CENTRED = double(0.1, 0.4, 0.7, 0.95)
MIXTURE = mixed(WrappedNormal(CENTRED))
FOUR = double(0.2, 0.5, 0.7, 0.9)
CENTRES = double(-1.0, 0.5, 2.0, -0.5)  # of these four, times a small number
MOMENTS = WrappedNormal(FOUR).cosine_moment(N)


def equation_3(setting: Setting) -> Finding:
    """The series with exponent a against the closed form of the family it is said to be."""
    stable = [SymmetricWrappedStable(RHO, a).prob(THETA) for a in FAMILIES]
    closed = [family(RHO).prob(THETA) for family in FAMILIES.values()]
    names = ", ".join(f"a = {a:g} {spelled(family)}" for a, family in FAMILIES.items())
    return identity(torch.cat(stable), torch.cat(closed), names)


def figure_1(setting: Setting) -> Finding:
    """Is a sum of kernels with these ρ_m another density than one kernel for the class?"""
    theta = angles(720)
    mixture = mixed(WrappedNormal(double(*CLASS)))
    moments = mixture.cosine_moment(orders(512))
    normal, cauchy = WrappedNormal.fit_moments(moments), WrappedCauchy.fit_moments(moments)
    error, other = (float(least_square_error(fit, moments)) for fit in (normal, cauchy))

    def paint(figure: Figure) -> None:
        degrees = torch.rad2deg(theta)
        kernels, fits = figure.subplots(1, 2, sharey=True)
        thin = {"color": "0.6", "linestyle": "-", "linewidth": 0.9}
        for kernel in WrappedNormal(double(*CLASS)[:, None]).prob(theta):
            kernels.plot(degrees, kernel, **thin)
        kernels.plot([], [], label="kernels of the images", **thin)
        whole = mixture.prob(theta)
        kernels.plot(degrees, whole, color="black", linestyle="-", label="their mean, the class")
        fits.plot(degrees, whole, label="the class")
        fits.plot(degrees, normal.prob(theta), label="one wrapped Normal")
        fits.plot(degrees, cauchy.prob(theta), label="one wrapped Cauchy")
        for ax in (kernels, fits):
            ax.set(xlabel="angle θ (degrees)", xticks=range(-180, 181, 90), ylim=(0, None))
            ax.legend(loc="upper left")
        kernels.set(title="a kernel for each image", ylabel="density")
        fits.set(title="one density for the class")

    return Finding(
        judge(error > 1e-8),
        f"A drawing without numbers. For ρ_m = {', '.join(f'{r:g}' for r in CLASS)} the sum of the "
        f"kernels is {error:.3e} away from the best single wrapped Normal and {other:.3e} from the "
        "best wrapped Cauchy. The caption says of panel (b) what it says of (c), one kernel for "
        "each image; Section 3.1 says that (b) has one for the class.",
        {"Δ of one wrapped Normal": error, "Δ of one wrapped Cauchy": other},
        (draw(setting.figures, "figure-1", (9, 3.6), paint),),
    )


def equation_4(setting: Setting) -> Finding:
    """The mean of the kernels' densities against a mixture of equal weights."""
    kernels = WrappedNormal(FOUR, 0.1 * CENTRES)
    mean = kernels.prob(THETA[:, None]).mean(1)
    return identity(mean, mixed(kernels).prob(THETA), "4 kernels, 512 angles")


# Theorem 1, and how its proof comes to Equation 5.


def scattered(rho: Tensor, spread: float) -> Tensor:
    """Return the expected mixture, by quadrature over the centres μ_m."""
    z = torch.linspace(-9, 9, 721, dtype=torch.float64)
    weights = torch.exp(-z.square() / 2)
    weights = weights / weights.sum()
    kernels = WrappedNormal(rho[:, None, None], MEAN + spread * z[:, None])
    return torch.cat([weights @ kernels.prob(part).mean(0) for part in THETA.split(128)])


def centred(rho: Tensor) -> Tensor:
    """Return the right side of Equation 5: all kernels at 0."""
    return WrappedNormal(rho[:, None]).prob(THETA).mean(0)


def relative_error(rho: Tensor, spread: float) -> float:
    """‖E f_mixed − approximation‖ / ‖approximation‖."""
    approximate = centred(rho)
    error = scattered(rho, spread) - approximate
    return math.sqrt(float(integral(error.square()) / integral(approximate.square())))


def cost(rho: float, spread: Tensor) -> Tensor:
    """Return the relative error of one kernel, in closed form from the moments."""
    n = orders(399)
    moments = rho ** n.square()
    lost = -torch.expm1(-(n * spread[:, None]).square() / 2)
    return ((moments * lost).square().sum(1) / (0.5 + moments.square().sum())).sqrt()


def equation_5(setting: Setting) -> Finding:
    """The approximation at a small σ."""
    error = relative_error(SCATTERED, SMALL)
    return Finding(
        judge(error < 1e-3),
        f"At σ = {SMALL:g} both sides differ by {error:.1e} of the norm.",
        {"relative error": error},
    )


def theorem_1(setting: Setting) -> Finding:
    """Does the error vanish as σ → 0, and how fast, when μ_m ~ N(0, σ)?"""
    shown = (0.5, 0.9, 0.99, 0.999)
    larger, smaller = (relative_error(SCATTERED, sigma) for sigma in (0.02, 0.01))
    order = math.log2(larger / smaller)
    fine = torch.logspace(-4, 0, 4001, dtype=torch.float64)
    one_percent = {r: float(fine[int((cost(r, fine) < 0.01).sum())]) for r in shown}

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        spread = torch.logspace(-3, 0.3, 200, dtype=torch.float64)
        for rho in shown:
            axes.plot(spread, 100 * cost(rho, spread), label=f"kernels of ρ = {rho:g}")
        axes.axhline(1, color="0.5", linestyle="-", linewidth=0.8)
        axes.set(xscale="log", xlabel="spread σ of the kernels' centres (radians)")
        axes.set(yscale="log", ylabel="relative error of the density (%)", ylim=(1e-5, 200))
        axes.legend(loc="lower right")

    return Finding(
        judge(order > 1.9 and smaller < 0.01),
        f"With σ halved from 0.02 to 0.01 the error falls from {100 * larger:.3g} % to "
        f"{100 * smaller:.3g} %, order {order:.2f} in σ. The expected mixture is the "
        "approximation with ρ_m·exp(−σ²/2) for ρ_m, so the cost depends on how narrow the kernels "
        "are: it reaches 1 % at "
        + ", ".join(f"σ = {s:.3g} for ρ = {r:g}" for r, s in one_percent.items())
        + ".",
        {"order in σ": order, "relative error at σ = 0.01": smaller}
        | {f"σ of 1 % error, ρ = {r:g}": s for r, s in one_percent.items()},
        (draw(setting.figures, "theorem-1", (6, 4), paint),),
    )


def equation_14(setting: Setting) -> Finding:
    """The series around a centre against the wrapped Normal there."""
    stable = SymmetricWrappedStable(RHO, 2.0, CENTRE).prob(THETA)
    return identity(stable, WrappedNormal(RHO, CENTRE).prob(THETA), f"Centre {CENTRE:g}")


def waves(moments: Tensor, sines: Tensor, cosines: Tensor) -> Tensor:
    """(1/2π)(1 + 2 Σ_n α_n(a_n sin nθ + b_n cos nθ)), with a = `sines`, b = `cosines`."""
    angle = N[:, None] * THETA
    both = sines[:, None] * torch.sin(angle) + cosines[:, None] * torch.cos(angle)
    return (1 + 2 * moments @ both) / (2 * math.pi)


def equation_15(setting: Setting) -> Finding:
    """The expanded terms, summed, against the density."""
    moments = WrappedNormal(RHO[:, 0]).cosine_moment(N)
    expanded = waves(moments, torch.sin(N * CENTRE), torch.cos(N * CENTRE))
    return identity(expanded, WrappedNormal(RHO, CENTRE).prob(THETA), f"Centre {CENTRE:g}")


def order_in_centre(error: Callable[[float], float]) -> float:
    """Return the order of an error in the size of the centres."""
    return math.log2(error(2 * SMALL) / error(SMALL))


def printed_16(centre: float) -> float:
    """Return μ_j, which is printed where the centre μ_m of the image belongs: that of the class."""
    return 0.0


def equation_16(setting: Setting) -> Finding:
    """The order of the error in μ_m, with the centre of the class, and with that of the image."""
    moments = WrappedNormal(RHO[:, 0]).cosine_moment(N)

    def order(taken: Callable[[float], float]) -> float:
        def error(centre: float) -> float:
            approximate = waves(moments, N * taken(centre), torch.ones_like(N))
            return float((approximate - WrappedNormal(RHO, centre).prob(THETA)).abs().max())

        return order_in_centre(error)

    as_printed, corrected = order(printed_16), order(lambda centre: centre)
    return Finding(
        judge(as_printed > 1.9, corrected > 1.9),
        f"With the class's centre in the sine term the error is of order {as_printed:.2f} in μ_m; "
        f"with μ_m in place of the printed μ_j it is of order {corrected:.2f}.",
        {"order of the error in μ_m": as_printed, "the same after the correction": corrected},
    )


def linearised(size: float) -> Tensor:
    """Return the mixture with every kernel as in Equation 16, centres size·CENTRES."""
    pairs = zip(MOMENTS, size * CENTRES, strict=True)
    return torch.stack([waves(m, N * c, torch.ones_like(N)) for m, c in pairs]).mean(0)


def equation_17(setting: Setting) -> Finding:
    """The order of the error when all centres shrink together to half their size."""

    def error(size: float) -> float:
        exact = WrappedNormal(FOUR, size * CENTRES).prob(THETA[:, None]).mean(1)
        return float((linearised(size) - exact).abs().max())

    order, left = order_in_centre(error), error(SMALL)
    return Finding(
        judge(order > 1.9),
        f"The sum of the approximated kernels differs from the mixture by {left:.1e}, order "
        f"{order:.2f} in μ_m.",
        {"order of the error in μ_m": order, "largest difference": left},
    )


FACTOR = 1.0  # before the sums of Equations 18 and 19 as printed, where 1/2π belongs
LOST = "With the factor 1/2π that is lost"


def equation_18(setting: Setting) -> Finding:
    """(1/M)·2 Σ_n n ρ_m^{n²} μ_m sin nθ against the sine part of Equation 17."""
    sines = 2 * (MOMENTS * (SMALL * CENTRES)[:, None] * N).mean(0) @ torch.sin(N[:, None] * THETA)
    part = (linearised(SMALL) - linearised(-SMALL)) / 2
    return identity(FACTOR * sines, part, "512 angles", sines / (2 * math.pi), LOST)


def equation_19(setting: Setting) -> Finding:
    """(1/M)·2 Σ_n ρ_m^{n²} cos nθ against the cosine part of Equation 17."""
    cosines = 2 * MOMENTS.mean(0) @ torch.cos(N[:, None] * THETA)
    part = linearised(0.0) - 1 / (2 * math.pi)
    return identity(FACTOR * cosines, part, "512 angles", cosines / (2 * math.pi), LOST)


def equation_20(setting: Setting) -> Finding:
    """How the norm of the sine terms falls with the number of images M, for μ_m ~ N(0, σ)."""
    random = torch.Generator().manual_seed(0)
    norms = {}
    for size in (10, 100, 1000, 10_000):
        rho = 0.9 * torch.rand(64, size, generator=random, dtype=torch.float64)
        centres = torch.randn(64, size, generator=random, dtype=torch.float64) * 0.05 + MEAN
        sines = [2 * k * (rho ** (k * k) * centres).mean(1) for k in orders(16)]
        norms[size] = float((math.pi * torch.stack(sines).square().sum(0)).mean().sqrt())
    (few, first), *_, (many, last) = norms.items()
    order = math.log10(last / first) / math.log10(many / few)
    return Finding(
        judge(order < -0.4),
        f"Over 64 draws the norm of the sine terms falls from {first:.2e} with {few} images to "
        f"{last:.2e} with {many:,}: M to the power {order:.2f}.",
        {"power of M": order},
    )


def equation_21(setting: Setting) -> Finding:
    """The same with an equals sign, at a σ that is not 0."""
    return identity(
        centred(SCATTERED),
        scattered(SCATTERED, LARGE),
        f"At σ = {LARGE:g}",
        centred(SCATTERED * math.exp(-(LARGE**2) / 2)),
        "With ρ_m·exp(−σ²/2) in place of ρ_m it is an equality of the expected mixture",
    )


# Corollary 1.1: the cosine moments of a mixture are the means of its kernels' moments.


def corollary_1_1(setting: Setting) -> Finding:
    """The mean of ρ_m^{n²} against the moments of the density, by quadrature."""
    n, kernels = orders(32), WrappedNormal(CENTRED, MEAN)
    density = mixed(kernels).prob(angles())
    return identity(
        WrappedNormal(CENTRED).cosine_moment(n).mean(0),
        integral(density * torch.cos(n[:, None] * angles())),
        f"{len(CENTRED)} kernels at {MEAN:g}, {len(n)} moments by quadrature",
        kernels.cosine_moment(n).mean(0),
        "With cos nμ in each kernel's moment",
    )


def series(moments: Tensor) -> Tensor:
    """(1/2π)(1 + 2 Σ_n α_n cos nθ)."""
    n = orders(moments.shape[-1])
    return (1 + 2 * moments @ torch.cos(n[:, None] * THETA)) / (2 * math.pi)


def equation_22(setting: Setting) -> Finding:
    """The density as a mean of series with moments ρ_m^{n²}."""
    each = series(CENTRED[:, None] ** (N**POWER))
    return identity(each.mean(0), MIXTURE.prob(THETA), "512 angles")


def equation_23(setting: Setting) -> Finding:
    """The series of the mean moments against the density."""
    mean = (CENTRED[:, None] ** (N**POWER)).mean(0)
    return identity(series(mean), MIXTURE.prob(THETA), "512 angles")


def equation_24(setting: Setting) -> Finding:
    """The series of the mixture's own moments against its density."""
    return identity(series(MIXTURE.cosine_moment(N)), MIXTURE.prob(THETA), "512 angles")
