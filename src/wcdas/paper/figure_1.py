"""Figure 1: one kernel for a class, or one for every image."""

import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.distributions import Categorical

from wcdas.circular import Mixture, WrappedCauchy, WrappedNormal, least_square_error
from wcdas.paper.circle import angles
from wcdas.paper.claim import Claim, Finding, Setting, judge
from wcdas.report.style import draw

KERNELS = (0.3, 0.5, 0.7, 0.85, 0.95)


def check(setting: Setting, concentrations: tuple[float, ...] = KERNELS) -> Finding:
    """Is a sum of kernels with these ρ_m another density than one kernel for the class?"""
    rho = torch.tensor(concentrations, dtype=torch.float64)
    mixture = Mixture(Categorical(torch.ones_like(rho)), WrappedNormal(rho))
    moments = mixture.cosine_moment(torch.arange(1, 513))
    normal, cauchy = WrappedNormal.fit_moments(moments), WrappedCauchy.fit_moments(moments)
    error = float(least_square_error(normal, moments))
    other = float(least_square_error(cauchy, moments))
    sentence = (
        f"A drawing without numbers. For ρ_m = {', '.join(f'{r:g}' for r in concentrations)} the "
        f"sum of the kernels is {error:.3e} away from the best single wrapped Normal and "
        f"{other:.3e} from the best wrapped Cauchy. The caption says of panel (b) what it says of "
        "(c), one kernel for each image; Section 3.1 says that (b) has one for the class."
    )
    figure = draw(
        setting.figures,
        "figure-1",
        (9, 3.6),
        lambda f: _paint(f, rho, mixture.prob(angles(720)), normal, cauchy),
    )
    numbers = {"Δ of one wrapped Normal": error, "Δ of one wrapped Cauchy": other}
    return Finding(judge(error > 1e-8), sentence, numbers, (figure,))


def _paint(
    figure: Figure, rho: Tensor, mixed: Tensor, normal: WrappedNormal, cauchy: WrappedCauchy
) -> None:
    theta = angles(720)
    degrees = torch.rad2deg(theta)
    kernels, fits = figure.subplots(1, 2, sharey=True)
    for kernel in WrappedNormal(rho[:, None]).prob(theta):
        kernels.plot(degrees, kernel, color="0.6", linestyle="-", linewidth=0.9)
    kernels.plot([], [], color="0.6", linestyle="-", linewidth=0.9, label="kernels of the images")
    kernels.plot(degrees, mixed, color="black", linestyle="-", label="their mean, the class")
    fits.plot(degrees, mixed, label="the class")
    fits.plot(degrees, normal.prob(theta), label="one wrapped Normal")
    fits.plot(degrees, cauchy.prob(theta), label="one wrapped Cauchy")
    for ax, title in ((kernels, "a kernel for each image"), (fits, "one density for the class")):
        ax.set(xlabel="angle θ (degrees)", xticks=range(-180, 181, 90), title=title, ylim=(0, None))
        ax.legend(loc="upper left")
    kernels.set_ylabel("density")


CLAIMS = (
    Claim(
        "figure-1",
        "Section 3.1, Figure 1",
        "Other methods model a class by one kernel; here every image has a kernel of its own, and "
        "their sum is the class.",
        "a second",
        check,
        "Δ above 1e-8 between sum and single kernel",
    ),
)
