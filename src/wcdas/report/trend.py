"""The mean of many dots, by class size."""

import math
from collections.abc import Sequence

from wcdas.report.chart import Series, rounded

BINS = 12


def trend(
    name: str,
    class_counts: Sequence[int],
    values: Sequence[float | None],
    colour: int,
    dashed: bool = False,
) -> Series:
    """The mean over classes of similar size, in bins of equal width in log n."""
    pairs = [(max(n, 0.5), v) for n, v in zip(class_counts, values, strict=True) if v is not None]
    if not pairs:
        return Series(name, "line", colour, [], [], dashed)
    low, high = (math.log(f(n for n, _ in pairs)) for f in (min, max))
    bins: dict[int, list[tuple[float, float]]] = {}
    for n, value in pairs:
        share = (math.log(n) - low) / (high - low) if high > low else 0.0
        bins.setdefault(min(int(share * BINS), BINS - 1), []).append((math.log(n), value))
    means = [
        (math.exp(sum(x for x, _ in of) / len(of)), sum(y for _, y in of) / len(of))
        for _, of in sorted(bins.items())
    ]
    x, y = ([rounded(pair[i]) or 0.0 for pair in means] for i in (0, 1))
    return Series(name, "line", colour, x, y, dashed)
