"""τ-normalised classifier, τ chosen on training images that no stage has seen."""

from torch import Tensor

from wcdas.evaluation.posthoc import choose
from wcdas.heads import TauNormHead
from wcdas.methods.base import REPRESENTATION, Method
from wcdas.methods.classifier import Classifier
from wcdas.methods.method import StageStart

TAUS = tuple(i / 10 for i in range(21))


def choose_tau(model: Classifier, start: StageStart) -> None:
    """Set τ to the one of the highest balanced accuracy on the held-out images."""
    head = model.head
    if not isinstance(head, TauNormHead):
        return
    features, labels = start.held_out()
    x = features.to(head.weight)

    def logits(tau: float) -> Tensor:
        head.tau.fill_(tau)
        return head(x).cpu()

    head.tau.fill_(choose(TAUS, logits, labels))


TAU_NORM = Method(
    summary="softmax, then w/‖w‖^τ with τ chosen on held-out training images",
    paper="Kang et al., 2020 (arXiv:1910.09217)",
    reported="ImageNet-LT, ResNet-10: 40.6",
    defaults={
        "head": {"name": "linear", "bias": False},
        "selection": {"holdout": 0.1},
        "stages": {
            "representation": REPRESENTATION,
            "classifier": {"trains": "nothing", "head": "tau-norm"},
        },
    },
    selects=True,
    begin_stage=choose_tau,
)
