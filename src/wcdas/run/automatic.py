"""What suits the data and the machine where nobody said otherwise."""

from typing import Any

import torch

from wcdas.backbones import WeightsUnavailable, create_backbone
from wcdas.data.dataset import Dataset, FeatureVectors

SMALL = 64  # pixels; up to here the CIFAR network, trained from scratch
FROM_SCRATCH, FINE_TUNED = "resnet32", "resnet50"

Table = dict[str, Any]

# Weights that have learnt already are changed slowly, and too shortly to learn from mixed images.
FINE_TUNING: Table = {
    "stages": {
        "representation": {"epochs": 30, "lr": 0.01, "batch_size": 64, "mixup": 0.0},
        "classifier": {"epochs": 10, "lr": 0.01, "batch_size": 64},
    }
}


def automatic(dataset: Dataset, device: str, chosen: Table) -> tuple[Table, list[str]]:
    """A recipe for a dataset without a shipped one, and lines that say what was decided.

    `chosen` is what the user, or the shipped recipe, says of the backbone.
    """
    table: Table = {"augment": {"flip": dataset.augment_flip}}
    if device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        table["amp"] = "bf16"
    if isinstance(dataset.train, FeatureVectors):
        stage = {"lr": 0.01, "batch_size": 64}
        stages = {"representation": stage | {"epochs": 60}, "classifier": stage | {"epochs": 20}}
        return table | {"backbone": {"name": "identity"}, "stages": stages}, []
    small = dataset.input_size <= SMALL
    name = chosen.get("name", FROM_SCRATCH if small else FINE_TUNED)
    weights = chosen.get("weights", "" if small else "pretrained")
    if weights and "weights" not in chosen:
        try:
            create_backbone(name, input_size=dataset.input_size, weights=weights)
        except WeightsUnavailable:
            note = "no pretrained weights can be had, so training starts from scratch"
            if device == "cpu" and "name" not in chosen:
                tiny = {"backbone": {"name": FROM_SCRATCH}, "input_size": SMALL}
                return table | tiny, [f"{note}: {FROM_SCRATCH} at {SMALL} pixels, as suits a CPU"]
            return table | {"backbone": {"name": name}}, [f"{note}: {name}"]
    table["backbone"] = {"name": name, "weights": weights}
    return table | (FINE_TUNING if weights else {}), []
