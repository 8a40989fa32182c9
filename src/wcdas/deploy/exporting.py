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
from wcdas.deploy.answers import check_wanted
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
LARGEST = 3 * 2**29  # bytes of weights in an ONNX file; more go into one of their own
CLASSES = 2**14  # whose logits are computed at a time, where only the top ones are wanted


class Exported(NamedTuple):
    """The path that was written, and the largest difference of a probability to PyTorch's."""

    path: Path
    difference: float | None


def export(
    run: Source,
    form: str = "onnx",
    out: str | os.PathLike[str] | None = None,
    *,
    top: int | None = None,
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
        top: only so many classes, the most probable, with their probabilities, by ONNX and torch;
            without it the logits and probabilities of all.
        prior: "uniform", "train" or a file: the class mix that ONNX and torch predict for.
        overwrite: replace a file that is there; a folder that is in use never is.
    """
    if form not in NAMES:
        raise unknown("format", form, NAMES)
    if form == "onnx":
        need("export", "onnx", "onnxscript", "onnxruntime")
    for what, given in (("a prior", prior), ("a number of top classes", top)):
        if given is not None and form in ("hub", "card"):
            raise InputError(f"{what} is no part of the format {form}; give it when predicting")
    if top is not None:
        check_wanted(top)
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
            difference = write_onnx(model, draft, prior, top)
        elif form == "torch":
            difference = write_torch(model, draft, prior, top)
        elif form == "hub":
            difference = write_hub_folder(model, draft, metrics, table)
        else:
            draft.write_text(model_card(model, metrics, table), encoding="utf-8")
    return Exported(path, difference)


def write_onnx(model: Model, path: Path, prior: str | None, top: int | None) -> float:
    """The largest difference of a probability to PyTorch's in ONNX Runtime."""
    import onnxruntime

    try:
        with quiet():
            program = torch.onnx.export(
                exportable(model, prior, top),
                (sample_inputs(model)[:2],),
                dynamo=True,
                input_names=["images"],
                output_names=list(described(top)),
                dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
                verbose=False,
            )
            assert program is not None
            program.model.metadata_props.update(metadata(model, prior, top))
            weights = sum(p.nbytes for p in model.classifier.parameters())
            program.save(str(path), external_data=weights > LARGEST)
            session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    # The exporter fails in many ways, and its message is a page; the cause is in its first line.
    except Exception as error:
        cause = first_line(error.__cause__ or error)
        raise WorkError(
            f"the model cannot be written as ONNX: {cause}; try --format torch"
        ) from error

    def exported(inputs: Tensor) -> Outputs:
        first, second = session.run(None, {"images": inputs.numpy()})
        return torch.from_numpy(first), torch.from_numpy(second)

    return largest_difference("the ONNX model", model, prior, exported)


def write_torch(model: Model, path: Path, prior: str | None, top: int | None) -> float:
    """The largest difference of a probability to the model's, of the file loaded again."""
    extra: dict[str, Any] = {METADATA_FILE: json.dumps(metadata(model, prior, top))}
    try:
        with quiet():
            program = torch.export.export(
                exportable(model, prior, top),
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


def described(top: int | None) -> dict[str, str]:
    """The outputs by name, and what they are."""
    if top is None:
        return {
            "logits": "over the temperature, moved to the prior",
            "probabilities": "softmax of the logits",
        }
    return {
        "top_probabilities": "those of the most probable classes, the best first",
        "top_classes": "these classes, as places in class_names",
    }


def metadata(model: Model, prior: str | None, top: int | None) -> dict[str, str]:
    """Facts that a user of the file needs, as texts by name; lists and tables are JSON."""
    info = model.info
    target = None if prior is None else model.prior(prior).tolist()
    return {
        "wcdas_format": str(METADATA_FORMAT),
        "wcdas_version": wcdas.__version__,
        "class_names": json.dumps(info.class_names),
        "class_counts": json.dumps(info.class_counts),
        "preprocessing": json.dumps(preprocessing(info)),
        "outputs": json.dumps(described(top)),
        "temperature": json.dumps(info.temperature),
        "prior": json.dumps({"trained": info.prior, "predicts_for": target}),
        "method": info.method,
        "dataset": info.dataset,
        "backbone": info.backbone,
        "neck": info.neck,
        "head": info.head,
    }


def exportable(model: Model, prior: str | None, top: int | None) -> nn.Module:
    """One module without anything of training, for exporters to trace."""
    return ExportableModel(model, prior) if top is None else ExportableTop(model, prior, top)


class ExportableModel(nn.Module):
    """Preprocessed images → logits over the temperature, and probabilities, for a class mix."""

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
        self.register_buffer("shift", model.shift(prior))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.classifier(images) / self.temperature + self.shift
        return logits, logits.softmax(1)


class ExportableTop(ExportableModel):
    """Preprocessed images → the probabilities of the most probable classes, and these.

    Many classes are looked at some at a time, so that whoever runs it holds no logits of them all.
    """

    def __init__(self, model: Model, prior: str | None, top: int) -> None:
        super().__init__(model, prior)
        head = self.classifier.head
        classes = head.num_classes
        width = CLASSES if head.separable else classes
        self.cuts = [slice(at, min(at + width, classes)) for at in range(0, classes, width)]
        self.parts = nn.ModuleList(head.part(cut) for cut in self.cuts)
        self.top = min(top, classes)
        del self.classifier.head  # its weights are those of the parts

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        x = self.classifier.features(images)
        best, classes, lse = [], [], []
        for cut, part in zip(self.cuts, self.parts, strict=True):
            z = part(x) / self.temperature + self.shift[cut]
            k = min(self.top, cut.stop - cut.start)
            values, found = z.topk(k)
            # In one tensor: then a runtime that chooses its own order is done with z all at once.
            said = torch.cat([values, found.to(values), z.logsumexp(1, keepdim=True)], 1)
            best.append(said[:, :k])
            classes.append(said[:, k:-1].long() + cut.start)
            lse.append(said[:, -1:])
        values, order = torch.cat(best, 1).topk(self.top)
        probabilities = (values - torch.cat(lse, 1).logsumexp(1, keepdim=True)).exp()
        return probabilities, torch.cat(classes, 1).gather(1, order)


class FixedWNDASHead(AngularHead):
    """A trained WNDAS head whose κ are numbers: the Bessel functions that give them are not among
    the operators of ONNX."""

    of_classes = ("weight", "kappa", "log_normaliser")
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
