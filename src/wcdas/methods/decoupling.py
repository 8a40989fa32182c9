"""Classifiers that are set, not trained, after the first stage: τ-normalised, nearest class mean.

Kang et al., "Decoupling Representation and Classifier for Long-Tailed Recognition", 2020
(arXiv:1910.09217); its other two, crt and lws, need no code. `tau_norm.py` of
facebookresearch/classifier-balancing tries τ from 0 to 2 in steps of 0.1, as here, and takes the
best on validation images: of ImageNet-LT 20 of every class, beside the training images. Most long
tails have none, so here they are held out of training, one of the smallest classes, and τ is the
middle of the values that these cannot tell from the best one.
"""

from wcdas.evaluation.posthoc import choose
from wcdas.evaluation.scores import Scores, logits_of
from wcdas.heads import TauNormHead
from wcdas.heads.oltr import class_means
from wcdas.methods.classifier import Classifier
from wcdas.methods.method import REPRESENTATION, Method, StageStart

TAUS = tuple(i / 10 for i in range(21))


def choose_tau(model: Classifier, start: StageStart) -> None:
    """Set τ to the middle of those that are best on the held-out images."""
    head = model.head
    if not isinstance(head, TauNormHead):
        return
    features, labels = start.held_out()

    def logits(tau: float) -> Scores:
        head.tau.fill_(tau)
        return logits_of(head, features)

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


def set_means(model: Classifier, start: StageStart) -> None:
    """Let the cosine head compare with the mean feature of every class."""
    if start.stage == "classifier":
        features, labels = start.features()
        model.head.weight.copy_(class_means(features, labels, model.head.num_classes)[0])


NCM = Method(
    summary="softmax, then the class whose mean feature has the smallest angle",
    paper="Kang et al., 2020 (arXiv:1910.09217)",
    defaults={
        "head": {"name": "linear"},
        "stages": {
            "representation": REPRESENTATION,
            "classifier": {"trains": "nothing", "head": "cosine"},
        },
    },
    begin_stage=set_means,
)
