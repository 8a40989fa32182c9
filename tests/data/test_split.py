import numpy as np
import pytest
import torch

from wcdas.data.split import canonical_indices, first_indices, holdout, long_tail_counts
from wcdas.errors import InputError


@pytest.mark.parametrize(
    ("classes", "n_max", "imbalance", "images"),
    [
        (100, 500, 10, 19573),
        (100, 500, 50, 12608),
        (100, 500, 100, 10847),
        (100, 500, 200, 9502),
        (10, 5000, 10, 20431),
        (10, 5000, 50, 13996),
        (10, 5000, 100, 12406),
        (10, 5000, 200, 11203),
    ],
)
def test_published_sizes(classes, n_max, imbalance, images):
    counts = long_tail_counts(n_max, classes, imbalance)
    assert sum(counts) == images
    assert counts[0] == n_max
    assert counts == sorted(counts, reverse=True)


def test_step_halves_the_classes():
    assert long_tail_counts(500, 10, 100, "step") == [500] * 5 + [5] * 5


def test_imbalance_one_is_balanced():
    assert long_tail_counts(7, 4, 1) == [7] * 4


@pytest.mark.parametrize("profile", ["exp", "step"])
def test_the_smallest_class_keeps_an_image(profile):
    assert all(long_tail_counts(n, 10, n, profile)[-1] == 1 for n in range(2, 400))


@pytest.mark.parametrize("imbalance", [0.5, 0, -3, 501, float("nan"), float("inf")])
def test_impossible_imbalance_is_refused(imbalance):
    with pytest.raises(InputError, match=r"data\.imbalance is .*; expected a number from 1 to 500"):
        long_tail_counts(500, 10, imbalance)


def test_unknown_profile_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"unknown data\.profile 'stepp'; did you mean 'step'"):
        long_tail_counts(500, 10, 100, "stepp")


def test_canonical_indices_are_those_of_the_global_legacy_generator():
    labels = torch.from_numpy(np.random.RandomState(5).randint(0, 4, 200))
    counts = [30, 20, 9, 1]
    np.random.seed(0)
    expected = []
    for c in range(4):
        of_class = np.where(labels.numpy() == c)[0]
        np.random.shuffle(of_class)
        expected += list(of_class[: counts[c]])
    assert canonical_indices(labels, counts).tolist() == expected


def test_canonical_sets_are_nested():
    labels = torch.arange(5).repeat(40)
    large = set(canonical_indices(labels, [40, 30, 20, 10, 5]).tolist())
    small = set(canonical_indices(labels, [40, 10, 4, 2, 1]).tolist())
    assert small < large


def test_first_indices_follow_the_file():
    labels = torch.tensor([1, 0, 1, 0, 0])
    assert first_indices(labels, [2, 1]).tolist() == [1, 3, 0]


COUNTS = torch.tensor([200, 100, 41, 20, 19, 3])
LABELS = torch.arange(6).repeat_interleave(COUNTS)[torch.randperm(383)]


def test_held_out_are_so_many_at_the_most():
    """Meta-Weight-Net's: ten of every class, at most a fifth of it, of the few none."""
    _, held = holdout(LABELS, 6, 0.2, key=3, most=10)
    assert torch.bincount(LABELS[held], minlength=6).tolist() == [10, 10, 8, 4, 0, 0]
    _, held = holdout(LABELS, 6, 0.2, key=3, smallest=2, most=10)
    assert torch.bincount(LABELS[held], minlength=6).tolist() == [10, 10, 8, 4, 3, 1]
    _, held = holdout(torch.tensor([0, 1, 1]), 2, 0.2, key=3, smallest=2, most=10)
    assert len(held) == 1
    assert held[0] > 0


def test_held_out_is_a_fraction_of_each_class_but_the_few():
    kept, held = holdout(LABELS, 6, 0.1, key=3)
    assert torch.bincount(LABELS[held], minlength=6).tolist() == [20, 10, 4, 2, 0, 0]
    assert torch.cat([kept, held]).sort().values.equal(torch.arange(383))
    assert kept.equal(kept.sort().values)


def test_what_is_held_out_is_decided_by_its_key():
    held = [holdout(LABELS, 6, 0.1, key)[1] for key in (3, 3, 4)]
    assert held[0].equal(held[1])
    assert not held[0].equal(held[2])


def test_nothing_held_out():
    kept, held = holdout(LABELS, 6, 0.0, key=3, most=10)
    assert len(held) == 0
    assert kept.equal(torch.arange(383))
