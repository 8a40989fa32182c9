"""A run: its stages one after another, each epoch logged and checkpointed, resumable anywhere."""

import time
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

from wcdas.backbones.resnet32 import ResNet32
from wcdas.backbones.resnet32_gpu.network import fuse
from wcdas.data.dataset import Dataset, Split
from wcdas.data.loader import EvalLoader
from wcdas.errors import InputError, WorkError
from wcdas.evaluation.metrics import evaluate
from wcdas.groups import GROUPS
from wcdas.methods.classifier import Classifier, built_options, next_head
from wcdas.methods.method import Method, StageStart
from wcdas.processes import Ranks, gather, share_buffers
from wcdas.rng import seeded, stream
from wcdas.run import checkpoint
from wcdas.run.announce import warn
from wcdas.run.callbacks import Followers
from wcdas.run.folder import RunFolder
from wcdas.run.holdout import holdout
from wcdas.run.interrupt import Interrupt
from wcdas.run.prediction import predict_split
from wcdas.run.preflight import check_stages
from wcdas.run.progress import StageProgress
from wcdas.run.schedule import planned
from wcdas.run.spec import Config
from wcdas.run.stage_run import StageRun

HOLDOUT, HEAD, SELECTION = 1_002, 1_003, 1_006  # what a stream of random numbers is for


class Trainer:
    """Trains a classifier by the stages of a configuration."""

    def __init__(
        self,
        config: Config,
        method: Method,
        dataset: Dataset,
        model: Classifier,
        loading: dict[str, Any],
        folder: RunFolder,
        ranks: Ranks,
        console: Console | None,
    ) -> None:
        """`loading` is what both loaders share: size, channels, mean, std and workers."""
        self.config, self.method, self.dataset = config, method, dataset
        self.folder, self.ranks = folder, ranks
        self.console = console if ranks.is_main else None
        self.model = model.to(ranks.device)
        self.loading = loading | {"device": ranks.device, "rank": ranks.rank, "world": ranks.world}
        if ranks.device.type == "cuda" and config.engine == "auto":
            self._prepare_for_gpu()
        self.class_counts = dataset.class_counts
        self.stages = planned(config.stages)
        self.kept, self.selection = self._hold_out(
            torch.arange(len(dataset.train)), config.selection.holdout, SELECTION, smallest=2
        )
        self.kept, self.held_out = self._hold_out(self.kept, config.calibration.holdout, HOLDOUT)
        check_stages(config, method, dataset, self.kept, ranks)
        if method.selects and len(self.selection) == 0:
            raise InputError(
                f"{config.method} chooses on training images that no stage sees, and there are "
                f"none (selection.holdout is {config.selection.holdout:g}); expected a share above "
                "0 and a class of two images or more"
            )
        self.head_name = config.head["name"]
        self.head_options = {key: value for key, value in config.head.items() if key != "name"}
        self.optimizer: torch.optim.SGD | None = None
        self.interrupt = Interrupt()
        self.followers = Followers([], self.console)
        self.logged = self.global_step = 0

    def run(self) -> None:
        """Train from the beginning, or from the last checkpoint in the folder."""
        state = checkpoint.load_latest(self.folder.checkpoints)
        start = state["stage"] if state else 0
        if self.ranks.is_main:
            self.folder.failure.unlink(missing_ok=True)
        with self.interrupt:
            for index in range(len(self.stages)):
                self._enter(index)
                if index >= start:
                    self._train(index, state if index == start else None)

    def note(self, text: str) -> None:
        """Tell the user something, once."""
        if self.console is not None:
            self.console.print(f"note: {text}", highlight=False, markup=False)

    def evaluate(self) -> dict[str, Any]:
        """The metrics of the model as it is, on the test set."""
        logits = self.logits(self.dataset.test)
        names = self.dataset.class_names
        return evaluate(logits, self.dataset.test.labels, self.class_counts, names)

    def logits(self, split: Split) -> Tensor:
        """The logits of every sample of a split, in its order, on the CPU."""
        return self.predict(split)[1]

    def predict(self, split: Split) -> tuple[Tensor, Tensor]:
        """(features, logits) of every sample of a split, in its order, on the CPU."""
        if len(split) == 0:
            return torch.zeros(0, self.model.head.in_features), torch.zeros(
                0, self.dataset.num_classes
            )
        share_buffers(self.model)
        loader = EvalLoader(split, batch_size=256, **self.loading)
        try:
            features, logits = predict_split(self.model, loader, gather)
        except ValueError as error:  # on a CPU heads look at the values
            if "NaN" not in str(error):
                raise
            raise self._not_finite() from None
        finally:
            loader.close()
        if not logits.isfinite().all():
            raise self._not_finite()
        return features, logits

    def _not_finite(self) -> WorkError:
        reason = (
            "the network's outputs became NaN or infinite on images that it is not trained on; "
            "start a new one with a lower rate, --set lr=…"
        )
        if self.ranks.is_main:
            self.folder.write_failure(reason)
        return WorkError(reason)

    def held_out_logits(self) -> tuple[Tensor, Tensor]:
        """Logits and labels of the training images that no stage sees."""
        held_out = self.dataset.train.subset(self.held_out)
        return self.logits(held_out), held_out.labels

    def features(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Features and labels of training images as they are, without augmentation."""
        split = self.dataset.train.subset(indices)
        return self.predict(split)[0], split.labels

    def _prepare_for_gpu(self) -> None:
        """The kernels where there are some; convolutions of others want the channels last."""
        backbone = self.model.backbone
        for module in self.model.modules():
            if isinstance(module, ResNet32):
                fuse(module)
        if not isinstance(backbone, ResNet32):
            backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            self.loading["memory_format"] = torch.channels_last

    def _hold_out(
        self, among: Tensor, fraction: float, purpose: int, **options: int
    ) -> tuple[Tensor, Tensor]:
        labels, key = self.dataset.train.labels[among], stream(self.config.seed, purpose)
        kept, held_out = holdout(labels, self.dataset.num_classes, fraction, key, **options)
        return among[kept], among[held_out]

    def _enter(self, index: int) -> None:
        """What changes in the model from one stage to the next."""
        _, stage = self.stages[index]
        own = self.config.head["name"]
        options = {key: value for key, value in self.config.head.items() if key != "name"}
        with seeded(stream(self.config.seed, index, HEAD)):
            self.model.head = next_head(self.model.head, stage.head, own, options)
        if stage.head == "fresh":
            self.head_name, self.head_options = own, options
        elif stage.head != "keep":
            self.head_name, self.head_options = stage.head, built_options(self.model.head)
        self.model.backbone.requires_grad_(stage.trains == "all")
        if self.ranks.world > 1 and self.ranks.device.type == "cuda":
            backbone = nn.SyncBatchNorm.convert_sync_batchnorm(self.model.backbone)
            self.model.backbone = backbone

    def _train(self, index: int, state: dict[str, Any] | None) -> None:
        name, stage = self.stages[index]
        if state is None and self.method.begin_stage is not None:
            start = StageStart(
                name,
                self.class_counts,
                self.config.options,
                lambda: self.features(self.kept),
                lambda: self.features(self.selection),
            )
            with torch.no_grad():
                self.method.begin_stage(self.model, start)
        run = StageRun(self, index)
        epoch, step = (run.restore(state), state["step"]) if state else (0, 0)
        if self.ranks.is_main:
            self.folder.keep_log(self.logged)
        log = self.folder.read_log() if self.ranks.is_main else []
        every = self.config.evaluate_every or max(1, stage.epochs // 10)
        title = f"{index + 1}/{len(self.stages)} {name}"
        done = epoch * run.steps + step
        with StageProgress(self.console, title, stage.epochs, run.steps, done) as progress:
            while epoch < stage.epochs:
                began = time.monotonic()
                run.train_epoch(epoch, step, progress)
                facts = run.close_epoch(epoch)
                facts["seconds"] = round(time.monotonic() - began, 3)
                epoch, step = epoch + 1, 0
                if epoch % every == 0 or epoch == stage.epochs:
                    metrics = run.evaluate()
                    shown = ("top1", "balanced_accuracy", *GROUPS)
                    facts["test"] = {key: metrics[key] for key in shown}
                progress.epoch(epoch - 1, facts["loss"], facts["train_accuracy"])
                if self.ranks.is_main:
                    log.append(facts)
                    self._warn(run, log)
                    self.folder.log(facts)
                    self.followers.epoch(self.logged, facts)
                self.logged += 1
                if epoch == stage.epochs or run.wants_checkpoint:
                    run.save(epoch, 0)
        run.finish()

    def _warn(self, run: StageRun, log: list[dict[str, Any]]) -> None:
        """Say once in a run, and write down, that it does not learn."""
        found = run.symptom([line for line in log if line["stage"] == run.name])
        said = {name for line in log for name in line.get("warnings", {})}
        if found is None or said & {"chance", found[0]}:
            return
        name, text = found
        log[-1]["warnings"] = {name: text}
        warn(self.console, text)
