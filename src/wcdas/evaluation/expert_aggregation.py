"""Weights of experts for a class mix that nobody knows, learnt from images without labels.

Y. Zhang, B. Hooi, L. Hong, J. Feng, "Self-Supervised Aggregation of Diverse Experts for
Test-Agnostic Long-Tailed Recognition", 2022 (arXiv:2107.09249), section 4.2.
"""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor


def prediction_stability(weights: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """The mean cosine between the predictions of two views, ŷ = softmax(Σ_e w_e z_e).

    The logits of a view are (experts, batch, classes).
    """
    w = weights.view(-1, 1, 1)
    y1, y2 = ((w * z).sum(0).softmax(dim=1) for z in (first, second))
    return F.cosine_similarity(y1, y2, dim=1).mean()


@torch.enable_grad()
def aggregate_experts(
    epochs: Iterable[Iterable[tuple[Tensor, Tensor]]],
    lr: float = 0.1,
    momentum: float = 0.9,
    weight_decay: float = 5e-4,
    lowest: float = 0.05,
) -> Tensor:
    """The weights under which predictions are most stable, (experts,), summing to 1.

    An expert that knows the classes at hand answers alike for two views of an image, so it gains
    weight. Learning by SGD begins with equal weights and ends early when one is below `lowest`.

    Args:
        epochs: for each the batches, and for each of these the logits of two views of the same
            images, (experts, batch, classes).
        lr: learning rate; here and below the authors' values for CIFAR-100-LT.
        momentum: of Nesterov.
        weight_decay: towards equal weights.
        lowest: weight at which learning ends.
    """
    logits: Tensor | None = None
    for batches in epochs:
        for first, second in batches:
            if logits is None:
                logits = torch.full((len(first),), 1 / len(first), device=first.device)
                logits.requires_grad_()
                optimizer = torch.optim.SGD(
                    [logits], lr, momentum, weight_decay=weight_decay, nesterov=True
                )
            optimizer.zero_grad()
            (-prediction_stability(logits.softmax(0), first, second)).backward()
            optimizer.step()
        if logits is not None and bool(logits.softmax(0).min() < lowest):
            break
    if logits is None:
        raise ValueError("there are no images to learn the experts' weights on; expected some")
    return logits.detach().softmax(0)
