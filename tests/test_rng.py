"""Random numbers by counter: reproducible, even, and independent along every axis."""

import pytest
import torch
from scipy import stats

from wcdas import rng

COUNTERS = torch.arange(20_000)


def test_stream_separates_seeds_parts_and_their_order():
    seeds = [*range(-50, 50), 2**63, 2**64 - 51]
    keys = {rng.stream(seed, *parts) for seed in seeds for parts in [(), (0,), (1,), (0, 1)]}
    assert len(keys) == 4 * len(seeds)
    assert all(0 <= key < 2**63 for key in keys)
    assert rng.stream(3, 1, 2) != rng.stream(3, 2, 1) != rng.stream(1, 3, 2)


def test_stream_is_fixed():
    """A changed hash would change every run that is resumed."""
    assert rng.stream(0) == 0xE220A8397B1DCDAF >> 1  # SplitMix64's first output for seed 0
    assert rng.stream(1, 2, -3) == 657992271335015488


def test_numbers_depend_on_key_counter_and_draw_only():
    whole = rng.uniform(5, COUNTERS, 7)
    picked = torch.tensor([19_999, 3, 3, 512])
    assert rng.uniform(5, picked, 4).equal(whole[picked, :4])
    assert not rng.uniform(6, picked, 4).equal(whole[picked, :4])


@pytest.mark.parametrize("key", [0, 1, 2**62 + 12345])
def test_uniform_is_even(key):
    u = rng.uniform(key, COUNTERS, 8)
    assert u.dtype == torch.float32
    assert 0 <= u.min() < 1e-4
    assert 1 - 1e-4 < u.max() < 1
    n = u.numel()
    assert abs(u.double().mean() - 1 / 2) < 5 * (1 / 12 / n) ** 0.5
    assert abs(u.double().var() - 1 / 12) < 5 * (1 / 180 / n) ** 0.5
    assert (u * 2**24 == (u * 2**24).round()).all()


@pytest.mark.parametrize("shift", range(0, 56, 8))
def test_bytes_are_even(shift):
    values = (rng.bits(9, COUNTERS, 10) >> shift) & 255
    assert stats.chisquare(torch.bincount(values.flatten(), minlength=256)).pvalue > 1e-4


def test_the_highest_bit_is_even():
    ones = (rng.bits(9, COUNTERS, 10) >> 62).double().mean()
    assert abs(ones - 0.5) < 5 * 0.5 / 200_000**0.5


@pytest.mark.parametrize("lag", [1, 2, 32])
def test_neighbours_are_uncorrelated(lag):
    u = rng.uniform(3, COUNTERS, 64).double()
    other_key = rng.uniform(3 + lag, COUNTERS, 64).double()
    pairs = {
        "counters": (u[lag:], u[:-lag]),
        "draws": (u[:, lag:], u[:, :-lag]),
        "keys": (u, other_key),
    }
    for axis, (x, y) in pairs.items():
        correlation = torch.corrcoef(torch.stack((x.flatten(), y.flatten())))[0, 1]
        assert abs(correlation) < 5 / x.numel() ** 0.5, axis


def test_pairs_of_neighbours_fill_the_square():
    """The correlation misses dependence that is not linear."""
    u = rng.uniform(4, COUNTERS, 32)
    for x, y in [(u[1:], u[:-1]), (u[:, 1:], u[:, :-1])]:
        cells = ((x * 16).long() * 16 + (y * 16).long()).flatten()
        assert stats.chisquare(torch.bincount(cells, minlength=256)).pvalue > 1e-4


def test_double_has_53_bits():
    u = rng.uniform_double(1, COUNTERS, 2)
    assert u.dtype == torch.float64
    assert u.max() < 1
    assert (u * 2**53 == (u * 2**53).floor()).all()
    assert (u * 2**52 != (u * 2**52).floor()).any()


def test_permutation_is_one_and_every_order_is_as_likely():
    assert rng.permutation(8, 1000).sort().values.equal(torch.arange(1000))
    assert len(rng.permutation(8, 0)) == 0
    orders = torch.stack([rng.permutation(key, 4) for key in range(4800)])
    cells = (orders * torch.tensor([64, 16, 4, 1])).sum(dim=1).unique(return_counts=True)[1]
    assert len(cells) == 24
    assert stats.chisquare(cells).pvalue > 1e-4


def test_the_hash_is_that_of_splitmix64():
    """The first outputs of SplitMix64 seeded with 1234567, from its reference code."""
    state, outputs = 1234567, []
    for _ in range(3):
        state += 0x9E3779B97F4A7C15
        outputs.append(rng._mix_int(state))
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    states = [1234567 + i * 0x9E3779B97F4A7C15 & rng._WORD for i in (1, 2, 3)]
    words = torch.tensor([rng._signed(state) for state in states])
    assert [int(z) & rng._WORD for z in rng._mix(words)] == outputs
