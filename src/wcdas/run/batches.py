"""The batches of a stage: drawn, augmented, mixed, with their further views, a second batch
and what a teacher says of them."""

from collections.abc import Iterator
from typing import NamedTuple, cast

import torch
from torch import Tensor

from wcdas.data.augment import create_augmentation
from wcdas.data.loader import Batch, TrainLoader
from wcdas.data.mixing import Mixing
from wcdas.data.samplers import MetaSampler, Sampler, create_sampler, whole_batches
from wcdas.methods.method import StepBatch
from wcdas.rng import Purpose, stream
from wcdas.run.build import TrainingRun
from wcdas.run.checks import stage_sampler
from wcdas.run.spec import as_table
from wcdas.targets import MixedLabels


class Drawn(NamedTuple):
    """A step's batch, and where it came from."""

    batch: StepBatch
    first: Batch


class Batches:
    """Reads what a stage trains on."""

    def __init__(self, run: TrainingRun, index: int) -> None:
        _, stage = run.stages[index]
        self.teacher = run.teacher_in(index)
        self.epochs, self.seed, self.kept = stage.epochs, stream(run.config.seed, index), run.kept
        labels, num_classes = run.dataset.train.labels[self.kept], run.dataset.num_classes
        self.patches: Sampler | None = None
        if stage.cutmix and stage.cutmix_sampler:
            self.patches = create_sampler(stage.cutmix_sampler, labels, num_classes)
        self.sampler = stage_sampler(stage, labels, num_classes, run.ranks.device)
        # The learned sampler needs a balanced batch beside its own.
        beside = "class-balanced" if isinstance(self.sampler, MetaSampler) else ""
        beside = stage.second_sampler or beside
        self.second, self.beside = None, self.kept
        if run.method.meta_images:
            with_some = run.dataset.train.labels[run.selection].unique()
            self.beside = torch.cat([run.selection, self.kept[~torch.isin(labels, with_some)]])
        if beside:
            labels = run.dataset.train.labels[self.beside]
            self.second = create_sampler(beside, labels, num_classes)
        batches = whole_batches(self.kept, stage.batch_size, run.ranks.world)
        self.steps, self.batch_size = len(batches), len(batches[0])
        views = run.method.views if stage.trains == "all" else ()
        others = (self.second is not None) + (self.patches is not None)  # batches of other images
        policies = [stage.augment, *views, *[stage.augment] * others]
        self.loaders = [_loader(run, policy, stage.batch_size) for policy in policies]
        self.views = len(views)
        self.iterators: list[Iterator[Batch]] = []
        self.mixing: Mixing | None = None
        self.cut_epochs = range(stage.cutmix_rest, stage.epochs - stage.cutmix_rest)
        if stage.mixup or stage.cutmix:
            shape = (self.batch_size // run.ranks.world, *self.loaders[0].shape)
            given = stage.mixup, stage.cutmix, self.steps, shape, run.ranks.device
            self.mixing = Mixing(*given, cut_share=stage.cutmix_share)

    @property
    def is_resident(self) -> bool:
        """Whether all of it lives on the device."""
        return self.loaders[0].is_resident

    def begin(self, epoch: int, start: int) -> None:
        """Lay down what an epoch reads from step `start` on."""
        if isinstance(self.sampler, MetaSampler) and not start:
            self.sampler.begin_epoch()
        order = self.sampler.sequence(stream(self.seed, Purpose.ORDER), epoch, self.epochs)
        images = self.kept[order]
        plans = [(images, stream(self.seed, epoch))]
        plans += [(images, stream(self.seed, Purpose.VIEWS, i, epoch)) for i in range(self.views)]
        if self.second is not None:
            plans.append((self._beside(epoch), stream(self.seed, Purpose.SECOND, epoch)))
        if self.patches is not None:
            order = self.patches.sequence(stream(self.seed, Purpose.PATCHES), epoch, self.epochs)
            plans.append((self.kept[order], stream(self.seed, Purpose.PATCHES, epoch)))
        pairs = list(zip(self.loaders, plans, strict=True))
        if self.is_resident:
            for loader, (images, key) in pairs:
                loader.begin(images, key, start)
        else:
            self.iterators = [loader.epoch(images, key, start) for loader, (images, key) in pairs]
        if self.mixing is not None:
            self.mixing.begin(stream(self.seed, epoch), epoch in self.cut_epochs)

    def _beside(self, epoch: int) -> Tensor:
        """The images of an epoch's second batches: where they are fewer than those that are trained
        on, their sampler goes round several times."""
        assert self.second is not None
        rounds, key = -(-len(self.kept) // len(self.beside)), stream(self.seed, Purpose.SECOND)
        turns = range(epoch * rounds, (epoch + 1) * rounds)
        orders = [self.second.sequence(key, turn, self.epochs * rounds) for turn in turns]
        return self.beside[torch.cat(orders)[: len(self.kept)]]

    def prepare(self, step: int) -> None:
        """Before a step after the first of an epoch: augment what it reads, where that is due."""
        for loader in self.loaders:
            if loader.is_resident and step % loader.ahead == 0:
                loader.prepare(step)

    def next(self, step: Tensor) -> Drawn:
        """Return the batch of a step, a tensor (1,); steps come in their order."""
        if self.is_resident:
            first, *others = [loader.batch() for loader in self.loaders]
        else:
            first, *others = [next(iterator) for iterator in self.iterators]
        patches = _pair(others.pop()) if self.patches is not None else None
        second = _pair(others.pop()) if self.second is not None else None
        inputs, target = first.inputs, cast(Tensor | MixedLabels, first.labels)
        if self.mixing is not None:
            inputs, target = self.mixing(inputs, first.labels, step, patches)
        views = tuple(view.inputs for view in others)
        taught = None if self.teacher is None else self.teacher(inputs)
        return Drawn(StepBatch(inputs, target, first.labels, views, second, taught), first)

    def close(self) -> None:
        for loader in self.loaders:
            loader.close()


def _pair(batch: Batch) -> tuple[Tensor, Tensor]:
    return batch.inputs, batch.labels


def _loader(run: TrainingRun, policy: str, batch_size: int) -> TrainLoader:
    augmentation = create_augmentation(
        policy,
        size=run.loading["size"] or 1,  # features have none
        mean=run.loading["mean"],
        **as_table(run.config.augment),
    )
    return TrainLoader(
        run.train_images, augmentation=augmentation, batch_size=batch_size, **run.loading
    )
