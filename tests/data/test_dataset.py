import pytest
import torch
from PIL import Image

from wcdas.data import ArrayImages, FeatureVectors, FileImages, list_datasets, open_dataset
from wcdas.data.dataset import BytesImages, StoredImages, fingerprint
from wcdas.data.description import summary
from wcdas.errors import InputError

LABELS = torch.tensor([0, 1, 1])
PIXELS = torch.arange(3 * 3 * 2 * 2, dtype=torch.uint8).view(3, 3, 2, 2)


def test_names_of_datasets():
    expected = ["cifar10-lt", "cifar100-lt", "digits-lt", "imagenet-lt", "inat2018"]
    assert list_datasets() == expected


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("digit-lt", "unknown dataset 'digit-lt'; did you mean 'digits-lt'"),
        ("cifar100lt", "did you mean 'cifar100-lt'"),
        ("zzz", "unknown dataset 'zzz'; known: cifar10-lt, "),
        ("no/such/folder", "no/such/folder does not exist; expected a folder, a file or a known"),
        ("none.parquet", r"none\.parquet does not exist"),
    ],
)
def test_unknown_data_is_answered(data, message):
    with pytest.raises(InputError, match=message):
        open_dataset(data)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"imbalance": "many"}, "data.imbalance is 'many'; expected a number"),
        ({"imbalance": 0}, "data.imbalance is 0; expected a number from 1 to 120"),
        ({"profile": "linear"}, "unknown data.profile 'linear'"),
        ({"labels": "x.npy"}, "data.labels belongs to features"),
        ({"classes": "x.txt"}, "data.classes is for your own data"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        open_dataset("digits-lt", **options)


def test_a_tail_is_not_cut_from_own_data(tmp_path):
    with pytest.raises(InputError, match=r"data\.imbalance and data\.profile shape digits-lt"):
        open_dataset(tmp_path, imbalance=10)


def test_fingerprint_sees_every_part():
    names = ["a", "b"]
    base = ArrayImages(PIXELS, LABELS, "train")
    one_pixel = PIXELS.clone()
    one_pixel[2, 1, 0, 0] += 1
    different = {
        fingerprint(names, base),
        fingerprint(["a", "c"], base),
        fingerprint(["ab", ""], base),
        fingerprint(names, base, base),
        fingerprint(names, ArrayImages(one_pixel, LABELS, "train")),
        fingerprint(names, ArrayImages(PIXELS, LABELS.flip(0), "train")),
        fingerprint(names, ArrayImages(PIXELS.view(3, 3, 1, 4), LABELS, "train")),
        fingerprint(names, FeatureVectors(torch.zeros(3, 2), LABELS, "train")),
    }
    assert len(different) == 8
    assert fingerprint(names, base) == fingerprint(names, ArrayImages(PIXELS.clone(), LABELS, "x"))


def test_fingerprint_of_views_is_that_of_their_values():
    turned = PIXELS.permute(0, 1, 3, 2)
    view, copy = (ArrayImages(p, LABELS, "") for p in (turned, turned.contiguous()))
    assert fingerprint(["a", "b"], view) == fingerprint(["a", "b"], copy)


def test_fingerprint_of_files_is_of_paths_and_sizes(tmp_path):
    for name in "abc":
        (tmp_path / name).write_bytes(b"12345")
    split = FileImages(tmp_path, ["a", "b", "c"], LABELS, 3)
    before = fingerprint(["x", "y"], split)
    (tmp_path / "a").write_bytes(b"54321")
    assert fingerprint(["x", "y"], split) == before
    (tmp_path / "a").write_bytes(b"123456")
    assert fingerprint(["x", "y"], split) != before


def test_files_and_bytes_load_alike(tmp_path):
    Image.new("RGB", (4, 3), (1, 2, 3)).save(tmp_path / "a.png")
    one = torch.tensor([0])
    stored = (
        FileImages(tmp_path, ["a.png"], one, 1),
        BytesImages([(tmp_path / "a.png").read_bytes()], one, 1, "train"),
    )
    for split in stored:
        assert isinstance(split, StoredImages)
        assert len(split) == 1
        assert split.load(0).mode == "L"
        assert split.load(0).size == (4, 3)
    assert [split.name(0) for split in stored] == ["a.png", "train/0"]


def test_counts_include_classes_without_samples():
    data = open_dataset("digits-lt", imbalance=100)
    assert data.class_counts.dtype == torch.int64
    assert data.class_counts.shape == data.test_counts.shape == (10,)
    assert int(data.class_counts.sum()) == len(data.train)


def test_summary_of_a_tail():
    counts = torch.tensor([10, 400, 50, 40])
    found = summary(counts)
    n = counts.double()
    gini = (n[:, None] - n).abs().mean() / (2 * n.mean())
    assert found.gini == pytest.approx(float(gini))
    assert (found.images, found.classes, found.largest, found.smallest) == (500, 4, 400, 10)
    assert (found.imbalance, found.many, found.medium, found.few) == (40, 1, 2, 1)


def test_gini_of_equal_classes_is_zero():
    assert summary(torch.tensor([7, 7, 7])).gini == 0
