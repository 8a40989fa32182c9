"""Metrics against scikit-learn, torchmetrics and numbers counted by hand."""

import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    balanced_accuracy_score,
    confusion_matrix,
    f1_score,
    log_loss,
    precision_recall_fscore_support,
    top_k_accuracy_score,
)
from torchmetrics.functional.classification import multiclass_calibration_error

from wcdas.errors import InputError
from wcdas.evaluation import evaluate


@pytest.fixture(scope="module")
def digits():
    """Logits of a linear model trained on few handwritten digits, on an imbalanced test set."""
    x, y = load_digits(return_X_y=True)
    model = LogisticRegression(C=0.1, max_iter=500).fit(x[:60] / 16, y[:60])
    keep = np.flatnonzero((np.arange(len(y)) >= 60) & ((y < 5) | (np.arange(len(y)) % 4 == 0)))
    logits = torch.from_numpy(model.decision_function(x[keep] / 16)).float()
    return 3 * logits, torch.from_numpy(y[keep])


COUNTS = [500, 300, 101, 100, 60, 20, 19, 10, 5, 1]


def test_the_whole_test_set(digits):
    logits, labels = digits
    predicted, probability = logits.argmax(1), logits.double().softmax(1)
    metrics = evaluate(logits, labels, COUNTS)
    assert 0.3 < metrics["top1"] < 0.95
    assert metrics["top1"] == pytest.approx((predicted == labels).double().mean().item())
    assert metrics["top5"] == pytest.approx(top_k_accuracy_score(labels, probability, k=5))
    assert metrics["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(labels, predicted))
    assert metrics["macro_f1"] == pytest.approx(f1_score(labels, predicted, average="macro"))
    assert metrics["nll"] == pytest.approx(log_loss(labels, probability), rel=1e-5)
    expected = multiclass_calibration_error(probability, labels, num_classes=10, n_bins=15)
    assert metrics["ece"] == pytest.approx(expected.item(), abs=1e-5)
    assert metrics["test_images"] == len(labels)
    assert metrics["headline"] == "balanced_accuracy"
    assert metrics["test_is_balanced"] is False


def test_the_classes(digits):
    logits, labels = digits
    predicted = logits.argmax(1)
    metrics = evaluate(logits, labels, COUNTS, class_names=list("abcdefghij"))
    precision, recall, f1, support = precision_recall_fscore_support(labels, predicted)
    rows = metrics["per_class"]
    assert [row["class"] for row in rows] == list("abcdefghij")
    assert [row["train_images"] for row in rows] == COUNTS
    assert [row["test_images"] for row in rows] == support.tolist()
    assert [row["accuracy"] for row in rows] == pytest.approx(recall.tolist())
    assert [row["precision"] for row in rows] == pytest.approx(precision.tolist())
    assert [row["f1"] for row in rows] == pytest.approx(f1.tolist())

    matrix = confusion_matrix(labels, predicted)
    sparse = np.zeros_like(matrix)
    for true, guess, number in metrics["confusion"]:
        assert number > 0
        sparse[true, guess] = number
    assert (sparse == matrix).all()
    np.fill_diagonal(matrix, 0)
    others = ["abcdefghij"[row.argmax()] if row.any() else None for row in matrix]
    assert [row["most_confused_with"] for row in rows] == others


def test_groups_are_means_over_their_classes(digits):
    logits, labels = digits
    metrics = evaluate(logits, labels, COUNTS)
    accuracy = [row["accuracy"] for row in metrics["per_class"]]
    # 101 and more; 20 to 100; 19 and fewer.
    assert metrics["many"] == pytest.approx(np.mean(accuracy[:3]))
    assert metrics["medium"] == pytest.approx(np.mean(accuracy[3:6]))
    assert metrics["few"] == pytest.approx(np.mean(accuracy[6:]))
    assert metrics["group_classes"] == {"many": 3, "medium": 3, "few": 4}


def scores(*predicted: int, classes: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(predicted), classes).float()


def test_a_class_without_test_images_counts_nowhere():
    # Class 2 has no test image but is predicted once; class 3 has none and is never predicted.
    metrics = evaluate(
        scores(0, 0, 2, 1, classes=4), torch.tensor([0, 0, 1, 1]), [200, 200, 200, 5]
    )
    assert metrics["many"] == metrics["balanced_accuracy"] == 0.75
    assert metrics["few"] is None
    assert metrics["medium"] is None
    assert metrics["macro_f1"] == pytest.approx((1 + 2 / 3) / 2)
    assert metrics["never_predicted"] == 0
    assert metrics["test_is_balanced"] is True
    _, one, two, three = metrics["per_class"]
    assert (one["accuracy"], one["precision"], one["most_confused_with"]) == (0.5, 1.0, 2)
    assert (two["accuracy"], two["precision"], two["f1"]) == (None, 0.0, None)
    assert (three["accuracy"], three["precision"], three["f1"]) == (None, None, None)


def test_a_class_that_is_never_predicted():
    metrics = evaluate(scores(0, 0, 0, classes=3), torch.tensor([0, 1, 2]), [9, 9, 9])
    assert metrics["never_predicted"] == 2
    assert metrics["per_class"][1] == {
        "class": 1,
        "train_images": 9,
        "test_images": 1,
        "accuracy": 0.0,
        "precision": None,
        "f1": 0.0,
        "most_confused_with": 0,
    }


def test_equally_frequent_confusions_name_the_lower_class():
    metrics = evaluate(scores(3, 1, 3, 1, 2, classes=4), torch.zeros(5).long(), [9] * 4)
    assert metrics["per_class"][0]["most_confused_with"] == 1


def test_a_model_that_says_nothing_is_not_right():
    """Equal logits: the lower class comes first, in top-1 as in top-5."""
    metrics = evaluate(torch.zeros(20, 20), torch.arange(20), [50] * 20)
    assert metrics["top1"] == 1 / 20
    assert metrics["top5"] == 5 / 20
    assert metrics["test_is_balanced"] is True
    assert metrics["headline"] == "top1"
    assert metrics["nll"] == pytest.approx(np.log(20))
    assert metrics["ece"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_top5_of_few_classes(classes):
    metrics = evaluate(torch.randn(7, classes), torch.arange(7) % classes, [10] * classes)
    assert metrics["top5"] == 1.0
    assert len(metrics["per_class"]) == classes


def test_an_empty_test_set_measures_nothing():
    metrics = evaluate(torch.empty(0, 3), torch.empty(0, dtype=torch.int64), [5, 5, 5])
    measured = ("top1", "top5", "balanced_accuracy", "many", "few", "macro_f1", "ece", "nll")
    assert all(metrics[name] is None for name in measured)
    assert metrics["confusion"] == []
    assert metrics["never_predicted"] == 0
    json.dumps(metrics, allow_nan=False)


def test_excluded_classes_are_allowed():
    logits = torch.tensor([[0.0, -torch.inf, 1.0], [2.0, -torch.inf, 0.0]])
    metrics = evaluate(logits, torch.tensor([2, 0]), [5, 5, 5])
    assert metrics["top1"] == 1.0
    assert np.isfinite(metrics["nll"])


def test_what_is_said_of_8142_classes_is_short():
    """Every other image is taken for the class after its own; no matrix of classes is written."""
    labels = torch.arange(0, 8142, 8)
    predicted = labels + torch.arange(len(labels)) % 2
    logits = torch.zeros(len(labels), 8142).scatter_(1, predicted[:, None], 9.0)
    metrics = evaluate(logits, labels, torch.linspace(1000, 2, 8142).long())
    assert metrics["top1"] == metrics["balanced_accuracy"] == 509 / 1018
    assert metrics["never_predicted"] == 509
    assert metrics["confusion"] == [
        [label, guess, 1] for label, guess in zip(labels.tolist(), predicted.tolist(), strict=True)
    ]
    assert len(metrics["per_class"]) == 8142
    assert len(json.dumps(metrics, allow_nan=False)) < 3_000_000


@pytest.mark.parametrize(
    ("logits", "labels", "counts", "names", "message"),
    [
        (torch.zeros(2, 3), [0, 3], [1, 1, 1], None, "label 3 is out of range"),
        (torch.zeros(2, 3), [0], [1, 1, 1], None, "labels have shape"),
        (torch.zeros(2, 3), [0, 1], [1, 1], None, "class_counts have shape"),
        (torch.zeros(2, 3), [0, 1], [1, 1, 1], ["a"], "1 class names for 3"),
        (torch.full((2, 3), torch.nan), [0, 1], [1, 1, 1], None, "NaN, first in row 0"),
        (torch.zeros(2, 3).long(), [0, 1], [1, 1, 1], None, "floating-point"),
    ],
)
def test_bad_input(logits, labels, counts, names, message):
    with pytest.raises(ValueError, match=message):
        evaluate(logits, torch.tensor(labels), counts, names)


def test_nan_is_an_input_error():
    with pytest.raises(InputError, match="row 1"):
        evaluate(torch.tensor([[0.0], [torch.nan]]), torch.tensor([0, 0]), [1])
