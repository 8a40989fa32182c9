"""The result table."""

import torch

from wcdas.evaluation import evaluate, result_table


def test_balanced_test_set():
    metrics = evaluate(torch.eye(3)[[0, 1, 1]], torch.tensor([0, 1, 2]), [200, 150, 3])
    assert result_table({"wcdas": metrics}).splitlines() == [
        "training images  wcdas",
        "many (> 100)     100.0",
        "medium (20–100)      –",
        "few (< 20)         0.0",
        "all               66.7",
    ]


def test_imbalanced_test_set_shows_balanced_accuracy():
    metrics = evaluate(torch.eye(2)[[0, 0, 0, 0]], torch.tensor([0, 0, 0, 1]), [50, 50])
    table = result_table({"a": metrics, "a long name": metrics}).splitlines()
    assert table[-1] == "all (balanced)   50.0         50.0"
    assert len({len(line) for line in table}) == 1


def test_empty_test_set():
    metrics = evaluate(torch.empty(0, 2), torch.empty(0, dtype=torch.int64), [50, 50])
    assert [line.split()[-1] for line in result_table({"x": metrics}).splitlines()[1:]] == ["–"] * 4
