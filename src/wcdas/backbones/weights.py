"""Weights of a backbone: from a file, in which nothing is executed, or of timm, from the Hub."""

import pickle
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from wcdas.errors import InputError, first_line

# What may follow a backbone in a file, and is left out: the neck of a run, and classifiers.
CLASSIFIERS = ("neck", "fc", "linear", "classifier", "head")
# What a network is wrapped in: DDP, the model of a run, a backbone of timm.
PREFIXES = ("module.", "backbone.", "network.")
SECONDS = 5.0  # that the Hub has to answer


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
    wrong += [
        f"{name} is unknown"
        for name in given
        if name not in expected and not name.startswith(tuple(c + "." for c in classifiers))
    ]
    return wrong


class WeightsUnavailable(InputError):  # noqa: N818
    """Pretrained weights that cannot be had here and now; training from scratch is possible."""


def unavailable(name: str, reason: str) -> WeightsUnavailable:
    return WeightsUnavailable(
        f"pretrained weights of {name!r} cannot be had: {reason}; "
        "train from scratch or give a file with backbone.weights"
    )


def pretrained_file(name: str, config: Any) -> str:
    """The path of the weights file of a timm model, downloaded if it has to be."""
    from huggingface_hub import hf_hub_download, hf_hub_url, is_offline_mode, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError

    if not config.hf_hub_id:
        raise unavailable(name, "timm names none on the Hub")
    repository, _, revision = config.hf_hub_id.partition("@")
    place = {"repo_id": repository, "revision": revision or None}
    named = config.hf_hub_filename
    files = [named] if named else ["model.safetensors", "pytorch_model.bin"]
    for file in files:
        if isinstance(path := try_to_load_from_cache(**place, filename=file), str):
            return path
    if is_offline_mode():
        raise unavailable(name, "they are not in the cache and HF_HUB_OFFLINE is set")
    if not answers(hf_hub_url(**place, filename=files[0])):
        raise unavailable(name, "the Hub cannot be reached")
    for file in files:
        try:
            return hf_hub_download(**place, filename=file, etag_timeout=SECONDS)
        except EntryNotFoundError:
            continue
        except Exception as error:
            raise unavailable(name, first_line(error)) from error
    raise unavailable(name, f"{config.hf_hub_id} holds no {' or '.join(files)}")


def answers(url: str, seconds: float = SECONDS) -> bool:
    """Tell whether a server says anything to one request, name lookup included, in that time."""
    answered = threading.Event()

    def ask() -> None:
        try:
            request = urllib.request.Request(url, method="HEAD")
            with urllib.request.urlopen(request, timeout=seconds):
                answered.set()
        except urllib.error.HTTPError:
            answered.set()
        except OSError:
            pass

    # A socket's time limit does not bound the name lookup; waiting on a thread does.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return answered.is_set()
