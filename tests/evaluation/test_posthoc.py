"""Corrections after training against Bayes' rule and their definitions."""

import pytest
import torch

from wcdas.errors import InputError
from wcdas.evaluation import (
    adjust_logits,
    choose,
    max_norm,
    read_prior,
    shift_prior,
)

NAMES = ["cat", "dog", "owl, barn"]
COUNTS = torch.tensor([60, 30, 10])


def test_shift_is_bayes_rule_by_enumeration():
    """Four possible images with known likelihoods under three classes."""
    likelihood = torch.tensor(
        [[0.7, 0.1, 0.2], [0.1, 0.6, 0.2], [0.1, 0.2, 0.5], [0.1, 0.1, 0.1]], dtype=torch.float64
    )
    source = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    target = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)

    def posterior(prior):
        joint = likelihood * prior
        return joint / joint.sum(dim=1, keepdim=True)

    logits = posterior(source).log() + torch.randn(4, 1, dtype=torch.float64)
    shifted = shift_prior(logits, source, target)
    torch.testing.assert_close(shifted.softmax(dim=1), posterior(target))
    torch.testing.assert_close(shift_prior(shifted, target, source), logits)
    # Any scale will do: counts are priors too.
    torch.testing.assert_close(shift_prior(logits, COUNTS, target), shifted)


def test_a_prior_of_zero_excludes_a_class():
    shifted = shift_prior(torch.zeros(2, 3), COUNTS, torch.tensor([1.0, 0.0, 1.0]))
    assert (shifted.softmax(dim=1)[:, 1] == 0).all()
    with pytest.raises(InputError, match="is 0 for class 1"):
        shift_prior(torch.zeros(2, 3), torch.tensor([1.0, 0.0, 1.0]), COUNTS)


def test_logit_adjustment_is_a_shift_to_uniform():
    logits = torch.randn(5, 3)
    adjusted = adjust_logits(logits, COUNTS)
    expected = shift_prior(logits, COUNTS, torch.ones(3))
    torch.testing.assert_close(adjusted.softmax(1), expected.softmax(1))
    torch.testing.assert_close(adjust_logits(logits, COUNTS, tau=0.0), logits)
    half = adjust_logits(logits, [60, 30, 10], tau=0.5)
    torch.testing.assert_close(half, logits - 0.5 * torch.tensor([0.6, 0.3, 0.1]).log())
    with pytest.raises(InputError, match="every class"):
        adjust_logits(logits, [1, 0, 1])


def test_max_norm_shortens_only_what_is_longer():
    weight = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [0.0, 2.0]])
    limited = max_norm(weight, 2.0)
    torch.testing.assert_close(limited[0], torch.tensor([1.2, 1.6]))
    assert torch.equal(limited[1:], weight[1:])
    with pytest.raises(InputError, match="above 0"):
        max_norm(weight, 0.0)


def test_the_best_tau_on_held_out_images():
    """Logits whose bias is log of the prior to the power 0.8: τ = 0.8 takes it away."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(3000) % 3
    clean = torch.nn.functional.one_hot(labels, 3) * 2.0 + torch.randn(3000, 3, generator=generator)
    logits = clean + 0.8 * torch.tensor([0.9, 0.09, 0.01]).log()
    taus = [step / 5 for step in range(11)]
    tau = choose(taus, lambda tau: adjust_logits(logits, [90, 9, 1], tau), labels)
    assert tau == pytest.approx(0.8)


def test_choosing_without_anything_to_choose():
    with pytest.raises(InputError, match="no held-out images"):
        choose([1.0], lambda _: torch.empty(0, 3), torch.empty(0, dtype=torch.int64))
    with pytest.raises(InputError, match="no values"):
        choose([], lambda _: torch.zeros(1, 3), torch.tensor([0]))


def logits_with(recalls):
    """Class by class ten images or one, so many of which are recognised."""
    counts = [10] * 4 + [1] * 2
    labels = torch.arange(6).repeat_interleave(torch.tensor(counts))
    right = torch.cat([torch.arange(n) < r for n, r in zip(counts, recalls, strict=True)])
    predicted = torch.where(right, labels, (labels + 1) % 6)
    return torch.nn.functional.one_hot(predicted, 6).float(), labels


def test_the_middle_of_what_is_best():
    """Balanced accuracies 0.5, 0.6, 0.9, 0.9, 0.9 and 0.7: the standard error is 0.08."""
    tables = [[5, 5, 5, 5, 0, 1], [9] * 4 + [0, 0], *[[8, 8, 9, 9, 1, 1]] * 3, [6, 6, 5, 5, 1, 1]]
    labels = logits_with(tables[0])[1]
    found = choose(range(6), lambda i: logits_with(tables[i])[0], labels)
    assert found == 3
    assert choose([0.5, 0.1, 0.9], lambda tau: logits_with([10] * 4 + [1] * 2)[0], labels) == 0.1


@pytest.mark.parametrize(("others", "found"), [([8, 8, 8, 9, 1, 1], 1), ([6, 6, 6, 6, 1, 1], 2)])
def test_a_value_within_a_standard_error_is_as_good_as_the_best(others, found):
    """The third is the highest, 0.933 with an error of 0.064: 0.883 is as good, 0.733 is not, and
    neither is the last with 0.833."""
    tables = [others, others, [9, 9, 9, 9, 1, 1], [10, 10, 10, 10, 1, 0]]
    labels = logits_with(others)[1]
    assert choose(range(4), lambda i: logits_with(tables[i])[0], labels) == found


def test_named_priors():
    torch.testing.assert_close(
        read_prior("uniform", NAMES, COUNTS), torch.full((3,), 1 / 3, dtype=torch.float64)
    )
    torch.testing.assert_close(
        read_prior("train", NAMES, COUNTS), torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    )


@pytest.mark.parametrize(
    "text",
    [
        "2\n1\n1\n",
        "0.5\r\n0.25\r\n\r\n0.25",
        'cat,50\ndog,25\n"owl, barn",25\n',
        '"owl, barn", 1\ncat, 2\ndog, 1\n',
        '\ufeffcat,2\ndog,1\n"owl, barn",1\n',
    ],
)
def test_priors_from_files(tmp_path, text):
    path = tmp_path / "prior.csv"
    path.write_text(text, encoding="utf-8", newline="")
    prior = read_prior(str(path), NAMES, COUNTS)
    torch.testing.assert_close(prior, torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\n2\n", "has 2 numbers; expected one for each of 3"),
        ("", "has 0 numbers"),
        ("1\n-1\n1\n", "at least 0"),
        ("0\n0\n0\n", "not all 0"),
        ("nan\n1\n1\n", "at least 0"),
        ("one\n1\n1\n", "'one'; expected a number"),
        ("cat,1\n\ndog,x\n", "line 3: got 'x'; expected a number"),  # a class is missing, too
        ("class,share\ncat,1\n", "line 1: got 'share'; expected a number"),
        ("cat,1\ndog,-2\n", "line 2: got -2; expected a number of at least 0"),
        ("cat,1\ndog\n", "line 2: got 'dog'; expected `class,number`"),
        ("cat,1\ndog,1\n", "lacks class 'owl, barn'"),
        ('cat,1\ncat,1\ndog,1\n"owl, barn",1\n', "names class 'cat' twice"),
        ('cat,1\ndog,1\n"owl, barn",1\ncow,1\n', "'cow', which is not a class"),
        ("cat,1\ndog,1\nowl, barn,1\n", "expected `class,number`"),
    ],
)
def test_bad_prior_files(tmp_path, text, message):
    path = tmp_path / "prior.csv"
    path.write_text(text)
    with pytest.raises(InputError, match="prior") as error:
        read_prior(str(path), NAMES, COUNTS)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_prior_that_is_nothing():
    with pytest.raises(InputError, match="'unifrom' is neither"):
        read_prior("unifrom", NAMES, COUNTS)


def test_a_prior_that_is_no_text(tmp_path):
    path = tmp_path / "prior.png"
    path.write_bytes(b"\x89PNG\xff\xfe\x00")
    with pytest.raises(InputError, match="not text"):
        read_prior(str(path), NAMES, COUNTS)
