"""Section 3.2 and Appendix A.3: the least-square error Δ, its minimum, and the spread of the roots.

A family fits a mixture exactly where α_n^{1/n^power} is the same for every n, so the power that
makes the roots of its own members constant belongs to it: the wrapped Cauchy has α_n = ρ^n, the
wrapped Normal α_n = ρ^{n²}.
"""

import math
from collections.abc import Mapping

import torch
from matplotlib.figure import Figure
from scipy.optimize import minimize_scalar
from scipy.stats import spearmanr
from torch import Tensor

from wcdas.circular import WrappedCauchy, WrappedNormal, least_square_error
from wcdas.paper.circle import Family, angles, double, integral, mixed, orders, spelled
from wcdas.paper.claim import Finding, Setting, Table, gap, identity, judge
from wcdas.report import COLOURS, MARKERS, draw

MAIN_TEXT: dict[Family, int] = {WrappedNormal: 1, WrappedCauchy: 2}
APPENDIX: dict[Family, int] = {WrappedCauchy: 1, WrappedNormal: 2}
KERNELS = double(0.1, 0.3, 0.5, 0.7, 0.9)
MIXTURE = mixed(WrappedNormal(KERNELS))
RHO = double(0.2, 0.5, 0.8)
N = orders(512)
SOME_ANGLES = angles(64)
BOTH = "Both families, three ρ"


def uniform_moments(terms: int = 4096) -> Tensor:
    """α_n = E ρ^{n²} for ρ uniform on [0, 1)."""
    return 1 / (orders(terms).square() + 1)


def by_quadrature(*families: Family) -> Tensor:
    """∫ (f − f_mixed)² dθ for families and three ρ."""
    fits = torch.cat([family(RHO[:, None]).prob(angles()) for family in families])
    return integral((fits - MIXTURE.prob(angles())).square())


def fitted_by_search(family: Family, density: Tensor) -> tuple[float, float]:
    """Return the ρ with the least ∫(f − density)² dθ, and that error, by quadrature."""
    theta = angles(len(density))

    def error(rho: float) -> float:
        return float(integral((family(double(rho)[0]).prob(theta) - density).square()))

    found = minimize_scalar(error, bounds=(0, 0.999), method="bounded", options={"xatol": 1e-9})
    return float(found.x), float(found.fun)


def equation_7(setting: Setting) -> Finding:
    """The library's least-square error against the integral of the squared difference."""
    errors = torch.cat([least_square_error(f(RHO), MIXTURE) for f in APPENDIX])
    return identity(errors, by_quadrature(*APPENDIX), "Both families, three ρ, by quadrature")


def equation_8(setting: Setting) -> Finding:
    """The fitted ρ against a search over the quadrature error."""
    numbers, gaps = {}, []
    for family in APPENDIX:
        fitted = float(family.fit_moments(MIXTURE.cosine_moment(N)).concentration)
        numbers[f"ρ_min of {spelled(family)}"] = fitted
        gaps.append(abs(fitted - fitted_by_search(family, MIXTURE.prob(angles()))[0]))
    values = ", ".join(f"{name} = {value:.5f}" for name, value in numbers.items())
    return Finding(
        judge(max(gaps) < 1e-5),
        f"The minimum exists and is found: {values}; a search over densities differs by "
        f"{max(gaps):.1e}.",
        numbers,
    )


# Equations 27 to 29: Δ as a sum over moments.


def equation_27(setting: Setting) -> Finding:
    """(1/π) Σ_n (δ_n cos nθ)² at every angle against the integral."""
    squares = (WrappedCauchy(RHO).cosine_moment(N) - MIXTURE.cosine_moment(N)).square()
    return identity(
        squares @ torch.cos(N[:, None] * SOME_ANGLES).square() / math.pi,
        by_quadrature(WrappedCauchy)[:, None].expand(3, 64),
        "Wrapped Cauchy, three ρ, 64 angles",
        squares.sum(1, keepdim=True).expand(3, 64) / math.pi,
        "An integral over the circle does not depend on θ; without cos nθ it is Equation 28",
    )


def equation_28(setting: Setting) -> Finding:
    """(1/π) Σ_n (α_n,fit − α_n,mixed)² against the integral."""
    fits = torch.cat([family(RHO).cosine_moment(N) for family in APPENDIX])
    sums = (fits - MIXTURE.cosine_moment(N)).square().sum(1)
    return identity(1 / math.pi * sums, by_quadrature(*APPENDIX), BOTH)


def equation_29(setting: Setting) -> Finding:
    """ρ^n for the wrapped Cauchy and ρ^{n²} for the wrapped Normal, written out."""
    target = (KERNELS[:, None] ** N.square()).mean(0)
    fits = torch.cat([RHO[:, None] ** (N**power) for power in APPENDIX.values()])
    sums = (fits - target).square().sum(1) / math.pi
    return identity(sums, by_quadrature(WrappedCauchy, WrappedNormal), BOTH)


# Equations 30 to 36: the mean of the roots as the best ρ, and what is built on it.

TERMS = (5, 10, 100, 1000, 4096)
FEW = 10


def roots(moments: Tensor, power: int = 1) -> Tensor:
    """α_n^{1/n^power}: power 1 undoes ρ^n, power 2 undoes ρ^{n²}."""
    return moments ** (1 / orders(moments.shape[-1]) ** power)


def smallest_error(family: Family, moments: Tensor) -> Tensor:
    return least_square_error(family.fit_moments(moments), moments)


def equation_30(setting: Setting) -> Finding:
    """The mean of the first N roots beside the exact minimiser, for ρ_m uniform."""
    moments = uniform_moments()
    exact = float(WrappedCauchy.fit_moments(moments).concentration)
    smallest = float(smallest_error(WrappedCauchy, moments))
    rows, means = [], {}
    for terms in TERMS:
        mean = means[terms] = float(roots(moments[:terms]).mean())
        error = float(least_square_error(WrappedCauchy(double(mean)[0]), moments))
        cells = (f"{terms:,}", f"{mean:.4f}", f"{mean - exact:+.4f}", f"{error:.3e}")
        rows.append((*cells, f"{error / smallest:.3g}" if smallest > 1e-12 else ""))
    worst = max(abs(mean - exact) for mean in means.values())
    columns = ("roots taken", "their mean", "minus the exact ρ", "Δ at the mean", "÷ smallest Δ")
    return Finding(
        judge(worst < 1e-3),
        f"The exact ρ_min is {exact:.5f}. The mean of the roots depends on how many are taken, "
        f"{means[TERMS[0]]:.3f} of {TERMS[0]} to {means[TERMS[-1]]:.3f} of {TERMS[-1]:,}, and is "
        f"up to {worst:.3f} away.",
        {"exact ρ_min": exact, "largest distance": worst}
        | {f"mean of {terms} roots": mean for terms, mean in means.items()},
        tables=(Table(f"Exact: ρ = {exact:.6f}, Δ = {smallest:.4e}", columns, tuple(rows)),),
    )


def equation_31(setting: Setting) -> Finding:
    """Δ at the mean of the roots against the smallest Δ."""
    moments = uniform_moments()
    smallest = float(smallest_error(WrappedCauchy, moments))
    errors = {
        terms: float(least_square_error(WrappedCauchy(roots(moments[:terms]).mean()), moments))
        for terms in TERMS
    }
    return Finding(
        judge(all(error <= smallest * 1.01 + 1e-12 for error in errors.values())),
        f"The smallest Δ is {smallest:.3e}; at the mean of {TERMS[0]} roots it is "
        f"{errors[TERMS[0]]:.3e}, at that of {TERMS[-1]:,} roots {errors[TERMS[-1]]:.3e}.",
        {"smallest Δ": smallest} | {f"Δ at the mean of {t} roots": e for t, e in errors.items()},
    )


def powers_between(x: int, a: int, n: int) -> int:
    """a^{n−1} + x a^{n−2} + … + x^{n−1}."""
    return sum(a ** (n - 1 - k) * x**k for k in range(n))


def equation_32(setting: Setting) -> Finding:
    """xⁿ − aⁿ = (x − a) Σ a^{n−1−k} x^k in whole numbers, n up to 12."""
    cases = [(x, a, n) for x in range(-4, 5) for a in range(-4, 5) for n in range(1, 13)]
    right = sum(x**n - a**n == (x - a) * powers_between(x, a, n) for x, a, n in cases)
    return Finding(
        judge(right == len(cases)),
        f"True in {right} of {len(cases)} cases of whole numbers. (It is the factorisation of a "
        "difference of powers, not the binomial theorem.)",
        {"cases": len(cases), "true": right},
    )


def factorised(mean: Tensor, a: Tensor) -> Tensor:
    """Σ_n (ā − a_n)² (Σ_k a_n^{n−1−k} ā^k)², k = 0 … n − 1."""
    total = torch.zeros((), dtype=torch.float64)
    for n, a_n in enumerate(a, 1):
        k = torch.arange(n)
        total = total + (mean - a_n).square() * (a_n ** (n - 1 - k) * mean**k).sum().square()
    return total


def printed_33(a: Tensor) -> Tensor:
    """Return a_1, a_2, and then a_{n−1} where the n-th term has a_n."""
    return torch.cat([a[:2], a[1:-1]])


def equation_33(setting: Setting) -> Finding:
    """The general term with a_{n−1} under n powers, as printed, and with a_n."""
    a, n = roots(uniform_moments(FEW)), torch.arange(1, FEW + 1)
    mean = a.mean()
    return identity(
        factorised(mean, printed_33(a)),
        (mean**n - a**n).square().sum(),
        f"Uniform ρ_m, {FEW} terms",
        factorised(mean, a),
        "With a_n instead of a_(n−1) in the n-th term",
    )


def equation_34(setting: Setting) -> Finding:
    """The factorised sum against Δ at the mean of the roots, over the same terms."""
    moments = uniform_moments(FEW)
    a = roots(moments)
    direct = least_square_error(WrappedCauchy(a.mean()), moments)
    return identity(factorised(a.mean(), a) / math.pi, direct, f"Uniform ρ_m, {FEW} terms")


def _first_term_alone(family: Family) -> Finding:
    """(1/π)(mean root − α₁)², the first term of Δ at the mean root, against all of it."""
    moments = uniform_moments(FEW)
    mean = roots(moments, APPENDIX[family]).mean()
    first = (mean - moments[0]).square() / math.pi
    whole = least_square_error(family(mean), moments)
    smallest = float(smallest_error(family, moments))
    return Finding(
        judge(bool(whole <= 1e-12) or gap(first, whole) < 0.1),
        f"With {len(moments)} roots the first term is {float(first):.3e}, the whole sum "
        f"{float(whole):.3e}, the smallest Δ {smallest:.3e}: the neglected terms are not small, "
        "and no term is the minimum.",
        {"first term": float(first), "whole sum": float(whole), "smallest Δ": smallest},
    )


def equation_35(setting: Setting) -> Finding:
    """The first term of the sum against the whole sum, wrapped Cauchy, for ρ_m uniform."""
    return _first_term_alone(WrappedCauchy)


def equation_36(setting: Setting) -> Finding:
    """The first term of the sum against the whole sum, wrapped Normal, for ρ_m uniform."""
    return _first_term_alone(WrappedNormal)


# Theorem 2 and Equation 9: which root belongs to which family, and does its spread tell Δ?
#
# Δ is 0 where the mixture is a member of the family, and nowhere else. What Δ goes with has to be 0
# for the same mixtures. One kernel is a wrapped Normal; a wrapped Cauchy is a mixture of many.

EXACT = 1e-10  # what rounding leaves of 0
KERNEL = 0.6
ORDERS = 10
SEVERAL_ORDERS = (5, 10, 30, 100)
IMAGES = 500


def members() -> dict[Family, Tensor]:
    """Return log α_n of a mixture that is a member, by family."""
    n, log = orders(ORDERS), math.log(KERNEL)
    return {family: n**power * log for family, power in ((WrappedCauchy, 1), (WrappedNormal, 2))}


def vanish_together(family: Family, power: int) -> bool:
    """Return whether Δ and the spread of the roots are 0 for the same of these mixtures."""
    return all(
        (float(smallest_error(family, logs.exp())) < EXACT) == (float(spread(logs, power)) < EXACT)
        for logs in members().values()
    )


def log_moments(terms: int = ORDERS) -> Tensor:
    """log α_n of 55 classes, ρ_m evenly spread between every two of 0, 0.1 … 1; row by row."""
    edge = torch.linspace(0, 1, 11, dtype=torch.float64)
    low, high = torch.triu_indices(11, 11, 1)
    middle = (orders(IMAGES) - 0.5) / IMAGES
    rho = edge[low][:, None] + (edge[high] - edge[low])[:, None] * middle
    log_kernels = rho.log()[..., None] * orders(terms).square()
    return log_kernels.logsumexp(1) - double(IMAGES)[0].log()


def spread(logs: Tensor, power: int) -> Tensor:
    """SD over n of α_n^{1/n^power}, from log α_n."""
    return torch.exp(logs / orders(logs.shape[-1]) ** power).std(-1, correction=0)


def rank_correlation(family: Family, power: int, terms: int) -> float:
    """Return that of Δ and the spread of the roots over 55 classes."""
    logs = log_moments(terms)
    return float(spearmanr(spread(logs, power), smallest_error(family, logs.exp())).statistic)


def root(power: int) -> str:
    return f"1/n{'²' if power == 2 else ''}"


def theorem_2(setting: Setting) -> Finding:
    """Is the spread of a family's roots 0 where its Δ is 0, and nowhere else?"""
    swapped = {family: 3 - power for family, power in MAIN_TEXT.items()}
    as_printed, as_swapped = (
        all(vanish_together(*of) for of in pairing.items()) for pairing in (MAIN_TEXT, swapped)
    )
    ranks = {
        (family, power, terms): rank_correlation(family, power, terms)
        for family in APPENDIX
        for power in (1, 2)
        for terms in SEVERAL_ORDERS
    }
    told = ", ".join(
        f"{spelled(family)} with the root {root(power)} "
        f"{'yes' if vanish_together(family, power) else 'no'}"
        for family, power in MAIN_TEXT.items()
    )
    instead = "" if as_printed else "; swapped, as in the appendix, yes for both"
    over_all = [float(spread(uniform_moments(10_000).log(), power)) for power in (1, 2)]
    return Finding(
        judge(as_printed, as_swapped),
        "A family fits its own members alone exactly, so the spread that its Δ goes with is 0 for "
        f"them alone: {told}{instead if as_swapped else ''}. That decides. How the two go together "
        "elsewhere depends on how many orders are taken, as the rank correlations over 55 classes "
        "show. Over all n the spread says nothing: the roots converge, so for ρ_m uniform on "
        "[0, 1) it falls to "
        f"{over_all[0]:.3f} (1/n) and {over_all[1]:.3f} (1/n²) with 10,000 orders.",
        {
            f"rank correlation, {spelled(family)} with {root(power)}, {terms} orders": rank
            for (family, power, terms), rank in ranks.items()
        },
        (draw(setting.figures, "theorem-2", (9, 4), _paint),),
        (_exactly(), _correlations(ranks)),
    )


def _exactly() -> Table:
    columns = {"mixture": [f"{spelled(family)}, ρ = {KERNEL:g}" for family in members()]}
    for family, power in APPENDIX.items():
        errors = [float(smallest_error(family, logs.exp())) for logs in members().values()]
        spreads = [float(spread(logs, power)) for logs in members().values()]
        columns[f"Δ of the {spelled(family)}"] = [f"{round(error, 10):.3g}" for error in errors]
        columns[f"spread, root {root(power)}"] = [f"{round(sd, 10):.3g}" for sd in spreads]
    return Table.of_columns("Δ and the spread of the roots for members of both families", columns)


def _correlations(ranks: Mapping[tuple[Family, int, int], float]) -> Table:
    pairs = [(family, power) for family in APPENDIX for power in (1, 2)]
    columns = {
        "family": [spelled(family) for family, _ in pairs],
        "root": [root(power) for _, power in pairs],
        "paired in": ["main text" if MAIN_TEXT[f] == p else "appendix" for f, p in pairs],
    }
    for terms in SEVERAL_ORDERS:
        columns[f"{terms} orders"] = [f"{ranks[*pair, terms]:+.2f}" for pair in pairs]
    title = "Rank correlation of Δ with the spread of the roots over 55 classes"
    return Table.of_columns(title, columns)


def _paint(figure: Figure) -> None:
    logs = log_moments()
    axes = figure.subplots(1, 2, sharey=True)
    pairings = {"main text": MAIN_TEXT, "appendix": APPENDIX}
    for ax, (where, pairing) in zip(axes, pairings.items(), strict=True):
        for i, family in enumerate((WrappedCauchy, WrappedNormal)):
            x, y = spread(logs, pairing[family]), smallest_error(family, logs.exp())
            look = {"color": COLOURS[i], "fillstyle": "none", "zorder": 3 - i, "linestyle": "none"}
            label = f"{spelled(family)}, root {root(pairing[family])}"
            ax.plot(x, y, MARKERS[i], label=label, **look)
        ax.set(yscale="log", xlim=(0, 0.22), xticks=(0, 0.1, 0.2))
        ax.set(xlabel="spread of the roots over n = 1 … 10", title=f"as the {where} pairs them")
        ax.legend(loc="lower right")
    axes[0].set_ylabel("least-square error Δ")


def equation_9(setting: Setting) -> Finding:
    """Is Δ proportional to the spread? Then Δ ÷ SD is the same for every class."""
    logs, ranges = log_moments(), {}
    for family, power in MAIN_TEXT.items():
        ratio = smallest_error(family, logs.exp()) / spread(logs, power)
        ranges[spelled(family)] = float(ratio.max() / ratio.min())
    return Finding(
        judge(max(ranges.values()) < 1.1),
        "Over 55 classes the ratio of Δ to the spread varies by a factor of "
        + " and ".join(f"{r:.1e} for {name}" for name, r in ranges.items())
        + "; it would be constant. The main text also leaves out the 1/M of the mean.",
        {f"largest ÷ smallest Δ/SD, {name}": r for name, r in ranges.items()},
    )
