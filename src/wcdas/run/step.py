"""One training step's loss, as a module that DDP can wrap."""

import torch
from torch import Tensor, nn

from wcdas.errors import InputError
from wcdas.groups import group_indices
from wcdas.heads import Head
from wcdas.methods.classifier import Classifier
from wcdas.methods.method import StepBatch, StepState
from wcdas.run.build import TrainingRun
from wcdas.run.checks import stage_loss
from wcdas.run.inference import AMP, in_precision
from wcdas.run.teacher import divergence
from wcdas.targets import MixedLabels, loss_of


class Step(nn.Module):
    """A batch → loss and features; the backbone is frozen in a classifier stage."""

    class_counts: Tensor
    log_prior: Tensor | None

    def __init__(
        self, run: TrainingRun, index: int, lr: Tensor, progress: Tensor, epoch: Tensor
    ) -> None:
        """`lr`, `progress` and `epoch` are tensors () on the device: those of the present step."""
        super().__init__()
        name, stage = run.stages[index]
        class_counts, device = run.dataset.class_counts, run.ranks.device
        self.model, self.stage, self.amp = run.model, stage, run.config.amp
        self.training_step = run.method.training_step
        self.name, self.options = name, run.config.options
        self.lr, self.progress, self.epoch = lr, progress, epoch
        self.register_buffer("class_counts", class_counts, persistent=False)
        self.seen: Tensor | None = None  # the features of the first call
        self.is_taught = run.teacher_in(index) is not None
        self.weight, self.temperature = run.config.teacher_weight, run.config.teacher_temperature
        self.frozen = stage.trains != "all"
        self.loss = stage_loss(stage, class_counts)
        prior = class_counts.double() / class_counts.sum()
        log_prior = (stage.prior * prior.log()).float() if stage.prior else None
        self.register_buffer("log_prior", log_prior, persistent=False)
        self.to(device)

    def train(self, mode: bool = True) -> "Step":
        """A frozen backbone stays in evaluation mode, its batch norm untouched."""
        super().train(mode)
        if self.frozen:
            self.model.backbone.eval()
        return self

    def forward(self, batch: StepBatch) -> tuple[Tensor, Tensor]:
        self.seen = None
        if self.training_step is None:
            loss = self._loss(self._features(batch.inputs), batch.target)
        else:
            state = StepState(
                self.name,
                self.class_counts,
                self.options,
                self._features,
                self._loss,
                self.progress,
                self.lr,
                AMP.get(self.amp, torch.float32),
                self.log_prior,
                self.epoch,
            )
            loss = self.training_step(self.model, batch, state)
            self._check(loss)
        assert self.seen is not None
        features, self.seen = self.seen[: len(batch.labels)], None
        if batch.taught is not None:
            apart = divergence(self.model.head(features), batch.taught, self.temperature)
            loss = (1 - self.weight) * loss + self.weight * apart
        return loss, features.detach()

    def _check(self, loss: object) -> None:
        """Refuse a method's step that gives back no loss."""
        step = f"training_step in stage {self.name}"
        if not isinstance(loss, Tensor) or loss.dim() or not loss.requires_grad:
            shown = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else loss
            raise InputError(
                f"{step} returned {shown}; expected the loss, a tensor of shape () with a gradient"
            )
        if self.seen is None:
            raise InputError(f"{step} never called state.features; expected it on the inputs")

    def _features(self, inputs: Tensor) -> Tensor:
        with (
            torch.set_grad_enabled(not self.frozen and torch.is_grad_enabled()),
            in_precision(self.amp, inputs.device),
        ):
            features = self.model.features(inputs)
        if self.seen is None:
            self.seen = features
        return features

    def _loss(
        self,
        features: Tensor,
        target: Tensor | MixedLabels,
        head: Head | None = None,
        log_prior: Tensor | None = None,
    ) -> Tensor:
        head = self.model.head if head is None else head
        if (criterion := self.loss) is None:
            if self.log_prior is not None:
                log_prior = self.log_prior if log_prior is None else self.log_prior + log_prior
            smoothing = self.stage.label_smoothing
            return head.loss(features, target, label_smoothing=smoothing, log_prior=log_prior)

        def of_labels(labels: Tensor) -> Tensor:
            logits = head(features, labels)
            value: Tensor = criterion(logits if log_prior is None else logits + log_prior, labels)
            return value

        return loss_of(target, of_labels)


class EpochStatistics:
    """Sums over an epoch, on the device, so that nothing waits for it."""

    COUNT_CLASSES_UP_TO = 2_000  # above, the training accuracy would cost another product

    def __init__(self, class_counts: Tensor, device: torch.device) -> None:
        self.group = group_indices(class_counts).to(device)
        self.counts_right = len(class_counts) <= self.COUNT_CLASSES_UP_TO
        self.sums = torch.zeros(9, dtype=torch.float64, device=device)
        self.first_bad = torch.full((), -1, dtype=torch.int64, device=device)

    def reset(self) -> None:
        self.sums.zero_()
        self.first_bad.fill_(-1)

    @torch.no_grad()
    def add(
        self, loss: Tensor, features: Tensor, labels: Tensor, model: Classifier, step: Tensor
    ) -> None:
        """Loss, samples, right ones; the angle to the own class and its count by group."""
        bad = ~loss.isfinite() & (self.first_bad < 0)
        self.first_bad.copy_(torch.where(bad, step.squeeze(0), self.first_bad))
        features = features.float()
        cosine = model.head.own_cosine(features, labels).clamp(-1, 1)
        group = self.group[labels]
        n = len(labels)
        self.sums[0] += loss.detach() * n
        self.sums[1] += n
        if self.counts_right:
            self.sums[2] += (model.head(features).argmax(1) == labels).sum()
        self.sums.index_add_(0, 3 + group, cosine.acos().double())
        self.sums.index_add_(0, 6 + group, torch.ones_like(cosine, dtype=torch.float64))
