"""What is said of logits some images and classes at a time is what the whole matrix says."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import wcdas
from wcdas.errors import InputError
from wcdas.evaluation import evaluate, fit_temperature
from wcdas.evaluation import scores as module
from wcdas.evaluation.predictions import DEEPEST, most_probable, predictions
from wcdas.evaluation.scores import Scores, as_scores, logits_of
from wcdas.heads import Head, LinearHead


def whole_numbers(head: Head) -> Head:
    """A head whose logits of whole numbers are exact, with many alike."""
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randint(-1, 2, parameter.shape))
    return head


class Case(NamedTuple):
    """Logits and labels; of the logits `rows` × `width` are computed at a time."""

    head: Head
    x: torch.Tensor
    labels: torch.Tensor
    temperature: float
    shift: torch.Tensor
    rows: int
    width: int

    @property
    def scores(self) -> Scores:
        return logits_of(self.head, self.x) / self.temperature + self.shift

    @property
    def z(self) -> np.ndarray:
        """The matrix in float64."""
        weight, bias = (p.detach().double().numpy() for p in (self.head.weight, self.head.bias))
        z = (self.x.double().numpy() @ weight.T + bias) / self.temperature
        return z + self.shift.double().numpy()


@st.composite
def cases(draw: Any) -> Case:
    """Some classes may be excluded."""
    images, classes = draw(st.integers(0, 7)), draw(st.integers(1, 9))
    torch.manual_seed(draw(st.integers(0, 10_000)))
    head, x = whole_numbers(LinearHead(3, classes)), torch.randint(-1, 2, (images, 3)).float()
    temperature = draw(st.sampled_from([0.5, 1.0, 4.0]))
    offsets = st.sampled_from([0.0, 0.5, -math.inf])
    shift = torch.tensor(draw(st.lists(offsets, min_size=classes, max_size=classes)))
    shift[draw(st.integers(0, classes - 1))] = 0.0  # not all of them
    labels = torch.randint(classes, (images,))
    rows, width = draw(st.integers(1, 4)), draw(st.integers(1, classes + 1))
    return Case(head, x, labels, temperature, shift, rows, width)


def in_order(z: np.ndarray) -> np.ndarray:
    """The classes of every row, of equal logits the lower first."""
    return np.argsort(-z, axis=1, kind="stable")


@settings(max_examples=300)
@given(case=cases())
def test_predictions(case, at_a_time):
    z, y = case.z, case.labels.numpy()
    with at_a_time(case.rows, case.width):
        p = predictions(case.scores, case.labels)
    assert p.predicted.tolist() == in_order(z)[:, 0].tolist()
    rank = (in_order(z) == y[:, None]).argmax(1)
    assert p.rank.tolist() == rank.clip(max=DEEPEST).tolist()
    lse = logsumexp(z, axis=1)
    np.testing.assert_allclose(p.confidence, np.exp(z.max(1, initial=-9) - lse), rtol=1e-5)
    np.testing.assert_allclose(p.nll, lse - z[np.arange(len(y)), y], rtol=1e-5, atol=1e-6)


@settings(max_examples=300)
@given(case=cases(), k=st.integers(1, 12))
def test_the_most_probable(case, k, at_a_time):
    z = case.z
    k = min(k, z.shape[1])
    with at_a_time(case.rows, case.width):
        probabilities, classes = most_probable(case.scores, k)
    assert probabilities.shape == classes.shape == (len(z), k)
    np.testing.assert_array_equal(classes, in_order(z)[:, :k])
    expected = np.exp(np.take_along_axis(z, in_order(z)[:, :k], 1) - logsumexp(z, 1)[:, None])
    np.testing.assert_allclose(probabilities, expected, rtol=1e-5)


@settings(max_examples=20)
@given(rows=st.integers(1, 5), width=st.integers(1, 8), seed=st.integers(0, 10_000))
def test_the_temperature(rows, width, seed, at_a_time):
    """Labels that are drawn from logits three times as cold."""
    torch.manual_seed(seed)
    head, x = LinearHead(4, 7), 4 * torch.randn(60, 4)
    z = head(x).detach().double()
    labels = torch.multinomial((z / 3).softmax(1), 1).squeeze(1)

    def nll(log_temperature: float) -> float:
        scaled = z / math.exp(log_temperature)
        return float(torch.nn.functional.cross_entropy(scaled, labels))

    best = minimize_scalar(nll, bounds=(math.log(0.05), math.log(20)), method="bounded")
    with at_a_time(rows, width):
        found = fit_temperature(logits_of(head, x), labels)
    assert nll(math.log(found)) <= best.fun + 1e-6
    assert found == pytest.approx(fit_temperature(z, labels), rel=1e-3)


@pytest.mark.parametrize("name", wcdas.list_heads())
def test_every_head(name, at_a_time):
    torch.manual_seed(0)
    head, x, labels = wcdas.create_head(name, 6, 11), torch.randn(23, 6), torch.arange(23) % 11
    counts = torch.arange(11) * 15
    expected = evaluate(head(x), labels, counts)
    with at_a_time(5, 3):
        scores = logits_of(head, x)
    assert len(scores.parts) == 4
    found = evaluate(scores, labels, counts)
    assert found["confusion"] == expected["confusion"]
    for key in ("top5", "nll", "ece", "few"):
        assert found[key] == pytest.approx(expected[key], rel=1e-4), key


class Largest(TorchDispatchMode):
    """Notes the numbers of the largest tensor that is made."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(made) if isinstance(leaf, torch.Tensor)]
        self.numbers = max(self.numbers, *sizes, 0)
        return made


@pytest.mark.parametrize("name", ["linear", "wcdas", "gaussian-affinity"])
def test_no_matrix_is_made(name, at_a_time):
    images, classes = 90, 100
    torch.manual_seed(0)
    head, x = wcdas.create_head(name, 2, classes), torch.randn(images, 2)
    labels = torch.arange(images)
    with at_a_time(16, 25), Largest() as largest:
        scores = logits_of(head, x) / 2.0 + torch.zeros(classes)
        predictions(scores, labels)
        most_probable(scores, 5)
        fit_temperature(scores, labels)
    assert largest.numbers <= DEEPEST * images  # what is said of every image
    with Largest() as largest:
        predictions(head(x), labels)
    assert largest.numbers >= images * classes


def test_few_logits_are_a_matrix(at_a_time):
    head, x = LinearHead(4, 5), torch.randn(6, 4)
    kept = logits_of(head, x)
    assert torch.equal(kept.inputs, head(x))
    assert not kept.inputs.requires_grad
    with at_a_time(6, 5):
        assert torch.equal(logits_of(head, x).inputs, x)


def test_logits_that_depend_on_other_classes_are_computed_together(at_a_time):
    head = wcdas.heads.oltr.OLTRHead(LinearHead(4, 6))
    head.fill_memory(torch.randn(12, 4), torch.arange(12) % 6)
    x, labels = torch.randn(9, 4), torch.arange(9) % 6
    with at_a_time(4, 3):
        scores = logits_of(head, x)
    assert scores.rows == 2
    torch.testing.assert_close(predictions(scores, labels).nll, predictions(head(x), labels).nll)


def test_nan_is_an_input_error(at_a_time):
    head = LinearHead(2, 6)
    with torch.no_grad():
        head.weight[4, 0] = torch.nan
    x, labels = torch.tensor([[0.0, 1.0], [2.0, 0.0]]), torch.tensor([0, 1])
    with at_a_time(1, 2):
        with pytest.raises(InputError, match="NaN, first in row 0"):
            predictions(logits_of(head, x), labels)
        with pytest.raises(InputError, match="NaN or infinity"):
            fit_temperature(logits_of(head, x), labels)


def test_between_the_rows_of_a_time_others_are_asked(at_a_time):
    asked = []
    with at_a_time(4, 2):
        scores = logits_of(LinearHead(3, 5), torch.randn(9, 3)) / 2.0
    predictions(replace(scores, between=lambda: asked.append(1)), torch.zeros(9).long())
    assert len(asked) == 3


def test_a_matrix_is_taken_in_rows(at_a_time):
    z = torch.randn(9, 5)
    with at_a_time(2, 5):
        assert as_scores(z).rows == 2
        halves = predictions(z, torch.zeros(9).long())
    torch.testing.assert_close(halves.nll, predictions(z, torch.zeros(9).long()).nll)


def said(rank: int, world: int, folder: Path) -> None:
    """What processes say of a head whose classes are spread over them, and of it whole."""
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world
    )
    torch.manual_seed(0)
    module.ROWS, module.NUMBERS = 7, 21
    found = []
    for classes in (2, 20):  # of two classes a third process has none
        head, x = wcdas.ShardedWCDASHead(4, classes), torch.randn(30, 4)
        labels = torch.randint(classes, (30,), generator=torch.Generator().manual_seed(1))
        of_one = []
        for scores in (logits_of(head, x), logits_of(head.whole(), x)):
            p = predictions(scores / 2.0, labels)
            top = most_probable(scores + torch.arange(float(classes)), 2)
            of_one.append((vars(p), top, fit_temperature(scores, labels)))
        found.append(of_one)
    dist.destroy_process_group()
    torch.save(found, folder / f"{rank}.pt")


def test_classes_of_several_processes(tmp_path, in_processes):
    in_processes(said, 3, tmp_path)
    for rank in range(3):
        for spread, whole in torch.load(tmp_path / f"{rank}.pt"):
            torch.testing.assert_close(spread[:2], whole[:2])
            assert spread[2] == pytest.approx(whole[2], rel=1e-3)
