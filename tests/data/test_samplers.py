"""Samplers: N draws an epoch, the right share of every class, slices that join."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from wcdas.data.samplers import (
    SAMPLERS,
    ClassProbabilitySampler,
    create_sampler,
    whole_batches,
)
from wcdas.errors import InputError

COUNTS = torch.tensor([500, 0, 120, 40, 7, 1])
SHUFFLED = torch.randperm(int(COUNTS.sum()), generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(6).repeat_interleave(COUNTS)[SHUFFLED]
N = len(LABELS)


def drawn_classes(sampler, epochs, epoch=None):
    """How often each class is drawn over many epochs' worth of draws."""
    runs = range(epochs) if epoch is None else [epoch] * epochs
    drawn = [LABELS[sampler.sequence(key, e, epochs)] for key, e in enumerate(runs)]
    return torch.bincount(torch.cat(drawn), minlength=6).double()


def assert_shares(found, expected):
    total = found.sum()
    error = (expected * (1 - expected) / total).sqrt()
    assert ((found / total - expected).abs() <= 4.5 * error + 1e-12).all(), (
        found / total,
        expected,
    )


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("epoch", [0, 3])
def test_class_probabilities_are_the_shares_of_the_draws(name, epoch):
    sampler = create_sampler(name, LABELS, 6)
    drawn = drawn_classes(sampler, 40, epoch)
    assert_shares(drawn, sampler.class_probabilities(epoch, 40))


@pytest.mark.parametrize("name", SAMPLERS)
def test_sequence_is_n_draws_and_a_pure_function(name):
    sampler = create_sampler(name, LABELS, 6)
    sequence = sampler.sequence(11, 3, 10)
    assert sequence.dtype == torch.int64
    assert sequence.shape == (N,)
    assert 0 <= sequence.min() <= sequence.max() < N
    sampler.sequence(99, 0, 10)
    assert create_sampler(name, LABELS, 6).sequence(11, 3, 10).equal(sequence)
    assert sampler.sequence(11, 3, 10).equal(sequence)
    assert not sampler.sequence(11, 4, 10).equal(sequence)
    assert not sampler.sequence(12, 3, 10).equal(sequence)


def test_instance_balanced_shows_every_image_once():
    sequence = create_sampler("instance-balanced", LABELS, 6).sequence(1, 2, 3)
    assert sequence.sort().values.equal(torch.arange(N))


def test_class_balanced_shares():
    found = drawn_classes(create_sampler("class-balanced", LABELS, 6), 40)
    assert_shares(found, (COUNTS > 0) / 5.0)


def test_square_root_shares():
    found = drawn_classes(create_sampler("square-root", LABELS, 6), 40)
    assert_shares(found, COUNTS.double().sqrt() / COUNTS.double().sqrt().sum())


@pytest.mark.parametrize(("epoch", "t"), [(0, 0.0), (10, 0.25), (40, 1.0)])
def test_progressively_balanced_shares(epoch, t):
    sampler = create_sampler("progressively-balanced", LABELS, 6)
    drawn = torch.cat([LABELS[sampler.sequence(key, epoch, 41)] for key in range(40)])
    found = torch.bincount(drawn, minlength=6).double()
    assert_shares(found, (1 - t) * COUNTS / N + t * (COUNTS > 0) / 5.0)


def test_images_of_a_class_are_equally_likely():
    sampler = create_sampler("class-balanced", LABELS, 6)
    drawn = torch.cat([sampler.sequence(key, 0, 1) for key in range(60)])
    times = torch.bincount(drawn, minlength=N)[LABELS == 4].double()
    assert_shares(times, torch.full((7,), 1 / 7, dtype=torch.float64))


def test_own_probabilities():
    class Own(ClassProbabilitySampler):
        def class_probabilities(self, epoch, epochs):
            return torch.tensor([0, 0, 0, 0.75, 0.25, 0]).double()

    sampler = Own(LABELS, 6)
    assert_shares(drawn_classes(sampler, 30), sampler.class_probabilities(0, 1))


@pytest.mark.parametrize("per_class", [1, 3, 4])
def test_class_aware_composition(per_class):
    sequence = create_sampler("class-aware", LABELS, 6, per_class=per_class).sequence(5, 0, 1)
    rows = LABELS[sequence][: N // per_class * per_class].view(-1, per_class)
    assert (rows == rows[:, :1]).all()
    rounds = rows[: len(rows) // 5 * 5, 0].view(-1, 5)
    assert (rounds.sort(dim=1).values == torch.tensor([0, 2, 3, 4, 5])).all()
    assert len(rounds.unique(dim=0)) > 20
    for label in (0, 2, 3, 4, 5):
        images = sequence[LABELS[sequence] == label]
        passes = images.split(int(COUNTS[label]))
        assert all(len(part.unique()) == len(part) for part in passes)
        if label == 4:
            assert len({tuple(part.tolist()) for part in passes[:-1]}) > 5


@given(
    n=st.integers(1, 200),
    per_rank=st.integers(1, 12),
    world=st.integers(1, 5),
    key=st.integers(0, 2**62),
)
def test_slices_join_to_the_sequence_of_one_process(n, per_rank, world, key):
    sequence = create_sampler("instance-balanced", torch.zeros(n), 1).sequence(key, 0, 1)
    batch_size = per_rank * world
    if n < world:
        with pytest.raises(InputError, match="too few"):
            whole_batches(sequence, batch_size, world)
        return
    batches = whole_batches(sequence, batch_size, world)
    slices = [batch.chunk(world) for batch in batches]
    assert {len(parts) for parts in slices} == {world}
    assert len({len(part) for parts in slices for part in parts}) == 1
    joined = torch.cat([torch.cat(parts) for parts in slices])
    expected = n // batch_size * batch_size if n >= batch_size else n // world * world
    assert joined.equal(sequence[:expected])
    if n >= batch_size:
        alone = whole_batches(sequence, batch_size)
        assert len(alone) == len(batches)
        assert all(a.equal(b) for a, b in zip(alone, batches, strict=True))


def test_bad_input_is_named():
    with pytest.raises(InputError, match="batch size 10 does not divide into 4"):
        whole_batches(torch.arange(100), 10, 4)
    with pytest.raises(InputError, match="'class-balanced'"):
        create_sampler("class_balance", LABELS, 6)
    with pytest.raises(InputError, match="per_class"):
        create_sampler("class-aware", LABELS, 6, per_clas=2)
    with pytest.raises(InputError, match="per_class is 'x'; expected a whole number"):
        create_sampler("class-aware", LABELS, 6, per_class="x")
    with pytest.raises(InputError, match="per_class is 0"):
        create_sampler("class-aware", LABELS, 6, per_class=0)
    with pytest.raises(InputError, match="label 5 is out of range; expected 0 to 4"):
        create_sampler("square-root", LABELS, 5)
