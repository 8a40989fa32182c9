"""Center loss."""

import torch
from torch import Tensor

from wcdas import processes
from wcdas.checks import check_features, check_labels, check_positive, check_reduction
from wcdas.heads.functional.arithmetic import full_precision, without_autocast
from wcdas.losses.base import Loss
from wcdas.targets import reduced


class CenterLoss(Loss):
    """Squared distance of features to the moving center of their class, added to another loss.

    L = λ/2 · ‖x − c_y‖²,  c_j ← c_j − α · Σ_i 1(y_i = j)(c_j − x_i) / (1 + Σ_i 1(y_i = j))

    λ is `weight`. Centers start at 0 and move once per call in training mode, after the loss is
    taken from where they were, by the samples of all processes; no gradient moves them.

    Y. Wen, K. Zhang, Z. Li, Y. Qiao, 2016, "A Discriminative Feature Learning Approach for Deep
    Face Recognition", ECCV.

    >>> loss = CenterLoss(in_features=2, num_classes=2, weight=1.0)
    >>> loss(torch.tensor([[3.0, 4.0]]), torch.tensor([1])).item()
    12.5
    >>> loss.centers.tolist()
    [[0.0, 0.0], [0.75, 1.0]]
    """

    on_features = True
    centers: Tensor

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        weight: float = 0.003,
        alpha: float = 0.5,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        check_positive("num_classes", num_classes)
        check_positive("in_features", in_features)
        check_positive("weight", weight)
        check_positive("alpha", alpha, at_most=1)
        check_reduction(reduction)
        self.weight = weight
        self.alpha = alpha
        self.reduction = reduction
        self.register_buffer("centers", torch.zeros(num_classes, in_features))

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        num_classes, in_features = self.centers.shape
        check_features(features, in_features)
        check_labels(labels, len(features), num_classes)
        labels = labels.long()
        with without_autocast(features):
            x = full_precision(features)
            offsets = x - self.centers.to(x.dtype)[labels]
            losses = self.weight / 2 * offsets.square().sum(dim=1)
            if self.training:
                self.move_centers(offsets.detach().to(self.centers.dtype), labels)
            return reduced(losses, self.reduction)

    @torch.no_grad()
    def move_centers(self, offsets: Tensor, labels: Tensor) -> None:
        """Move the centre of every class of the batch towards its features."""
        total = torch.zeros_like(self.centers).index_add(0, labels, offsets)
        count = torch.zeros_like(self.centers[:, 0]).index_add(
            0, labels, offsets.new_ones(len(labels))
        )
        total, count = processes.total(total), processes.total(count)
        self.centers += self.alpha * total / (1 + count)[:, None]
