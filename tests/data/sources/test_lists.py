import json

import numpy as np
import pytest
from PIL import Image

from wcdas.data import open_dataset
from wcdas.errors import InputError


def picture(path, seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.RandomState(seed).randint(0, 256, (10, 12, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def images(tmp_path):
    for i in range(8):
        picture(tmp_path / "images" / f"{i}.png", i)
    return tmp_path / "images"


def write(path, lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def test_numbers_and_default_root(images):
    lines = [f"{i}.png {i % 2}" for i in range(8)]
    data = open_dataset(write(images / "list.txt", ["# a comment", "", *lines]))
    assert data.class_names == ["0", "1"]
    assert (data.class_counts.tolist(), data.test_counts.tolist()) == ([3, 3], [1, 1])
    for path, label in zip(data.train.paths, data.train.labels.tolist(), strict=True):
        assert int(path[0]) % 2 == label
    assert data.train.load(0).size == (12, 10)


def test_names_a_root_and_a_test_list(tmp_path, images):
    picture(images / "with space.png")
    lines = ["0.png\tgreat tit", "with space.png\tgreat tit", "1.png\towl"]
    train = write(tmp_path / "my_train.txt", lines)
    write(tmp_path / "my_test.txt", ["2.png\towl", "3.png\tgreat tit"])
    data = open_dataset(train, root=images)
    assert data.class_names == ["great tit", "owl"]
    assert data.train.paths == ["0.png", "with space.png", "1.png"]
    assert data.test.labels.tolist() == [1, 0]


def test_names_of_numbered_classes(tmp_path, images):
    names = write(tmp_path / "names.txt", ["owl", "tit"])
    path = write(images / "list.txt", [f"{i}.png {i % 2}" for i in range(4)])
    assert open_dataset(path, classes=names).class_names == ["owl", "tit"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["0.png 0", "nowhere.png 1"], r"list\.txt, line 2: nowhere\.png does not exist in "),
        (["0.png 0", "", ". 1"], r"list\.txt, line 3: \. does not exist in "),
        (["0.png 0", "1.png 2"], "labels have gaps: .* no training samples of class 1"),
        (["0.png 0", "1.png -1"], "label -1 of sample 1; expected 0 or more"),
        (["0.png 0", "1.png"], r"list\.txt, line 2: '1\.png' has no label; expected “path label”"),
        (["0.png 0", "0.png 1"], r"line 2: 0\.png has the label 1, and before 0"),
        (["0.png Owl", "1.png owl"], "'Owl' and 'owl' differ only by case"),
        (["0.png 0", "1.png 0"], "one class only"),
        (["# nothing"], r"list\.txt names no images"),
    ],
)
def test_bad_lines_are_refused(images, lines, message):
    with pytest.raises(InputError, match=message):
        open_dataset(write(images / "list.txt", lines))


def test_a_bad_image_is_named(images):
    (images / "1.png").write_bytes((images / "1.png").read_bytes()[:60])
    path = write(images / "list.txt", [f"{i}.png {i % 2}" for i in range(8)])
    with pytest.raises(InputError, match=r"1 of 8 images cannot be used: 1\.png cannot be read"):
        open_dataset(path)
    assert len(open_dataset(path, skip_bad=True).train) == 5


def test_a_path_cannot_leave_the_root(tmp_path, images):
    picture(tmp_path / "outside.png")
    picture(tmp_path / "images-too" / "0.png")
    (images / "link.png").symlink_to(tmp_path / "outside.png")
    (images / "folder").symlink_to(tmp_path / "images-too")
    for path in (
        "../outside.png",
        "folder/../../outside.png",
        str(tmp_path / "outside.png"),
        "../images-too/0.png",
        "link.png",
        "folder/0.png",
    ):
        listed = write(images / "list.txt", ["0.png 0", f"{path} 1"])
        with pytest.raises(InputError, match=r"line 2: .* leads out of .*; expected a path inside"):
            open_dataset(listed)


def test_paths_and_links_inside_the_root_are_fine(images):
    (images / "link.png").symlink_to(images / "1.png")
    (images / "deep").mkdir()
    lines = ["deep/../0.png 0", f"{images / '2.png'} 0", "link.png 1", "3.png 1"]
    data = open_dataset(write(images / "list.txt", lines))
    assert sorted(data.train.paths + data.test.paths) == ["0.png", "1.png", "2.png", "3.png"]


def test_binary_data_is_no_list(tmp_path):
    (tmp_path / "x.bin").write_bytes(bytes(range(128, 256)))
    with pytest.raises(InputError, match="cannot be read as a list file"):
        open_dataset(tmp_path / "x.bin")


def imagenet(root, test="test"):
    train = [f"train/n0{c}/n0{c}_{i}.JPEG {c}" for c in range(3) for i in range(4 - c)]
    held_out = [f"val/{c}.JPEG {c}" for c in range(3)]
    for line in train + held_out:
        picture(root / line.split()[0])
    write(root / "ImageNet_LT_train.txt", train)
    write(root / f"ImageNet_LT_{test}.txt", held_out)


@pytest.mark.parametrize("test", ["test", "val"])
@pytest.mark.parametrize("folder", ["", "imagenet_lt"])
def test_imagenet_lt_from_its_lists(tmp_path, test, folder):
    imagenet(tmp_path / folder, test)
    data = open_dataset("imagenet-lt", root=tmp_path)
    assert data.class_names == ["n00", "n01", "n02"]
    assert data.class_counts.tolist() == [4, 3, 2]
    assert data.test.paths == ["val/0.JPEG", "val/1.JPEG", "val/2.JPEG"]
    assert (data.input_size, data.channels) == (224, 3)
    assert data.train.load(0).mode == "RGB"


def test_imagenet_lt_without_its_files(tmp_path):
    with pytest.raises(InputError, match=r"imagenet-lt is not in .*ImageNet_LT_train\.txt and"):
        open_dataset("imagenet-lt", root=tmp_path)
    imagenet(tmp_path)
    (tmp_path / "train/n02/n02_1.JPEG").unlink()
    with pytest.raises(InputError, match=r"train\.txt, line 9: train/n02/n02_1\.JPEG does not"):
        open_dataset("imagenet-lt", root=tmp_path)
    (tmp_path / "train/n00/n00_0.JPEG").unlink()
    with pytest.raises(InputError, match=r"line 1: .* is neither in .*Set data.root or WCDAS_DATA"):
        open_dataset("imagenet-lt", root=tmp_path)


def inaturalist(path, labels, names=None):
    content = {
        "images": [
            {"id": 7 + i, "file_name": f"train_val2018/{i}.jpg"} for i in range(len(labels))
        ],
        "annotations": [{"image_id": 7 + i, "category_id": c} for i, c in enumerate(labels)],
    }
    content["annotations"].reverse()
    if names:
        content["categories"] = [{"id": i, "name": name} for i, name in enumerate(names)]
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("names", [None, ["moth", "newt"]])
def test_inat2018_from_its_json(tmp_path, names):
    for i in range(3):
        picture(tmp_path / "train_val2018" / f"{i}.jpg", i)
    inaturalist(tmp_path / "train2018.json", [0, 1, 1], names)
    inaturalist(tmp_path / "val2018.json", [1, 0])
    data = open_dataset("inat2018", root=tmp_path)
    assert data.class_names == (names or ["0", "1"])
    assert data.train.labels.tolist() == [0, 1, 1]
    assert data.test.labels.tolist() == [1, 0]
    assert data.test.paths == ["train_val2018/0.jpg", "train_val2018/1.jpg"]


def test_inat2018_from_its_lists(tmp_path):
    for c in range(2):
        for i in range(3):
            picture(tmp_path / "train_val2018" / "Insecta" / str(c) / f"{i}.jpg")
    line = "train_val2018/Insecta/{0}/{1}.jpg {0}".format
    write(tmp_path / "iNaturalist18_train.txt", [line(c, i) for c in (1, 0) for i in range(2)])
    write(tmp_path / "iNaturalist18_val.txt", [line(c, 2) for c in (0, 1)])
    data = open_dataset("inat2018", root=tmp_path)
    assert data.class_names == ["0", "1"]
    assert data.train.labels.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("text", ["{}", "[1]", "no json", '{"images": [{"id": 1}]}'])
def test_json_in_another_layout_is_refused(tmp_path, text):
    (tmp_path / "train2018.json").write_text(text)
    (tmp_path / "val2018.json").write_text(text)
    with pytest.raises(InputError, match=r"train2018\.json is not in iNaturalist's layout"):
        open_dataset("inat2018", root=tmp_path)
