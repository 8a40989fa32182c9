"""What a method keeps beside the weights is in the checkpoint: a stopped run ends like a whole one.

Scores and queues, centers, a fitted scale, a network that weighs samples, a memory that is filled
when the second stage begins.
"""

import signal
from dataclasses import replace

import pytest

import wcdas
from wcdas.errors import InterruptedRunError
from wcdas.methods import METHODS
from wcdas.methods.center_loss import CENTER_LOSS
from wcdas.methods.equilibrium import EQUILIBRIUM
from wcdas.methods.gaussian_affinity import GAUSSIAN_AFFINITY
from wcdas.methods.meta_weight_net import META_WEIGHT_NET
from wcdas.methods.oltr import OLTR


def stopping(method, at):
    """The method, with a signal to the process in its `at`-th step."""
    steps = 0

    def training_step(*arguments):
        nonlocal steps
        steps += 1
        if steps == at:
            signal.raise_signal(signal.SIGINT)
        return method.training_step(*arguments)

    return replace(method, training_step=training_step)


@pytest.mark.parametrize(
    ("method", "at"),
    [
        (CENTER_LOSS, 5),
        (GAUSSIAN_AFFINITY, 5),
        (META_WEIGHT_NET, 5),
        (EQUILIBRIUM, 5),
        (EQUILIBRIUM, 45),  # in the second stage
        (OLTR, 5),
        (OLTR, 45),
    ],
)
def test_stopped_and_resumed(method, at, features, tmp_path, monkeypatch):
    settings = {"epochs": 2, "batch_size": 16, "evaluate_every": 99, "lr": 0.05}

    def train(out, **options):
        return wcdas.train(
            features, "tried", out=tmp_path / out, device="cpu", **options, report=False
        )

    monkeypatch.setitem(METHODS, "tried", method)
    whole = train("whole", settings=settings)
    monkeypatch.setitem(METHODS, "tried", stopping(method, at))
    with pytest.raises(InterruptedRunError):
        train("stopped", settings=settings)
    log = tmp_path / "stopped" / "log.jsonl"
    epochs_before = len(log.read_text().splitlines()) if log.exists() else 0
    assert epochs_before == (2 if at > 20 else 0)
    monkeypatch.setitem(METHODS, "tried", method)
    resumed = wcdas.train(out=tmp_path / "stopped", resume=True, device="cpu", report=False)
    first, second = ((run.path / "model.safetensors").read_bytes() for run in (whole, resumed))
    assert first == second
