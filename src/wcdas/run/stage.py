"""One stage of a run: all that changes while it trains, and a single step of it."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from wcdas.backbones import let_learn
from wcdas.data.loader import Batch
from wcdas.data.samplers import MetaSampler
from wcdas.heads import ShardedWCDASHead
from wcdas.heads.margins import AnnealedMarginHead
from wcdas.heads.oltr import class_means
from wcdas.methods.classifier import next_head
from wcdas.methods.method import StageStart, StepBatch, plain_model
from wcdas.processes import total
from wcdas.rng import Purpose, seeded, stream
from wcdas.run.batches import Batches
from wcdas.run.build import TrainingRun, new_head
from wcdas.run.optimizer import WeightAverage, create_optimizer, load_optimizer
from wcdas.run.prediction import Between, training_features
from wcdas.run.sam import copies, second_pass
from wcdas.run.schedule import annealed, chain, rate
from wcdas.run.shards import Rows
from wcdas.run.step import EpochStatistics, Step
from wcdas.streams import Beside

State = dict[str, Any]


def enter_stage(run: TrainingRun, index: int) -> None:
    """Change in the model what a stage has otherwise than the one before."""
    _, stage = run.stages[index]
    model = run.model
    with seeded(stream(run.config.seed, index, Purpose.HEAD)):
        model.head = next_head(model.head, stage.head, partial(new_head, run.config, run.dataset))
    let_learn(model.backbone, stage.trains == "all")
    if run.ranks.world > 1 and run.ranks.device.type == "cuda":
        model.backbone = nn.SyncBatchNorm.convert_sync_batchnorm(model.backbone)


def set_values(run: TrainingRun, index: int, between: Between) -> None:
    """Set the values that a stage begins with, the method's and the class weights; `between` is
    called between batches."""
    name, stage = run.stages[index]
    if run.method.begin_stage is not None:
        start = StageStart(
            name,
            run.dataset.class_counts,
            run.config.options,
            lambda: training_features(run, run.kept, between),
            lambda: training_features(run, run.selection, between),
        )
        with torch.no_grad():
            run.method.begin_stage(run.model, start)
    if stage.imprint:
        features, labels = training_features(run, run.kept, between)
        run.model.head.imprint(class_means(features, labels, run.dataset.num_classes)[0])


class Clock:
    """A counter of steps, and the values of the step it points at.

    An epoch's values are laid down on the device at its beginning; a step looks its own up, so that
    it is the same work every time.
    """

    def __init__(self, names: list[str], steps: int, device: torch.device) -> None:
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        self.table = torch.zeros(steps, len(names), device=device)
        self.now = torch.zeros(len(names), device=device)
        self.values: dict[str, Tensor] = dict(zip(names, self.now.unbind(), strict=True))

    def begin(self, rows: list[list[float]], start: int) -> None:
        """Lay down the values of every step of an epoch, which goes on at step `start`."""
        self.table.copy_(torch.tensor(rows))
        self.step.fill_(start)

    def look(self) -> None:
        """Bring the values of the step up to date."""
        self.now.copy_(self.table.index_select(0, self.step).squeeze(0))

    def tick(self) -> None:
        self.step += 1


class StageTraining:
    """A stage while it trains; its state is that of a checkpoint.

    Args:
        run: what is trained.
        index: which of its stages.
        optimizer: that of the stage before, for one that continues it.
    """

    def __init__(
        self, run: TrainingRun, index: int, optimizer: torch.optim.Optimizer | None = None
    ) -> None:
        self.run, self.index, self.model = run, index, run.model
        self.name, self.stage = run.stages[index]
        self.data = Batches(run, index)
        self.steps, self.sampler = self.data.steps, self.data.sampler
        device, amp = run.ranks.device, run.config.amp
        self.first, self.before, self.epochs = chain([s for _, s in run.stages], index)
        if self.stage.optimizer == "fresh" or optimizer is None:
            optimizer = create_optimizer(self.model, self.first)
            head = self.model.head
            if isinstance(head, ShardedWCDASHead) and head.negatives < 1:
                head.step_with(optimizer)
        self.optimizer = optimizer
        scales = {group["lr_scale"] for group in optimizer.param_groups}
        self.scales = sorted({1.0, self.first.head_lr, *scales})  # a column of rates for each
        names = ["progress", "epoch", "annealing", *(f"lr · {scale}" for scale in self.scales)]
        self.clock = Clock(names, self.steps, device)
        now = self.clock.values
        self.step = Step(run, index, self._rate(1.0), now["progress"], now["epoch"])
        self.parallel = self._in_parallel()
        self.annealed = [m for m in self.model.modules() if isinstance(m, AnnealedMarginHead)]
        self.average = WeightAverage(self.model, self.stage.ema) if self.stage.ema else None
        self.scaler = torch.amp.grad_scaler.GradScaler(device.type, enabled=amp == "fp16")
        self.statistics = EpochStatistics(run.dataset.class_counts, device)
        self.beside = Beside("statistics", device)
        plain = run.config.engine != "eager" and amp != "fp16"
        alone = run.ranks.world == 1 and device.type == "cuda"
        self.capturable = plain and alone and self.data.is_resident

    def _in_parallel(self) -> nn.Module:
        """Return the step of all processes; a sharded head sees to its own gradients."""
        if self.run.ranks.world == 1:
            return self.step
        head = self.model.head
        sharded = isinstance(head, ShardedWCDASHead)
        # What a method builds may have parts that a step leaves out.
        extra = self.run.method.build_model is not plain_model
        apart = [p for p in head.parameters() if p.requires_grad] if sharded else []
        try:
            for parameter in apart:
                parameter.requires_grad_(False)
            if not any(p.requires_grad for p in self.step.parameters()):
                return self.step
            return DistributedDataParallel(
                self.step, find_unused_parameters=extra, init_sync=not sharded
            )
        finally:
            for parameter in apart:
                parameter.requires_grad_(True)

    def begin_epoch(self, epoch: int, start: int) -> list[float]:
        """Lay down what the steps of an epoch look up; return the rate of each."""
        rows, rates = [], []
        for step in range(self.steps):
            done = epoch + step / self.steps
            progress = done / self.stage.epochs
            lr = rate(self.first, self.before + done, self.epochs)
            margin = annealed(self.stage.annealing, progress)
            rows.append([progress, epoch, margin, *(lr * scale for scale in self.scales)])
            rates.append(lr)
        self.clock.begin(rows, start)
        self.data.begin(epoch, start)
        return rates

    def set_rate(self, lr: float) -> None:
        """Give the optimizer its rates, which on a GPU it reads from the device."""
        shared = self.run.ranks.device.type == "cuda"
        for group in self.optimizer.param_groups:
            scale = group["lr_scale"]
            group["lr"] = self._rate(scale) if shared else lr * scale

    def _rate(self, scale: float) -> Tensor:
        """Return the rate of the present step, times a scale, on the device."""
        return self.clock.values[f"lr · {scale}"]

    def train_step(self) -> None:
        """Take one step, which is device work alone where the data is resident."""
        self.clock.look()
        if self.stage.annealing.base:
            for head in self.annealed:
                head.annealing.copy_(self.clock.values["annealing"])
        batch, first = self.data.next(self.clock.step)
        features = self._gradient(batch)
        if self.stage.clip:
            self.scaler.unscale_(self.optimizer)
            self._clip()
        if isinstance(self.sampler, MetaSampler) and batch.second is not None:
            self._update_sampler(self.sampler, features, batch.second, first)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.average is not None:
            self.average.update()
        self.clock.tick()

    def _gradient(self, batch: StepBatch) -> Tensor:
        """Lay down the gradient that the optimizer steps by, and return the features."""
        if not self.stage.sam:
            return self._backward(batch)
        state = self._state()
        before = copies(state)
        features = self._backward(batch)
        with second_pass(self._learning(), state, before, self._norm(), self.stage.sam):
            self._backward(batch, counted=False)
        return features

    def _state(self) -> list[Tensor]:
        """What a pass changes without a gradient: buffers, and copies that follow the weights."""
        extra = self.model.auxiliary
        parameters = [] if extra is None else list(extra.parameters())
        followers = [p.detach() for p in parameters if not p.requires_grad]
        return [*self.step.buffers(), *followers]

    def _backward(self, batch: StepBatch, counted: bool = True) -> Tensor:
        """Lay down the gradients of a pass, and return the features; those that are counted are in
        the log."""
        self.optimizer.zero_grad(set_to_none=True)
        parts = _parts(batch, self.stage.accumulate)
        several = isinstance(self.parallel, DistributedDataParallel)
        features = []
        for i, part in enumerate(parts):
            more = i + 1 < len(parts)
            with cast(Any, self.parallel).no_sync() if more and several else nullcontext():
                loss, f = self.parallel(part)
                if counted:
                    with self.beside:
                        self.statistics.add(loss, f, part.labels, self.model, self.clock.step)
                share = loss * (len(part.labels) / len(batch.labels))
                self.scaler.scale(share).backward()
            self.beside.join()
            features.append(f)
        return torch.cat(features)

    def _learning(self) -> list[nn.Parameter]:
        """All that the optimizer steps."""
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def _clip(self) -> None:
        """Shorten the gradient to the largest norm."""
        nn.utils.clip_grads_with_norm_(self._learning(), self.stage.clip, self._norm())

    def _norm(self) -> Tensor:
        """The norm of the gradient of all parameters, of whichever process."""
        parameters, own = self._learning(), self._sharded()
        alike = [p.grad for p in parameters if p.grad is not None and p not in own]
        parts = [p.grad for p in parameters if p.grad is not None and p in own]
        norm = nn.utils.get_total_norm(alike)
        if own:
            norm = (norm**2 + total(nn.utils.get_total_norm(parts) ** 2)).sqrt()
        return norm

    def _sharded(self) -> dict[nn.Parameter, str]:
        """The names of the parameters of which every process has other rows."""
        head = self.model.head
        if not isinstance(head, ShardedWCDASHead):
            return {}
        return {p: f"head.{name}" for name, p in head.sharded_parameters().items()}

    def _update_sampler(
        self, sampler: MetaSampler, features: Tensor, fair: tuple[Tensor, Tensor], first: Batch
    ) -> None:
        with torch.no_grad():
            fair_features = self.model.features(fair[0]).float()
        sampler.update(
            self.model.head,
            self._rate(self.first.head_lr),
            features.float(),
            first.labels,
            first.positions,
            (fair_features, fair[1]),
            self.step.log_prior,
        )

    def learned(self) -> list[Tensor]:
        """All that must stay finite."""
        weights = [self.sampler.w] if isinstance(self.sampler, MetaSampler) else []
        return [*self.model.parameters(), *weights]

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Look at the averaged weights, where there are any, in place of the present ones."""
        if self.average is None:
            yield
            return
        current = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.model.load_state_dict(self.average.module.state_dict())
        try:
            yield
        finally:
            self.model.load_state_dict(current)

    def finish(self) -> None:
        """End the readers; the averaged weights, where there are any, are the stage's result."""
        self.data.close()
        if self.average is not None:
            self.model.load_state_dict(self.average.module.state_dict())

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = self.model.state_dict(), self.optimizer.state_dict()
        average = self.average.state_dict() if self.average is not None else None
        if isinstance(self.model.head, ShardedWCDASHead):
            self._mark_rows(model, optimizer, average)
        return {
            "model": model,
            "optimizer": optimizer,
            "average": average,
            "scaler": self.scaler.state_dict(),
            "sampler": self.sampler.state_dict() if isinstance(self.sampler, MetaSampler) else None,
            "loss": self.step.loss.state_dict() if self.step.loss is not None else None,
            "statistics": total(self.statistics.sums.clone()),
        }

    def _mark_rows(self, model: State, optimizer: State, average: State | None) -> None:
        """Mark in a state what every process has other rows of."""
        own, classes = self._sharded(), self.model.head.num_classes
        for tensors in (model, average["module"] if average is not None else {}):
            tensors |= {n: Rows(tensors[n], classes) for n in own.values() if n in tensors}
        for i, parameter in enumerate(self._learning()):
            if parameter not in own:
                continue
            optimizer["state"][i] = {
                key: Rows(value, classes) if value.shape == parameter.shape else value
                for key, value in optimizer["state"].get(i, {}).items()
            }

    def load_state_dict(self, state: State) -> None:
        self.model.load_state_dict(state["model"])
        load_optimizer(self.optimizer, state["optimizer"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.scaler.load_state_dict(state["scaler"])
        if isinstance(self.sampler, MetaSampler):
            self.sampler.load_state_dict(state["sampler"])
        if self.step.loss is not None:
            self.step.loss.load_state_dict(state["loss"])
        if self.run.ranks.is_main:  # they are those of all ranks
            self.statistics.sums.copy_(state["statistics"])


def _parts(batch: StepBatch, count: int) -> list[StepBatch]:
    """Cut a batch into `count` parts, with everything in it."""
    if count == 1:
        return [batch]
    places = torch.arange(len(batch.labels)).tensor_split(count)
    return [_part(batch, slice(i[0], i[-1] + 1)) for i in places if len(i)]


def _part(value: Any, cut: slice) -> Any:
    if isinstance(value, Tensor):
        return value[cut] if value.dim() else value
    if isinstance(value, tuple):
        parts = (_part(item, cut) for item in value)
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value
