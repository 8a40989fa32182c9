"""A trained model for other programs, checked against the model before it is handed over."""

import os
from pathlib import Path
from typing import NamedTuple

from wcdas.deploy.card import model_card
from wcdas.deploy.extras import need
from wcdas.deploy.hub_folder import write_hub_folder
from wcdas.deploy.model import Source, load
from wcdas.deploy.onnx_file import write_onnx
from wcdas.deploy.output import aside, check_file, check_folder
from wcdas.deploy.torch_file import write_torch
from wcdas.errors import InputError, unknown
from wcdas.run.folder import RunFolder

# What is written beside the model if no name is given; its suffix is the one a name must have.
NAMES = {"onnx": "model.onnx", "torch": "model.pt2", "hub": "hub", "card": "MODEL_CARD.md"}


class Exported(NamedTuple):
    """What was written, and by how much a probability differs at most from PyTorch's."""

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

    Everything but the card is loaded again and compared on real pictures; one that differs by more
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
    beside = Path(run) if Path(run).is_dir() else Path(run).parent
    path = _writable(Path(out) if out is not None else beside / NAMES[form], form, overwrite)
    model = load(run, "cpu")
    if prior is not None:
        model.prior(prior)
    folder = RunFolder(Path(run))
    finished = folder.is_finished and folder.exists
    metrics, table = (folder.read_metrics(), folder.read_run()) if finished else (None, None)
    with aside(path) as place:
        difference = None
        if form == "onnx":
            difference = write_onnx(model, place, prior)
        elif form == "torch":
            difference = write_torch(model, place, prior)
        elif form == "hub":
            place.mkdir()
            difference = write_hub_folder(model, place, metrics, table)
        else:
            place.write_text(model_card(model, metrics, table), encoding="utf-8")
    return Exported(path, difference)


def _writable(path: Path, form: str, overwrite: bool) -> Path:
    """Refused before any work where it cannot be written."""
    suffix = Path(NAMES[form]).suffix
    if suffix and path.suffix != suffix:
        raise InputError(f"the output is {path}; expected a name that ends in {suffix}")
    if form == "hub":
        check_folder(path)
    else:
        check_file(path, overwrite)
    return path
