"""What a person is told before training starts, and when something beside it fails."""

import warnings

from rich.console import Console

from wcdas.data.dataset import Dataset
from wcdas.data.description import describe
from wcdas.processes import Ranks
from wcdas.run.folder import RunFolder
from wcdas.run.schedule import planned
from wcdas.run.spec import Config


def announce(
    console: Console | None,
    config: Config,
    dataset: Dataset,
    folder: RunFolder,
    place: Ranks,
    notes: list[str],
) -> None:
    if console is None:
        return
    for line in (*describe(dataset), *(f"note: {note}" for note in notes)):
        console.print(line, highlight=False, markup=False)
    size = f" at {config.input_size} px" if config.input_size else ""
    neck = f"neck {config.neck.name} and " if config.neck.name != "none" else ""
    console.print(
        f"{config.method}: {config.backbone.name}{size} with {neck}head {config.head['name']}, "
        f"{place.device}"
    )
    for name, stage in planned(config.stages):
        if stage.trains == "nothing":
            console.print(f"  {name}: {stage.head} head, nothing to train", highlight=False)
            continue
        flip = " with flip" if config.augment.flip and stage.augment != "none" else ""
        mixed = "".join(f", {k} {v:g}" for k in ("mixup", "cutmix") if (v := getattr(stage, k)))
        console.print(
            f"  {name}: {stage.epochs} epoch{'s' * (stage.epochs != 1)}, {stage.sampler} sampling, "
            f"rate {stage.lr:g}, augmentation {stage.augment}{flip}{mixed}",
            highlight=False,
        )
    console.print(f"run folder: {folder.path}", highlight=False)


def warn(console: Console | None, text: str) -> None:
    """One line where there is a console, else a warning of Python's."""
    if console is None:
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    else:
        console.print(f"warning: {text}", highlight=False, markup=False)
