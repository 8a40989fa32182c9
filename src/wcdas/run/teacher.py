"""Distillation: a run that learns from the predictions of a trained model, too.

G. Hinton, O. Vinyals, J. Dean, "Distilling the Knowledge in a Neural Network", 2015
(arXiv:1503.02531):

    L = (1 − w)·L_labels + w·T²·KL(softmax(t/T) ‖ softmax(z/T)),    L_labels = CE(z + τ log π, y).

The logits z are those that the run predicts with: a class prior in its loss on labels is not in
them. The t are what the teacher predicts with for the same image, augmented and mixed as it is:
over its temperature, of several experts the mean. Where teacher and run are for different class
mixes, π_t and π_z, the teacher is moved to that of the run, t + log π_z − log π_t: softmax follows
the mix of training, a prior in the loss leaves logits for equal classes. Both terms then want the
same z. Where one of the mixes is not known, such as that of SADE's experts, t stays as it is.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from wcdas.checks import as_class_counts
from wcdas.data.dataset import Dataset, FeatureVectors
from wcdas.errors import InputError, explained, first_line
from wcdas.evaluation.posthoc import shift_prior
from wcdas.evaluation.prior import read_prior
from wcdas.run.folder import trained_model
from wcdas.run.inference import in_precision
from wcdas.run.model_file import ModelInfo, load_model
from wcdas.run.spec import Config

Offsets = dict[str, Tensor]


def divergence(logits: Tensor, taught: Tensor, temperature: float) -> Tensor:
    """T²·KL(softmax(t/T) ‖ softmax(z/T)), the mean over a batch; z are `logits`, t `taught`."""
    z, t = ((each / temperature).log_softmax(1) for each in (logits, taught))
    return temperature**2 * F.kl_div(z, t, log_target=True, reduction="batchmean")


class Teacher:
    """A trained classifier that a run learns from, in evaluation mode and without gradients.

    Args:
        config: of the run.
        dataset: what it is trained on.
        loading: how its inputs are prepared.
    """

    def __init__(self, config: Config, dataset: Dataset, loading: Mapping[str, Any]) -> None:
        self.amp, self.device = config.amp, loading["device"]
        with explained("teacher: "):
            model, info = load_model(trained_model(Path(config.teacher)))
            _check_inputs(info, config, dataset)
            order = _order(info, dataset)
            offsets = _offsets(info, dataset, order)
        self.model = model.requires_grad_(False).to(self.device)
        layout = loading["memory_format"]
        self.model.backbone.to(memory_format=layout)  # type: ignore[call-overload]
        self.order, self.temperature = order.to(self.device), info.temperature
        self.offsets = {prior: offset.to(self.device) for prior, offset in offsets.items()}
        self.scale, self.shift = _renormalisation(info, loading)
        if info.backbone != "identity":
            _try(self, info, config.input_size)

    def for_prior(self, prior: str) -> Callable[[Tensor], Tensor]:
        """Return what gives t for a batch of the run's inputs, where z are for this class mix."""
        return partial(self._logits, offset=self.offsets[prior])

    @torch.no_grad()
    def _logits(self, inputs: Tensor, offset: Tensor) -> Tensor:
        with in_precision(self.amp, self.device):
            features = self.model.features(inputs * self.scale + self.shift)
        t = self.model.head(features).float() / self.temperature
        return t.index_select(1, self.order) + offset


def _check_inputs(info: ModelInfo, config: Config, dataset: Dataset) -> None:
    """Refuse a teacher that cannot look at what the run is trained on."""
    features = isinstance(dataset.train, FeatureVectors)
    kinds = "images", "feature vectors"
    takes_features = info.backbone == "identity"
    if takes_features != features:
        raise InputError(f"it takes {kinds[takes_features]}, and the run {kinds[features]}")
    if info.channels != dataset.channels:
        what = "numbers in a vector" if features else "channels of an image"
        raise InputError(
            f"it takes {info.channels} {what}, and the run {dataset.channels}; expected as many"
        )
    if not features and info.input_size != config.evaluated_at:
        raise InputError(
            f"it sees images at {info.input_size} px, and the run evaluates them at "
            f"{config.evaluated_at}; expected the same, such as --set input_size={info.input_size}"
        )


def _order(info: ModelInfo, dataset: Dataset) -> Tensor:
    """The place that each of the run's classes has with the teacher."""
    names, own = dataset.class_names, info.class_names
    if different := sorted({*names} ^ {*own}):
        one = different[0]
        raise InputError(
            f"{one!r} is a class of {'the run' if one in names else 'the teacher'} alone; expected "
            "the same classes by name"
        )
    return torch.tensor([own.index(name) for name in names])


def _offsets(info: ModelInfo, dataset: Dataset, order: Tensor) -> Offsets:
    """log π_z − log π_t of every class, by the mix that z are for."""
    names, counts = dataset.class_names, as_class_counts(dataset.class_counts, "distillation")
    unmoved = torch.zeros(len(names))
    offsets = dict.fromkeys(("train", "uniform", "none"), unmoved)
    if info.prior == "none":
        return offsets
    own = read_prior(info.prior, info.class_names, torch.tensor(info.class_counts))[order]
    for prior in ("train", "uniform"):
        offsets[prior] = shift_prior(unmoved, own, read_prior(prior, names, counts))
    return offsets


def _renormalisation(info: ModelInfo, loading: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """The a and b that make of inputs x, normalised for the run, those for the teacher, a·x + b."""
    ours, theirs = (loading["mean"], loading["std"]), (info.mean, info.std)
    if ours == theirs:  # features have neither
        a, b = torch.ones(()), torch.zeros(())
    else:
        (mean, std), (own_mean, own_std) = torch.tensor([ours, theirs], dtype=torch.float64)
        a, b = std / own_std, (mean - own_mean) / own_std
        a, b = (value.float().view(-1, 1, 1) for value in (a, b))
    return a.to(loading["device"]), b.to(loading["device"])


def _try(teacher: Teacher, info: ModelInfo, size: int) -> None:
    """Refuse a network that does not take the size that is trained at."""
    image = torch.zeros(1, info.channels, size, size, device=teacher.device)
    try:
        teacher.for_prior("none")(image)
    except Exception as error:  # networks stumble anywhere over other sizes
        raise InputError(
            f"teacher: {info.backbone} does not take images of {size} px: {first_line(error)}"
        ) from None
