"""A trained model in one safetensors file that needs no other file and no network to load."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from wcdas.backbones import Backbone, create_backbone
from wcdas.backbones.base import FrozenBackbone, Identity
from wcdas.errors import InputError, explained, first_line
from wcdas.files import write_synced
from wcdas.heads import create_head
from wcdas.methods import find_method
from wcdas.methods.classifier import Classifier
from wcdas.methods.method import Parts, plain_model

FORMAT, OLDEST = 3, 1


@dataclass(frozen=True)
class ModelInfo:
    """All that the weights do not say."""

    backbone: str
    head: str
    head_options: dict[str, Any]
    class_names: list[str]
    class_counts: list[int]
    channels: int
    input_size: int
    mean: list[float]
    std: list[float]
    temperature: float
    prior: str  # the class prior its logits were trained under: train, uniform or none
    method: str
    dataset: str
    options: dict[str, Any] = field(default_factory=dict)  # of the method
    built_by_method: bool = False  # whether the model is more than a backbone and a head
    neck: str = "none"
    neck_features: int = 0
    frozen: bool = False  # whether what the method built stands on the backbone's features
    format: int = FORMAT


def save_model(path: Path, model: Classifier, info: ModelInfo) -> None:
    tensors = {
        name: value.detach().cpu().contiguous()
        for name, value in model.state_dict().items()
        if name.startswith(("backbone.", "head."))
    }
    write_synced(path, save(tensors, metadata={"wcdas": json.dumps(asdict(info))}))


def load_model(path: Path) -> tuple[Classifier, ModelInfo]:
    """Return the classifier in evaluation mode on the CPU, and what it was trained on."""
    tensors, facts = _read(path)
    try:
        info = ModelInfo(**facts | {"format": FORMAT})
        build = find_method(info.method).build_model if info.built_by_method else plain_model
        network = create_backbone(info.backbone, channels=info.channels, input_size=info.input_size)
        model = build(_parts(info, Identity(network.num_features) if info.frozen else network))
        if info.frozen:
            model.backbone = FrozenBackbone(network, model.backbone)
        model.auxiliary = None
        model.load_state_dict(tensors)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        why = first_line(error)
        raise InputError(f"{path} is damaged, its parts do not fit: {why}") from None
    return model.eval(), info


def _parts(info: ModelInfo, backbone: Backbone) -> Parts:
    return Parts(
        backbone.attach_neck(info.neck, info.neck_features),
        lambda length: create_head(
            info.head, length, len(info.class_names), info.class_counts, **info.head_options
        ),
        torch.tensor(info.class_counts),
        info.options,
    )


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    cannot = explained(f"{path} cannot be read as a model: ", OSError, SafetensorError)
    with cannot, safe_open(path, "pt") as file:
        notes = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if "wcdas" not in notes:
        raise InputError(f"{path} was not written by wcdas; expected a run's model.safetensors")
    with explained(f"{path} is damaged, its metadata is no JSON: ", json.JSONDecodeError):
        facts: dict[str, Any] = json.loads(notes["wcdas"])
        own_names: dict[str, str] = json.loads(notes.get("names", "{}"))  # where timm reads it too
    if facts.get("format") not in range(OLDEST, FORMAT + 1):
        raise InputError(
            f"{path} has model format {facts.get('format')}; this version reads {OLDEST} to "
            f"{FORMAT}. Install the version of wcdas that wrote it"
        )
    return {own_names.get(name, name): value for name, value in tensors.items()}, facts
