"""Focal loss."""

import torch
from torch import Tensor
from torch.nn import functional as F

from wcdas.checks import check_from_zero, check_probability
from wcdas.errors import unknown
from wcdas.losses.base import ClassificationLoss, as_probabilities


class FocalLoss(ClassificationLoss):
    """Focal loss: cross-entropy that fades for samples already classified well.

    softmax:  L = −(1 − p_y)^γ log p_y,  p = softmax(z)
    sigmoid:  L = −Σ_j α_j (1 − q_j)^γ log q_j,  p_j = σ(z_j),
              q_j = p_j and α_j = α for the label, q_j = 1 − p_j and α_j = 1 − α for the rest

    Class probabilities t weight the terms of the classes. `alpha` belongs to the sigmoid form,
    where the paper takes 0.25; without it both sides count alike.

    T.-Y. Lin, P. Goyal, R. Girshick, K. He, P. Dollár, 2017, arXiv:1708.02002.

    >>> import torch
    >>> loss = FocalLoss(gamma=2.0)
    >>> round(loss(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0])).item(), 4)
    0.0109
    """

    def __init__(
        self,
        gamma: float = 2.0,
        alpha: float | None = None,
        activation: str = "softmax",
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> None:
        super().__init__(label_smoothing, reduction)
        check_from_zero("gamma", gamma)
        if activation not in ("softmax", "sigmoid"):
            raise unknown("activation", activation, ("softmax", "sigmoid"))
        if alpha is not None:
            check_probability("alpha", alpha)
            if activation == "softmax":
                raise ValueError(
                    f"alpha is {alpha}, but it balances the binary form only; "
                    "use activation='sigmoid' or leave alpha out"
                )
        self.gamma = gamma
        self.alpha = alpha
        self.activation = activation

    def losses(self, logits: Tensor, target: Tensor) -> Tensor:
        if self.activation == "sigmoid":
            return self.sigmoid_losses(logits, as_probabilities(target, logits))
        log_p = logits.log_softmax(dim=1)
        if target.is_floating_point():
            return (target * self.faded(log_p)).sum(dim=1)
        return self.faded(log_p.gather(1, target[:, None])).squeeze(1)

    def sigmoid_losses(self, logits: Tensor, t: Tensor) -> Tensor:
        """The binary form, summed over the classes."""
        alpha, beta = (1.0, 1.0) if self.alpha is None else (self.alpha, 1 - self.alpha)
        positive = alpha * t * self.faded(F.logsigmoid(logits))
        negative = beta * (1 - t) * self.faded(F.logsigmoid(-logits))
        return (positive + negative).sum(dim=1)

    def faded(self, log_p: Tensor) -> Tensor:
        """−(1 − p)^γ log p; 1 − p is kept above 0, where γ < 1 has no finite slope."""
        one_minus_p = (-log_p.expm1()).clamp_min(torch.finfo(log_p.dtype).tiny)
        return -(one_minus_p**self.gamma) * log_p
