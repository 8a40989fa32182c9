"""A trained model for other programs, checked against the model before it is handed over."""

import json
import os
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import wcdas
from wcdas.checks import need
from wcdas.deploy.agreement import Outputs, largest_difference, quiet, sample_inputs
from wcdas.deploy.card import model_card
from wcdas.deploy.hub import write_hub_folder
from wcdas.deploy.model import Model, Source, load, preprocessing
from wcdas.deploy.output import aside, check_file, check_folder
from wcdas.errors import InputError, WorkError, first_line, unknown
from wcdas.heads import WNDASHead
from wcdas.heads.angular import AngularHead
from wcdas.run.folder import RunFolder

# What is written beside the model if no name is given; its suffix is the one a name must have.
NAMES = {"onnx": "model.onnx", "torch": "model.pt2", "hub": "hub", "card": "MODEL_CARD.md"}
METADATA_FILE, METADATA_FORMAT = "wcdas.json", 1


class Exported(NamedTuple):
    """The path that was written, and the largest difference of a probability to PyTorch's."""

    path: Path
    difference: float | None


def export(
    run: Source,
    form: str = "onnx",
    out: str | os.PathLike[str] | None = None,
    *,
    prior: str | None = None,
    overwrite: bool = False,
) -> Exported:
    """Write a trained model as ONNX, as a program of `torch.export`, for the Hub, or its card.

    Everything but the card is loaded again and compared on real images; one that differs by more
    than 1e-4 is not written.

    Args:
        run: a run's folder, or its model file.
        form: "onnx", "torch", "hub" (a folder for huggingface_hub and timm) or "card".
        out: the file or folder; beside the model without it.
        prior: "uniform", "train" or a file: the class mix that ONNX and torch predict for.
        overwrite: replace a file that is there; a folder that is in use never is.
    """
    if form not in NAMES:
        raise unknown("format", form, NAMES)
    if form == "onnx":
        need("export", "onnx", "onnxscript", "onnxruntime")
    if prior is not None and form in ("hub", "card"):
        raise InputError(f"a prior is no part of the format {form}; give it when predicting")
    folder = RunFolder(Path(run))
    beside = folder.path if folder.path.is_dir() else folder.path.parent
    path = beside / NAMES[form] if out is None else Path(out)
    if form == "hub":
        check_folder(path)
    else:
        check_file(path, overwrite, Path(NAMES[form]).suffix)
    model = load(run, "cpu")
    if prior is not None:
        model.prior(prior)
    finished = folder.is_finished and folder.exists
    metrics, table = (folder.read_metrics(), folder.read_run()) if finished else (None, None)
    difference = None
    with aside(path) as draft:
        if form == "onnx":
            difference = write_onnx(model, draft, prior)
        elif form == "torch":
            difference = write_torch(model, draft, prior)
        elif form == "hub":
            difference = write_hub_folder(model, draft, metrics, table)
        else:
            draft.write_text(model_card(model, metrics, table), encoding="utf-8")
    return Exported(path, difference)


def write_onnx(model: Model, path: Path, prior: str | None) -> float:
    """The largest difference of a probability to PyTorch's in ONNX Runtime."""
    import onnxruntime

    try:
        with quiet():
            program = torch.onnx.export(
                ExportableModel(model, prior),
                (sample_inputs(model)[:2],),
                dynamo=True,
                input_names=["images"],
                output_names=["logits", "probabilities"],
                dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
                verbose=False,
            )
            assert program is not None
            program.model.metadata_props.update(metadata(model, prior))
            program.save(str(path), external_data=False)
            session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    # The exporter fails in many ways, and its message is a page; the cause is in its first line.
    except Exception as error:
        cause = first_line(error.__cause__ or error)
        raise WorkError(
            f"the model cannot be written as ONNX: {cause}; try --format torch"
        ) from error

    def exported(inputs: Tensor) -> Outputs:
        logits, probabilities = session.run(None, {"images": inputs.numpy()})
        return torch.from_numpy(logits), torch.from_numpy(probabilities)

    return largest_difference("the ONNX model", model, prior, exported)


def write_torch(model: Model, path: Path, prior: str | None) -> float:
    """The largest difference of a probability to the model's, of the file loaded again."""
    extra: dict[str, Any] = {METADATA_FILE: json.dumps(metadata(model, prior))}
    try:
        with quiet():
            program = torch.export.export(
                ExportableModel(model, prior),
                (sample_inputs(model)[:2],),
                dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
            )
            torch.export.save(program, path, extra_files=extra)
            loaded = torch.export.load(path).module()
    except Exception as error:
        raise WorkError(
            f"the model cannot be exported: {first_line(error)}; try --format onnx"
        ) from error
    return largest_difference("the exported program", model, prior, loaded)


def metadata(model: Model, prior: str | None) -> dict[str, str]:
    """Facts that a user of the file needs, as texts by name; lists and tables are JSON."""
    info = model.info
    target = None if prior is None else model.prior(prior).tolist()
    said = {
        "logits": "over the temperature, moved to the prior",
        "probabilities": "softmax of the logits",
    }
    return {
        "wcdas_format": str(METADATA_FORMAT),
        "wcdas_version": wcdas.__version__,
        "class_names": json.dumps(info.class_names),
        "class_counts": json.dumps(info.class_counts),
        "preprocessing": json.dumps(preprocessing(info)),
        "outputs": json.dumps(said),
        "temperature": json.dumps(info.temperature),
        "prior": json.dumps({"trained": info.prior, "predicts_for": target}),
        "method": info.method,
        "dataset": info.dataset,
        "backbone": info.backbone,
        "neck": info.neck,
        "head": info.head,
    }


class ExportableModel(nn.Module):
    """Preprocessed images → logits over the temperature, and probabilities, for a class mix.

    One module without anything of training, for exporters to trace.
    """

    temperature: Tensor
    shift: Tensor

    def __init__(self, model: Model, prior: str | None = None) -> None:
        super().__init__()
        self.classifier = deepcopy(model.classifier)
        for module in list(self.classifier.modules()):
            for name, child in module.named_children():
                if isinstance(child, WNDASHead):
                    setattr(module, name, FixedWNDASHead(child))
        self.classifier.eval().requires_grad_(False)
        self.register_buffer("temperature", torch.tensor(model.info.temperature))
        zeros = torch.zeros(1, len(model.class_names))
        self.register_buffer("shift", model.calibrated(zeros, prior))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.classifier(images) / self.temperature + self.shift
        return logits, logits.softmax(1)


class FixedWNDASHead(AngularHead):
    """A trained WNDAS head whose κ are numbers: the Bessel functions that give them are not among
    the operators of ONNX."""

    kappa: Tensor
    log_normaliser: Tensor

    def __init__(self, head: WNDASHead) -> None:
        super().__init__(head.in_features, head.num_classes, scale=float(head.scale))
        self.weight = head.weight
        kappa = head.kappa.detach()
        self.register_buffer("kappa", kappa.float())
        self.register_buffer("log_normaliser", head.log_normaliser(kappa).float())

    def similarity(self, cosine: Tensor, labels: Tensor | None) -> Tensor:
        return (-self.kappa * (1 - cosine).clamp_min(0) - self.log_normaliser).exp()
