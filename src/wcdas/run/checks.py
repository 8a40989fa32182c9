"""Everything that a stage names is built once before any work, so that it is refused early."""

from pathlib import Path

import torch
from torch import Tensor, nn

from wcdas.data.augment import create_augmentation
from wcdas.data.dataset import Dataset, FeatureVectors
from wcdas.data.samplers import SAMPLERS, Sampler, create_sampler, whole_batches
from wcdas.errors import InputError, explained, unknown
from wcdas.heads import HEADS, create_head
from wcdas.losses import LOSSES, create_loss
from wcdas.methods.method import Method, plain_model
from wcdas.processes import Ranks
from wcdas.rng import seeded
from wcdas.run.folder import trained_model
from wcdas.run.schedule import planned
from wcdas.run.spec import Config, Stage, as_table

FEATURES, COUNTS = 64, torch.arange(10, 0, -1)  # of a model, while nobody has seen the data


def stage_sampler(stage: Stage, labels: Tensor, num_classes: int, device: torch.device) -> Sampler:
    """Return the sampler that a stage names."""
    options = dict(stage.sampler_options)
    return create_sampler(stage.sampler, labels, num_classes, device, **options)


def stage_loss(stage: Stage, class_counts: Tensor) -> nn.Module | None:
    """Return the loss that a stage names; cross-entropy is None, which the head computes itself."""
    if stage.loss == "cross-entropy":
        return None
    smoothed = {"label_smoothing": stage.label_smoothing} if stage.label_smoothing else {}
    return create_loss(stage.loss, class_counts, **(dict(stage.loss_options) | smoothed))


def check_stages(config: Config, method: Method) -> None:
    """Refuse what a later stage would trip over, whatever the data is."""
    with seeded(0):  # heads draw their weights, and other threads may be drawing theirs
        with explained("head: "):
            name = str(config.head.get("name"))
            create_head(name, FEATURES, len(COUNTS), COUNTS, **config.head_options)
        _check_sharded(config, method)
        _check_teacher(config, method)
        for name, stage in planned(config.stages):
            with explained(f"stage {name}: "):
                _check_stage(name, stage, config, method)


def why_not_sharded(config: Config, method: Method) -> str:
    """Say why the classes of a run cannot be spread over processes; nothing where they can."""
    if config.head.get("name") != "wcdas":
        return f"the head is {config.head.get('name')!r}, and only 'wcdas' can be"
    if method.build_model is not plain_model or method.training_step or method.selects:
        return f"{config.method} needs all classes in one place"
    if config.teacher:
        return "a teacher's logits are of all classes"
    if config.amp == "fp16":
        return "amp is 'fp16', whose scale every process would choose by its own classes"
    for name, stage in config.stages.items():
        learned = SAMPLERS[stage.sampler].learned if stage.sampler in SAMPLERS else False
        if stage.head not in ("keep", "fresh") or stage.loss != "cross-entropy" or learned:
            return f"the head, loss or sampler of stage {name} needs all classes in one place"
    return ""


def _check_sharded(config: Config, method: Method) -> None:
    if config.sharded and (why := why_not_sharded(config, method)):
        raise InputError(f"sharded is true, but {why}; leave it out")
    if config.negatives == 1:
        return
    if not config.sharded:
        raise InputError(
            f"negatives is {config.negatives:g}, but the classes are not sharded; set "
            "sharded=true, or leave it out"
        )
    plain = Stage()
    for name, stage in config.stages.items():
        for key in ("clip", "sam", "label_smoothing", "accumulate"):
            if (value := getattr(stage, key)) != (usual := getattr(plain, key)):
                raise InputError(
                    f"negatives is {config.negatives:g}, and stages.{name}.{key} {value:g}, which "
                    f"needs all classes; expected {usual:g}"
                )


def has_teacher(name: str, config: Config, method: Method) -> bool:
    """Whether a stage has a loss that a teacher takes a share of."""
    learns = config.stages[name].trains != "nothing" and name not in method.own_loss
    return bool(config.teacher) and learns


def _check_teacher(config: Config, method: Method) -> None:
    if not config.teacher:
        return
    with explained("teacher: "):
        trained_model(Path(config.teacher))
    if config.frozen:
        raise InputError(
            "a teacher sees images, but the backbone is frozen, and its features are what is "
            "trained on; leave teacher or frozen out"
        )
    if not any(has_teacher(name, config, method) for name in config.stages):
        raise InputError(f"teacher has no effect, since {config.method} has its own loss")


def _check_stage(name: str, stage: Stage, config: Config, method: Method) -> None:
    _check_sampling(stage)
    for policy in (stage.augment, *method.views):
        create_augmentation(policy, size=1, **as_table(config.augment))
    _check_head(name, stage, config, method)
    _check_loss(stage)
    if name in method.unmixed and (stage.mixup or stage.cutmix):
        raise InputError(
            f"{config.method} needs images of one class there; set mixup and cutmix to 0"
        )
    if stage.cutmix and 2 * stage.cutmix_rest >= stage.epochs:
        raise InputError(
            f"cutmix_rest is {stage.cutmix_rest}, which leaves CutMix none of {stage.epochs} "
            "epochs; expected less than half of them"
        )
    if stage.trains == "nothing" and method.begin_stage is None:
        raise InputError(
            f"trains is 'nothing', but {config.method} sets no values there; "
            "expected 'all' or 'classifier'"
        )
    if stage.sam and config.amp == "fp16":
        raise InputError(
            f"sam is {stage.sam:g}, but amp is 'fp16', whose first gradients may be infinite; "
            "expected amp 'bf16' or 'none', or sam 0"
        )
    if name in method.own_loss:
        _check_own_loss(config.method, stage)


def check_data(config: Config, dataset: Dataset, kept: Tensor, ranks: Ranks) -> None:
    """Refuse data that a stage cannot be trained on; `kept` are the images that are trained on."""
    labels = dataset.train.labels[kept]
    for name, stage in config.stages.items():
        with explained(f"stage {name}: "):
            stage_sampler(stage, labels, dataset.num_classes, ranks.device)
            batch = whole_batches(labels, stage.batch_size, ranks.world)[0]
            if config.neck.name != "none" and stage.trains == "all":
                _check_batch_norm(config.neck.name, stage, len(batch), ranks.world)
            if stage.cutmix and isinstance(dataset.train, FeatureVectors):
                raise InputError(
                    f"cutmix is {stage.cutmix:g}, but features are no images; leave it out"
                )
            stage_loss(stage, dataset.class_counts)


def _check_sampling(stage: Stage) -> None:
    stage_sampler(stage, torch.arange(len(COUNTS)), len(COUNTS), torch.device("cpu"))
    plain = [name for name, kind in SAMPLERS.items() if not kind.learned]
    for other in (stage.second_sampler, stage.cutmix_sampler):
        if other and other not in plain:
            raise unknown("sampler", other, plain)


def _check_head(name: str, stage: Stage, config: Config, method: Method) -> None:
    if stage.head != "keep" and method.build_model is not plain_model:
        raise InputError(
            f"head is {stage.head!r}, but {config.method} builds its own; expected 'keep'"
        )
    own = method.defaults["stages"].get(name, {}).get("head", "keep")
    if stage.head not in ("keep", "fresh"):
        create_head(stage.head, FEATURES, len(COUNTS))
    if stage.trains == "nothing" and method.begin_stage is not None and stage.head != own:
        raise InputError(
            f"head is {stage.head!r}, but {config.method} sets the values of {own!r} there; "
            "leave it out"
        )
    linear = stage.head in HEADS and HEADS[stage.head].needs_linear
    if linear and config.head["name"] != "linear":
        raise InputError(
            f"head is {stage.head!r}, which is built from a linear one, but head.name is "
            f"{config.head['name']!r}; expected 'linear'"
        )


def _check_batch_norm(neck: str, stage: Stage, batch: int, world: int) -> None:
    """In training a batch norm has no statistics of a single sample."""
    if batch // (world * stage.accumulate) < 2:
        parts = f" in {world * stage.accumulate} parts" if world * stage.accumulate > 1 else ""
        raise InputError(
            f"a batch of {batch}{parts} leaves one sample to the batch norm of the neck {neck!r}; "
            "expected batch_size / accumulate of at least 2 in every process"
        )


def _check_own_loss(method: str, stage: Stage) -> None:
    """Refuse what would have no effect."""
    plain = Stage()
    for key in ("loss", "prior", "label_smoothing"):
        if (value := getattr(stage, key)) != getattr(plain, key):
            raise InputError(f"{key} is {value!r}, but {method} has its own loss; leave it out")


def _check_loss(stage: Stage) -> None:
    if stage.loss == "cross-entropy":
        if stage.loss_options:
            raise InputError("loss_options are given, but cross-entropy has none; leave them out")
        return
    if stage.prior:
        raise InputError(
            f"prior is {stage.prior:g}, but it acts on cross-entropy alone; set it to 0"
        )
    if stage.loss in LOSSES and LOSSES[stage.loss].on_features:
        raise InputError(
            f"{stage.loss} is a loss on features beside another loss, not a stage's own"
        )
    stage_loss(stage, COUNTS)
