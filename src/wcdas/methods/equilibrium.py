"""Equilibrium loss and memory-augmented feature sampling, brought from detection to classification.

Feng et al., "Exploring Classification Equilibrium in Long-Tailed Object Detection", 2021
(arXiv:2108.07507). As there, the network is trained first and the classifier after it, on images
as they come. The second stage has the paper's two parts: margins that follow the mean score of
every class (`EquilibriumLoss`), and a memory of features from which classes are drawn the more
often the lower their score.

Detection alone has boxes and a background: an object's features enter the memory for sixteen
shifted boxes, here an image's once each time it is seen, as its augmentation shows it; and the
background has a score of its own, which no class here needs. In the running means of the scores a
drawn feature counts like an image. Of several processes the first one's images fill the memory, and
each draws its share of the classes.
"""

from typing import cast

import torch
from torch import Tensor, nn

from wcdas import processes
from wcdas.errors import InputError, explained
from wcdas.losses.equilibrium import EquilibriumLoss
from wcdas.methods.classifier import Classifier
from wcdas.methods.method import Method, Parts, StepBatch, StepState, two_stages


class FeatureMemory(nn.Module):
    """The last `size` features of every class."""

    queue: Tensor
    seen: Tensor

    def __init__(self, num_classes: int, in_features: int, size: int) -> None:
        super().__init__()
        self.size = size
        # The last place of a class takes what does not fit: more of a batch than a queue is long.
        self.register_buffer("queue", torch.zeros(num_classes, size + 1, in_features))
        self.register_buffer("seen", torch.zeros(num_classes, dtype=torch.int64))

    @torch.no_grad()
    def remember(self, features: Tensor, labels: Tensor) -> None:
        """Put features into the queues, where the newest replace the oldest."""
        of_class = nn.functional.one_hot(labels, len(self.seen))
        counts = of_class.sum(0)
        before = (of_class.cumsum(0) * of_class).sum(1) - 1  # of the same class, in this batch
        place = (self.seen[labels] + before) % self.size
        place = torch.where(counts[labels] - before > self.size, self.size, place)
        self.queue[labels, place] = features.to(self.queue.dtype)
        self.seen += counts

    @torch.no_grad()
    def draw(self, scores: Tensor, classes: int, features: int) -> tuple[Tensor, Tensor]:
        """`features` of each of `classes` classes, drawn with p ∝ 1/s among those with any."""
        noise = -torch.rand(classes, len(scores), device=scores.device).log()  # exponential
        empty = self.seen == 0
        drawn = (noise * scores).masked_fill(empty, torch.inf).argmin(1)
        filled = self.seen.clamp_max(self.size)[drawn, None]
        place = (torch.rand(classes, features, device=scores.device) * filled).long()
        found = self.queue[drawn[:, None], place.minimum(filled - 1)]
        return found.flatten(0, 1), drawn.repeat_interleave(features)


class Equilibrium(nn.Module):
    """The state of the second stage: the mean scores and the memory."""

    def __init__(self, loss: EquilibriumLoss, memory: FeatureMemory) -> None:
        super().__init__()
        self.loss = loss
        self.memory = memory


def build_model(parts: Parts) -> Classifier:
    classes, length = len(parts.class_counts), parts.backbone.num_features
    options = parts.options
    for name, least in (("memory_size", 1), ("memory_classes", 0), ("memory_features", 0)):
        if options[name] < least:
            raise InputError(f"options.{name} is {options[name]}; expected at least {least}")
    with explained("options."):
        loss = EquilibriumLoss(classes, options["alpha"], options["initial_score"])
    state = Equilibrium(loss, FeatureMemory(classes, length, options["memory_size"]))
    return Classifier(parts.backbone, parts.new_head(length), state)


def training_step(model: Classifier, batch: StepBatch, state: StepState) -> Tensor:
    features = state.features(batch.inputs)
    if state.stage != "classifier":
        return state.loss(features, batch.target)
    own, features, labels = cast(Equilibrium, model.auxiliary), features.float(), batch.labels
    own.memory.remember(features, labels)
    classes, each = state.options["memory_classes"], state.options["memory_features"]
    if classes and each:
        share = -(-classes // processes.count())
        drawn, of_class = own.memory.draw(own.loss.scores, share, each)
        features, labels = torch.cat([features, drawn]), torch.cat([labels, of_class])
    loss: Tensor = own.loss(model.head(features, labels), labels)
    return loss


EQUILIBRIUM = Method(
    summary="margins that follow every class's mean score, and a memory of weak classes' features",
    paper="Feng et al., 2021 (arXiv:2108.07507)",
    # Scores and margins chase each other at a high rate; clipping keeps them together.
    defaults=two_stages(
        {"name": "linear"}, classifier={"sampler": "instance-balanced", "clip": 1.0}
    ),
    reported=(
        "LVIS v1.0 (detection), Mask R-CNN with ResNet-50, in the authors' repository: "
        "mask AP 26.6, box AP 27.4"
    ),
    options={
        "alpha": 0.9,
        "initial_score": 0.01,
        "memory_size": 80,
        "memory_classes": 8,
        "memory_features": 4,
    },
    prior="none",
    unmixed=("classifier",),
    own_loss=("classifier",),
    build_model=build_model,
    training_step=training_step,
)
