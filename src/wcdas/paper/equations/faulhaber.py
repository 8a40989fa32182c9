"""Equations 37 to 43: sums of powers of evenly spread ρ_m, in exact fractions."""

import math
from collections.abc import Callable
from fractions import Fraction

from wcdas.paper.claim import Claim, Finding, Setting, judge

Formula = Callable[[int], Fraction]
SIZES = (2, 3, 5, 10, 101)


def mean_power(size: int, power: int, last: int | None = None) -> Fraction:
    """(1/N) Σ_{k=1}^{last} (k/N)^power; the sum ends at N without `last`."""
    last = size if last is None else last
    return Fraction(sum(k**power for k in range(1, last + 1)), size ** (power + 1))


def bernoulli(count: int) -> list[Fraction]:
    """B_0 … B_count with B_1 = −½, from Σ_k C(m + 1, k) B_k = 0."""
    numbers = [Fraction(1)]
    for m in range(1, count + 1):
        numbers.append(-sum(math.comb(m + 1, k) * numbers[k] for k in range(m)) / Fraction(m + 1))
    return numbers


def faulhaber(size: int, power: int) -> Fraction:
    """The right side of Equation 38."""
    b = bernoulli(power)
    rest = sum(
        b[k]
        / math.factorial(k)
        * Fraction(math.factorial(power), math.factorial(power - k + 1))
        * size ** (power - k + 1)
        for k in range(2, power + 1)
    )
    return Fraction(size ** (power + 1), power + 1) + Fraction(size**power, 2) + rest


def general(size: int, order: int) -> Fraction:
    """The right side of Equation 43, for p = order²."""
    p, b = order**2, bernoulli(order**2)
    rest = sum(
        b[k]
        / math.factorial(k)
        * Fraction(math.factorial(p), math.factorial(p - k + 1))
        / size ** (k - 1)
        for k in range(2, p + 1)
    )
    return Fraction(1, p + 1) + Fraction(1, 2 * size) + Fraction(rest) / size


def check_37(setting: Setting, last_is_one: bool = True) -> Finding:
    """Does Σ_n α_n², which Δ needs, settle when the sum over ρ_m = m/N runs to N?"""
    size = 10

    def sum_of_squares(terms: int) -> float:
        last = size if last_is_one else size - 1
        rho = [m / size for m in range(1, last + 1)]
        return sum((sum(r ** (n * n) for r in rho) / size) ** 2 for n in range(1, terms + 1))

    few, many = sum_of_squares(100), sum_of_squares(1000)
    limit = float(mean_power(10**6, 1, 10**6 - 1))
    settles = many - few < 1e-9
    return Finding(
        judge(settles, corrected=abs(limit - 0.5) < 1e-5),
        f"With N = {size} and the sum to {'N' if last_is_one else 'N − 1'}, Σ α_n² is {few:.4f} "
        f"over 100 orders and {many:.4f} over 1,000. "
        + (
            "It settles."
            if settles
            else "ρ_N = 1 is outside [0, 1): its kernel is a point, and Δ has no limit. The sum "
            "has to end at N − 1, as the list before it does, which changes nothing as N → ∞."
        ),
        {"Σ α_n² over 100 orders": few, "Σ α_n² over 1,000 orders": many},
    )


def check_38(setting: Setting, half: int = 2) -> Finding:
    """Powers 1 to 12; `half` is the denominator of the second term."""
    cases = [(size, power) for size in SIZES for power in range(1, 13)]
    wrong = Fraction(1, half) - Fraction(1, 2)
    right = sum(
        sum(k**p for k in range(1, n + 1)) == faulhaber(n, p) + wrong * n**p for n, p in cases
    )
    return _exactly(right, len(cases), "sums of powers")


def _exactly(right: int, cases: int, what: str) -> Finding:
    return Finding(
        judge(right == cases),
        f"Exact in {right} of {cases} {what} in whole fractions.",
        {"cases": cases, "exact": right},
    )


def printed_1(n: int) -> Fraction:
    return (1 + Fraction(1, n)) / 2


def printed_2(n: int) -> Fraction:
    x = Fraction(1, n)
    return Fraction(1, 5) + x / 2 + x**2 / 3 - x**4 / 30


def printed_3(n: int) -> Fraction:
    x = Fraction(1, n)
    tail = Fraction(3, 4) * x**2 - Fraction(7, 10) * x**4 + x**6 / 2 - Fraction(3, 20) * x**8
    return Fraction(1, 10) + x / 2 + tail


def _printed(formula: Formula, order: int) -> Callable[[Setting], Finding]:
    def check(setting: Setting, formula: Formula = formula) -> Finding:
        """The printed polynomial in 1/N against the sum itself, in whole fractions."""
        right = sum(mean_power(size, order**2) == formula(size) for size in SIZES)
        return _exactly(right, len(SIZES), f"values of N for n = {order}")

    return check


def check_42(setting: Setting, orders: tuple[int, ...] = (4, 5)) -> Finding:
    """The dots between n = 3 and n = n₀."""
    cases = [(size, order) for size in SIZES for order in orders]
    right = sum(mean_power(size, order**2) == general(size, order) for size, order in cases)
    return _exactly(right, len(cases), f"cases with n = {', '.join(map(str, orders))}")


def check_43(setting: Setting, shift: int = 1) -> Finding:
    """The general formula, and its limit 1/(n² + shift) as N grows."""
    cases = [(size, order) for size in SIZES for order in (1, 2, 3, 6)]
    right = sum(mean_power(size, order**2) == general(size, order) for size, order in cases)
    limits = {n: float(general(10**6, n)) for n in (1, 2, 3, 6)}
    far = max(abs(value - 1 / (n**2 + shift)) for n, value in limits.items())
    return Finding(
        judge(right == len(cases) and far < 1e-5),
        f"Exact in {right} of {len(cases)} cases in whole fractions; with N = 10⁶ it is within "
        f"{far:.1e} of 1/(n² + {shift}).",
        {"cases": len(cases), "exact": right, "distance from the limit": far},
    )


_PLACE = "Appendix A.4, Equation {}"
CLAIMS = (
    Claim(
        "equation-37",
        _PLACE.format(37),
        "With ρ_m = m/N, α_mixed,n = (1/N) Σ_m (m/N)^(n²), summed to N.",
        "a second",
        check_37,
        "1e-9 between 100 and 1,000 orders",
    ),
    Claim(
        "equation-38",
        _PLACE.format(38),
        "Faulhaber's formula for Σ_k k^p.",
        "a second",
        check_38,
        "exact",
    ),
    Claim(
        "equation-39",
        _PLACE.format(39),
        "α_1 = (1 + 1/N)/2.",
        "a second",
        _printed(printed_1, 1),
        "exact",
    ),
    Claim(
        "equation-40",
        _PLACE.format(40),
        "α_2 = 1/5 + 1/2N + 1/3N² − 1/30N⁴.",
        "a second",
        _printed(printed_2, 2),
        "exact",
    ),
    Claim(
        "equation-41",
        _PLACE.format(41),
        "α_3 = 1/10 + 1/2N + 3/4N² − 7/10N⁴ + 1/2N⁶ − 3/20N⁸.",
        "a second",
        _printed(printed_3, 3),
        "exact",
    ),
    Claim(
        "equation-42",
        _PLACE.format(42),
        "Dots: the orders after n = 3 go on likewise.",
        "a second",
        check_42,
        "exact",
    ),
    Claim(
        "equation-43",
        _PLACE.format(43),
        "α_n = 1/(n² + 1) + 1/2N + (1/N) Σ_k (B_k/k!)(n²)!/(n² − k + 1)!/N^(k−1).",
        "a second",
        check_43,
        "exact; the limit to 1e-5",
    ),
)
