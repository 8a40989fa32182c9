import math

import pytest
import torch
from scipy import stats

from wcdas.errors import InputError
from wcdas.evaluation.difference import difference


def random_results(seeds, images, share, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(seeds, images, generator=generator) < share


def test_with_one_seed_it_is_mcnemars():
    """b and c images are right with one of the two alone."""
    one, other = random_results(1, 400, 0.7, 1), random_results(1, 400, 0.6, 2)
    b, c = int((one & ~other).sum()), int((~one & other).sum())
    found = difference(one, other, torch.zeros(400))
    assert found.mean == pytest.approx((b - c) / 400)
    error = math.sqrt(b + c - (b - c) ** 2 / 400) / 400
    assert found.margin == pytest.approx(1.96 * error, rel=2e-3)


def test_seeds_alone_are_students_paired_test():
    """Every image agrees with every other, so that they add nothing."""
    of_one, of_other = torch.tensor([1, 1, 1, 0]).bool(), torch.tensor([0, 1, 0, 0]).bool()
    one, other = (r[:, None].expand(4, 50) for r in (of_one, of_other))
    found = difference(one, other, torch.arange(50) % 5)
    low, high = stats.ttest_rel(of_one.int(), of_other.int()).confidence_interval(0.95)
    assert found.mean == pytest.approx((low + high) / 2)
    assert found.margin == pytest.approx((high - low) / 2)


def test_classes_count_alike():
    """90 images of one class are right, 10 of another wrong."""
    labels = (torch.arange(100) >= 90).long()
    one, other = (labels == 0)[None], torch.zeros(1, 100).bool()
    found = difference(one, other, labels)
    assert found == (0.5, 0.0)
    assert found.is_clear


def test_the_same_results_differ_by_nothing():
    one = random_results(3, 40, 0.5)
    found = difference(one, one, torch.arange(40) % 4)
    assert found == (0.0, 0.0)
    assert not found.is_clear


def test_it_is_the_same_the_other_way_round():
    one, other = random_results(3, 60, 0.7, 1), random_results(3, 60, 0.5, 2)
    labels = torch.arange(60) % 7
    there, back = difference(one, other, labels), difference(other, one, labels)
    assert there.mean == pytest.approx(-back.mean)
    assert there.margin == pytest.approx(back.margin)


def test_a_class_with_a_single_image_has_the_variance_of_the_others():
    labels = torch.tensor([0] * 20 + [1] * 20 + [2])
    one, other = random_results(2, 41, 0.8, 1), random_results(2, 41, 0.4, 2)
    alone = difference(one[:, -1:], other[:, -1:], labels[-1:])
    assert alone.margin >= 0
    assert difference(one, other, labels).margin > 0.1


@pytest.mark.parametrize("seeds", [1, 3])
def test_it_covers_what_it_says(seeds):
    """Two methods that are equally good: each image has its difficulty, each seed its luck. Of 400
    pairs 95 % lie within their margin; with one seed luck is not seen, so there is none."""
    generator, inside = torch.Generator().manual_seed(0), 0
    luck = 0.15 if seeds > 1 else 0.0
    for _ in range(400):
        difficulty = torch.randn(200, generator=generator)

        def results(difficulty=difficulty):
            own = 0.5 * torch.randn(200, generator=generator)
            each = luck * torch.randn(seeds, 1, generator=generator)
            noise = torch.randn(seeds, 200, generator=generator)
            return difficulty + own + each + noise > 0

        found = difference(results(), results(), torch.arange(200) % 10)
        inside += not found.is_clear
    assert inside > 0.92 * 400


@pytest.mark.parametrize(
    ("one", "other", "labels"), [((2, 5), (3, 5), 5), ((5,), (5,), 5), ((2, 5), (2, 5), 4)]
)
def test_what_does_not_belong_together_is_refused(one, other, labels):
    with pytest.raises(InputError, match=r"expected \(seeds, images\) of both methods"):
        difference(torch.ones(one), torch.ones(other), torch.zeros(labels))
