"""Pretrained weights of a timm model: from the local cache, or from the Hub if it answers."""

import threading
import urllib.error
import urllib.request
from typing import Any

from wcdas.backbones.weights import first_line
from wcdas.errors import InputError

SECONDS = 5.0


class WeightsUnavailable(InputError):  # noqa: N818
    """Pretrained weights that cannot be had here and now; training from scratch is possible."""


def unavailable(name: str, reason: str) -> WeightsUnavailable:
    return WeightsUnavailable(
        f"pretrained weights of {name!r} cannot be had: {reason}; "
        "train from scratch or give a file with backbone.weights"
    )


def pretrained_file(name: str, config: Any) -> str:
    """The path of the weights file of a timm model, downloaded if it has to be."""
    from huggingface_hub import (
        hf_hub_download,
        hf_hub_url,
        is_offline_mode,
        try_to_load_from_cache,
    )
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
    """Whether a server says anything at all to one request, name lookup included, in that time."""
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
        finished.set()

    # A socket's time limit does not bound the name lookup; waiting on a thread does.
    finished = threading.Event()
    threading.Thread(target=ask, daemon=True).start()
    finished.wait(seconds)
    return answered.is_set()
