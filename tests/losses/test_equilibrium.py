import numpy as np
import pytest
import torch
from torch.nn import functional as F

from wcdas.losses import EquilibriumLoss, create_loss


def by_hand(batches, classes, alpha, initial):
    """Scores and losses of a sequence of batches, class by class, in float64."""
    s = np.full(classes, initial)
    losses = []
    for z, y in batches:
        p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
        for j in set(y):
            n, mean = (y == j).sum(), p[y == j, j].mean()
            s[j] = alpha**n * s[j] + (1 - alpha**n) * mean
        rows = np.arange(len(y))
        # the margin between the label and class k is log(s_k / s_y)
        margins = np.log(s[None, :] / s[y][:, None])
        losses.append(-np.log(np.exp(z[rows, y]) / np.exp(z + margins).sum(1)))
    return s, losses


def test_definition_over_several_batches():
    random = np.random.default_rng(0)
    batches = [(2 * random.normal(size=(9, 5)), random.integers(0, 4, 9)) for _ in range(4)]
    scores, losses = by_hand(batches, 5, alpha=0.8, initial=1 / 64)
    loss = EquilibriumLoss(5, alpha=0.8, initial_score=1 / 64, reduction="none").double()
    for (z, y), expected in zip(batches, losses, strict=True):
        value = loss(torch.from_numpy(z), torch.from_numpy(y))
        np.testing.assert_allclose(value.numpy(), expected, rtol=1e-10)
    np.testing.assert_allclose(loss.scores.numpy(), scores, rtol=1e-10)
    assert loss.scores[4] == 1 / 64  # never seen


def test_equal_scores_are_cross_entropy(logits, labels):
    loss = EquilibriumLoss(5).eval()
    torch.testing.assert_close(loss(logits, labels), F.cross_entropy(logits, labels))


def test_the_weaker_class_is_pressed_harder():
    loss = EquilibriumLoss(2).eval()
    loss.scores.copy_(torch.tensor([0.9, 0.1]))
    strong, weak = (loss(torch.zeros(1, 2), torch.tensor([y])) for y in (0, 1))
    assert strong.exp() == pytest.approx(1 / 0.9)
    assert weak.exp() == pytest.approx(1 / 0.1)


def test_scores_follow_the_classes():
    """The score of a class that is always found goes to 1, of one never found to 0."""
    loss = EquilibriumLoss(3)
    logits = torch.tensor([[9.0, 0.0, 0.0], [9.0, 0.0, 0.0]])
    for _ in range(100):
        loss(logits, torch.tensor([0, 1]))
    torch.testing.assert_close(loss.scores, torch.tensor([1.0, 0.0, 0.01]), atol=1e-3, rtol=0)


def test_many_samples_of_a_class_count_as_many(logits):
    """n samples at once move the score as far as n single ones with their mean."""
    together, one_by_one = EquilibriumLoss(5).double(), EquilibriumLoss(5).double()
    same = logits[:1].repeat(3, 1)
    together(same, torch.zeros(3, dtype=torch.int64))
    for row in same:
        one_by_one(row[None], torch.zeros(1, dtype=torch.int64))
    torch.testing.assert_close(together.scores, one_by_one.scores)


def test_soft_targets_count_as_parts(logits, labels, soft_targets):
    one_hot = F.one_hot(labels, 5).double()
    hard, soft = EquilibriumLoss(5).double(), EquilibriumLoss(5).double()
    torch.testing.assert_close(hard(logits, labels), soft(logits, one_hot))
    torch.testing.assert_close(hard.scores, soft.scores)
    soft(logits, soft_targets)
    assert ((soft.scores > 0) & (soft.scores < 1)).all()


@pytest.mark.parametrize("soft", [False, True])
def test_gradients(soft, logits, labels, soft_targets):
    loss = EquilibriumLoss(5).double()
    loss(logits, labels)
    target = soft_targets if soft else labels
    loss.eval()
    assert torch.autograd.gradcheck(lambda z: loss(z, target), logits.clone().requires_grad_())
    assert list(loss.parameters()) == []


def test_scores_stay_in_evaluation_and_travel(logits, labels, class_counts):
    loss = create_loss("equilibrium", class_counts)
    before = loss.eval().scores.clone()
    loss(logits, labels)
    assert loss.scores.equal(before)
    loss.train()(logits, labels)
    assert not loss.scores.equal(before)
    other = create_loss("equilibrium", class_counts)
    other.load_state_dict(loss.state_dict())
    assert other.scores.equal(loss.scores)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype, logits, labels):
    half, loss, reference = logits.to(dtype), EquilibriumLoss(5), EquilibriumLoss(5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(half, labels)
    assert value.dtype == torch.float32
    assert value.equal(reference(half.float(), labels))
    assert loss.scores.equal(reference.scores)


def test_hopeless_classes_stay_finite():
    """Scores that underflow leave a loss and a slope."""
    loss, z = EquilibriumLoss(2), torch.tensor([[200.0, -200.0]], requires_grad=True)
    for _ in range(1_200):
        value = loss(z, torch.tensor([1]))
    assert loss.scores[1] < torch.finfo(torch.float32).tiny
    value.backward()
    assert value.isfinite()
    torch.testing.assert_close(z.grad, torch.tensor([[1.0, -1.0]]))


def test_compiles_and_moves(logits, labels):
    loss, reference = EquilibriumLoss(5), EquilibriumLoss(5)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(logits, labels), reference(logits, labels))
    torch.testing.assert_close(loss.scores, reference.scores)


def test_bad_options():
    with pytest.raises(ValueError, match=r"alpha is 1.5; expected a number from 0 to 1"):
        EquilibriumLoss(5, alpha=1.5)
    with pytest.raises(ValueError, match=r"initial_score is 0; expected a number above 0"):
        EquilibriumLoss(5, initial_score=0)
    with pytest.raises(ValueError, match="logits have 5 classes, but class_counts have 4"):
        EquilibriumLoss(4)(torch.zeros(2, 5), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="needs num_classes"):
        create_loss("equilibrium")
