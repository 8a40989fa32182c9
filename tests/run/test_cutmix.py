"""CutMix with patches of other images: of which, in which epochs, and what is refused."""

import pytest
import torch

from wcdas.data import open_dataset
from wcdas.errors import InputError
from wcdas.rng import Purpose, stream
from wcdas.run.batches import Batches
from wcdas.targets import MixedLabels

BALANCED = {"cutmix": 1.0, "cutmix_sampler": "class-balanced", "epochs": 9, "augment": "none"}


def batches(make_loop, **stage):
    return Batches(make_loop(one=BALANCED | stage).run, 0)


def steps(data, epoch):
    """All batches of an epoch."""
    data.begin(epoch, 0)
    return [data.next(torch.tensor([step])).batch for step in range(data.steps)]


def test_patches_are_class_balanced_and_backgrounds_as_they_come(make_loop, digits):
    data = batches(make_loop)
    labels, drawn = digits.train.labels, []
    for epoch in range(9):
        data.begin(epoch, 0)
        first, patches = (loader.plan.indices.flatten() for loader in data.loaders)
        assert len(first.unique()) == len(first) == data.steps * 32
        drawn.append(patches.clone())
    counts = torch.bincount(labels[torch.cat(drawn)], minlength=10).double()
    expected = counts.sum() * data.patches.class_probabilities(0, 9)
    assert expected.unique().numel() == 1
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    assert chi_squared < 9 + 5 * (2 * 9) ** 0.5  # its mean and five standard deviations


def test_a_batch_is_made_of_both_draws(make_loop, digits):
    """By hand from the plan of the epoch, pixel by pixel."""
    data = batches(make_loop)
    boxes = 0
    for step, batch in enumerate(steps(data, 4)):
        plans = [loader.plan.indices[step] for loader in data.loaders]
        background, patch = (digits.train.pixels[indices].float() for indices in plans)
        loader = data.loaders[0]
        top, bottom, left, right = data.mixing.boxes[step].tolist()
        background[:, :, top:bottom, left:right] = patch[:, :, top:bottom, left:right]
        torch.testing.assert_close(batch.inputs, (background / 255 - loader.mean) / loader.std)
        assert isinstance(batch.target, MixedLabels)
        first, second = (digits.train.labels[indices] for indices in plans)
        assert batch.labels.equal(first)
        assert batch.target.first.equal(first)
        assert batch.target.second.equal(second)
        area = (bottom - top) * (right - left) / background[0, 0].numel()
        assert float(batch.target.lam) == pytest.approx(1 - area)
        boxes += area > 0
    assert boxes > 0


def test_beside_a_second_batch(make_loop, digits):
    """The learned sampler's balanced batch stays what it is."""
    stage = BALANCED | {"sampler": "meta", "trains": "classifier"}
    data = Batches(make_loop(one=stage).run, 0)
    data.begin(4, 0)
    batch = data.next(torch.tensor([0])).batch
    plans = [digits.train.labels[loader.plan.indices[0]] for loader in data.loaders]
    assert len(plans) == 3
    assert batch.labels.equal(plans[0])
    assert batch.second[1].equal(plans[1])
    assert batch.target.second.equal(plans[2])


def test_images_that_are_read_as_they_are_needed(make_loop, mixed_folder):
    """Files do not live on the device; the draws are the same."""
    files = open_dataset(mixed_folder)
    stage = BALANCED | {"batch_size": 4}
    data = Batches(make_loop(backbone="resnet8", dataset=files, one=stage).run, 0)
    assert not data.is_resident
    order = data.patches.sequence(stream(data.seed, Purpose.PATCHES), 4, 9)
    drawn = files.train.labels[data.kept[order]]
    for batch, expected in zip(steps(data, 4), drawn.split(4), strict=True):
        assert batch.target.second.equal(expected)


def test_the_draws_are_independent_of_each_other_and_of_the_epoch(make_loop):
    data = batches(make_loop, cutmix_sampler="instance-balanced")
    data.begin(4, 0)
    first, patches = (loader.plan.indices.clone() for loader in data.loaders)
    assert not first.equal(patches)
    data.begin(5, 0)
    assert not data.loaders[1].plan.indices.equal(patches)


def test_other_draws_stay_as_they_are_without_patches(make_loop):
    with_patches, without = batches(make_loop), batches(make_loop, cutmix_sampler="")
    assert [len(data.loaders) for data in (with_patches, without)] == [2, 1]
    for one, other in zip(steps(with_patches, 4), steps(without, 4), strict=True):
        assert one.labels.equal(other.labels)
        assert one.target.lam == other.target.lam


def test_the_first_and_last_epochs_rest(make_loop):
    data = batches(make_loop, cutmix_rest=3)
    cut = [sum(float(b.target.lam) < 1 for b in steps(data, epoch)) for epoch in range(9)]
    assert cut[:3] == cut[6:] == [0, 0, 0]
    assert min(cut[3:6]) > 0


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ({"cutmix_sampler": "balanced"}, "unknown sampler 'balanced'; did you mean 'class-bal"),
        ({"cutmix_sampler": "meta"}, "unknown sampler 'meta'"),
        ({"cutmix_rest": 5}, "cutmix_rest is 5, which leaves CutMix none of 9 epochs; expected"),
        ({"cutmix_share": 1.5}, "cutmix_share is 1.5; expected at most 1"),
        ({"cutmix_rest": -1}, "cutmix_rest is -1; expected at least 0"),
    ],
)
def test_what_cannot_work_is_refused(make_loop, stage, message):
    with pytest.raises(InputError, match=message):
        batches(make_loop, **stage)
