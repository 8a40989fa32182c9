"""A trained model in one safetensors file that needs no other file and no network to load."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from wcdas.backbones import create_backbone
from wcdas.errors import InputError
from wcdas.heads import create_head
from wcdas.training.checkpoint import write_synced
from wcdas.training.model import Classifier

FORMAT = 1


@dataclass(frozen=True)
class ModelInfo:
    """What the weights do not say."""

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
    format: int = FORMAT


def save_model(path: Path, model: Classifier, info: ModelInfo) -> None:
    tensors = {
        name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()
    }
    write_synced(path, save(tensors, metadata={"wcdas": json.dumps(asdict(info))}))


def load_model(path: Path) -> tuple[Classifier, ModelInfo]:
    """The classifier in evaluation mode on the CPU, and what it was trained on."""
    tensors, facts = _read(path)
    try:
        info = ModelInfo(**facts)
        length, classes = tensors["head.weight"].shape[1], len(info.class_names)
        model = Classifier(
            create_backbone(info.backbone, channels=info.channels, input_size=info.input_size),
            create_head(info.head, length, classes, **info.head_options),
        )
        model.load_state_dict(tensors)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        first_line = str(error).splitlines()[0]
        raise InputError(f"{path} is damaged, its parts do not fit: {first_line}") from None
    return model.eval(), info


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, "pt") as file:
            metadata = (file.metadata() or {}).get("wcdas")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} cannot be read as a model: {error}") from None
    if metadata is None:
        raise InputError(f"{path} was not written by wcdas; expected a run's model.safetensors")
    try:
        facts: dict[str, Any] = json.loads(metadata)
    except json.JSONDecodeError as error:
        raise InputError(f"{path} is damaged, its metadata is no JSON: {error}") from None
    if facts.get("format") != FORMAT:
        raise InputError(
            f"{path} has model format {facts.get('format')}; this version reads {FORMAT}. "
            "Install the version of wcdas that wrote it"
        )
    return tensors, facts
