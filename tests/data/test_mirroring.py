"""Whether mirror images are trained on: left and right are told apart, photographs are mirrored."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter
from scipy.stats import binomtest
from sklearn.kernel_ridge import KernelRidge

from wcdas.data import open_dataset
from wcdas.data.dataset import ArrayImages, Dataset
from wcdas.data.mirroring import (
    RIDGE,
    Answers,
    choose,
    decide_mirroring,
    descriptors,
    held_out,
    squared_distances,
    swapped,
    trial,
    verdict,
)

CIFAR = Path(__file__).parents[3] / "shared/data/cifar100"
SEEDS = range(20)


def dataset(pixels, labels, names=None):
    split = ArrayImages(pixels, labels, "train")
    names = names or [f"class {c}" for c in range(int(labels.max()) + 1)]
    size, channels = pixels.shape[-1], pixels.shape[1]
    return Dataset("own", names, split, split, size, channels, None, "fingerprint")


def drawn(seed, classes, images, size=40):
    """Images of classes that each have a pattern, moved and with noise over it, (N, 3, s, s)."""
    random = np.random.RandomState(seed)
    patterns = gaussian_filter(random.randn(classes, 3, size, size), (0, 0, 4, 4))
    patterns *= 60 / patterns.std()
    found = [
        np.roll(pattern, random.randint(-2, 3, 2), (1, 2)) + random.randn(3, size, size) * 25
        for pattern in patterns
        for _ in range(images)
    ]
    pixels = (np.stack(found) + 128).clip(0, 255).astype(np.uint8)
    return torch.from_numpy(pixels), torch.arange(classes).repeat_interleave(images)


@pytest.fixture(scope="module")
def textures(tiles):
    """Tiles of photographs, their quarter as the class."""
    return tiles(32, 80), torch.arange(80) // 20


def test_a_mirror_image_has_the_same_numbers_at_other_places(tiles):
    images = tiles(32, 64)
    plain, mirrored = descriptors(torch.cat((images, images.flip(-1)))).chunk(2)
    close = {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(plain.sort().values, mirrored.sort().values, **close)
    apart = squared_distances(plain, plain)
    torch.testing.assert_close(squared_distances(mirrored, mirrored), apart, **close)
    across = squared_distances(plain, mirrored)
    torch.testing.assert_close(across, across.T, **close)
    assert (across.diagonal()[4:] > 0.05 * apart.median()).all()


def test_a_flat_image_has_finite_descriptors():
    images = torch.full((6, 3, 32, 32), 9, dtype=torch.uint8)
    assert descriptors(images).isfinite().all()
    answers = trial(images, torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 1, 3, 0, 1, 3]))
    assert verdict(answers, ["a", "b"])[0]


@pytest.mark.parametrize("seed", range(3))
def test_a_fold_is_judged_by_ridge_regression_on_the_others(seed):
    random = np.random.RandomState(seed)
    x, asked = random.randn(40, 5), random.randn(40, 5)
    targets = torch.from_numpy(random.randn(40, 3))
    ridge, folds = (
        torch.from_numpy(random.uniform(0.1, 2, 40)),
        torch.from_numpy(random.randint(4, size=40)),
    )
    kernel = torch.from_numpy(np.exp(-((x[:, None] - x) ** 2).sum(2) / 4))
    rows = torch.from_numpy(np.exp(-((asked[:, None] - x) ** 2).sum(2) / 4))
    found = held_out(kernel, ridge, targets, folds, [kernel, rows])
    for fold in range(4):
        out, rest = folds == fold, folds != fold
        reference = KernelRidge(alpha=1, kernel="precomputed")
        reference.fit(kernel[rest][:, rest], targets[rest], sample_weight=1 / ridge[rest])
        for scores, values in zip(found, (kernel, rows), strict=True):
            expected = torch.from_numpy(reference.predict(values[out][:, rest]))
            torch.testing.assert_close(scores[out], expected)


def test_the_trial_is_ridge_regression_with_and_without_mirror_images(textures):
    images, labels = textures
    folds = torch.arange(20).repeat(4) // 4
    answers = trial(images, labels, folds)
    plain, mirrored = descriptors(torch.cat((images, images.flip(-1)))).chunk(2)
    scale = 0.5 * squared_distances(plain, plain).median()

    def scores(learnt, classes, asked):
        targets = torch.nn.functional.one_hot(classes).double() - 0.25
        gamma = 1 / float(scale)
        return (
            KernelRidge(alpha=RIDGE, kernel="rbf", gamma=gamma).fit(learnt, targets).predict(asked)
        )

    for fold in range(5):
        out, rest = folds == fold, folds != fold
        own = labels[rest]
        for answer, asked in ((answers.plain, plain), (answers.mirrored, mirrored)):
            expected = scores(plain[rest], own, asked[out]).argmax(1)
            assert answer[out].tolist() == expected.tolist()
        both = torch.cat((plain[rest], mirrored[rest]))
        expected = scores(both, torch.cat((own, own)), plain[out]).argmax(1)
        assert answers.taught[out].tolist() == expected.tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_symmetric_images_are_mirrored(seed):
    """As many as there are mirrored ones: every image is turned by the toss of a coin."""
    pixels, labels = drawn(seed, classes=2 + seed % 7, images=5 + seed)
    turned = torch.from_numpy(np.random.RandomState(seed).rand(len(pixels)) < 0.5)
    pixels = torch.where(turned[:, None, None, None], pixels.flip(-1), pixels)
    decided = decide_mirroring(dataset(pixels, labels))
    assert decided.augment_flip
    assert decided.description["mirroring"].startswith("on: ")


@pytest.mark.parametrize("seed", SEEDS)
def test_left_and_right_are_not(seed):
    """The second class is the first one mirrored; the others look the same mirrored."""
    pixels, labels = drawn(seed, classes=8, images=10)
    pixels[20:] = (pixels[20:].float() / 2 + pixels[20:].flip(-1).float() / 2).byte()
    pixels[10:20] = drawn(seed, classes=8, images=20)[0][10:20].flip(-1)
    decided = decide_mirroring(dataset(pixels, labels, ["left", "right", *"cdefgh"]))
    assert not decided.augment_flip
    told = decided.description["mirroring"]
    assert told.startswith("off: of 80 training images a quick test recognises ")
    assert told.endswith("; mirrored 'left' looks like 'right'")


def test_digits_are_not_mirrored(digits):
    pixels, labels = (values[:400] for values in digits)
    decided = decide_mirroring(dataset(pixels, labels))
    assert not decided.augment_flip  # 98 % are recognised, mirrored 35 %


@pytest.mark.slow
@pytest.mark.skipif(not CIFAR.is_dir(), reason="needs CIFAR-100 in ../shared")
def test_photographs_are_mirrored():
    """Of 3,510 random subsets of CIFAR-10 and CIFAR-100 five were not."""
    whole = open_dataset(CIFAR)
    pixels, labels = whole.train.pixels, whole.train.labels
    for first in range(0, 100, 10):
        of_class = [(labels == c).nonzero()[:, 0] for c in range(first, first + 10)]
        few = torch.cat([own[: 5 * (i + 1)] for i, own in enumerate(of_class)])
        decided = decide_mirroring(dataset(pixels[few], labels[few] - first))
        assert decided.augment_flip, decided.description
    told = decide_mirroring(whole).description["mirroring"]
    assert told.startswith("on: of 2,000 training images")


def test_an_answer_that_is_known_stays():
    known = open_dataset("digits-lt")
    assert decide_mirroring(known) is known


def answers(*rows):
    """Rows (class, taken for, mirrored taken for, taken for after learning mirrored, times)."""
    parts = [torch.tensor(row[:4]).repeat(row[4], 1) for row in rows]
    return Answers(*torch.cat(parts).T)


@pytest.mark.parametrize(
    ("rows", "flip"),
    [
        ([(0, 0, 0, 0, 30), (1, 1, 1, 1, 30)], True),
        # Learning mirror images makes it worse, by enough and surely.
        ([(0, 0, 0, 1, 8), (0, 0, 0, 0, 22), (1, 1, 1, 1, 30)], False),
        ([(0, 0, 0, 1, 8), (0, 1, 1, 0, 4), (0, 0, 0, 0, 18), (1, 1, 1, 1, 30)], True),
        ([(0, 0, 0, 1, 8), (0, 0, 0, 0, 222), (1, 1, 1, 1, 230)], True),
        # Two of three classes are taken for each other.
        ([(0, 0, 1, 0, 9), (1, 1, 0, 1, 9), (2, 2, 2, 2, 90)], False),
        ([(0, 0, 1, 0, 3), (1, 1, 0, 1, 3), (2, 2, 2, 2, 90)], True),
        # Strange images are all taken for one class: that alone is no meaning.
        ([(0, 0, 2, 0, 9), (1, 1, 2, 1, 9), (2, 2, 2, 2, 90)], True),
        # Most are not recognised mirrored; unless it helps to have learnt them.
        ([(0, 0, 2, 0, 30), (1, 1, 2, 1, 30), (2, 2, 2, 2, 30)], False),
        ([(0, 0, 2, 0, 30), (1, 1, 2, 1, 30), (2, 2, 2, 2, 30), (2, 0, 0, 2, 20)], True),
    ],
)
def test_verdicts(rows, flip):
    assert verdict(answers(*rows), list("abc"))[0] == flip


def test_guesses_tell_nothing():
    guessed = answers((0, 0, 0, 0, 6), (0, 1, 1, 1, 4), (1, 1, 1, 1, 5), (1, 0, 0, 0, 5))
    flip, reason = verdict(guessed, ["a", "b"])
    assert flip
    assert reason == (
        "of 20 training images a quick test recognises 55 %, mirrored 55 %, and 55 % after "
        "learning mirrored ones too, which is too little to tell"
    )


def test_many_pairs_are_counted():
    rows = [(c, c, c ^ 1, c, 30) for c in range(10)]
    flip, reason = verdict(answers(*rows), list("abcdefghij"))
    assert not flip
    assert reason.endswith(
        "; mirrored 'a' looks like 'b', 'c' looks like 'd', 'e' looks like 'f' and 2 more pairs"
    )


@pytest.mark.parametrize(
    ("to_b", "of_a", "to_a", "of_b"), [(5, 0, 5, 0), (9, 2, 6, 1), (3, 1, 20, 4)]
)
def test_the_chance_of_a_swap_is_the_largest_over_all_shares(to_b, of_a, to_a, of_b):
    labels, mirrored = torch.tensor(
        [(0, 1)] * to_b + [(0, 0)] * of_a + [(1, 0)] * to_a + [(1, 1)] * of_b
    ).T
    ((chance, *pair),) = swapped(labels, mirrored)

    def at_least(times, of, share):
        return binomtest(times, of, share, alternative="greater").pvalue

    expected = max(
        at_least(to_b, to_b + of_a, q / 1000) * at_least(to_a, to_a + of_b, 1 - q / 1000)
        for q in range(1001)
    )
    assert pair == [0, 1]
    assert chance == pytest.approx(expected, rel=0.01)
    assert swapped(labels, labels) == []


def test_images_are_chosen_evenly_and_neighbours_share_a_fold():
    labels = torch.arange(3).repeat_interleave(torch.tensor([500, 7, 2]))[
        torch.from_numpy(np.random.RandomState(0).permutation(509))
    ]
    chosen, folds = choose(labels)
    assert labels[chosen].bincount().tolist() == [50, 7]
    of_first = chosen[:50]
    assert of_first.tolist() == (labels == 0).nonzero()[::10, 0].tolist()
    assert folds[:50].tolist() == (torch.arange(50) // 10).tolist()
    assert folds[50:].tolist() == [0, 0, 1, 2, 2, 3, 4]


@pytest.mark.parametrize(("classes", "images"), [(1000, 4), (300, 30), (100, 25)])
def test_no_more_than_two_thousand_are_looked_at(classes, images):
    chosen, _ = choose(torch.arange(classes).repeat_interleave(images))
    assert 1500 < len(chosen) <= 2000
    assert len(chosen.unique()) == len(chosen)


def test_too_few_images_are_mirrored_and_it_says_so():
    pixels = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
    decided = decide_mirroring(dataset(pixels, torch.tensor([0, 0, 1, 1])))
    assert decided.augment_flip
    assert decided.description["mirroring"] == (
        "on: too few classes with 3 training images to tell"
    )


def odd_images(folder):
    """Grey, 16-bit, transparent, of one pixel's width, black and white, turned by EXIF, CMYK."""
    ramp = Image.linear_gradient("L")
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        ramp.save(folder / name / "grey.png")
        Image.fromarray(np.asarray(ramp).astype(np.uint16) * 257).save(folder / name / "deep.png")
        Image.merge("LA", (ramp, ramp)).save(folder / name / "transparent.png")
        ramp.resize((1, 300)).save(folder / name / "thin.png")
        ramp.resize((300, 1)).save(folder / name / "flat.jpg")
        ramp.convert("1").save(folder / name / "ink.png")
        ramp.convert("RGB").save(folder / name / "turned.jpg", exif=exif)
        ramp.convert("CMYK").save(folder / name / "print.jpg")
        Image.new("RGB", (1, 1), "red").save(folder / name / "dot.gif")
    return folder


def test_odd_images_are_looked_at_too(tmp_path):
    decided = decide_mirroring(open_dataset(odd_images(tmp_path / "odd")))
    assert decided.augment_flip  # both classes are the same
    assert "of 14 training images" in decided.description["mirroring"]
