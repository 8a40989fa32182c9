"""One stage of a run: its optimizer, its steps, its checkpoints."""

import copy
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from wcdas.data.loader import Batch
from wcdas.errors import InterruptedRunError, WorkError
from wcdas.groups import GROUPS, group_means
from wcdas.heads.angular import AngularHead
from wcdas.heads.concentration import ConcentrationHead
from wcdas.heads.margin import AnnealedMarginHead
from wcdas.methods.meta_sampler import MetaSampler
from wcdas.methods.method import StepBatch, plain_model
from wcdas.processes import largest, total
from wcdas.rng import seeded, stream
from wcdas.run import checkpoint
from wcdas.run.average import WeightAverage
from wcdas.run.chance import chance
from wcdas.run.clock import Clock
from wcdas.run.optimizer import create_optimizer
from wcdas.run.progress import StageProgress
from wcdas.run.schedule import annealed, chain, rate
from wcdas.run.stage_data import StageData
from wcdas.run.step import EpochStatistics, Step
from wcdas.run.step_graph import StepGraph
from wcdas.run.symptoms import BOUND, Line, TrainedScale, Watched, symptom
from wcdas.streams import Beside

if TYPE_CHECKING:
    from wcdas.run.trainer import Trainer

CHECKPOINT_SECONDS = 300  # inside an epoch
EPOCH_SECONDS = 15  # epochs that end sooner after a checkpoint have none of their own
AGREE_EVERY = 20  # steps; several processes ask each other no more often than that


class StageRun:
    """What one stage needs while it trains."""

    def __init__(self, trainer: "Trainer", index: int) -> None:
        self.trainer, self.index = trainer, index
        self.config, self.ranks, self.model = trainer.config, trainer.ranks, trainer.model
        self.name, self.stage = trainer.stages[index]
        self.seed = stream(self.config.seed, index)
        stage, device = self.stage, self.ranks.device
        self.data = StageData(trainer, index)
        self.steps, self.sampler = self.data.steps, self.data.sampler
        self.step = Step(
            self.model,
            trainer.method,
            self.config,
            self.name,
            stage,
            trainer.class_counts,
            device,
        )
        self.parallel: nn.Module = self.step
        if self.ranks.world > 1:
            # What a method builds may have parts that a step leaves out.
            extra = trainer.method.build_model is not plain_model
            self.parallel = DistributedDataParallel(self.step, find_unused_parameters=extra)
        self.annealed = [m for m in self.model.modules() if isinstance(m, AnnealedMarginHead)]
        self.first, self.before, self.epochs = chain([s for _, s in trainer.stages], index)
        if stage.optimizer == "fresh" or trainer.optimizer is None:
            trainer.optimizer = create_optimizer(self.model, self.first)
        self.optimizer = trainer.optimizer
        self.average = WeightAverage(self.model, stage.ema) if stage.ema else None
        self.scaler = torch.amp.grad_scaler.GradScaler(
            device.type, enabled=self.config.amp == "fp16"
        )
        self.statistics = EpochStatistics(trainer.class_counts, device)
        self.clock = Clock(["lr", "progress", "annealing"], self.steps, device)
        self.step.state.lr = self.clock.values["lr"]
        self.step.state.progress = self.clock.values["progress"]
        self.graph: StepGraph | None = None
        self.beside = Beside("statistics", device)
        plain = self.config.engine != "eager" and self.config.amp != "fp16"
        alone = self.ranks.world == 1 and device.type == "cuda"
        self.capturable = plain and alone and self.data.is_resident
        self.saved_at = time.monotonic()

    def train_epoch(self, epoch: int, start: int, progress: StageProgress) -> None:
        self.parallel.train()
        rows = self._begin_epoch(epoch, start)
        if self.capturable and self.graph is None:
            self.graph = self._captured(epoch, start)
        key, size = stream(self.seed, epoch), self.data.batch_size
        for step in range(start, self.steps):
            seed = stream(key, step, self.ranks.rank)
            if step > start:
                self.data.prepare(step)
            try:
                if self.graph is not None:
                    self.graph.replay(seed)
                else:
                    self._set_rate(rows[step][0])
                    with seeded(seed):
                        self._train_step()
            except ValueError as error:  # on a CPU heads and losses look at the values
                if "NaN" not in str(error):
                    raise
                raise self._not_finite(epoch, step) from None
            progress.step(size)
            self.trainer.global_step += 1
            stop, save = self._asked(step)
            if stop or save:
                self.save(epoch, step + 1)
            if stop:
                folder = self.trainer.folder.path
                again = f"wcdas train --out {folder} --resume"
                raise InterruptedRunError(f"stopped; go on with: {again}")

    def close_epoch(self, epoch: int) -> dict[str, Any]:
        """What the log says of an epoch; refuses to go on from a loss that is no number."""
        self._check_finite(epoch, self.steps - 1)
        model = self.model
        sums = total(self.statistics.sums).cpu()
        loss, seen, right = sums[:3].tolist()
        facts: dict[str, Any] = {
            "stage": self.name,
            "epoch": epoch + 1,
            "lr": float(self.optimizer.param_groups[0]["lr"]),
            "loss": loss / seen,
            "train_accuracy": right / seen if self.statistics.counts_right else None,
            "angle": _by_group(sums[3:6], sums[6:9]),
        }
        if isinstance(model.head, ConcentrationHead):
            rho = model.head.concentration.detach().double().cpu()
            means = group_means(rho, self.trainer.class_counts)
            facts["rho"] = {name: mean for name, mean in means.items() if mean is not None}
            bounds = {"low": rho < BOUND, "high": rho > 1 - BOUND}
            facts["rho_at_bounds"] = {k: float(v.double().mean()) for k, v in bounds.items()}
            if epoch + 1 == self.stage.epochs:
                facts["rho_by_class"] = rho.tolist()
        if isinstance(model.head, AngularHead):
            facts["scale"] = float(model.head.scale.detach())
        if isinstance(self.sampler, MetaSampler):
            facts["class_probabilities"] = self.sampler.probabilities.tolist()
        self.statistics.reset()
        return facts

    def symptom(self, lines: Sequence[Line]) -> tuple[str, str] | None:
        """A sign in the log of the stage so far that it does not learn."""
        shares = self.sampler.class_probabilities(len(lines) - 1, self.stage.epochs)
        of = chance(self.step, shares, self.statistics.counts_right)
        return symptom(self._watched(), of, lines)

    def _watched(self) -> Watched:
        stages = [(name, stage) for name, stage in self.trainer.stages if stage.epochs]
        rates = {stage.lr for _, stage in stages if stage.optimizer == "fresh"}
        first = next(name for name, stage in stages if stage is self.first)
        return Watched(
            self.name,
            self.stage.epochs,
            self.steps,
            self.steps * self.data.batch_size,
            max(0.0, self.first.warmup - self.before),
            self.first.lr,
            "lr" if len(rates) == 1 else f"stages.{first}.lr",
            _trained_scale(self.model.head, "scale_init" in self.config.head),
        )

    def evaluate(self) -> dict[str, Any]:
        if self.average is None:
            return self.trainer.evaluate()
        current = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.model.load_state_dict(self.average.module.state_dict())
        metrics = self.trainer.evaluate()
        self.model.load_state_dict(current)
        return metrics

    def finish(self) -> None:
        """The averaged weights, where there are any, are the stage's result."""
        self.data.close()
        if self.average is not None:
            self.model.load_state_dict(self.average.module.state_dict())

    @property
    def wants_checkpoint(self) -> bool:
        """At the end of an epoch; several processes cannot each look at their own clock."""
        return self.ranks.world > 1 or time.monotonic() - self.saved_at > EPOCH_SECONDS

    def save(self, epoch: int, step: int) -> None:
        self.saved_at = time.monotonic()
        if step:
            self._check_finite(epoch, step - 1)
        state = self._state(epoch, step)
        if self.ranks.is_main:
            checkpoint.save(self.trainer.folder.checkpoints, self.trainer.global_step, state)

    def _state(self, epoch: int, step: int) -> dict[str, Any]:
        return {
            "stage": self.index,
            "epoch": epoch,
            "step": step,
            "global_step": self.trainer.global_step,
            "logged": self.trainer.logged,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "average": self.average.state_dict() if self.average is not None else None,
            "scaler": self.scaler.state_dict(),
            "sampler": self.sampler.state_dict() if isinstance(self.sampler, MetaSampler) else None,
            "loss": self.step.loss.state_dict() if self.step.loss is not None else None,
            "statistics": total(self.statistics.sums.clone()),
        }

    def restore(self, state: dict[str, Any]) -> int:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.scaler.load_state_dict(state["scaler"])
        if isinstance(self.sampler, MetaSampler):
            self.sampler.load_state_dict(state["sampler"])
        if self.step.loss is not None:
            self.step.loss.load_state_dict(state["loss"])
        if self.ranks.is_main:  # they are those of all ranks
            self.statistics.sums.copy_(state["statistics"])
        self.trainer.global_step, self.trainer.logged = state["global_step"], state["logged"]
        epoch: int = state["epoch"]
        return epoch

    def _begin_epoch(self, epoch: int, start: int) -> list[list[float]]:
        """Lay down what the steps of an epoch look up; the same numbers for this side."""
        rows = []
        for step in range(self.steps):
            done = epoch + step / self.steps
            progress = done / self.stage.epochs
            lr = rate(self.first, self.before + done, self.epochs)
            rows.append([lr, progress, annealed(self.stage.annealing, progress)])
        self.clock.begin(rows, start)
        self.data.begin(epoch, start)
        return rows

    def _set_rate(self, lr: float) -> None:
        """On a GPU the optimizer reads the rate from the device."""
        shared = self.clock.values["lr"] if self.ranks.device.type == "cuda" else lr
        for group in self.optimizer.param_groups:
            group["lr"] = shared

    def _captured(self, epoch: int, start: int) -> StepGraph | None:
        """A step as a CUDA graph, or None where it cannot be one; all is then as it was before."""
        before = copy.deepcopy(self._state(epoch, start))

        def undo() -> None:
            # A copy, since the optimizer goes on with the very tensors it is given.
            self.restore(copy.deepcopy(before))
            self._set_rate(0.0)
            self._begin_epoch(epoch, start)

        self._set_rate(0.0)
        began = time.monotonic()
        try:
            graph = StepGraph(self._train_step, undo)
        except RuntimeError as error:
            self.capturable = False
            undo()
            why = str(error).splitlines()[0]
            self.trainer.note(f"stage {self.name} runs eagerly, no CUDA graph can hold it: {why}")
            return None
        seconds = time.monotonic() - began
        self.trainer.note(f"stage {self.name}: compiled and captured in {seconds:.1f} s")
        return graph

    def _train_step(self) -> None:
        """One step, which is device work alone where the data is resident."""
        self.clock.look()
        if self.stage.annealing.base:
            for head in self.annealed:
                head.annealing.copy_(self.clock.values["annealing"])
        batch, first = self.data.next(self.clock.step)
        self.optimizer.zero_grad(set_to_none=True)
        features = self._backward(batch)
        if self.stage.clip:
            self.scaler.unscale_(self.optimizer)
            parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
            nn.utils.clip_grad_norm_(parameters, self.stage.clip)
        if isinstance(self.sampler, MetaSampler) and batch.second is not None:
            self._update_sampler(self.sampler, features, batch.second, first)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.average is not None:
            self.average.update()
        self.clock.tick()

    def _update_sampler(
        self, sampler: MetaSampler, features: Tensor, fair: tuple[Tensor, Tensor], first: Batch
    ) -> None:
        with torch.no_grad():
            fair_features = self.model.features(fair[0]).float()
        sampler.update(
            self.model.head,
            self.clock.values["lr"],
            features.float(),
            first.labels,
            first.positions,
            (fair_features, fair[1]),
            self.step.log_prior,
        )

    def _backward(self, batch: StepBatch) -> Tensor:
        """Lay down the gradients; the features."""
        parts = _parts(batch, self.stage.accumulate)
        features = []
        for i, part in enumerate(parts):
            more = i + 1 < len(parts)
            several = isinstance(self.parallel, DistributedDataParallel)
            with cast(Any, self.parallel).no_sync() if more and several else nullcontext():
                loss, f = self.parallel(part)
                with self.beside:
                    self.statistics.add(loss, f, part.labels, self.model, self.clock.step)
                share = loss * (len(part.labels) / len(batch.labels))
                self.scaler.scale(share).backward()
            self.beside.join()
            features.append(f)
        return torch.cat(features)

    def _asked(self, step: int) -> tuple[bool, bool]:
        """Whether to stop and whether a checkpoint is due; all ranks act on it in the same step."""
        stop = self.trainer.interrupt.requested
        save = time.monotonic() - self.saved_at > CHECKPOINT_SECONDS
        if self.ranks.world == 1:
            return stop, save
        if (step + 1) % AGREE_EVERY and step + 1 < self.steps:
            return False, False
        asked = torch.tensor([stop, save], dtype=torch.int32, device=self.ranks.device)
        stop, save = largest(asked).bool().tolist()
        return stop, save

    def _check_finite(self, epoch: int, step: int) -> None:
        """Refuse to go on, or to save, with a loss or weights that are no numbers."""
        bad = int(largest(self.statistics.first_bad))
        learned: list[Tensor] = list(self.model.parameters())
        if isinstance(self.sampler, MetaSampler):
            learned.append(self.sampler.logits)
        finite = torch.stack([p.detach().isfinite().all() for p in learned])
        if bad >= 0 or not finite.all():
            raise self._not_finite(epoch, bad if bad >= 0 else step)

    def _not_finite(self, epoch: int, step: int) -> WorkError:
        if (first := int(self.statistics.first_bad)) >= 0:
            step = first
        folder = self.trainer.folder
        kept = any(folder.checkpoints.glob("*"))
        reason = (
            f"the loss became NaN or infinite in stage {self.name}, epoch {epoch + 1}, "
            f"step {step + 1}; "
            f"{f'checkpoints from before are kept in {folder.path}; ' if kept else ''}"
            f"start a new one with a lower rate, --set lr=…, or with stages.{self.name}.clip=1"
        )
        if self.ranks.is_main:
            folder.write_failure(reason)
        return WorkError(reason)


def _parts(batch: StepBatch, count: int) -> list[StepBatch]:
    """A batch cut into `count` parts, with everything in it."""
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


def _trained_scale(head: nn.Module, scale_init: bool) -> TrainedScale | None:
    """`scale_init` says whether the run was given one, which it would keep with another start."""
    if not isinstance(head, AngularHead) or not head.scale_is_trainable:
        return None
    start, least = head.auto_scale, float(head.scale_units[0])
    own = f" --set head.scale_init={start:.0f}" if scale_init else ""
    return TrainedScale(start, least, f"--set head.start=auto{own}")


def _by_group(sums: Tensor, counts: Tensor) -> dict[str, float]:
    """The mean of every group that has members."""
    rows = zip(GROUPS, sums.tolist(), counts.tolist(), strict=True)
    return {name: value / n for name, value, n in rows if n}
