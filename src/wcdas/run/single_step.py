"""What a user is told where the data has no two batches."""

from torch import Tensor

from wcdas.data.dataset import Dataset
from wcdas.data.split import held_out_counts
from wcdas.groups import FEW
from wcdas.run.spec import Config


def single_step(config: Config, dataset: Dataset) -> list[str]:
    """One line where an epoch is a single step, with a batch size that makes it four or more."""
    holdouts = config.selection.holdout, config.calibration.holdout
    images = trained_on(dataset.class_counts, *holdouts)
    batches = [stage.batch_size for stage in config.stages.values() if stage.trains != "nothing"]
    batch = max(batches, default=0)
    smaller = smaller_batch(images, batch)
    if smaller is None:
        return []
    held_out = len(dataset.train) - images
    aside = f" ({held_out} held out)" if held_out else ""
    return [
        f"with {images} training {dataset.train.noun}{aside} and batches of {batch} an epoch is a "
        f"single step; take smaller batches with --set batch_size={smaller}"
    ]


def smaller_batch(images: int, batch: int) -> int | None:
    """A batch size, a power of two, where an epoch is a single step."""
    if images >= 2 * batch:
        return None
    return max(2, 1 << (images // 4).bit_length() >> 1)


def trained_on(class_counts: Tensor, selection: float, calibration: float) -> int:
    """How many training images are left when these shares are held out."""
    left = class_counts - held_out_counts(class_counts, selection, smallest=2)
    left = left - held_out_counts(left, calibration, smallest=FEW)
    return int(left.sum())
