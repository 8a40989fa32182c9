"""Weights of a backbone from a file, in which nothing is executed."""

import pickle
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from wcdas.errors import InputError, first_line
from wcdas.files import check_regular

# What may follow a backbone in a file, and is left out: the neck of a run, and classifiers.
CLASSIFIERS = ("neck", "fc", "linear", "classifier", "head")
# What a network is wrapped in: DDP, the model of a run, a frozen one, a backbone of timm.
PREFIXES = ("module.", "backbone.", "frozen.", "network.")


class Weights(NamedTuple):
    """Tensors by name, the file they are from, what a user would call that, and what to do where
    they do not fit."""

    state: dict[str, Tensor]
    path: Path
    origin: str
    remedy: str


def weights_file(path: Path) -> Weights:
    """A user's own file; what wraps the backbone in it is taken off."""
    path, remedy = path.expanduser(), "choose the backbone the file was trained with"
    return Weights(unwrap(read_weights(path)), path, f"file {path}", remedy)


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a `.safetensors` file, or of a `.pth` file that holds tensors only."""
    if path.is_dir() or not path.exists():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise InputError(
            f"weights file {str(path)!r} {what}; give the path of a .safetensors or .pth file"
        )
    check_regular(path)
    if path.suffix not in (".safetensors", ".pth", ".pt", ".bin"):
        raise InputError(f"weights file {str(path)!r} is not a .safetensors or .pth file")
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of PyTorch, about how the file was written
            stored = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # readers of other packages stumble anywhere over other contents
        raise InputError(f"weights file {str(path)!r} {_reason(path, error)}") from None
    for key in ("state_dict", "model"):
        if isinstance(stored, dict) and isinstance(stored.get(key), dict):
            stored = stored[key]
    if not isinstance(stored, dict):
        raise InputError(f"weights file {str(path)!r} holds no state_dict; expected named tensors")
    return {str(name): value for name, value in stored.items() if isinstance(value, Tensor)}


def _reason(path: Path, error: Exception) -> str:
    """Say what is wrong with a file that cannot be read, and what to do."""
    if isinstance(error, OSError):
        return f"cannot be read: {first_line(error)}"
    with path.open("rb") as file:
        beginning = file.read(100).lstrip().lower()
    if beginning.startswith(b"version https://git-lfs"):
        return "is a Git LFS pointer, not the weights; fetch them with git lfs pull"
    if beginning.startswith((b"<!doctype html", b"<html")):
        return "is a web page, not weights; download the file itself"
    if isinstance(error, SafetensorError):
        return f"cannot be read: {first_line(error)}; if it is cut off, fetch it again"
    if isinstance(error, pickle.UnpicklingError):
        return (
            "is damaged or holds more than tensors, and code in a file is never run; save its "
            "state_dict as .safetensors"
        )
    return "is cut off or no file of PyTorch; fetch it again"


def load_weights(
    network: nn.Module,
    weights: Weights,
    classifiers: tuple[str, ...] = CLASSIFIERS,
    convert: Callable[[], dict[str, Tensor]] | None = None,
) -> None:
    """Fill the network; neck and classifier among the weights are left out, all else must fit.

    `convert` gives the weights in another form, where they do not fit as they are.
    """
    given, own = weights.state, network.state_dict()
    expected = {name: tensor for name, tensor in own.items() if tensor.numel()}
    wrong = differences(without_classifier(given, expected, classifiers), expected)
    if wrong and convert is not None:
        with suppress(Exception):  # a converter stumbles anywhere over weights of others
            given, wrong = convert(), []
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise InputError(
            f"weights file {str(weights.path)!r} does not fit the backbone: "
            f"{'; '.join(wrong[:3])}{more}; {weights.remedy}"
        )
    network.load_state_dict(own | {name: given[name] for name in expected if name in given})


def unwrap(given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Only what lies under a known prefix, without it, where there is one."""
    for prefix in PREFIXES:
        inside = {k.removeprefix(prefix): v for k, v in given.items() if k.startswith(prefix)}
        given = inside or given
    return given


def without_classifier(
    given: Mapping[str, Tensor], expected: Mapping[str, Tensor], classifiers: tuple[str, ...]
) -> dict[str, Tensor]:
    """The tensors that belong to the backbone, which may have layers of such a name itself."""
    prefixes = tuple(f"{layer}." for layer in classifiers)
    return {k: v for k, v in given.items() if k in expected or not k.startswith(prefixes)}


def differences(given: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> list[str]:
    """The reasons why `given` cannot be loaded as `expected`, one short phrase each."""
    wrong = [
        f"{name} is missing"
        for name in expected
        # Files older than PyTorch 0.4.1 do not count batches.
        if name not in given and not name.endswith("num_batches_tracked")
    ]
    wrong += [
        f"{name} is {tuple(given[name].shape)}, expected {tuple(tensor.shape)}"
        for name, tensor in expected.items()
        if name in given and given[name].shape != tensor.shape
    ]
    wrong += [f"{name} is unknown" for name in given if name not in expected]
    return wrong
