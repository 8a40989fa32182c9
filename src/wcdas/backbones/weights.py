"""Weights of a backbone from a file; nothing in the file is executed."""

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from wcdas.errors import InputError

# What may follow a backbone in a file, and is left out: the neck of a run, and classifiers.
CLASSIFIERS = ("neck", "fc", "linear", "classifier", "head")
# What a network is wrapped in: DDP, the model of a run, a backbone of timm.
PREFIXES = ("module.", "backbone.", "network.")


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a `.safetensors` file, or of a `.pth` file that holds tensors only."""
    if not path.is_file():
        raise InputError(
            f"weights file {str(path)!r} does not exist; expected .safetensors or .pth"
        )
    if path.suffix not in (".safetensors", ".pth", ".pt", ".bin"):
        raise InputError(f"weights file {str(path)!r} is not a .safetensors or .pth file")
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        stored = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise InputError(
            f"weights file {str(path)!r} is damaged or holds more than tensors, and code in a file "
            "is never run; save its state_dict as .safetensors"
        ) from None
    except (SafetensorError, OSError, RuntimeError, EOFError, ValueError) as error:
        raise InputError(
            f"weights file {str(path)!r} cannot be read: {first_line(error)}"
        ) from None
    for key in ("state_dict", "model"):
        if isinstance(stored, dict) and isinstance(stored.get(key), dict):
            stored = stored[key]
    if not isinstance(stored, dict):
        raise InputError(f"weights file {str(path)!r} holds no state_dict; expected named tensors")
    return {str(name): value for name, value in stored.items() if isinstance(value, Tensor)}


def load_weights(
    network: nn.Module,
    path: Path,
    classifiers: tuple[str, ...] = CLASSIFIERS,
    adapt: Callable[[dict[str, Tensor]], None] | None = None,
) -> None:
    """Fill the network from a file; neck and classifier in it are left out, all else must fit."""
    given = unwrap(read_weights(path))
    if adapt:
        adapt(given)
    expected = network.state_dict()
    wrong = differences(given, expected, classifiers)
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise InputError(
            f"weights file {str(path)!r} does not fit the backbone: {'; '.join(wrong[:3])}{more}; "
            "choose the backbone the file was trained with"
        )
    network.load_state_dict({name: given.get(name, expected[name]) for name in expected})


def unwrap(given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Only what lies under a known prefix, without it, where there is one."""
    for prefix in PREFIXES:
        inside = {k.removeprefix(prefix): v for k, v in given.items() if k.startswith(prefix)}
        given = inside or given
    return given


def differences(
    given: Mapping[str, Tensor], expected: Mapping[str, Tensor], classifiers: tuple[str, ...]
) -> list[str]:
    """What keeps `given` from being loaded as `expected`, one short phrase each."""
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
    wrong += [
        f"{name} is unknown"
        for name in given
        if name not in expected and not name.startswith(tuple(c + "." for c in classifiers))
    ]
    return wrong


def first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
