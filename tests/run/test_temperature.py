"""The temperature of a model, fitted on training images kept out of every stage."""

import json

import numpy as np
import pytest

import wcdas
from wcdas.run.model_file import load_model


@pytest.mark.parametrize("fraction", [0.2, 0.0])
def test_the_temperature_is_fitted_and_stored(fraction, tmp_path):
    """Random vectors are learnt by heart, so that held-out ones are taken wrongly and surely."""
    generator = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", generator.normal(size=(300, 64)).astype("float32"))
    np.save(tmp_path / "x_labels.npy", np.arange(300) % 4)
    settings = {"epochs": 20, "calibration.holdout": fraction}
    run = wcdas.train(
        tmp_path / "x.npy",
        "softmax",
        settings=settings,
        out=tmp_path / "run",
        device="cpu",
        report=False,
    )
    info = load_model(run.path / "model.safetensors")[1]
    metrics = json.loads((run.path / "metrics.json").read_text())
    assert metrics["temperature"] == info.temperature
    assert metrics["held_out"] == (48 if fraction else 0)  # a fifth of the 240 training samples
    assert info.temperature > 1.5 if fraction else info.temperature == 1.0  # 9 to 20, ten seeds
