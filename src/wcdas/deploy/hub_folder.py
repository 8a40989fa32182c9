"""A folder for the Hugging Face Hub: weights, configuration and model card.

Where the backbone is timm's, the weights have timm's names, so that `timm.create_model` loads them
as well; the file says which name is which, and `wcdas.load` reads it like any model file.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tomli_w
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import wcdas
from wcdas.backbones.timm_backbone import TimmBackbone
from wcdas.deploy.agreement import TOLERANCE, largest_difference, sample_inputs
from wcdas.deploy.card import model_card
from wcdas.deploy.metadata import preprocessing
from wcdas.deploy.model import Model, load
from wcdas.deploy.quiet import quiet
from wcdas.errors import WorkError
from wcdas.heads import LinearHead
from wcdas.run.model_file import save_model

Table = dict[str, Any]

WITH_TIMM = """With timm alone{what}:

```python
import timm

model = timm.create_model("hf-hub:USER/REPO", pretrained=True)  # or "local-dir:" and this folder
```
"""
CLASSIFIER = ", before the temperature of {temperature:g} that its logits are divided by"
FEATURES = " it is a backbone that gives features; the head needs wcdas"
BEFORE_NECK = " it is a backbone that gives the features before the neck; neck and head need wcdas"


def write_hub_folder(
    model: Model, folder: Path, metrics: Mapping[str, Any] | None, run: Table | None
) -> float:
    """The largest difference of a probability to the model's, of the folder loaded again."""
    info, config = model.info, asdict(model.info)
    own = {"version": wcdas.__version__, "preprocessing": preprocessing(info)} | config
    backbone = model.classifier.backbone
    loading, library = "", "wcdas"
    if isinstance(backbone, TimmBackbone):
        classifier = timm_classifier(backbone, model.classifier.head)
        _save_timm_weights(model, classifier, folder / "model.safetensors")
        table = timm_config(model, backbone, classifier)
        features = FEATURES if info.neck == "none" else BEFORE_NECK
        what = CLASSIFIER.format(temperature=info.temperature) if classifier else features
        loading, library = WITH_TIMM.format(what=what), "timm"
    else:
        save_model(folder / "model.safetensors", model.classifier, info)
        table = {"library_name": "wcdas"}
    _write(folder / "config.json", json.dumps(table | {"wcdas": own}, indent=1) + "\n")
    _write(folder / "README.md", model_card(model, metrics, run, loading, library))
    if run:
        _write(folder / "run.toml", tomli_w.dumps(without_places(run)))
    if isinstance(backbone, TimmBackbone):
        _check_in_timm(model, folder, classifier is not None)
    again = load(folder, "cpu")

    def loaded(inputs: Tensor) -> tuple[Tensor, Tensor]:
        logits = again.logits(inputs)
        return logits, logits.softmax(1)

    return largest_difference("the folder", model, None, loaded)


def timm_classifier(backbone: TimmBackbone, head: nn.Module) -> str | None:
    """The name of the layer in timm's model that can be the head, if there is one."""
    import timm

    if backbone.neck_settings[0] != "none":
        return None
    network = backbone.network
    name = network.pretrained_cfg.get("classifier")
    if type(head) is not LinearHead or head.bias is None or not isinstance(name, str):
        return None
    with torch.device("meta"):
        whole = timm.create_model(architecture(backbone), num_classes=head.num_classes)
    layer = dict(whole.named_modules()).get(name)
    if not isinstance(layer, nn.Linear) or layer.bias is None:
        return None
    return name if layer.weight.shape == head.weight.shape else None


def architecture(backbone: TimmBackbone) -> str:
    """The name without the tag of pretrained weights."""
    return str(backbone.network.pretrained_cfg["architecture"])


def timm_config(model: Model, backbone: TimmBackbone, classifier: str | None) -> Table:
    """config.json as timm writes it."""
    info = model.info
    how = preprocessing(info)
    whole_picture = how["crop"] == "none"
    arguments: Table = {"in_chans": info.channels}
    if backbone.network.pretrained_cfg.get("fixed_input_size"):
        arguments["img_size"] = info.input_size
    if classifier is None:
        # Another number than that of the weights: timm leaves out what it has no place for.
        arguments["num_classes"] = 0
    return {
        "architecture": architecture(backbone),
        "num_classes": len(info.class_names),
        "num_features": backbone.pooled_features,
        "label_names": info.class_names,
        "model_args": arguments,
        "pretrained_cfg": {
            "input_size": [info.channels, info.input_size, info.input_size],
            "fixed_input_size": bool(backbone.network.pretrained_cfg.get("fixed_input_size")),
            "interpolation": "bilinear",
            "crop_pct": how["crop_fraction"],
            "crop_mode": "squash" if whole_picture else "center",
            "mean": info.mean,
            "std": info.std,
            "num_classes": len(info.class_names),
            "first_conv": None,  # the filters have the right number of channels
            "classifier": backbone.network.pretrained_cfg.get("classifier") or "head",
        },
    }


def _save_timm_weights(model: Model, classifier: str | None, path: Path) -> None:
    head = f"{classifier or 'wcdas_head'}."
    names, tensors = {}, {}
    for own, value in model.classifier.state_dict().items():
        if own.startswith("backbone.network."):
            name = own.removeprefix("backbone.network.")
        elif own.startswith("backbone.neck."):
            name = "wcdas_neck." + own.removeprefix("backbone.neck.")
        else:
            name = head + own.removeprefix("head.")
        names[name], tensors[name] = own, value.detach().cpu().contiguous()
    notes = {"wcdas": json.dumps(asdict(model.info)), "names": json.dumps(names), "format": "pt"}
    save_file(tensors, path, metadata=notes)


@torch.no_grad()
def _check_in_timm(model: Model, folder: Path, classifies: bool) -> None:
    import timm

    inputs, backbone = sample_inputs(model), model.classifier.backbone
    ours = model.classifier(inputs) if classifies else backbone.pool(backbone.forward_map(inputs))
    try:
        with quiet():
            theirs = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()(inputs)
    except Exception as error:
        raise WorkError(f"timm cannot load the folder: {str(error).splitlines()[0]}") from error
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


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
