import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from wcdas.circular.angles import mean_and_variance, one_minus_cos, wrap


@given(st.floats(-1e6, 1e6))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_wrap(dtype: torch.dtype, value: float) -> None:
    angle = torch.tensor(value, dtype=dtype)
    wrapped = wrap(angle)
    assert -math.pi <= wrapped
    assert wrapped < math.pi
    turns = (angle - wrapped).double() / (2 * math.pi)
    assert abs(turns - turns.round()) < 1e6 * torch.finfo(dtype).eps


@pytest.mark.parametrize("value", [-3.0, -1e-30, 0.0, 1e-30, 3.0, -math.pi])
def test_wrap_leaves_the_circle_alone(value: float) -> None:
    angle = torch.tensor(value, dtype=torch.float64)
    assert wrap(angle) == angle


def test_wrap_maps_pi_to_minus_pi() -> None:
    assert wrap(torch.tensor(math.pi)) == torch.tensor(-math.pi)


def test_one_minus_cos_of_a_small_angle() -> None:
    angle = torch.tensor(1e-10, dtype=torch.float64)
    torch.testing.assert_close(one_minus_cos(angle), angle.square() / 2)


def test_mean_and_variance_across_the_cut() -> None:
    angles = torch.tensor([math.pi - 0.1, -math.pi + 0.1], dtype=torch.float64)
    mean, variance = mean_and_variance(angles)
    torch.testing.assert_close(mean.abs(), torch.tensor(math.pi, dtype=torch.float64))
    torch.testing.assert_close(variance, torch.tensor(1 - math.cos(0.1), dtype=torch.float64))
