"""Equilibrium loss."""

import torch
from torch import Tensor
from torch.nn import functional as F

from wcdas import processes
from wcdas.checks import check_positive, check_probability
from wcdas.losses.base import ClassificationLoss, as_probabilities


class EquilibriumLoss(ClassificationLoss):
    """Cross-entropy with margins that follow how well each class is recognised at the moment.

    L = −log(s_y e^(z_y) / Σ_k s_k e^(z_k)),  s_j ← α^n_j s_j + (1 − α^n_j) p̄_j

    s is the mean classification score of a class: p̄_j is the mean of p_j, p = softmax(z), over the
    n_j samples of class j in the batch. The margin between y and k is log(s_k/s_y): the weaker y is
    beside k, the larger. Scores move once per call in training mode, before the loss is taken from
    them, and over all processes; no gradient moves them. Soft targets count as parts of samples.

    C. Feng, Y. Zhong, W. Huang, 2021, arXiv:2108.07507.

    >>> import torch
    >>> loss = EquilibriumLoss(num_classes=2, alpha=0.5, initial_score=0.25)
    >>> round(loss(torch.zeros(1, 2), torch.tensor([1])).exp().item(), 4)
    1.6667
    >>> loss.scores.tolist()
    [0.25, 0.375]
    """

    scores: Tensor

    def __init__(
        self,
        num_classes: int,
        alpha: float = 0.9,
        initial_score: float = 0.01,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        check_positive("num_classes", num_classes)
        check_probability("alpha", alpha)
        check_positive("initial_score", initial_score, at_most=1)
        self.num_classes = num_classes
        self.alpha = alpha
        self.register_buffer("scores", torch.full((num_classes,), float(initial_score)))

    def losses(self, logits: Tensor, target: Tensor) -> Tensor:
        if self.training:
            self.move_scores(logits.detach(), as_probabilities(target, logits))
        log_s = self.scores.to(logits.dtype).clamp_min(torch.finfo(logits.dtype).tiny).log()
        return F.cross_entropy(logits + log_s, target, reduction="none")

    @torch.no_grad()
    def move_scores(self, logits: Tensor, t: Tensor) -> None:
        """Move the mean scores of the classes of the batch."""
        n, total = processes.total(torch.stack([t.sum(0), (t * logits.softmax(1)).sum(0)]))
        kept = self.alpha**n
        mean = total / n.clamp_min(torch.finfo(n.dtype).tiny)
        self.scores.copy_(kept * self.scores + (1 - kept) * mean)
