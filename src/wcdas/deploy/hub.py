"""A folder for the Hugging Face Hub: weights, configuration and model card.

Where the backbone is timm's, the weights have timm's names, so that `timm.create_model` loads them
as well; the file says which name is which, and `wcdas.load` reads it like any model file.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w
import torch
from safetensors.torch import save
from torch import nn

import wcdas
from wcdas.backbones.timm_backbone import TimmBackbone
from wcdas.deploy.agreement import TOLERANCE, largest_difference, outputs, quiet, sample_inputs
from wcdas.deploy.card import model_card
from wcdas.deploy.model import Model, load, preprocessing
from wcdas.errors import WorkError, first_line
from wcdas.heads import LinearHead
from wcdas.run.model_file import save_model

Table = dict[str, Any]


def write_hub_folder(
    model: Model, folder: Path, metrics: Mapping[str, Any] | None, run: Table | None
) -> float:
    """The largest difference of a probability to the model's, of the folder loaded again."""
    folder.mkdir()
    info, backbone = model.info, model.classifier.backbone
    timm_gives = None
    if isinstance(backbone, TimmBackbone):
        classifier = timm_classifier(backbone, model.classifier.head)
        _save_timm_weights(model, classifier, folder / "model.safetensors")
        config = timm_config(model, backbone, classifier)
        features = "features" if info.neck == "none" else "features before the neck"
        timm_gives = "logits" if classifier else features
    else:
        save_model(folder / "model.safetensors", model.classifier, info)
        config = {"library_name": "wcdas"}
    own = {"version": wcdas.__version__, "preprocessing": preprocessing(info)} | asdict(info)
    files = {
        "config.json": json.dumps(config | {"wcdas": own}, indent=1) + "\n",
        "README.md": model_card(model, metrics, run, timm_gives),
    }
    if run:
        files["run.toml"] = tomli_w.dumps(without_places(run))
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    if timm_gives:
        _check_in_timm(model, folder, timm_gives == "logits")
    return largest_difference("the folder", model, None, partial(outputs, load(folder, "cpu")))


def timm_classifier(backbone: TimmBackbone, head: nn.Module) -> str | None:
    """The name of the layer in timm's model that can be the head, if there is one."""
    import timm

    settings = backbone.network.pretrained_cfg
    name, has_neck = settings.get("classifier"), backbone.neck_settings[0] != "none"
    if has_neck or type(head) is not LinearHead or head.bias is None or not isinstance(name, str):
        return None
    with torch.device("meta"):
        whole = timm.create_model(settings["architecture"], num_classes=head.num_classes)
    layer = dict(whole.named_modules()).get(name)
    if not isinstance(layer, nn.Linear) or layer.bias is None:
        return None
    return name if layer.weight.shape == head.weight.shape else None


def timm_config(model: Model, backbone: TimmBackbone, classifier: str | None) -> Table:
    """config.json as timm writes it."""
    info, settings = model.info, backbone.network.pretrained_cfg
    how = preprocessing(info)
    fixed_size = bool(settings.get("fixed_input_size"))
    arguments: Table = {"in_chans": info.channels}
    if fixed_size:
        arguments["img_size"] = info.input_size
    if classifier is None:
        # Another number than that of the weights: timm leaves out what it has no place for.
        arguments["num_classes"] = 0
    return {
        "architecture": settings["architecture"],  # without the tag of pretrained weights
        "num_classes": len(info.class_names),
        "num_features": backbone.pooled_features,
        "label_names": info.class_names,
        "model_args": arguments,
        "pretrained_cfg": {
            "input_size": [info.channels, info.input_size, info.input_size],
            "fixed_input_size": fixed_size,
            "interpolation": "bilinear",
            "crop_pct": how["crop_fraction"],
            "crop_mode": "squash" if how["crop"] == "none" else "center",
            "mean": info.mean,
            "std": info.std,
            "num_classes": len(info.class_names),
            "first_conv": None,  # the filters have the right number of channels
            "classifier": settings.get("classifier") or "head",
        },
    }


def _save_timm_weights(model: Model, classifier: str | None, path: Path) -> None:
    prefixes = {
        "backbone.network.": "",
        "backbone.neck.": "wcdas_neck.",
        "head.": f"{classifier or 'wcdas_head'}.",
    }
    names, tensors = {}, {}
    for own, value in model.classifier.state_dict().items():
        prefix = next(prefix for prefix in prefixes if own.startswith(prefix))
        name = prefixes[prefix] + own.removeprefix(prefix)
        names[name], tensors[name] = own, value.detach().cpu().contiguous()
    notes = {"wcdas": json.dumps(asdict(model.info)), "names": json.dumps(names), "format": "pt"}
    path.write_bytes(save(tensors, metadata=notes))


@torch.no_grad()
def _check_in_timm(model: Model, folder: Path, classifies: bool) -> None:
    import timm

    inputs, backbone = sample_inputs(model), model.classifier.backbone
    ours = model.classifier(inputs) if classifies else backbone.pool(backbone.forward_map(inputs))
    try:
        with quiet():
            theirs = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()(inputs)
    except Exception as error:
        raise WorkError(f"timm cannot load the folder: {first_line(error)}") from error
    if not torch.allclose(theirs, ours, rtol=TOLERANCE, atol=TOLERANCE):
        raise WorkError("timm gives other numbers than wcdas for the folder; nothing was written")


def without_places(value: Any) -> Any:
    """The run's table with the last part of paths alone: where data lay is nobody's business."""
    if isinstance(value, Mapping):
        return {key: without_places(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_places(inner) for inner in value]
    if isinstance(value, str) and Path(value).is_absolute():
        return Path(value).name
    return value
