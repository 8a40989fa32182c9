"""Label-distribution-aware margin loss."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from wcdas.checks import as_class_counts, check_positive
from wcdas.losses.base import ClassificationLoss, as_probabilities
from wcdas.losses.class_balanced import class_balanced_weights


class LDAMLoss(ClassificationLoss):
    """Cross-entropy with a margin that is larger for rarer classes.

    L = −log(e^(z_y − sΔ_y) / (e^(z_y − sΔ_y) + Σ_{j≠y} e^(z_j))),  Δ_j = K/n_j^(1/4)

    The constant K makes the largest margin `max_margin`. The logits z = s·cos θ come from a cosine
    head of the same `scale` s. Class probabilities t subtract sΔ_j·t_j. With `beta`, the deferred
    stage of the paper, samples are weighted by their class's inverse effective number, divided by
    the mean weight of the batch.

    K. Cao, C. Wei, A. Gaidon, N. Arechiga, T. Ma, 2019, arXiv:1906.07413.

    >>> import torch
    >>> loss = LDAMLoss(class_counts=[160, 10])
    >>> loss.margins.tolist()
    [0.25, 0.5]
    >>> round(loss(torch.tensor([[20.0, 5.0]]), torch.tensor([0])).item(), 4)
    0.0006
    """

    margins: Tensor
    class_weights: Tensor

    def __init__(
        self,
        class_counts: Sequence[int] | Tensor,
        max_margin: float = 0.5,
        scale: float = 30.0,
        beta: float | None = None,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> None:
        super().__init__(label_smoothing, reduction)
        check_positive("max_margin", max_margin)
        check_positive("scale", scale)
        n = as_class_counts(class_counts, needed_by="ldam")
        weights = torch.ones_like(n) if beta is None else class_balanced_weights(n, beta)
        self.num_classes = len(n)
        self.scale = scale
        self.register_buffer("margins", max_margin * (n.min() / n) ** 0.25, persistent=False)
        self.register_buffer("class_weights", weights, persistent=False)

    def losses(self, logits: Tensor, target: Tensor) -> Tensor:
        margins, w = self.margins.to(logits.dtype), self.class_weights.to(logits.dtype)
        t = as_probabilities(target, logits)
        z = logits - self.scale * margins * t
        losses = F.cross_entropy(z, target, weight=w, reduction="none")
        return losses / (t * w).sum(dim=1).mean()
