"""Mixup and CutMix: λ and partners by (key, step), labels that say what was mixed."""

import pytest
import torch

from wcdas.data.mixing import Mixing
from wcdas.errors import InputError
from wcdas.targets import MixedLabels

LABELS = torch.arange(64)


def mix(images, labels, key, step, mixup=0.0, cutmix=0.0):
    """One step's mixture; λ as a number."""
    mixing = Mixing(mixup, cutmix, step + 1, images.shape)
    mixing.begin(key)
    mixed, target = mixing(images, labels, torch.tensor([step]))
    return mixed, target._replace(lam=float(target.lam))


@pytest.fixture(scope="module")
def pictures(tiles):
    return tiles(32, 64).float()


def test_mixup_blends_with_the_second_label(pictures):
    images, labels = mix(pictures, LABELS, key=1, step=2, mixup=0.4)
    assert isinstance(labels, MixedLabels)
    assert labels.first.equal(LABELS)
    assert labels.second.sort().values.equal(LABELS)
    expected = labels.lam * pictures + (1 - labels.lam) * pictures[labels.second]
    torch.testing.assert_close(images, expected)


def test_cutmix_pastes_a_box_and_lambda_is_its_area(pictures):
    seen = []
    for step in range(50):
        images, labels = mix(pictures, LABELS, key=1, step=step, cutmix=1.0)
        from_first = (images == pictures).all(dim=1)
        from_second = (images == pictures[labels.second]).all(dim=1)
        assert (from_first | from_second).all()
        changed = (images != pictures).flatten(0, 1).any(dim=0)
        assert changed.double().mean() == pytest.approx(1 - labels.lam)
        if changed.any():
            rows, columns = changed.any(dim=1).sum(), changed.any(dim=0).sum()
            assert changed.sum() == rows * columns
        seen.append(labels.lam)
    assert min(seen) < 0.3 < 0.9 < max(seen)


def test_depends_on_key_and_step_only(pictures):
    def draw(key, step):
        images, labels = mix(pictures, LABELS, key, step, mixup=1.0)
        return labels.lam, labels.second.tolist(), images

    torch.manual_seed(1)
    first = draw(3, 4)
    torch.manual_seed(2)
    again = draw(3, 4)
    assert first[:2] == again[:2]
    assert first[2].equal(again[2])
    assert len({draw(key, step)[0] for key in (3, 4) for step in (4, 5)}) == 4


def test_lambda_is_a_beta_variable(pictures):
    alpha = 0.4
    mixing = Mixing(alpha, 0.0, 2000, pictures[:2].shape)
    mixing.begin(5)
    lam = mixing.shares
    variance = 1 / (4 * (2 * alpha + 1))
    assert abs(lam.mean() - 0.5) < 5 * (variance / 2000) ** 0.5
    assert abs(lam.var() - variance) < 0.01


def test_both_take_turns(pictures):
    kinds = []
    mixing = Mixing(0.4, 1.0, 400, pictures[:8].shape)
    mixing.begin(5)
    for step in range(400):
        images, labels = mixing(pictures[:8], LABELS[:8], torch.tensor([step]))
        pasted = (images == pictures[:8]) | (images == pictures[labels.second])
        kinds.append(bool(pasted.all()))
    assert 150 < sum(kinds) < 250


def test_features_can_be_mixed_up_but_not_cut():
    features = torch.rand(64, 5)
    assert mix(features, LABELS, 0, 0, mixup=1.0)[0].shape == (64, 5)
    with pytest.raises(InputError, match="CutMix needs images"):
        mix(features, LABELS, 0, 0, cutmix=1.0)
    with pytest.raises(InputError, match="mixup is -1"):
        mix(features, LABELS, 0, 0, mixup=-1)
