"""Calibration against torchmetrics, and temperatures that are known."""

import pytest
import torch
import torch.nn.functional as F
from torchmetrics.functional.classification import binary_calibration_error

from wcdas.errors import InputError
from wcdas.evaluation import expected_calibration_error, fit_temperature, reliability_bins


def test_error_by_hand():
    # One bin (0.7, 0.8] half right, one bin (0.9, 1] all right: 2/3·|1/2 − 0.75| + 1/3·0.05.
    confidence, correct = torch.tensor([0.72, 0.78, 0.95]), torch.tensor([True, False, True])
    error = expected_calibration_error(confidence, correct, bins=10)
    assert error == pytest.approx(2 / 3 * 0.25 + 1 / 3 * 0.05)


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_error_against_torchmetrics(bins):
    generator = torch.Generator().manual_seed(0)
    confidence = torch.rand(5000, generator=generator)
    correct = torch.rand(5000, generator=generator) < confidence**2
    # Of a binary problem in which the second class is always predicted.
    expected = binary_calibration_error(confidence, correct.long(), n_bins=bins, norm="l1")
    error = expected_calibration_error(confidence, correct, bins)
    assert error == pytest.approx(expected.item(), abs=1e-6)


def test_bins_add_up_to_the_error():
    generator = torch.Generator().manual_seed(0)
    confidence = torch.rand(500, generator=generator) / 2 + 0.5
    correct = torch.rand(500, generator=generator) < 0.7
    rows = reliability_bins(confidence, correct)
    assert len(rows) == 15
    assert sum(row["images"] for row in rows) == 500
    total = 0.0
    for row in rows:
        inside = (confidence > row["lower"]) & (confidence <= row["upper"])
        assert row["images"] == inside.sum()
        if row["images"] == 0:
            assert row["accuracy"] is row["confidence"] is None
            continue
        assert row["accuracy"] == pytest.approx(correct[inside].double().mean().item())
        total += row["images"] / 500 * abs(row["accuracy"] - row["confidence"])
    assert total == pytest.approx(expected_calibration_error(confidence, correct))


def test_the_ends_belong_to_the_outer_bins():
    rows = reliability_bins(torch.tensor([0.0, 1.0]), torch.tensor([False, True]), bins=4)
    assert [row["images"] for row in rows] == [1, 0, 0, 1]


def test_no_bins():
    with pytest.raises(InputError, match="bins is 0"):
        reliability_bins(torch.ones(1), torch.ones(1), bins=0)


@pytest.fixture(scope="module")
def calibrated():
    """Labels drawn from the softmax of their logits: the true temperature is 1."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(20_000, 10, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    return logits, labels


@pytest.mark.parametrize("temperature", [0.1, 0.5, 1.0, 3.0, 15.0])
def test_a_known_temperature_is_found(calibrated, temperature):
    logits, labels = calibrated
    assert fit_temperature(temperature * logits, labels) == pytest.approx(temperature, rel=0.03)


def test_nothing_nearby_is_better(calibrated):
    logits, labels = calibrated
    best = fit_temperature(3 * logits, labels)

    def nll(temperature):
        return F.cross_entropy(3 * logits.double() / temperature, labels).item()

    assert nll(best) < min(nll(best * 1.001), nll(best / 1.001))


def test_it_stays_within_its_bounds(calibrated):
    logits, _ = calibrated
    assert fit_temperature(logits, logits.argmax(1)) == pytest.approx(0.05, rel=1e-5)
    assert fit_temperature(logits, logits.argmin(1)) == pytest.approx(20, rel=1e-5)
    assert 0.05 <= fit_temperature(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0])) <= 20


def test_huge_logits_do_not_overflow(calibrated):
    logits, labels = calibrated
    assert fit_temperature(1e30 * logits, labels) == pytest.approx(20, rel=1e-5)


def test_without_images_it_changes_nothing():
    assert fit_temperature(torch.empty(0, 3), torch.empty(0, dtype=torch.int64)) == 1.0


def test_infinite_logits_are_refused():
    with pytest.raises(InputError, match="infinity"):
        fit_temperature(torch.tensor([[0.0, -torch.inf]]), torch.tensor([0]))
