"""A trained model in one safetensors file that needs no other file and no network to load."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from wcdas.backbones import Backbone, create_backbone
from wcdas.backbones.base import FrozenBackbone, Identity
from wcdas.data.images import CENTRE
from wcdas.errors import InputError, explained, first_line
from wcdas.files import check_regular, write_synced
from wcdas.heads import create_head
from wcdas.methods import find_method
from wcdas.methods.classifier import Classifier
from wcdas.methods.method import Parts, plain_model
from wcdas.shapes import check_shape

FORMAT, OLDEST = 4, 1
LARGEST, LARGEST_SIDE = 1_000_000, 4096  # of what a file may ask for; pixels of a side


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
    centre: float = CENTRE  # what of an image's shorter side is seen, from 112 pixels on
    frozen: bool = False  # whether what the method built stands on the backbone's features
    format: int = FORMAT


def save_model(path: Path, model: Classifier, info: ModelInfo) -> None:
    tensors = {
        name: value.detach().cpu().contiguous()
        for name, value in model.state_dict().items()
        if name.startswith(("backbone.", "head."))
    }
    write_synced(path, save(tensors, metadata={"wcdas": json.dumps(asdict(info))}))


def is_whole(path: Path) -> bool:
    """Whether a file is there and has all that its header says."""
    try:
        check_regular(path)
        with safe_open(path, "pt"):
            return True
    except (InputError, OSError, SafetensorError):
        return False


def load_model(path: Path) -> tuple[Classifier, ModelInfo]:
    """Return the classifier in evaluation mode on the CPU, and what it was trained on."""
    tensors, facts = _read(path)
    with explained(f"{path} is damaged: "):
        info = _checked(facts, tensors)
    try:
        build = find_method(info.method).build_model if info.built_by_method else plain_model
        network = create_backbone(info.backbone, channels=info.channels, input_size=info.input_size)
        model = build(_parts(info, Identity(network.num_features) if info.frozen else network))
        if info.frozen:
            model.backbone = FrozenBackbone(network, model.backbone)
        model.auxiliary = None
        model.load_state_dict(tensors)
    except (AttributeError, KeyError, MemoryError, RuntimeError, TypeError, ValueError) as error:
        why = first_line(error)
        raise InputError(f"{path} is damaged, its parts do not fit: {why}") from None
    return model.eval(), info


def _checked(facts: dict[str, Any], tensors: Mapping[str, Tensor]) -> ModelInfo:
    """Check what a file says of its model, before anything is built of it."""
    check_shape(facts, ModelInfo, "its metadata")
    if unknown := sorted(facts.keys() - {field.name for field in fields(ModelInfo)}):
        raise InputError(f"its metadata has {unknown[0]!r}, which nothing reads")
    info = ModelInfo(**facts)
    classes, channels = len(info.class_names), info.channels
    images = info.backbone != "identity"
    sides = (len(info.mean), len(info.std))
    for right, what in (
        (classes >= 2, f"{classes} classes; expected 2 or more"),
        (len(info.class_counts) == classes, f"{len(info.class_counts)} class counts"),
        (min(info.class_counts, default=0) >= 0, "a class count below 0"),
        (len({*info.class_names}) == classes, "the same class name twice"),
        (0 < info.temperature < LARGEST, f"temperature {info.temperature:g}"),
        (info.prior in ("train", "uniform", "none"), f"prior {info.prior!r}"),
        (not images or channels in (1, 3), f"{channels} channels; expected 1 or 3"),
        (1 <= channels <= LARGEST, f"{channels} channels"),
        (not images or 1 <= info.input_size <= LARGEST_SIDE, f"input size {info.input_size}"),
        (0 < info.centre <= 1, f"a centre of {info.centre:g}"),
        (
            not images or sides == (channels, channels),
            f"{sides[0]} means and {sides[1]} deviations",
        ),
        (min(info.std, default=1.0) > 0, "a standard deviation of 0"),
        (0 <= info.neck_features <= LARGEST, f"a neck of {info.neck_features} features"),
    ):
        if not right:
            raise InputError(f"its metadata says {what}, of {classes} classes")
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise InputError(f"{name} holds NaN or infinite numbers")
    return replace(info, format=FORMAT)


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
    unreadable = f"{path} cannot be read as a model: "
    with explained(unreadable):
        check_regular(path)
    with explained(unreadable, OSError, SafetensorError), safe_open(path, "pt") as file:
        notes = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if "wcdas" not in notes:
        raise InputError(f"{path} was not written by wcdas; expected a run's model.safetensors")
    with explained(f"{path} is damaged: ", ValueError, RecursionError):
        facts: dict[str, Any] = json.loads(notes["wcdas"])
        own_names: dict[str, str] = json.loads(notes.get("names", "{}"))  # where timm reads it too
        check_shape(facts, dict[str, Any], "its metadata")
        check_shape(own_names, dict[str, str], "its names")
    if facts.get("format") not in range(OLDEST, FORMAT + 1):
        raise InputError(
            f"{path} has model format {facts.get('format')}; this version reads {OLDEST} to "
            f"{FORMAT}. Install the version of wcdas that wrote it"
        )
    return {own_names.get(name, name): value for name, value in tensors.items()}, facts
