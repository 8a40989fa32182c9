"""A configuration and a dataset become a run: the model, images held out, everything checked."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from wcdas.backbones import Backbone, create_backbone
from wcdas.backbones.resnet32_gpu.network import compile_ahead, fuse
from wcdas.backbones.resnets import ResNet32
from wcdas.data.canvas import canvases, squares
from wcdas.data.dataset import Dataset, Split, StoredImages
from wcdas.data.loader import channel_statistics
from wcdas.data.split import holdout
from wcdas.errors import InputError, WorkError, explained, first_line
from wcdas.heads import Head, ShardedWCDASHead, create_head
from wcdas.heads.functional.fused import check_device
from wcdas.methods.classifier import Classifier
from wcdas.methods.method import Method, Parts
from wcdas.processes import Ranks, spare_cores
from wcdas.rng import Purpose, seeded, stream
from wcdas.run.checks import check_data, check_stages, has_teacher
from wcdas.run.folder import RunFolder
from wcdas.run.inference import memory_format
from wcdas.run.schedule import planned
from wcdas.run.spec import Config, Stage, as_table
from wcdas.run.teacher import Teacher


@dataclass(frozen=True)
class TrainingRun:
    """A run before its first step; from here on only its model changes: the weights, and its head
    from one stage to the next.

    Args:
        config: what the run is.
        method: its method's hooks.
        dataset: what is trained on.
        model: on the device.
        loading: what all loaders share: size, channels, mean, std, workers, device and so on.
        folder: where everything goes.
        ranks: this process's place among all.
        kept: the training images that are trained on.
        selection: those that the method chooses on, or has as meta images.
        held_out: those that the temperature is fitted on.
        teacher: whose predictions are learnt from, too, where there is one.
    """

    config: Config
    method: Method
    dataset: Dataset
    model: Classifier
    loading: Mapping[str, Any]
    folder: RunFolder
    ranks: Ranks
    kept: Tensor
    selection: Tensor
    held_out: Tensor
    teacher: Teacher | None = None

    @cached_property
    def train_images(self) -> Split:
        """The training images that batches are read from: decoded once where they are held."""
        return self._held(self.dataset.train, canvases, self.config.input_size)

    @cached_property
    def test_images(self) -> Split:
        """The test images, decoded once where they are held."""
        decode = partial(squares, centre=self.config.evaluation_crop)
        return self._held(self.dataset.test, decode, self.config.evaluated_at)

    def _held(self, split: Split, decode: Callable[..., Split], size: int) -> Split:
        if not self.config.cache or not isinstance(split, StoredImages):
            return split
        loading, device = self.loading, self.ranks.device
        return decode(split, size, loading["channels"], device, loading["workers"])

    @cached_property
    def stages(self) -> list[tuple[str, Stage]]:
        """The stages as they run, by name."""
        return planned(self.config.stages)

    def teacher_in(self, index: int) -> Callable[[Tensor], Tensor] | None:
        """Return what gives the teacher's logits for a batch of inputs of a stage; None where it
        has no share of the loss."""
        name, _ = self.stages[index]
        if self.teacher is None or not has_teacher(name, self.config, self.method):
            return None
        return self.teacher.for_prior(self.config.prior_in(name))

    def failure(self, reason: str) -> WorkError:
        """Write down why the run has no result, and return the error to raise."""
        if self.ranks.is_main:
            self.folder.write_failure(reason)
        return WorkError(reason)


def build_run(
    config: Config,
    method: Method,
    dataset: Dataset,
    folder: RunFolder,
    ranks: Ranks,
    workers: int | None = None,
) -> TrainingRun:
    """Build and check everything that a run needs; nothing is written yet."""
    with seeded(stream(config.seed, Purpose.INITIAL)):
        backbone, model = _build_model(config, method, dataset)
    if (engine := str(config.head.get("engine", "auto"))).startswith("fused"):
        with explained("head: "):
            check_device(engine, ranks.device)
    workers = spare_cores() if workers is None else workers
    size, channels = config.input_size, dataset.channels
    if backbone.mean is not None and backbone.std is not None:
        mean, std = list(backbone.mean), list(backbone.std)
    else:
        mean, std = channel_statistics(dataset.train, channels, size, workers)
    model = model.to(ranks.device)
    loading = {
        "size": size,
        "channels": channels,
        "mean": mean,
        "std": std,
        "centre": config.evaluation_crop,
        "workers": workers,
        "device": ranks.device,
        "rank": ranks.rank,
        "world": ranks.world,
        "memory_format": _prepare(config, model, ranks.device),
    }
    everything = torch.arange(len(dataset.train))
    share, bounds = config.selection.holdout, config.selection.bounds
    rest, selection = _hold_out(config, dataset, everything, share, Purpose.SELECTION, **bounds)
    kept, held_out = _hold_out(config, dataset, rest, config.calibration.holdout, Purpose.HOLDOUT)
    check_stages(config, method)
    check_data(config, dataset, kept, ranks)
    if method.selects and len(selection) == 0:
        raise InputError(
            f"{config.method} chooses on training images that no stage sees, and there are "
            f"none (selection.holdout is {config.selection.holdout:g}); expected a share above "
            f"0 and a class of {config.selection.smallest} images or more"
        )
    teacher = Teacher(config, dataset, loading) if config.teacher else None
    return TrainingRun(
        config, method, dataset, model, loading, folder, ranks, kept, selection, held_out, teacher
    )


def _build_model(config: Config, method: Method, dataset: Dataset) -> tuple[Backbone, Classifier]:
    network: dict[str, Any] = {"name": "identity"}  # the features of a frozen one are the data
    if not config.frozen:
        weights = config.backbone.weights or None
        network = as_table(config.backbone) | {"weights": weights}
    backbone = create_backbone(
        **network, channels=dataset.channels, input_size=config.input_size
    ).attach_neck(config.neck.name, config.neck.features)
    if config.evaluated_at != config.input_size:
        _try(backbone, config, dataset.channels)
    parts = Parts(
        backbone,
        partial(new_head, config, dataset),
        dataset.class_counts,
        config.options,
    )
    model = method.build_model(parts)
    if not isinstance(model, Classifier):
        raise InputError(
            f"build_model of {config.method} gave {type(model).__name__}; expected a Classifier"
        )
    return backbone, model


@torch.no_grad()
def _try(backbone: Backbone, config: Config, channels: int) -> None:
    """Refuse a size of evaluation that the network does not take."""
    size = config.evaluated_at
    try:
        backbone.eval()(torch.zeros(1, channels, size, size))
    except Exception as error:  # networks stumble anywhere over other sizes
        raise InputError(
            f"evaluation_size is {size}, which {config.backbone.name} does not take, built for "
            f"{config.input_size}: {first_line(error)}; leave it out"
        ) from None
    backbone.train()


def new_head(config: Config, dataset: Dataset, length: int) -> Head:
    """Build the run's own head for feature vectors of a length."""
    name, classes, counts = config.head.get("name"), dataset.num_classes, dataset.class_counts
    with explained("head: "):
        if config.sharded:
            return ShardedWCDASHead(length, classes, config.negatives, **config.head_options)
        return create_head(str(name), length, classes, counts, **config.head_options)


def _prepare(config: Config, model: Classifier, device: torch.device) -> torch.memory_format:
    """Put kernels in where there are some, and the filters in the faster format."""
    if device.type == "cuda":
        if config.engine != "auto":
            return torch.contiguous_format
        for module in model.modules():
            if isinstance(module, ResNet32):
                fuse(module)
                if config.amp == "bf16":  # before the capture of a step, which nothing may disturb
                    shape = (2, module.conv1.in_channels, config.input_size, config.input_size)
                    compile_ahead(module, torch.empty(shape, dtype=torch.bfloat16, device=device))
    chosen = memory_format(model.backbone, config.input_size, device)
    model.backbone.to(memory_format=chosen)  # type: ignore[call-overload]
    return chosen


def _hold_out(
    config: Config,
    dataset: Dataset,
    among: Tensor,
    fraction: float,
    purpose: int,
    **options: int,
) -> tuple[Tensor, Tensor]:
    """Indices of the images that are kept and of those that are held out."""
    labels, key = dataset.train.labels[among], stream(config.seed, purpose)
    kept, held_out = holdout(labels, dataset.num_classes, fraction, key, **options)
    return among[kept], among[held_out]
