"""What suits the data and the machine where nobody said otherwise."""

from typing import Any

import torch

from wcdas.backbones import WeightsUnavailable, create_backbone
from wcdas.data.dataset import Dataset, FeatureVectors

SMALL = 64  # pixels; up to here the CIFAR network, trained from scratch
FINE_TUNED = "resnet50"
UNMIXED = {"mixup": 0.0}  # too few epochs of fine-tuning to learn from mixed images

Table = dict[str, Any]


def automatic(dataset: Dataset, device: str, chosen: Table) -> tuple[Table, list[str]]:
    """A recipe for a dataset without a shipped one, and lines that say what was decided.

    `chosen` is what the user says of the backbone.
    """
    table: Table = {"augment": {"flip": dataset.augment_flip}}
    if chosen.get("weights"):
        table["stages"] = {"representation": UNMIXED}
    if device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        table["amp"] = "bf16"
    if isinstance(dataset.train, FeatureVectors):
        stage = {"batch_size": 64}
        stages = {"representation": stage | {"epochs": 60}, "classifier": stage | {"epochs": 20}}
        return table | {"backbone": {"name": "identity"}, "stages": stages}, []
    if dataset.input_size <= SMALL:
        return table | {"backbone": {"name": "resnet32"}}, []
    weights = chosen.get("weights", "pretrained")
    name = chosen.get("name", FINE_TUNED)
    fine_tuning: Table = {
        "backbone": {"name": name, "weights": weights},
        "stages": {
            "representation": {"epochs": 30, "lr": 0.01, "batch_size": 64} | UNMIXED,
            "classifier": {"epochs": 10, "lr": 0.01, "batch_size": 64},
        },
    }
    if weights == "pretrained":
        try:
            create_backbone(name, input_size=dataset.input_size, weights="pretrained")
        except WeightsUnavailable:
            note = "no pretrained weights can be had, so training starts from scratch"
            if device == "cpu" and "name" not in chosen:
                small = {"backbone": {"name": "resnet32"}, "input_size": SMALL}
                return table | small, [f"{note}: resnet32 at {SMALL} pixels, as suits a CPU"]
            return table | {"backbone": {"name": name}}, [f"{note}: {name}"]
    return table | fine_tuning, []
