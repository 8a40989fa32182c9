"""Formulas in plain text, as a terminal shows them, set for a page."""

import re

from markupsafe import Markup, escape

CODE = re.compile(r"`([^`]+)`")
POWER_OF_TEN = re.compile(r"(?<![\w.])(\d(?:\.\d+)?)e([+-]\d+)")
HIGH = re.compile(r"\^(?:\{([^{}]+)\}|\(((?:[^()]|\([^()]*\))+)\)|(\w+))")
# Below a single letter: x_n, ρ_min, a_(n−1), α_mixed,n
LOW = re.compile(
    r"((?<!\w)[A-Za-z]|[^\W\dA-Za-z_])_(?:\{([^{}]+)\}|\(([^()]+)\)|([A-Za-z0-9ρ]+(?:,[a-z]+)?))"
)
MINUS = re.compile(r"(?<![\w.)])-(?=\d)")


def typeset(text: object) -> Markup:
    """Return text with its indices low, its exponents high, and `commands` as code.

    Example:
        >>> typeset("Σ_m ρ_m^(n²) < 1e-5")
        Markup('Σ<sub>m</sub> ρ<sub>m</sub><sup>n²</sup> &lt; 10<sup>−5</sup>')
    """
    parts = CODE.split(str(escape(text)))
    parts[::2] = map(_formulas, parts[::2])
    parts[1::2] = (f"<code>{code}</code>" for code in parts[1::2])
    return Markup("".join(parts))


def _formulas(text: str) -> str:
    text = POWER_OF_TEN.sub(_power_of_ten, text)
    text = LOW.sub(lambda found: f"{found[1]}<sub>{_inside(found)}</sub>", text)
    return MINUS.sub("−", HIGH.sub(_high, text))


def _high(found: re.Match[str]) -> str:
    return f"<sup>{HIGH.sub(_high, _inside(found))}</sup>"


def _inside(found: re.Match[str]) -> str:
    """Return what stands in brackets, or without."""
    return next(group for group in reversed(found.groups()) if group is not None)


def _power_of_ten(found: re.Match[str]) -> str:
    factor, exponent = found.groups()
    if float(factor) == 0:
        return "0"
    high = str(int(exponent)).replace("-", "−")
    return f"{'' if factor == '1' else f'{factor}·'}10<sup>{high}</sup>"
