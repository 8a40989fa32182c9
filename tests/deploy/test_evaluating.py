"""Evaluation after training, on the run's own data and on other data."""

import math

import pytest

import wcdas
from wcdas.errors import InputError


def test_a_run_is_measured_again_alike(mixed_run):
    again = wcdas.evaluate_run(mixed_run, device="cpu")
    assert {key: mixed_run.metrics[key] for key in again} == again


def test_other_data_may_have_fewer_classes(mixed_run, mixed_folder, pictures, tmp_path):
    other = pictures(tmp_path / "other", roof=5, flower=5)
    metrics = wcdas.evaluate_run(mixed_run, other, device="cpu")
    rows = {row["class"]: row for row in metrics["per_class"]}
    assert [rows[name]["test_images"] for name in ("china", "flower", "roof")] == [0, 5, 5]
    assert rows["china"]["accuracy"] is None
    assert rows["roof"]["train_images"] == 4  # of the run


def test_a_class_the_model_does_not_know(mixed_run, pictures, tmp_path):
    other = pictures(tmp_path / "other", roof=3, leaf=3)
    with pytest.raises(InputError, match="class 'leaf', which the model does not know"):
        wcdas.evaluate_run(mixed_run, other)


def test_logit_adjustment_is_a_shift_to_the_uniform_prior(mixed_run):
    adjusted, shifted = (
        wcdas.evaluate_run(mixed_run, correction=correction, device="cpu")
        for correction in (wcdas.Correction(logit_adjustment=1.0), wcdas.Correction("uniform"))
    )
    assert adjusted["confusion"] == shifted["confusion"]
    assert adjusted["nll"] == pytest.approx(shifted["nll"], abs=1e-5)
    assert adjusted["nll"] != mixed_run.metrics["nll"]


def test_the_tail_is_not_corrected_twice(digits_run):
    with pytest.raises(InputError, match="would correct the tail twice"):
        wcdas.evaluate_run(digits_run, correction=wcdas.Correction(logit_adjustment=1.0))
    with pytest.raises(InputError, match="correct the same thing"):
        wcdas.Correction("uniform", logit_adjustment=1.0)


def test_no_prior_is_put_in_the_place_of_an_unknown_one(tmp_path):
    settings = {"stages.representation.sampler": "square-root", "epochs": 1}
    run = wcdas.train(
        method="softmax", settings=settings, out=tmp_path / "run", device="cpu", report=False
    )
    with pytest.raises(InputError, match="follow no known class prior"):
        wcdas.evaluate_run(run, correction=wcdas.Correction("uniform"))


def test_the_temperature_changes_confidence_alone(mixed_run):
    hot = wcdas.evaluate_run(mixed_run, correction=wcdas.Correction(temperature=1e4))
    assert hot["confusion"] == mixed_run.metrics["confusion"]
    assert hot["nll"] == pytest.approx(math.log(3), abs=0.01)


@pytest.mark.parametrize("option", ["logit_adjustment", "tau_norm", "max_norm", "temperature"])
def test_values_out_of_range(option):
    for value in (-1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match=f"{option.replace('_', '-')} is"):
            wcdas.Correction(**{option: value})


def test_norms_belong_to_linear_heads(digits_run, mixed_run):
    with pytest.raises(InputError, match="head is 'wcdas'"):
        wcdas.evaluate_run(digits_run, correction=wcdas.Correction(tau_norm=1.0))
    for correction in (wcdas.Correction(tau_norm=1.0), wcdas.Correction(max_norm=0.01)):
        metrics = wcdas.evaluate_run(mixed_run, correction=correction, device="cpu")
        assert metrics["nll"] != mixed_run.metrics["nll"]


def test_options_of_the_data_are_checked(mixed_run):
    with pytest.raises(InputError, match=r"unknown key 'data.rot'; did you mean 'data.root'"):
        wcdas.evaluate_run(mixed_run, rot="x")


def test_a_model_file_needs_data(mixed_run, mixed_folder):
    file = mixed_run.path / "model.safetensors"
    with pytest.raises(InputError, match="names no dataset; give one with --data"):
        wcdas.evaluate_run(file)
    metrics = wcdas.evaluate_run(file, mixed_folder, device="cpu")
    assert metrics["top1"] == mixed_run.metrics["top1"]
