"""What a user is told where the data has no two batches."""

from wcdas.data.dataset import Dataset
from wcdas.data.profile import FEW
from wcdas.training.config import Config
from wcdas.training.holdout import holdout


def single_step(config: Config, dataset: Dataset) -> list[str]:
    """One line where an epoch is a single step, with a batch size that makes it four or more."""
    images = _trained_on(config, dataset)
    batches = [stage.batch_size for stage in config.stages.values() if stage.trains != "nothing"]
    batch = max(batches, default=0)
    if images >= 2 * batch:
        return []
    held_out = len(dataset.train) - images
    aside = f" ({held_out} held out)" if held_out else ""
    smaller = max(2, 1 << (images // 4).bit_length() >> 1)  # a power of two
    return [
        f"with {images} training {dataset.train.noun}{aside} and batches of {batch} an epoch is a "
        f"single step; take smaller batches with --set batch_size={smaller}"
    ]


def _trained_on(config: Config, dataset: Dataset) -> int:
    """How many training images are left when some are held out."""
    labels = dataset.train.labels
    for fraction, smallest in ((config.selection.holdout, 2), (config.calibration.holdout, FEW)):
        kept, _ = holdout(labels, dataset.num_classes, fraction, key=0, smallest=smallest)
        labels = labels[kept]
    return len(labels)
