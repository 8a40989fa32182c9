"""The loop of a run: stages, their epochs, their steps; it can be stopped and resumed anywhere."""

import time
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypedDict

import torch
from rich.console import Console

from wcdas.data.samplers import MetaSampler
from wcdas.errors import WorkError, explained, first_line
from wcdas.evaluation.metrics import metrics_of
from wcdas.evaluation.predictions import predictions
from wcdas.groups import GROUPS, group_means
from wcdas.heads import ShardedWCDASHead
from wcdas.heads.angular import AngularHead, ConcentrationHead
from wcdas.interrupt import Interrupt, Stopped, number_of
from wcdas.processes import largest, total
from wcdas.rng import seeded, stream
from wcdas.run import checkpoint
from wcdas.run.build import TrainingRun
from wcdas.run.callbacks import Followers
from wcdas.run.console import StageProgress, busy, tell, warn
from wcdas.run.diagnosis import BOUND, diagnose
from wcdas.run.folder import stopped
from wcdas.run.graph import StepGraph, capture_step
from wcdas.run.phases import Phases
from wcdas.run.prediction import Seen, predict
from wcdas.run.stage import StageTraining, enter_stage, set_values
from wcdas.shapes import check_shape

CHECKPOINT_SECONDS = 300  # inside an epoch
EPOCH_SECONDS = 15  # epochs that end sooner after a checkpoint have none of their own
EVALUATIONS = 10  # of a stage
AGREE_EVERY = 20  # steps; several processes ask each other no more often than that
SHOWN = ("top1", "balanced_accuracy", *GROUPS)

UNFIT = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)

Facts = dict[str, Any]


class Place(TypedDict):
    """Where in a run a checkpoint belongs."""

    stage: int
    epoch: int
    step: int
    global_step: int
    logged: int


class Loop:
    """Trains a run.

    Args:
        run: what is trained.
        followers: who is told after every epoch.
        interrupt: says when to stop.
        console: where progress is shown; None is silent.
        phases: count the time of compiling and evaluating apart.
    """

    def __init__(
        self,
        run: TrainingRun,
        followers: Followers | None = None,
        interrupt: Interrupt | None = None,
        console: Console | None = None,
        phases: Phases | None = None,
    ) -> None:
        self.run, self.console, self.phases = run, console, phases or Phases()
        self.followers = followers or Followers([], console)
        self.interrupt = interrupt or Interrupt()
        self.steps = self.epochs = 0  # done in all stages together
        self.saved_at = time.monotonic()
        self.seen: Seen | None = None
        self.eager = ""  # why the step of the present stage is no CUDA graph, where it should be

    def train(self) -> Seen | None:
        """Train from the beginning, or from the last checkpoint in the folder; return what was seen
        of the test images, where the last that was done was to look at them."""
        run, optimizer = self.run, None
        told = partial(warn, self.console) if run.ranks.is_main else lambda _: None
        state = checkpoint.load_latest(run.folder.checkpoints, told)
        if state is not None:
            with self._fits():
                check_shape(state, Place, "it")
                self._tell_place(state)
        first = state["stage"] if state else 0
        if run.ranks.is_main:
            run.folder.failure.unlink(missing_ok=True)
        with self.interrupt:
            for index in range(len(run.stages)):
                enter_stage(run, index)
                if index < first:
                    continue
                if index > first or state is None:
                    with self._stopped_at_once(), busy(self.console, "class weights"):
                        set_values(run, index, self._stop_together)
                stage = StageTraining(run, index, optimizer)
                self.train_stage(stage, state if index == first else None)
                optimizer = stage.optimizer
            if stop := self._stop_of_all():
                raise stopped(run.folder.path, stop)
        return self.seen

    def _tell_place(self, state: dict[str, Any]) -> None:
        name, stage = self.run.stages[state["stage"]]
        inside = " and some steps" * bool(state["step"])
        told = f"going on after epoch {state['epoch']} of {stage.epochs}{inside}, stage {name}"
        tell(self.console, told)

    def _fits(self) -> AbstractContextManager[None]:
        """The block is about a checkpoint that should be this run's."""
        where = f"the newest checkpoint in {self.run.folder.checkpoints} is not of this run: "
        after = "; delete it, and the run goes on from the one before"
        return explained(where, *UNFIT, after=after)

    def train_stage(self, stage: StageTraining, state: dict[str, Any] | None = None) -> None:
        """Train a stage from its beginning, or from the state of a checkpoint in it."""
        run, epochs = self.run, stage.stage.epochs
        epoch = step = 0
        if state is not None:
            with self._fits():
                stage.load_state_dict(state)
            self.steps, self.epochs = state["global_step"], state["logged"]
            epoch, step = state["epoch"], state["step"]
        self.saved_at = time.monotonic()
        if run.ranks.is_main:
            run.folder.keep_log(self.epochs)
        log = run.folder.read_log() if run.ranks.is_main else []
        every = run.config.evaluate_every or self._usually_every(epochs)
        title = f"{stage.index + 1}/{len(run.stages)} {stage.name}"
        done = epoch * stage.steps + step
        stage.parallel.train()
        self.eager = ""
        graph = self._captured(stage, epoch, step) if epoch < epochs else None
        with StageProgress(self.console, title, epochs, stage.steps, done) as progress:
            self.seen = None
            while epoch < epochs:
                began = time.monotonic()
                if step < stage.steps:  # else it was stopped while it was evaluated
                    self.train_epoch(stage, epoch, step, graph, progress)
                self._check_finite(stage, epoch, stage.steps - 1)
                facts = _facts(stage, epoch)
                facts["seconds"] = round(time.monotonic() - began, 3)
                if self.eager:
                    facts["eager"] = self.eager
                if (epoch + 1) % every == 0 or epoch + 1 == epochs:
                    with progress.aside():
                        facts["test"] = self._measured(stage, epoch)
                stage.statistics.reset()
                epoch, step = epoch + 1, 0
                progress.epoch(epoch - 1, facts["loss"], facts["train_accuracy"])
                if run.ranks.is_main:
                    log.append(facts)
                    self._warn(stage, log)
                    run.folder.log(facts)
                    self.followers.epoch(self.epochs, facts)
                self.epochs += 1
                if epoch == epochs or self._epoch_is_saved():
                    self._save(stage, epoch, 0)
        stage.finish()

    def _usually_every(self, epochs: int) -> int:
        """Ten evaluations a stage, fewer where they would look at more images than training."""
        trained, tested = len(self.run.kept), len(self.run.dataset.test)
        return max(1, epochs // EVALUATIONS, round(tested / trained))

    def train_epoch(
        self,
        stage: StageTraining,
        epoch: int,
        start: int,
        graph: StepGraph | None,
        progress: StageProgress,
    ) -> None:
        stage.parallel.train()
        rates = stage.begin_epoch(epoch, start)
        key = stream(self.run.config.seed, stage.index)
        for step in range(start, stage.steps):
            seed = stream(stream(key, epoch), step, self.run.ranks.rank)
            if step > start:
                stage.data.prepare(step)
            try:
                if graph is not None:
                    graph.replay(seed)
                else:
                    stage.set_rate(rates[step])
                    with seeded(seed):
                        stage.train_step()
            except ValueError as error:  # on a CPU heads and losses look at the values
                if "NaN" not in str(error):
                    raise
                raise self._diverged(stage, epoch, step) from None
            progress.step(stage.data.batch_size)
            self.steps += 1
            stop, save = self._asked(stage, step)
            if stop or save:
                self._save(stage, epoch, step + 1)
            if stop:
                raise stopped(self.run.folder.path, stop)

    def _measured(self, stage: StageTraining, epoch: int) -> Facts:
        """Measure after the steps of an epoch; a run stopped meanwhile goes on from here."""
        dataset = self.run.dataset
        labels = dataset.test.labels
        try:
            with stage.averaged(), self._stopped_at_once(), self.phases("evaluation"):
                features, logits = predict(self.run, self.run.test_images, self._stop_together)
                self.seen = Seen(features, logits, predictions(logits, labels))
        except KeyboardInterrupt as stop:
            self._save(stage, epoch, stage.steps)
            raise stopped(self.run.folder.path, number_of(stop)) from None
        counts, names = dataset.class_counts, dataset.class_names
        metrics = metrics_of(self.seen.predictions, labels, counts, names)
        return {key: metrics[key] for key in SHOWN}

    def _stopped_at_once(self) -> AbstractContextManager[None]:
        """What takes long need not end before a stop; several processes stop together instead."""
        return self.interrupt.raised() if self.run.ranks.world == 1 else nullcontext()

    def _stop_together(self) -> None:
        """Of several processes none leaves the others waiting: all stop between two batches."""
        if self.run.ranks.world > 1 and (stop := self._stop_of_all()):
            raise Stopped(stop)

    def _captured(self, stage: StageTraining, epoch: int, start: int) -> StepGraph | None:
        """Return the step as a CUDA graph, or None where it cannot be one."""
        if not stage.capturable:
            return None
        began = time.monotonic()
        try:
            with self._stopped_at_once(), self.phases("compiling"):
                graph = capture_step(stage, epoch, min(start, stage.steps - 1))
        except torch.OutOfMemoryError:  # one step at a time would not fit either
            raise
        except RuntimeError as error:
            self.eager = first_line(error)
            note = f"stage {stage.name} runs eagerly, no CUDA graph can hold it: {self.eager}"
            tell(self.console, f"note: {note}")
            return None
        seconds = time.monotonic() - began
        tell(self.console, f"note: stage {stage.name}: compiled and captured in {seconds:.1f} s")
        return graph

    def _stop(self) -> int:
        """The signal that asks this process to stop, or 0."""
        return self.interrupt.number if self.interrupt.requested else 0

    def _stop_of_all(self) -> int:
        """The signal that asks any process to stop, or 0."""
        return int(largest(torch.tensor(self._stop(), device=self.run.ranks.device)))

    def _asked(self, stage: StageTraining, step: int) -> tuple[int, bool]:
        """The signal to stop by, or 0, and whether a checkpoint is due; all ranks act on it in the
        same step."""
        stop = self._stop()
        save = time.monotonic() - self.saved_at > CHECKPOINT_SECONDS
        if self.run.ranks.world == 1:
            return stop, save
        if (step + 1) % AGREE_EVERY and step + 1 < stage.steps:
            return 0, False
        asked = torch.tensor([stop, save], dtype=torch.int32, device=self.run.ranks.device)
        stop, save = largest(asked).tolist()
        return stop, bool(save)

    def _epoch_is_saved(self) -> bool:
        """Several processes cannot each look at their own clock."""
        return self.run.ranks.world > 1 or time.monotonic() - self.saved_at > EPOCH_SECONDS

    def _save(self, stage: StageTraining, epoch: int, step: int) -> None:
        """Write a checkpoint from which the step `step` of an epoch comes next."""
        self.saved_at = time.monotonic()
        if step:
            self._check_finite(stage, epoch, step - 1)
        place = {
            "stage": stage.index,
            "epoch": epoch,
            "step": step,
            "global_step": self.steps,
            "logged": self.epochs,
        }
        state = place | stage.state_dict()
        checkpoint.save(self.run.folder.checkpoints, self.steps, state, self.run.ranks.is_main)

    def _check_finite(self, stage: StageTraining, epoch: int, step: int) -> None:
        """Refuse to go on, or to save, with a loss or weights that are no numbers."""
        bad = int(largest(stage.statistics.first_bad))
        lost = torch.stack([~p.detach().isfinite().all() for p in stage.learned()]).any()
        if bad >= 0 or largest(lost.int()):  # a process may be the only one to have a parameter
            raise self._diverged(stage, epoch, bad if bad >= 0 else step)

    def _diverged(self, stage: StageTraining, epoch: int, step: int) -> WorkError:
        if (first := int(stage.statistics.first_bad)) >= 0:
            step = first
        folder = self.run.folder
        kept = any(folder.checkpoints.glob("*"))
        return self.run.failure(
            f"the loss became NaN or infinite in stage {stage.name}, epoch {epoch + 1}, "
            f"step {step + 1}; "
            f"{f'checkpoints from before are kept in {folder.path}; ' if kept else ''}"
            f"start a new one with a lower rate, --set lr=…, or with stages.{stage.name}.clip=1"
        )

    def _warn(self, stage: StageTraining, log: list[Facts]) -> None:
        """Say once in a run, and write down, that it does not learn."""
        found = diagnose(stage, [line for line in log if line["stage"] == stage.name])
        said = {name for line in log for name in line.get("warnings", {})}
        if found is None or said & {"chance", found[0]}:
            return
        name, text = found
        log[-1]["warnings"] = {name: text}
        warn(self.console, text)


def _facts(stage: StageTraining, epoch: int) -> Facts:
    """Return the line of the log on an epoch."""
    head, class_counts = stage.model.head, stage.run.dataset.class_counts
    sums = total(stage.statistics.sums).cpu()
    loss, seen, right = sums[:3].tolist()
    by_group = zip(GROUPS, sums[3:6].tolist(), sums[6:9].tolist(), strict=True)
    facts: Facts = {
        "stage": stage.name,
        "epoch": epoch + 1,
        "lr": float(stage.optimizer.param_groups[0]["lr"]),
        "loss": loss / seen,
        "train_accuracy": right / seen if stage.statistics.counts_right else None,
        "angle": {name: angle / n for name, angle, n in by_group if n},
    }
    if isinstance(head, ConcentrationHead | ShardedWCDASHead):
        rho = head.concentration.detach()
        rho = (head.of_every_class(rho) if isinstance(head, ShardedWCDASHead) else rho).double()
        rho = rho.cpu()
        means = group_means(rho, class_counts)
        facts["rho"] = {name: mean for name, mean in means.items() if mean is not None}
        bounds = {"low": rho < BOUND, "high": rho > 1 - BOUND}
        facts["rho_at_bounds"] = {k: float(v.double().mean()) for k, v in bounds.items()}
        if epoch + 1 == stage.stage.epochs:
            facts["rho_by_class"] = rho.tolist()
    if isinstance(head, AngularHead | ShardedWCDASHead):
        facts["scale"] = float(head.scale.detach())
    if isinstance(stage.sampler, MetaSampler):
        facts["class_probabilities"] = stage.sampler.probabilities.tolist()
    return facts
