"""What a stage's log shows of a model that knows nothing but how often each class is drawn."""

from dataclasses import dataclass

import torch
from torch import Tensor

from wcdas.heads.angular import AngularHead
from wcdas.losses.logit_adjustment import LogitAdjustmentLoss
from wcdas.run.step import Step


@dataclass(frozen=True)
class Chance:
    """`loss` and `untrained` are None where a loss cannot be read so.

    Args:
        guess: the accuracy of guessing, 1/C.
        accuracy: of always answering the class that is drawn most.
        loss: of answering with the class shares.
        untrained: the loss of equal logits, from which most heads start.
    """

    guess: float
    accuracy: float
    loss: float | None = None
    untrained: float | None = None


def chance(step: Step, shares: Tensor, counts_right: bool) -> Chance:
    """Of a stage that draws the classes with these shares, which sum to one.

    For cross-entropy, constant logits do best at the entropy of the mean target, whatever prior is
    added to them; mixing images leaves that mean as it is, smoothing moves it. Margins and losses
    of a method's own have no such level. Where nobody counts the right answers, an angular head is
    held against equal logits: with a small scale it may know classes at a loss above the entropy.
    """
    levels, head = (1 / len(shares), float(shares.max())), step.model.head
    if step.training_step is not None or hasattr(head, "margin"):
        return Chance(*levels)
    added = torch.zeros_like(shares) if step.log_prior is None else step.log_prior.to(shares)
    if isinstance(step.loss, LogitAdjustmentLoss):
        added = step.loss.tau * step.loss.log_prior.to(shares)
    elif step.loss is not None:
        return Chance(*levels)
    smoothing = step.stage.label_smoothing
    target = (1 - smoothing) * shares + smoothing / len(shares)
    untrained = float(-(target * added.log_softmax(0)).sum())
    if isinstance(head, AngularHead) and not counts_right:
        return Chance(*levels, untrained, untrained)
    return Chance(*levels, float(torch.special.entr(target).sum()), untrained)
