"""The metrics of a trained model, as it is or corrected after training."""

import math
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

from wcdas.data import HuggingFace
from wcdas.data.augment import RESIZED_CROP_FROM, Augmentation, create_augmentation
from wcdas.data.dataset import Dataset, FeatureVectors, Split
from wcdas.data.loader import TrainLoader
from wcdas.deploy.model import Model, Source, dataset_for, load, loader_options, run_split
from wcdas.errors import InputError
from wcdas.evaluation.expert_aggregation import aggregate_experts
from wcdas.evaluation.metrics import evaluate
from wcdas.evaluation.posthoc import adjust_logits, max_norm
from wcdas.evaluation.scores import Scores, logits_of
from wcdas.heads import LinearHead, TauNormHead
from wcdas.heads.experts import ExpertsHead
from wcdas.processes import Ranks
from wcdas.rng import permutation, stream
from wcdas.run.console import busy
from wcdas.run.folder import RunFolder
from wcdas.run.frozen import compute_features, frozen_by
from wcdas.run.spec import build

# Of learning the experts' weights, the authors'.
EPOCHS, BATCH, JITTER = 5, 128, 0.4


@dataclass(frozen=True)
class Correction:
    """A correction of a trained model before it is measured; none by default.

    Args:
        prior: "uniform", "train" or a file: the class mix to predict for.
        logit_adjustment: τ of z − τ log π.
        tau_norm: τ of w/‖w‖^τ, for a linear head.
        max_norm: the largest norm of a class's weights, for a linear head.
        temperature: instead of the fitted one.
        aggregate_experts: weigh the experts of a model such as `sade` by how stable predictions
            for the test images are; their labels are not looked at.
    """

    prior: str | None = None
    logit_adjustment: float | None = None
    tau_norm: float | None = None
    max_norm: float | None = None
    temperature: float | None = None
    aggregate_experts: bool = False

    def __post_init__(self) -> None:
        for name in ("logit_adjustment", "tau_norm", "max_norm", "temperature"):
            value, may_be_zero = getattr(self, name), name in ("logit_adjustment", "tau_norm")
            if value is None or 0 < value < math.inf or (value == 0 and may_be_zero):
                continue
            lowest = "of at least 0" if may_be_zero else "above 0"
            raise InputError(f"{name.replace('_', '-')} is {value}; expected a number {lowest}")
        if self.prior is not None and self.logit_adjustment:
            raise InputError(
                "a prior and logit adjustment correct the same thing; give one of them"
            )


def evaluate_run(
    run: Source,
    data: str | Path | HuggingFace | None = None,
    correction: Correction = Correction(),  # noqa: B008
    *,
    device: str = "auto",
    workers: int = 0,
    skip_bad: bool = False,
    console: Console | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Measure a trained run on its own test set, or on that of another dataset.

    Args:
        run: a run's folder, or its model file.
        data: another dataset than the run's own, with classes that the model knows.
        correction: what to do to the model before.
        device: auto, cpu, cuda or cuda:N.
        workers: processes that decode images; 0 is none.
        skip_bad: leave unreadable images out.
        console: where progress is shown; None is silent.
        options: those of `open_dataset`, such as root=DIR.
    """
    model = load(run, device)
    _correct_weights(model, correction)
    if correction.logit_adjustment and model.info.prior == "uniform":
        raise InputError(
            f"the model was trained by {model.info.method} for classes that are equally frequent, "
            "so logit adjustment would correct the tail twice; leave it out"
        )
    if correction.prior is not None:
        model.prior(correction.prior)  # refused before any work
    if correction.aggregate_experts:
        experts_of(model)
    with busy(console, "reading the data"):
        dataset = dataset_for(model, Path(run), data, options, skip_bad)
    facts: dict[str, Any] = {
        "method": model.info.method,
        "dataset": dataset.name,
        "temperature": correction.temperature or model.info.temperature,
    }
    if correction.temperature is None:
        with suppress(InputError):  # a model file knows nothing of it
            facts["held_out"] = RunFolder(Path(run)).read_metrics()["held_out"]
    if correction.aggregate_experts:
        flip = not Path(run).is_dir() or RunFolder(Path(run)).read_run()["augment"]["flip"]
        facts["expert_weights"] = weigh_experts(model, dataset.test, flip, workers).tolist()
    logits = _test_logits(model, Path(run), dataset, workers, console)
    logits = model.calibrated(logits, correction.prior, correction.temperature)
    counts = torch.tensor(model.info.class_counts)
    if correction.logit_adjustment:
        logits = adjust_logits(logits, counts, correction.logit_adjustment)
    return facts | evaluate(logits, dataset.test.labels, counts, model.class_names)


def _test_logits(
    model: Model, run: Path, dataset: Dataset, workers: int, console: Console | None
) -> Scores:
    """Return the logits of the test images, of a frozen network by the features that are kept."""
    stored = RunFolder(run).read_run() if run.is_dir() else {}
    if not stored.get("frozen") or model.info.built_by_method:
        return run_split(model, dataset.test, workers, console)[1]
    stored.pop("info")
    backbone = model.classifier.backbone
    backbone.num_features = backbone.pooled_features
    neck, backbone.neck = backbone.neck, nn.Identity()
    frozen = frozen_by(backbone, build(stored), dataset, model.info.mean, model.info.std)
    compute_features(frozen, Ranks(0, 1, model.device), workers, console, train=False)
    assert isinstance(frozen.test, FeatureVectors)
    vectors = frozen.test.vectors.to(model.device)
    with torch.no_grad():
        return logits_of(model.classifier.head, neck(vectors))


def _correct_weights(model: Model, correction: Correction) -> None:
    if not (correction.tau_norm or correction.max_norm):
        return
    head = model.classifier.head
    if not isinstance(head, LinearHead):
        kind = "several experts'" if isinstance(head, ExpertsHead) else repr(model.info.head)
        raise InputError(
            f"the model's head is {kind}; τ-normalisation and MaxNorm act on the "
            "norms of a linear head"
        )
    if correction.max_norm:
        with torch.no_grad():
            head.weight.copy_(max_norm(head.weight, correction.max_norm))
    if correction.tau_norm:
        model.classifier.head = TauNormHead.from_linear(head, correction.tau_norm)


def experts_of(model: Model) -> ExpertsHead:
    """The model's head, refused where there are no experts to weigh, or no two views."""
    head = model.classifier.head
    if not isinstance(head, ExpertsHead):
        raise InputError(
            f"the model was trained by {model.info.method} and has no experts to weigh; "
            "expected one of sade or ride"
        )
    if model.takes_features:
        raise InputError(
            "experts are weighed on two views of every image, but the model takes feature "
            "vectors; train on images"
        )
    return head


def weigh_experts(model: Model, split: Split, flip: bool = True, workers: int = 0) -> Tensor:
    """Give the model the expert weights under which its predictions for the images are stable.

    The labels of the split are not looked at. `flip` says whether a mirror image is of the same
    class.
    """
    head = experts_of(model)
    options = loader_options(model) | {"batch_size": BATCH, "workers": workers}
    augmentation = view_augmentation(model.info.input_size, flip)
    loaders = [TrainLoader(split, augmentation=augmentation, **options) for _ in range(2)]
    with closing(loaders[0]), closing(loaders[1]):
        weights = aggregate_experts(_views(model, head, loaders, e) for e in range(EPOCHS))
    head.expert_weights.copy_(weights)
    return weights.cpu()


def view_augmentation(size: int, flip: bool) -> Augmentation:
    """The authors' views: small images are shifted, large ones cut, both get other colours."""
    if size >= RESIZED_CROP_FROM:
        return create_augmentation("simclr", size=size, flip=flip)
    return create_augmentation("standard", size=size, flip=flip, jitter=JITTER)


@torch.no_grad()
def _views(
    model: Model, head: ExpertsHead, loaders: list[TrainLoader], epoch: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """The experts' logits of two views of every image, in a random order."""
    order = permutation(stream(0, epoch), len(loaders[0].labels))
    views = (loader.epoch(order, stream(0, epoch, i)) for i, loader in enumerate(loaders))
    for first, second in zip(*views, strict=True):
        features = (model.classifier.features(view.inputs) for view in (first, second))
        one, other = (head.expert_logits(x) for x in features)
        yield one, other
