"""One stage of a run: its batches, its optimizer, its checkpoints."""

import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from wcdas.data.augment import create_augmentation
from wcdas.data.loader import Batch, TrainLoader
from wcdas.data.mixing import mix
from wcdas.data.profile import groups
from wcdas.data.random import stream
from wcdas.data.samplers import Sampler, create_sampler, whole_batches
from wcdas.errors import InterruptedRunError, WorkError
from wcdas.heads.angular import AngularHead
from wcdas.heads.concentration import ConcentrationHead
from wcdas.heads.multiplicative_margin import MultiplicativeMarginHead
from wcdas.training import checkpoint
from wcdas.training.distributed import largest, total
from wcdas.training.meta_sampler import MetaSampler
from wcdas.training.method import StepBatch, plain_model
from wcdas.training.optimizer import create_optimizer
from wcdas.training.preflight import stage_sampler
from wcdas.training.progress import StageProgress
from wcdas.training.schedule import annealed, chain, rate
from wcdas.training.step import EpochStatistics, Step

if TYPE_CHECKING:
    from wcdas.training.trainer import Trainer

CHECKPOINT_SECONDS = 300
AGREE_EVERY = 20  # steps; several processes ask each other no more often than that
ORDER, SECOND, VIEWS = 1_000, 1_001, 1_005  # what a stream of random numbers is for


class StageRun:
    """What one stage needs while it trains."""

    def __init__(self, trainer: "Trainer", index: int) -> None:
        self.trainer, self.index = trainer, index
        self.config, self.ranks, self.model = trainer.config, trainer.ranks, trainer.model
        self.name, self.stage = trainer.stages[index]
        self.seed = stream(self.config.seed, index)
        self.kept = trainer.kept
        self.sampler = self._sampler()
        stage = self.stage
        self.loader = self._loader(stage.augment)
        views = trainer.method.views if stage.trains == "all" else ()
        self.views = [self._loader(policy) for policy in views]
        self.second_sampler = self._second_sampler()
        self.second = self._loader(stage.augment) if self.second_sampler else None
        self.steps = len(whole_batches(self.kept, stage.batch_size, self.ranks.world))
        self.step = Step(
            self.model,
            trainer.method,
            self.config,
            self.name,
            stage,
            trainer.class_counts,
            self.ranks.device,
        )
        self.parallel: nn.Module = self.step
        if self.ranks.world > 1:
            # What a method builds may have parts that a step leaves out.
            extra = trainer.method.build_model is not plain_model
            self.parallel = DistributedDataParallel(self.step, find_unused_parameters=extra)
        self.annealed = [m for m in self.model.modules() if isinstance(m, MultiplicativeMarginHead)]
        self.first, self.before, self.epochs = chain([s for _, s in trainer.stages], index)
        if stage.optimizer == "fresh" or trainer.optimizer is None:
            trainer.optimizer = create_optimizer(self.model, self.first)
        self.optimizer = trainer.optimizer
        self.average = (
            AveragedModel(
                self.model, multi_avg_fn=get_ema_multi_avg_fn(stage.ema), use_buffers=True
            )
            if stage.ema
            else None
        )
        self.scaler = torch.amp.grad_scaler.GradScaler(
            self.ranks.device.type, enabled=self.config.amp == "fp16"
        )
        self.statistics = EpochStatistics(trainer.class_counts, self.ranks.device)
        self.saved_at = time.monotonic()

    def train_epoch(self, epoch: int, start: int, progress: StageProgress) -> None:
        self.parallel.train()
        if isinstance(self.sampler, MetaSampler) and not start:
            self.sampler.begin_epoch()
        key = stream(self.seed, epoch)
        for batch, views, second in self._batches(epoch, start):
            torch.manual_seed(stream(key, batch.step, self.ranks.rank))
            self._set_rates(epoch, batch.step)
            try:
                self._train_batch(batch, views, second, key, epoch)
            except ValueError as error:  # on a CPU heads and losses look at the values
                if "NaN" not in str(error):
                    raise
                raise self._not_finite(epoch, batch.step) from None
            progress.step(len(batch.labels) * self.ranks.world)
            self.trainer.global_step += 1
            stop, save = self._asked(batch.step)
            if stop or save:
                self.save(epoch, batch.step + 1)
            if stop:
                folder = self.trainer.folder.path
                again = f"wcdas train --out {folder} --resume"
                raise InterruptedRunError(f"stopped; go on with: {again}")

    def close_epoch(self, epoch: int) -> dict[str, Any]:
        """What the log says of an epoch; refuses to go on from a loss that is no number."""
        self._check_finite(epoch, self.steps - 1)
        model, names = self.model, list(groups(self.trainer.class_counts))
        sums = total(self.statistics.sums, self.ranks.world).cpu()
        loss, seen, right = sums[:3].tolist()
        facts: dict[str, Any] = {
            "stage": self.name,
            "epoch": epoch + 1,
            "lr": self.optimizer.param_groups[0]["lr"],
            "loss": loss / seen,
            "train_accuracy": right / seen if self.statistics.counts_right else None,
            "angle": _by_group(names, sums[3:6], sums[6:9]),
        }
        if isinstance(model.head, ConcentrationHead):
            rho = model.head.concentration.detach().double().cpu()
            masks = groups(self.trainer.class_counts).values()
            sizes = torch.tensor([float(mask.sum()) for mask in masks])
            facts["rho"] = _by_group(names, torch.stack([rho[m].sum() for m in masks]), sizes)
        if isinstance(model.head, AngularHead):
            facts["scale"] = float(model.head.scale.detach())
        if isinstance(self.sampler, MetaSampler):
            facts["class_probabilities"] = self.sampler.probabilities.tolist()
        self.statistics = EpochStatistics(self.trainer.class_counts, self.ranks.device)
        return facts

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
        for loader in (self.loader, *self.views, self.second):
            if loader is not None:
                loader.close()
        if self.average is not None:
            self.model.load_state_dict(self.average.module.state_dict())

    def save(self, epoch: int, step: int) -> None:
        self.saved_at = time.monotonic()
        if step:
            self._check_finite(epoch, step - 1)
        statistics = total(self.statistics.sums.clone(), self.ranks.world)
        if not self.ranks.is_main:
            return
        state = {
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
            "statistics": statistics,
        }
        checkpoint.save(self.trainer.folder.checkpoints, self.trainer.global_step, state)

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
            self.statistics.sums = state["statistics"].to(self.ranks.device)
        self.trainer.global_step, self.trainer.logged = state["global_step"], state["logged"]
        epoch: int = state["epoch"]
        return epoch

    def _set_rates(self, epoch: int, step: int) -> None:
        """The learning rate and λ of a step, and what a method may ask for."""
        state, done = self.step.state, epoch + step / self.steps
        state.lr = rate(self.first, self.before + done, self.epochs)
        state.progress = done / self.stage.epochs
        for group in self.optimizer.param_groups:
            group["lr"] = state.lr
        if self.stage.annealing.base:
            for head in self.annealed:
                head.annealing.fill_(annealed(self.stage.annealing, state.progress))

    def _loader(self, policy: str) -> TrainLoader:
        loading = self.trainer.loading
        augmentation = create_augmentation(
            policy,
            size=loading["size"] or 1,  # features have none
            flip=self.config.augment.flip,
            mean=loading["mean"],
        )
        return TrainLoader(
            self.trainer.dataset.train,
            augmentation=augmentation,
            batch_size=self.stage.batch_size,
            **loading,
        )

    def _sampler(self) -> Sampler:
        dataset = self.trainer.dataset
        labels = dataset.train.labels[self.kept]
        return stage_sampler(self.stage, labels, dataset.num_classes, self.ranks)

    def _second_sampler(self) -> Sampler | None:
        """The learned sampler needs a balanced batch beside its own."""
        name = "class-balanced" if isinstance(self.sampler, MetaSampler) else ""
        name = self.stage.second_sampler or name
        labels = self.trainer.dataset.train.labels[self.kept]
        return create_sampler(name, labels, self.trainer.dataset.num_classes) if name else None

    def _batches(
        self, epoch: int, start: int
    ) -> Iterator[tuple[Batch, Sequence[Batch], Batch | None]]:
        """Every batch with its further views and the second batch beside it."""
        order = self.sampler.sequence(stream(self.seed, ORDER), epoch, self.stage.epochs)
        loaders = [self.loader, *self.views]
        keys = [stream(self.seed, epoch)]
        keys += [stream(self.seed, VIEWS, i, epoch) for i in range(len(self.views))]
        orders = [order] * len(loaders)
        if self.second is not None and self.second_sampler is not None:
            key = stream(self.seed, SECOND)
            loaders.append(self.second)
            keys.append(stream(self.seed, SECOND, epoch))
            orders.append(self.second_sampler.sequence(key, epoch, self.stage.epochs))
        epochs = (
            loader.epoch(self.kept[order], key, start)
            for loader, order, key in zip(loaders, orders, keys, strict=True)
        )
        for first, *others in zip(*epochs, strict=True):
            second = others.pop() if self.second is not None else None
            yield first, others, second

    def _train_batch(
        self, first: Batch, views: Sequence[Batch], second: Batch | None, key: int, epoch: int
    ) -> None:
        stage = self.stage
        inputs, target = mix(
            first.inputs, first.labels, key, first.step, mixup=stage.mixup, cutmix=stage.cutmix
        )
        batch = StepBatch(
            inputs,
            target,
            first.labels,
            tuple(view.inputs for view in views),
            None if second is None else (second.inputs, second.labels),
        )
        self.optimizer.zero_grad(set_to_none=True)
        loss, features = self._backward(batch)
        if stage.clip:
            self.scaler.unscale_(self.optimizer)
            parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
            nn.utils.clip_grad_norm_(parameters, stage.clip)
        if isinstance(self.sampler, MetaSampler) and second is not None:
            with torch.no_grad():
                fair = self.model.features(second.inputs).float()
            self.sampler.update(
                self.model.head,
                self.optimizer.param_groups[0]["lr"],
                features.float(),
                first.labels,
                first.positions,
                stream(self.seed, ORDER),
                epoch,
                (fair, second.labels),
                self.step.log_prior,
                self.ranks.world,
            )
        self.statistics.add(loss, features, first.labels, self.model, first.step)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.average is not None:
            self.average.update_parameters(self.model)

    def _backward(self, batch: StepBatch) -> tuple[Tensor, Tensor]:
        parts = _parts(batch, self.stage.accumulate)
        losses, features = [], []
        for i, part in enumerate(parts):
            more = i + 1 < len(parts)
            several = isinstance(self.parallel, DistributedDataParallel)
            with cast(Any, self.parallel).no_sync() if more and several else nullcontext():
                loss, f = self.parallel(part)
                share = loss * (len(part.labels) / len(batch.labels))
                self.scaler.scale(share).backward()
            losses.append(share.detach())
            features.append(f)
        return torch.stack(losses).sum(), torch.cat(features)

    def _asked(self, step: int) -> tuple[bool, bool]:
        """Whether to stop and whether a checkpoint is due; all ranks act on it in the same step."""
        stop = self.trainer.interrupt.requested
        save = time.monotonic() - self.saved_at > CHECKPOINT_SECONDS
        if self.ranks.world == 1:
            return stop, save
        if (step + 1) % AGREE_EVERY and step + 1 < self.steps:
            return False, False
        asked = torch.tensor([stop, save], dtype=torch.int32, device=self.ranks.device)
        stop, save = largest(asked, self.ranks.world).bool().tolist()
        return stop, save

    def _check_finite(self, epoch: int, step: int) -> None:
        """Refuse to go on, or to save, with a loss or weights that are no numbers."""
        bad = int(largest(self.statistics.first_bad, self.ranks.world))
        finite = torch.stack([p.detach().isfinite().all() for p in self.model.parameters()])
        if bad >= 0 or not finite.all():
            raise self._not_finite(epoch, bad if bad >= 0 else step)

    def _not_finite(self, epoch: int, step: int) -> WorkError:
        if (first := int(self.statistics.first_bad)) >= 0:
            step = first
        folder = self.trainer.folder.path
        return WorkError(
            f"the loss became NaN or infinite in stage {self.name}, epoch {epoch + 1}, "
            f"step {step + 1}; checkpoints from before are kept in {folder}. "
            "Start again with a lower rate, --set lr=…, or with stages.NAME.clip"
        )


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


def _by_group(names: list[str], sums: Tensor, counts: Tensor) -> dict[str, float]:
    """The mean of every group that has members."""
    rows = zip(names, sums.tolist(), counts.tolist(), strict=True)
    return {name: value / n for name, value, n in rows if n}
