"""`digits-lt`: scikit-learn's handwritten digits with a long tail; needs no download.

The last 50 images of each class in file order are the test set; of the others each class keeps
its first n_c, from 120 of the zeros downwards.
"""

import torch

from wcdas.data.dataset import ArrayImages, Dataset
from wcdas.data.sources.assembly import Options, assemble
from wcdas.data.split import first_indices, long_tail_counts

N_MAX = 120
TEST_PER_CLASS = 50
IMBALANCE = 50.0


def open_digits(name: str, options: Options) -> Dataset:
    from sklearn.datasets import load_digits  # half a second, which other datasets need not wait

    digits = load_digits()
    labels = torch.from_numpy(digits.target).long()
    # 17 grey levels, 0 to 16.
    pixels = torch.from_numpy(digits.images * (255 / 16)).round().to(torch.uint8).unsqueeze(1)

    imbalance = IMBALANCE if options.imbalance is None else options.imbalance
    counts = long_tail_counts(N_MAX, 10, imbalance, options.profile)
    held_out = torch.cat([(labels == c).nonzero()[-TEST_PER_CLASS:, 0] for c in range(10)])
    # The counts stay far from the last 50: no class has fewer than 174 images.
    chosen, held_out = first_indices(labels, counts), held_out.sort().values
    return assemble(
        name,
        [str(c) for c in range(10)],
        ArrayImages(pixels[chosen], labels[chosen], "train"),
        ArrayImages(pixels[held_out], labels[held_out], "test"),
        input_size=8,
        channels=1,
        augment_flip=False,
        description={"source": "scikit-learn", "imbalance": imbalance, "profile": options.profile},
    )
