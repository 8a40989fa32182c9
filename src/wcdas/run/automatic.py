"""Choices that suit the data and the machine, where nobody said otherwise."""

import torch
from torch import Tensor

from wcdas.backbones import WeightsUnavailable, create_backbone
from wcdas.data.canvas import bytes_needed
from wcdas.data.dataset import Dataset, FeatureVectors, StoredImages
from wcdas.data.split import held_out_counts
from wcdas.groups import FEW
from wcdas.run.spec import Config, Table

SMALL = 64  # pixels; up to here the CIFAR network, trained from scratch
SHARE_OF_MEMORY = 0.4  # of a GPU, for decoded images
FROM_SCRATCH, FINE_TUNED = "resnet32", "resnet50"

# Weights that have learnt already are changed slowly, and too shortly to learn from mixed images.
FINE_TUNING: Table = {
    "stages": {
        "representation": {
            "algorithm": "adamw",
            "lr": 3e-4,
            "weight_decay": 0.05,
            "warmup": 1.0,
            "ema": 0.998,
            "epochs": 20,
            "batch_size": 64,
            "augment": "trivial-augment",
            "mixup": 0.0,
        },
        "classifier": {"epochs": 10, "lr": 0.01, "batch_size": 64},
    }
}
# A head learns quickly what features have to say.
ON_FEATURES: Table = {
    "stages": {
        "representation": {"epochs": 60, "lr": 0.01, "batch_size": 64},
        "classifier": {"epochs": 20, "lr": 0.01, "batch_size": 64},
    }
}


def automatic(
    dataset: Dataset, device: str, chosen: Table, frozen: bool = False
) -> tuple[Table, list[str]]:
    """Choose what suits a dataset, and say in lines what was decided.

    `chosen` is what the user, or the shipped recipe, says of the backbone; a `frozen` one must
    have learnt already.
    """
    flip = dataset.augment_flip
    table: Table = {} if flip is None else {"augment": {"flip": flip}}
    if device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        table["amp"] = "bf16"
    if isinstance(dataset.train, FeatureVectors):
        return table | {"backbone": {"name": "identity"}} | ON_FEATURES, []
    small = dataset.input_size <= SMALL and not frozen
    name = chosen.get("name", FROM_SCRATCH if small else FINE_TUNED)
    weights = chosen.get("weights", "" if small else "pretrained")
    if weights and "weights" not in chosen:
        try:
            create_backbone(name, input_size=dataset.input_size, weights=weights)
        except WeightsUnavailable:
            if frozen:
                raise
            note = "no pretrained weights can be had, so training starts from scratch"
            if device == "cpu" and "name" not in chosen:
                tiny = {"backbone": {"name": FROM_SCRATCH}, "input_size": SMALL}
                return table | tiny, [f"{note}: {FROM_SCRATCH} at {SMALL} pixels, as suits a CPU"]
            return table | {"backbone": {"name": name}}, [f"{note}: {name}"]
    return table | {"backbone": {"name": name, "weights": weights}}, []


def fits(dataset: Dataset, size: int, device: str) -> bool:
    """Whether the decoded images of a dataset leave most of a GPU's free memory to the training."""
    if device != "cuda" or not isinstance(dataset.train, StoredImages):
        return False
    free, _ = torch.cuda.mem_get_info()
    return bytes_needed(dataset, size) <= SHARE_OF_MEMORY * free


def single_step(config: Config, dataset: Dataset) -> list[str]:
    """Say where an epoch is a single step, with a batch size that makes it four or more."""
    holdouts = config.selection.holdout, config.calibration.holdout
    images = trained_on(dataset.class_counts, *holdouts)
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


def trained_on(class_counts: Tensor, selection: float, calibration: float) -> int:
    """Count the training images that are left when these shares are held out."""
    left = class_counts - held_out_counts(class_counts, selection, smallest=2)
    left = left - held_out_counts(left, calibration, smallest=FEW)
    return int(left.sum())
