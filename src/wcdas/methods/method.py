"""A method is a head, the stages that train it, and hooks for what stages cannot say."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wcdas.backbones.base import Backbone
from wcdas.errors import InputError
from wcdas.heads import Head
from wcdas.methods.classifier import Classifier
from wcdas.targets import MixedLabels

Table = Mapping[str, Any]
NOTHING: Table = {}


@dataclass(frozen=True)
class Parts:
    """The parts of a model, in training and again when its file is loaded.

    Args:
        backbone: images → features.
        new_head: length of a feature vector → a head as the run's `head` table says.
        class_counts: training images of every class, on the CPU.
        options: the method's own, of the run's `options` table.
    """

    backbone: Backbone
    new_head: Callable[[int], Head]
    class_counts: Tensor
    options: Mapping[str, Any]


class StepBatch(NamedTuple):
    """The samples of one step, on the device.

    `inputs` may be mixed, and `target` is theirs; `labels` are those before mixing. `views` are
    further versions of every image, one batch for each of the method's `views`; `second` are
    inputs and labels drawn by the stage's `second_sampler`; `taught` are a teacher's logits.
    """

    inputs: Tensor
    target: Tensor | MixedLabels
    labels: Tensor
    views: tuple[Tensor, ...] = ()
    second: tuple[Tensor, Tensor] | None = None
    taught: Tensor | None = None


@dataclass
class StepState:
    """The place in training, and the two things most steps are made of.

    Args:
        stage: its name.
        class_counts: training images of every class, on the device.
        options: the method's own.
        features: inputs → features, in the run's precision, without gradients where the stage
            trains the classifier alone. The first call of a step is what the log describes, its
            rows those of the batch, with any others behind them.
        loss: features and target → the loss that the stage names, through the model's head; or
            through another head, and with a log prior (num_classes,) added to its logits, where
            these follow.
        progress: of the stage, from 0 to 1, a tensor () on the device.
        lr: the learning rate of this step, likewise.
        precision: in which the backbone runs; that of features is higher behind a neck.
        log_prior: what `loss` adds to the logits for the stage's `prior`, (num_classes,); None
            without one.
        epoch: of the stage, from 0 on, a tensor () on the device.
    """

    stage: str
    class_counts: Tensor
    options: Mapping[str, Any]
    features: Callable[[Tensor], Tensor]
    loss: Callable[..., Tensor]
    progress: Tensor = field(default_factory=lambda: torch.zeros(()))
    lr: Tensor = field(default_factory=lambda: torch.zeros(()))
    precision: torch.dtype = torch.float32
    log_prior: Tensor | None = None
    epoch: Tensor = field(default_factory=lambda: torch.zeros(()))


@dataclass(frozen=True)
class StageStart:
    """The facts that a stage may look at when it begins.

    Args:
        stage: its name.
        class_counts: training images of every class, on the CPU.
        options: the method's own.
        features: features and labels of the training images as they are, without augmentation.
        held_out: the same of the images of the table `selection`, which no stage trains on.
    """

    stage: str
    class_counts: Tensor
    options: Mapping[str, Any]
    features: Callable[[], tuple[Tensor, Tensor]]
    held_out: Callable[[], tuple[Tensor, Tensor]]


# Stage 1 of the paper: the whole network on the images as they come.
REPRESENTATION = {"trains": "all", "sampler": "instance-balanced", "epochs": 90, "lr": 0.2}
# Stage 2: the classifier alone, on classes drawn equally often.
CLASSIFIER = {"trains": "classifier", "sampler": "class-balanced", "epochs": 30, "lr": 0.2}


def one_stage(
    head: Table, representation: Table = NOTHING, *, neck: str = "none"
) -> dict[str, Any]:
    """The defaults of a method that trains all at once; `representation` changes the stage."""
    return {
        "head": head,
        "neck": {"name": neck},
        "stages": {"representation": {**REPRESENTATION, **representation}},
    }


def two_stages(
    head: Table,
    representation: Table = NOTHING,
    classifier: Table = NOTHING,
    *,
    neck: str = "none",
) -> dict[str, Any]:
    """The same with the classifier trained on after it."""
    defaults = one_stage(head, representation, neck=neck)
    defaults["stages"]["classifier"] = {**CLASSIFIER, **classifier}
    return defaults


def plain_model(parts: Parts) -> Classifier:
    """A backbone and a head, nothing else."""
    return Classifier(parts.backbone, parts.new_head(parts.backbone.num_features))


@dataclass(frozen=True)
class Method:
    """A row of the paper's tables.

    Args:
        summary: what it is, in a line.
        paper: where it comes from.
        defaults: the table of a recipe: `head`, `neck` and `stages`, in the order they run.
        reported: numbers that its own paper reports, with dataset and network.
        options: the names and default values of what the hooks take from the `options` table.
        views: augmentations of further versions of every image, in stages that train all.
        unmixed: the stages that cannot take images mixed of two classes.
        selects: whether a stage chooses on the images of the table `selection`.
        meta_images: whether second batches are of these images, for which a class that has none
            lends those that it trains on.
        own_loss: the stages in which `training_step` takes no loss of the configuration.
        prior: the class prior of its logits, "train", "uniform" or "none", where it does not
            follow from the last stage; "stage" where it does in spite of a step of its own.
        experts: whether the backbone is cut into experts.
        build_model: the model, where it is more than a backbone and a head.
        begin_stage: called when a stage begins; may change the values of parameters and buffers.
        training_step: model, batch and state → the loss of a step.
    """

    summary: str
    paper: str
    defaults: Mapping[str, Any]
    reported: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    views: tuple[str, ...] = ()
    unmixed: tuple[str, ...] = ()
    selects: bool = False
    meta_images: bool = False
    own_loss: tuple[str, ...] = ()
    prior: str = ""
    experts: bool = False
    build_model: Callable[[Parts], Classifier] = plain_model
    begin_stage: Callable[[Classifier, StageStart], None] | None = None
    training_step: Callable[[Classifier, StepBatch, StepState], Tensor] | None = None

    def __post_init__(self) -> None:
        who = f"the method {self.summary!r}"
        tables = self.defaults if isinstance(self.defaults, Mapping) else {}
        head, stages = tables.get("head"), tables.get("stages")
        if not isinstance(head, Mapping) or "name" not in head:
            raise InputError(f"{who} has head {head!r}; expected defaults with head={{'name': …}}")
        if not isinstance(stages, Mapping) or not stages:
            raise InputError(
                f"{who} has stages {stages!r}; expected defaults with "
                "stages={'representation': {…}, …}"
            )
        for name in ("views", "unmixed", "own_loss"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise InputError(f"{who} has {name} {value!r}; expected a tuple, ({value!r},)")
