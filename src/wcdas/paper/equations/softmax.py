"""Equations 1 and 2: angular softmax."""

from typing import Any

import torch
from torch import Tensor

from wcdas.heads import create_head
from wcdas.paper.claim import Claim, Finding, Setting
from wcdas.paper.identity import TOLERANCE_TEXT, identity

SCALE = 16.0


def logits_and_cosines(name: str) -> tuple[Tensor, Tensor]:
    """A head's logits for random features, and x·w/(‖x‖‖w‖)."""
    random = torch.Generator().manual_seed(0)
    options: dict[str, Any] = {} if name == "linear" else {"scale": SCALE}
    head = create_head(name, 8, 5, **options).double()
    with torch.no_grad():
        head.weight.copy_(torch.randn(5, 8, generator=random))
        x = torch.randn(64, 8, generator=random, dtype=torch.float64)
        w = head.weight
        cosines = x @ w.mT / (x.norm(dim=1, keepdim=True) * w.norm(dim=1))
        return head(x), cosines


def check_1(setting: Setting, head: str = "cosine") -> Finding:
    """The printed probabilities against the softmax of the head's logits."""
    logits, cosines = logits_and_cosines(head)
    powers = torch.exp(SCALE * cosines)
    probabilities = powers / powers.sum(1, keepdim=True)
    return identity(probabilities, logits.softmax(1), f"64 features, 5 classes, head {head!r}")


def check_2(setting: Setting, head: str = "cosine") -> Finding:
    """s cos θ of random vectors against the head's logits."""
    logits, cosines = logits_and_cosines(head)
    return identity(SCALE * cosines, logits, f"64 features, 5 classes, head {head!r}")


CLAIMS = (
    Claim(
        "equation-1",
        "Section 3, Equation 1",
        "Angular softmax: P(y = j | θ) = exp(s cos θ_j) / Σ_c exp(s cos θ_c).",
        "a second",
        check_1,
        TOLERANCE_TEXT,
    ),
    Claim(
        "equation-2",
        "Section 3, Equation 2",
        "f(θ; j) = s cos θ_j, with cos θ_j = x·w_j of normalised vectors.",
        "a second",
        check_2,
        TOLERANCE_TEXT,
    ),
)
