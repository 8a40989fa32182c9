"""An equation is judged by the largest difference between its two sides."""

from torch import Tensor

from wcdas.paper.claim import Finding, judge

TOLERANCE = 1e-10
TOLERANCE_TEXT = f"{TOLERANCE:g} of the largest value"


def gap(left: Tensor, right: Tensor) -> float:
    """The largest difference, relative to the largest value."""
    return float((left - right).abs().max() / right.abs().max())


def identity(
    left: Tensor, right: Tensor, what: str, corrected: Tensor | None = None, correction: str = ""
) -> Finding:
    """`left` as printed, perhaps `corrected`, against `right`, computed in another way."""
    as_printed = gap(left, right)
    numbers = {"largest relative difference": as_printed}
    if as_printed <= TOLERANCE:
        sentence = f"{what}: both sides agree to {as_printed:.1e}."
        return Finding(judge(True), sentence, numbers)
    sentence = f"{what}: the two sides differ by {as_printed:.2g} of the largest value."
    if corrected is None:
        return Finding(judge(False), sentence, numbers)
    after = gap(corrected, right)
    numbers["the same after the correction"] = after
    return Finding(
        judge(False, after <= TOLERANCE), f"{sentence} {correction}: {after:.1e}.", numbers
    )
