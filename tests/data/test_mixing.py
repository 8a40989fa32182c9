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


def test_patches_are_of_other_images(tiles):
    """Pixel by pixel: inside the box the patch, its label with its share of the area."""
    backgrounds, patches = tiles(8, 16)[:6].float(), tiles(8, 16)[8:14].float()
    labels, patch_labels = torch.arange(6), torch.arange(10, 16)
    mixing = Mixing(0.0, 1.0, 30, backgrounds.shape)
    mixing.begin(3)
    areas = []
    for step in range(30):
        given = (backgrounds, labels, torch.tensor([step]), (patches, patch_labels))
        images, target = mixing(*given)
        top, bottom, left, right = mixing.boxes[step].tolist()
        for i in range(6):
            expected = backgrounds[i].clone()
            for y in range(top, bottom):
                for x in range(left, right):
                    expected[:, y, x] = patches[i, :, y, x]
            assert images[i].equal(expected)
        assert target.first.equal(labels)
        assert target.second.equal(patch_labels)
        areas.append((bottom - top) * (right - left))
        assert float(target.lam) == pytest.approx(1 - areas[-1] / 64)
    assert 0 == min(areas) < max(areas)


def test_a_share_of_the_batches_is_cut_and_the_others_stay(pictures):
    mixing, patches = Mixing(0.0, 1.0, 2000, pictures[:2].shape, cut_share=0.3), pictures[2:4]
    mixing.begin(5)
    # Of a binomial five standard deviations.
    assert abs(mixing.cuts.sum() - 600) < 5 * (2000 * 0.3 * 0.7) ** 0.5
    for step in (~mixing.cuts).nonzero()[:5]:
        images, target = mixing(pictures[:2], LABELS[:2], step, (patches, LABELS[2:4]))
        assert images.equal(pictures[:2])
        assert target.lam == 1
    boxes = (mixing.boxes[:, 1] - mixing.boxes[:, 0]) * (mixing.boxes[:, 3] - mixing.boxes[:, 2])
    torch.testing.assert_close(1 - boxes / 32**2, mixing.shares)


def test_what_is_not_cut_has_mixup(pictures):
    patches = pictures[4:8], LABELS[4:8]
    mixing = Mixing(0.4, 1.0, 40, pictures[:4].shape, cut_share=0.5)
    for cuts in (True, False):
        mixing.begin(5, cuts)
        assert mixing.cuts.any() == cuts
        for step in range(40):
            given = pictures[:4], LABELS[:4], torch.tensor([step])
            images, target = mixing(*given, patches)
            if mixing.cuts[step]:
                assert target.second.equal(patches[1])
                continue
            assert target.second.sort().values.equal(LABELS[:4])
            others = pictures[target.second]
            torch.testing.assert_close(
                images, target.lam * pictures[:4] + (1 - target.lam) * others
            )


def test_beside_mixup_it_is_half_unless_said_otherwise(pictures):
    for mixup, usual in ((0.0, 1.0), (0.4, 0.5)):
        one, other = (
            Mixing(mixup, 1.0, 50, pictures[:4].shape, cut_share=share) for share in (0.0, usual)
        )
        one.begin(5)
        other.begin(5)
        assert one.cuts.equal(other.cuts)
        assert one.shares.equal(other.shares)
        assert one.partners.equal(other.partners)


def test_features_can_be_mixed_up_but_not_cut():
    features = torch.rand(64, 5)
    assert mix(features, LABELS, 0, 0, mixup=1.0)[0].shape == (64, 5)
    with pytest.raises(InputError, match="CutMix needs images"):
        mix(features, LABELS, 0, 0, cutmix=1.0)
    with pytest.raises(InputError, match="mixup is -1"):
        mix(features, LABELS, 0, 0, mixup=-1)
