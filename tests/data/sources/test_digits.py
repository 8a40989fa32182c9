import numpy as np
import torch
from sklearn.datasets import load_digits

from wcdas.data import open_dataset


def test_last_fifty_of_each_class_are_the_test_set():
    digits, data = load_digits(), open_dataset("digits-lt")
    held_out = np.sort(
        np.concatenate([np.flatnonzero(digits.target == c)[-50:] for c in range(10)])
    )
    assert data.test.labels.tolist() == digits.target[held_out].tolist()
    expected = np.rint(digits.images[held_out] * 255 / 16)
    assert (data.test.pixels[:, 0].numpy() == expected).all()


def test_training_images_are_not_test_images():
    data = open_dataset("digits-lt", imbalance=1)
    train = {image.numpy().tobytes() for image in data.train.pixels}
    repeated = sum(image.numpy().tobytes() in train for image in data.test.pixels)
    assert data.class_counts.tolist() == [120] * 10
    assert repeated == 0


def test_shape_and_facts():
    data = open_dataset()
    assert data.train.pixels.shape == (331, 1, 8, 8)
    assert data.train.pixels.dtype == torch.uint8
    assert (data.input_size, data.channels, data.augment_flip) == (8, 1, False)
    assert data.test_counts.tolist() == [50] * 10
    assert data.description == {"source": "scikit-learn", "imbalance": 50.0, "profile": "exp"}
    assert data.train.name(3) == "train/3"


def test_smaller_tails_are_nested():
    large, small = open_dataset(imbalance=10), open_dataset(imbalance=100, profile="step")
    assert small.class_counts.tolist() == [120] * 5 + [1] * 5
    assert torch.equal(large.train.pixels[:120], small.train.pixels[:120])


def test_the_fingerprint_is_the_same_every_time():
    assert open_dataset().fingerprint == open_dataset(imbalance=50).fingerprint
    assert open_dataset().fingerprint != open_dataset(imbalance=20).fingerprint
