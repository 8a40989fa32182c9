"""Where a head with a trainable scale starts, so that it learns at other widths and rates, too.

Let f(cos θ) be what the scale s multiplies, f' its slope at a right angle and Δf = f(1) − f(0) its
rise from there to the class's own direction. Features and weights start at right angles, give or
take 1/√d, so g = s·f' over √d is the spread of the first logits, and s·Δf the most that they can
come to differ by. The start is that of `nn.Linear` on features of unit variance, with room enough
for C classes to be told apart with a probability of 1 − 1/C:

    g = max(√(d/3), 2 log C · f'/Δf),    s₀ = g / f'.

A weight of which only the direction counts turns by rate · g/‖w‖² for a gradient of 1. Its length
makes that the same at every width, that of s·cos θ with s = 30 and the weights of `nn.Linear`:

    ‖w‖² = g / 90.

What is trained beside the weights moves logits by about as much as it moves itself, whatever s is:

    s = u·(softplus(k·w_s) + 1),    ρ = σ(r·w_ρ).

u sets s₀ at w_s = 0, k lets w_s change s·Δf by its own step there, and r lets w_ρ change a logit by
its own step, root mean square over the circle. The paper's start is u = k = r = 1, w_s = w_ρ = 0,
and weights as `nn.Linear` has them. `benchmarks/head_start.py` compares the two.
"""

import math
from typing import Literal, NamedTuple

from wcdas.errors import unknown

Start = Literal["auto", "paper"]
TURN = 90.0
AT_ZERO = math.log(2) + 1  # softplus(0) + 1


class Shape(NamedTuple):
    """Slope f' of a similarity at a right angle, and its rise Δf from there to θ = 0."""

    slope: float
    rise: float


COSINE = Shape(slope=1.0, rise=1.0)


class ScaleStart(NamedTuple):
    """s₀, the length of a weight, u and k."""

    scale: float
    length: float
    unit: float
    rate: float


def scale_start(
    in_features: int, num_classes: int, shape: Shape, scale: float | None = None
) -> ScaleStart:
    """The start of a trainable scale; `scale` is s₀ where somebody says otherwise."""
    if scale is None:
        needed = 2 * math.log(num_classes) * shape.slope / shape.rise
        scale = max(math.sqrt(in_features / 3), needed) / shape.slope
    length = math.sqrt(scale * shape.slope / TURN)
    return ScaleStart(scale, length, scale / AT_ZERO, 2 * AT_ZERO / (scale * shape.rise))


def check_start(start: str) -> None:
    if start not in ("auto", "paper"):
        raise unknown("start", str(start), ("auto", "paper"))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0
