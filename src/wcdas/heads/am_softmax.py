"""AM-Softmax, also known as CosFace: an additive margin on the cosine."""

from torch import Tensor

from wcdas.checks import check_positive
from wcdas.heads.angular import AngularHead, Scale
from wcdas.heads.margin import with_margin
from wcdas.heads.start import Start


class AMSoftmaxHead(AngularHead):
    """z_y = s·(cos θ_y − m), z_j = s·cos θ_j otherwise.

    Args:
        in_features: length of a feature vector.
        num_classes: number of classes.
        margin: m, 0.35 in both papers.
        scale: s, 30 in Wang et al., 64 in CosFace; or "trainable".
        scale_init: where a trainable s starts, in place of where `start` has it.
        start: of a trainable s: "auto", or "paper" for softplus(0) + 1 ≈ 1.69.

    Wang et al., "Additive Margin Softmax for Face Verification", 2018 (arXiv:1801.05599);
    Wang et al., "CosFace", 2018 (arXiv:1801.09414).

    Example:
        >>> head = AMSoftmaxHead(in_features=64, num_classes=100)
        >>> loss = head.loss(torch.randn(8, 64), torch.arange(8))
    """

    has_margin = True

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        margin: float = 0.35,
        scale: Scale = 30.0,
        scale_init: float | None = None,
        start: Start = "auto",
    ) -> None:
        super().__init__(in_features, num_classes, scale, scale_init, start)
        check_positive("margin", margin, at_most=2.0)
        self.margin = margin

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, margin={self.margin:g}"

    def similarity(self, cosine: Tensor, labels: Tensor | None) -> Tensor:
        return with_margin(cosine, labels, lambda c: c - self.margin)
