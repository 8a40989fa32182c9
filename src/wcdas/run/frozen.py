"""Frozen features: a network that is not trained sees every image once, in one view or several.

What it makes of them is the dataset that heads are trained on, and is kept for later runs.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import version
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

import wcdas
from wcdas.backbones import Backbone, create_backbone
from wcdas.backbones.base import FrozenBackbone
from wcdas.data.augment import create_augmentation
from wcdas.data.dataset import ArrayImages, Dataset, FeatureVectors, Split
from wcdas.data.feature_store import FeatureStore, store_root
from wcdas.data.loader import ViewLoader, channel_statistics
from wcdas.data.sources.assembly import digests
from wcdas.errors import InterruptedRunError
from wcdas.interrupt import number_of
from wcdas.methods.classifier import Classifier
from wcdas.processes import Ranks, gather, largest
from wcdas.rng import seeded, stream
from wcdas.run.console import ImageProgress, tell, warn
from wcdas.run.inference import images_at_a_time, in_threads
from wcdas.run.spec import Config, as_table, view_policy

AT_A_TIME = 4096  # images of one loader, which holds those of one size decoded


@dataclass(frozen=True, eq=False, kw_only=True)
class FrozenDataset(Dataset):
    """The features of a dataset's images by a network that is not trained.

    Args:
        config: of a run that is trained on them.
        images: the dataset they are of.
        network: what computes them, on the CPU.
        mean: the normalisation of the images.
        std: the same.
    """

    config: Config
    images: Dataset
    network: Backbone
    mean: list[float]
    std: list[float]

    @cached_property
    def weights(self) -> str:
        """A SHA-256 over the names and values of the network's tensors."""
        digest = hashlib.sha256()
        for name, value in self.network.state_dict().items():
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def whole(self, model: Classifier, plain: bool) -> Classifier:
        """Return a model that was trained on the features as one that takes images.

        A plain one, a neck and a head, becomes what it would be without freezing.
        """
        network, trained = deepcopy(self.network), model.backbone
        if not plain:
            return Classifier(FrozenBackbone(network, trained), model.head)
        network.neck, network.neck_settings = trained.neck, trained.neck_settings
        network.num_features = trained.num_features
        return Classifier(network, model.head)


def freeze(config: Config, dataset: Dataset, workers: int) -> FrozenDataset:
    """Put the network in front of a dataset; the features are zeros until they are computed."""
    size, channels = config.input_size, dataset.channels
    with seeded(0):  # a network draws weights before it is given some
        network = create_backbone(
            config.backbone.name,
            channels=channels,
            input_size=size,
            weights=config.backbone.weights or None,
        )
    mean, std = list(network.mean or ()), list(network.std or ())
    if not mean or not std:
        mean, std = channel_statistics(dataset.train, channels, size, workers)
    return frozen_by(network, config, dataset, mean, std)


def frozen_by(
    network: Backbone, config: Config, dataset: Dataset, mean: list[float], std: list[float]
) -> FrozenDataset:
    """Put a network that is there in front of a dataset."""
    views = (config.views,) if config.views > 1 else ()
    d = network.num_features
    train, test = torch.zeros(len(dataset.train), *views, d), torch.zeros(len(dataset.test), d)
    return FrozenDataset(
        name=dataset.name,
        class_names=dataset.class_names,
        train=FeatureVectors(train, dataset.train.labels, "train"),
        test=FeatureVectors(test, dataset.test.labels, "test"),
        input_size=0,
        channels=d,
        augment_flip=dataset.augment_flip,
        fingerprint=dataset.fingerprint,
        description=dataset.description,
        warnings=dataset.warnings,
        bad=dataset.bad,
        config=config,
        images=dataset,
        network=network.eval().requires_grad_(False),
        mean=mean,
        std=std,
    )


def frozen_for(configs: Mapping[str, Config], dataset: Dataset, workers: int) -> dict[str, Dataset]:
    """Return what each method is trained on: the dataset, or its features, once for a network."""
    known: dict[str, FrozenDataset] = {}
    found: dict[str, Dataset] = {}
    for method, config in configs.items():
        found[method] = dataset
        if config.frozen:
            views = [view_settings(config, number) for number in range(config.views)]
            seen = [config.input_size, config.evaluation_crop]
            key = json.dumps([as_table(config.backbone), seen, views])
            found[method] = known[key] = known.get(key) or freeze(config, dataset, workers)
    return found


def compute_features(
    frozen: FrozenDataset,
    ranks: Ranks,
    workers: int,
    console: Console | None,
    train: bool = True,
) -> None:
    """Fill in the features of test images, and of training images where they are asked for: those
    in the store, and the others."""
    config, images = frozen.config, frozen.images
    views = config.views if train else 1
    several = f", {views} views of a training image" if views > 1 else ""
    told = f"{config.backbone.name} at {config.input_size} px, {frozen.channels:,} features"
    tell(console, f"frozen: {told}{several}")
    wanted = len(images.test) + (views * len(images.train) if train else 0)
    progress = ImageProgress(console, "features", wanted)
    of_view = [View(i, frozen, ranks, workers, progress) for i in range(views)]
    network: Any = frozen.network
    network.to(ranks.device, memory_format=torch.channels_last)  # faster on a CPU too
    try:
        with progress:
            _vectors(frozen.test).copy_(of_view[0].features(images.test, digests(images.test)))
            names = digests(images.train) if train else []
            for i, view in enumerate(of_view if train else []):
                found = view.features(images.train, names)
                _vectors(frozen.train).view(len(names), views, -1)[:, i] = found
    except KeyboardInterrupt as stop:
        raise InterruptedRunError(
            "stopped; the features so far are kept, the same command goes on from there",
            number_of(stop),
        ) from None
    finally:
        network.to("cpu", memory_format=torch.contiguous_format)
    kept = f" ({store_root()})" if all(view.kept for view in of_view) else ""
    tell(console, f"{progress.summary()}{kept}")


def _vectors(split: Split) -> Tensor:
    assert isinstance(split, FeatureVectors)
    return split.vectors


def view_settings(config: Config, number: int) -> dict[str, Any]:
    """Return the augmentation of a view; the first is that of evaluation."""
    others = {"policy": view_policy(config), **as_table(config.augment)} if number else {}
    return others or {"policy": "none"}


class View:
    """Images as a network sees them in one view, computed or from the store."""

    def __init__(
        self,
        number: int,
        frozen: FrozenDataset,
        ranks: Ranks,
        workers: int,
        progress: ImageProgress,
    ) -> None:
        config = frozen.config
        self.number, self.network = number, frozen.network
        self.ranks, self.progress = ranks, progress
        self.kept = True  # until the store cannot be written
        inputs: dict[str, Any] = {
            "size": config.input_size,
            "channels": frozen.images.channels,
            "centre": config.evaluation_crop,
            "mean": frozen.mean,
            "std": frozen.std,
        }
        settings = view_settings(config, number)
        self.augmentation = create_augmentation(
            **settings, size=config.input_size, mean=frozen.mean
        )
        self.loading = inputs | {
            "batch_size": images_at_a_time(config.input_size, ranks.device),
            "device": ranks.device,
            "workers": workers,
            "memory_format": torch.channels_last,
        }
        # All that the features of an image depend on, but for the image.
        self.settings = inputs | {
            "backbone": [config.backbone.name, frozen.weights],
            "device": ranks.device.type,  # they round otherwise
            "view": [number, settings],
            "versions": [wcdas.__version__, version("timm")],
        }

    def features(self, split: Split, names: Sequence[bytes]) -> Tensor:
        """Return the features of a split, float32 (N, d) on the CPU; its images are named by their
        digests."""
        ranks = self.ranks
        store = FeatureStore(self._key(split), partial(warn, self.progress.told))
        found = store.read(names)
        first = {name: i for i, name in reversed(list(enumerate(names)))}  # of equal images
        wanted = [first[name] == i and name not in found for i, name in enumerate(names)]
        # All ranks compute what one of them has not found, each its share.
        wanted_by_any = largest(torch.tensor(wanted, dtype=torch.int32, device=ranks.device))
        missing = wanted_by_any.nonzero().flatten().cpu()
        self.progress.found(len(split) - len(missing))
        own = missing[ranks.rank :: ranks.world]
        computed = [torch.zeros(0, self.network.num_features)]
        with store:
            for part in own.split(AT_A_TIME) if len(own) else ():
                positions = torch.tensor([position(names[i]) for i in part.tolist()])
                for some, features in self._computed(split, part, positions):
                    store.add([names[i] for i in some.tolist()], features)
                    computed.append(features)
                    self.progress.computed(len(some) * ranks.world)
        self.kept = self.kept and store.writes
        indices, rows = (gather(t.to(ranks.device)).cpu() for t in (own, torch.cat(computed)))
        found |= {names[i]: row for i, row in zip(indices.tolist(), rows, strict=True)}
        return torch.stack([found[name] for name in names])

    def _computed(
        self, split: Split, indices: Tensor, positions: Tensor
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Return features of images by their indices, a batch at a time."""
        loader = ViewLoader(split.subset(indices), **self.loading)
        with closing(loader):
            inputs = loader.view(positions, self.augmentation, stream(0, self.number))
            batches = indices.split(self.loading["batch_size"])
            features = in_threads(self._features, inputs, self.ranks.device)
            yield from zip(batches, features, strict=True)

    @torch.no_grad()
    def _features(self, images: Tensor) -> Tensor:
        # Always as many: kernels for other numbers round otherwise.
        rest = images[-1:].expand(self.loading["batch_size"] - len(images), -1, -1, -1)
        whole = torch.cat([images, rest]).contiguous(memory_format=torch.channels_last)
        return self.network(whole)[: len(images)].float().cpu()

    def _key(self, split: Split) -> str:
        """Return the name of the folder that the features are kept in."""
        decoded = list(split.pixels.shape[1:]) if isinstance(split, ArrayImages) else "as stored"
        text = json.dumps(self.settings | {"images": decoded}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def position(digest: bytes) -> int:
    """Return the place of an image's random numbers, by its bytes alone."""
    return int.from_bytes(digest[:8], "little") >> 1
