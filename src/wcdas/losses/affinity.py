"""Max-margin loss on Gaussian affinities."""

import torch
from torch import Tensor

from wcdas.checks import check_positive
from wcdas.losses.base import ClassificationLoss


class AffinityLoss(ClassificationLoss):
    """Hinge loss that wants the affinity to the own class above that to any other by a margin λ.

    L = Σ_{j≠y} max(0, λ + d_j − d_y),  d = e^z

    The logits z = log d of the affinities d come from a `gaussian-affinity` head. Class
    probabilities t weight the losses of the classes; their cost grows with the square of C.

    M. Hayat, S. Khan, S. W. Zamir, J. Shen, L. Shao, 2019, arXiv:1901.07711.

    >>> import torch
    >>> loss = AffinityLoss(margin=0.5)
    >>> affinities = torch.tensor([[0.75, 0.5, 0.125]])
    >>> loss(affinities.log(), torch.tensor([0])).item()
    0.25
    """

    def __init__(self, margin: float = 0.75, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        check_positive("margin", margin, at_most=1)
        self.margin = margin

    def losses(self, logits: Tensor, target: Tensor) -> Tensor:
        d = logits.exp()
        if target.is_floating_point():
            hinges = (self.margin + d[:, None, :] - d[:, :, None]).relu()  # (batch, y, j)
            own = torch.eye(d.shape[1], dtype=torch.bool, device=d.device)
            return (target * hinges.masked_fill(own, 0).sum(2)).sum(1)
        y = target[:, None]
        return (self.margin + d - d.gather(1, y)).relu().scatter(1, y, 0).sum(1)


def diversity(prototypes: Tensor) -> Tensor:
    """R(w) = E_{j<k}[(‖w_j − w_k‖² − μ)²], μ = E_{j<k}[‖w_j − w_k‖²]: equal distances are best."""
    return torch.pdist(prototypes).square().var(correction=0)
