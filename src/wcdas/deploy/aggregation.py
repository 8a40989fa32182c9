"""The weights of a model's experts, learnt on images without their labels."""

from collections.abc import Iterator

import torch
from torch import Tensor

from wcdas.data.augment import RESIZED_CROP_FROM, Augmentation, create_augmentation
from wcdas.data.dataset import Split
from wcdas.data.loader import TrainLoader
from wcdas.deploy.model import Model
from wcdas.errors import InputError
from wcdas.evaluation.expert_aggregation import aggregate_experts
from wcdas.heads.experts import ExpertsHead
from wcdas.rng import permutation, stream

EPOCHS, BATCH = 5, 128  # the authors'
JITTER = 0.4


def check_experts(model: Model) -> ExpertsHead:
    """The model's head, refused where there are no experts to weigh, or no two views."""
    head = model.classifier.head
    if not isinstance(head, ExpertsHead):
        raise InputError(
            f"the model was trained by {model.info.method} and has no experts to weigh; "
            "expected one of sade or ride"
        )
    if model.takes_features:
        raise InputError(
            "experts are weighed on two views of every image, but the model takes feature "
            "vectors; train on images"
        )
    return head


def weigh_experts(model: Model, split: Split, flip: bool = True, workers: int = 0) -> Tensor:
    """Give the model the expert weights under which its predictions for the images are stable.

    Args:
        model: one of several experts, such as that of `sade`.
        split: the images; their labels are not looked at.
        flip: whether a mirror image is of the same class.
        workers: processes that decode images; 0 is none.
    """
    head, info = check_experts(model), model.info
    augmentation = view_augmentation(info.input_size, flip)
    loaders = [
        TrainLoader(
            split,
            augmentation=augmentation,
            size=info.input_size,
            channels=info.channels,
            mean=info.mean,
            std=info.std,
            batch_size=BATCH,
            device=model.device,
            workers=workers,
        )
        for _ in range(2)
    ]
    try:
        weights = aggregate_experts(_views(model, head, loaders, e) for e in range(EPOCHS))
    finally:
        for loader in loaders:
            loader.close()
    head.expert_weights.copy_(weights)
    return weights.cpu()


def view_augmentation(size: int, flip: bool) -> Augmentation:
    """As the authors': small images are shifted, large ones cut, both get other colours."""
    if size >= RESIZED_CROP_FROM:
        return create_augmentation("simclr", size=size, flip=flip)
    return create_augmentation("standard", size=size, flip=flip, jitter=JITTER)


@torch.no_grad()
def _views(
    model: Model, head: ExpertsHead, loaders: list[TrainLoader], epoch: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """The experts' logits of two views of every image, in a random order."""
    order = permutation(stream(0, epoch), len(loaders[0].labels))
    views = (loader.epoch(order, stream(0, epoch, i)) for i, loader in enumerate(loaders))
    for first, second in zip(*views, strict=True):
        features = (model.classifier.features(view.inputs) for view in (first, second))
        one, other = (head.expert_logits(x) for x in features)
        yield one, other
