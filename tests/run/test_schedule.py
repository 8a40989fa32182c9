"""Rates by hand, and one schedule over stages that continue an optimizer."""

import math

import pytest

from wcdas.run.schedule import chain, rate
from wcdas.run.spec import Stage


def test_cosine():
    stage = Stage(lr=0.4)
    values = [rate(stage, progress, 8) for progress in (0, 2, 4, 8)]
    expected = [0.4, 0.2 * (1 + math.sqrt(0.5)), 0.2, 0.0]
    assert values == pytest.approx(expected)


def test_constant():
    assert {rate(Stage(lr=0.3, schedule="constant"), p, 5) for p in (0, 2.5, 4.99)} == {0.3}


def test_step():
    stage = Stage(lr=1.0, schedule="step", milestones=(0.5, 0.75), gamma=0.1)
    values = [rate(stage, progress, 4) for progress in (0, 1.99, 2, 2.99, 3, 3.99)]
    assert values == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


def test_warm_up_rises_in_a_line_and_meets_the_schedule():
    stage = Stage(lr=0.6, warmup=2)
    assert [rate(stage, p, 6) for p in (0, 0.5, 1)] == pytest.approx([0.2, 0.3, 0.4])
    assert rate(stage, 2 - 1e-9, 6) == pytest.approx(rate(stage, 2, 6)) == pytest.approx(0.6)
    assert rate(stage, 4, 6) == pytest.approx(0.3)
    assert rate(stage, 5.99, 6) < 1e-4


def test_warm_up_as_long_as_the_stage():
    assert rate(Stage(lr=1.0, warmup=3), 2.9, 3) == pytest.approx(3.9 / 4)


def test_chain():
    first, second = Stage(epochs=5, lr=0.2, warmup=1), Stage(epochs=3, optimizer="continue")
    third, fourth = Stage(epochs=7), Stage(epochs=2, optimizer="continue")
    stages = [first, second, third, fourth]
    assert [chain(stages, i) for i in range(4)] == [
        (first, 0, 8),
        (first, 5, 8),
        (third, 0, 9),
        (third, 7, 9),
    ]
