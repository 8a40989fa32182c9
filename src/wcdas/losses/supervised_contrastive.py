"""Supervised contrastive loss."""

import torch
from torch import Tensor, nn

from wcdas.checks import check_features, check_positive
from wcdas.heads.functional.arithmetic import full_precision, matmul, unit, without_autocast


class SupervisedContrastiveLoss(nn.Module):
    """Draws embeddings of a class together and those of different classes apart.

    L_i = −1/|P(i)| · Σ_{p ∈ P(i)} log( exp(z_i·z_p/τ) / Σ_{a ≠ i} exp(z_i·z_a/τ) )

    P(i) are the other embeddings of i's class. z are the embeddings at unit length; the loss scales
    them itself. The mean is over the embeddings that have another of their class; without any the
    loss is 0. It takes embeddings, not logits, and stands beside a loss that trains a classifier.

    P. Khosla et al., 2020, "Supervised Contrastive Learning", Equation 2 (arXiv:2004.11362).

    >>> loss = SupervisedContrastiveLoss(temperature=1.0)
    >>> z = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    >>> round(loss(z, torch.tensor([0, 0, 1])).item(), 4)  # log(1 + 1/e)
    0.3133
    """

    def __init__(self, temperature: float = 0.1) -> None:
        super().__init__()
        check_positive("temperature", temperature)
        self.temperature = temperature

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        check_features(embeddings, embeddings.shape[-1])
        if labels.shape != embeddings.shape[:1]:
            raise ValueError(
                f"labels have shape {tuple(labels.shape)}; expected ({len(embeddings)},), "
                "one for each embedding"
            )
        with without_autocast(embeddings):
            z = unit(full_precision(embeddings))[0]
            similarity = matmul(z, z.mT) / self.temperature
            itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
            positive = (labels[:, None] == labels) & ~itself
            # Not −∞: the only embedding of a batch would have a gradient that is no number.
            others = similarity.masked_fill(itself, torch.finfo(z.dtype).min)
            log_share = similarity - others.logsumexp(1, keepdim=True)
            count = positive.sum(1)
            losses = -torch.where(positive, log_share, 0).sum(1) / count.clamp_min(1)
            return losses.sum() / (count > 0).sum().clamp_min(1)
