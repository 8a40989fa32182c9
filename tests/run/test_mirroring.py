"""What the images say about mirroring reaches check, train, sweep, run.toml, page and card."""

import tomllib

import numpy as np
import pytest
from PIL import Image, ImageDraw

import wcdas

FAST = {"epochs": 1, "batch_size": 8, "backbone.name": "resnet8"}


def arrow(random):
    """An arrow to the left on a background of noise."""
    image = Image.fromarray(random.randint(90, 166, (40, 40, 3)).astype(np.uint8))
    x, y = random.randint(4, 9, 2).tolist()
    ImageDraw.Draw(image).polygon([(x, y + 12), (x + 12, y), (x + 26, y + 12), (x + 12, y + 24)])
    ImageDraw.Draw(image).polygon([(x, y + 12), (x + 12, y), (x + 12, y + 24)], fill="white")
    return image


@pytest.fixture(scope="module")
def signs(tmp_path_factory):
    """Arrows to the left and to the right, twelve training images each."""
    folder, random = tmp_path_factory.mktemp("signs"), np.random.RandomState(0)
    for split, count in (("train", 12), ("test", 3)):
        for name in ("left", "right"):
            (folder / split / name).mkdir(parents=True)
            for i in range(count):
                image = arrow(random)
                image = image if name == "left" else image.transpose(Image.FLIP_LEFT_RIGHT)
                image.save(folder / split / name / f"{i}.png")
    return folder


@pytest.fixture(scope="module")
def note(signs):
    """What `wcdas check` says."""
    (line,) = [line for line in wcdas.check_data(signs) if "mirroring" in line]
    return line


@pytest.fixture(scope="module")
def run(signs, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "signs"
    return wcdas.train(signs, "softmax", settings=FAST, out=out, device="cpu", workers=0)


def table(run):
    return tomllib.loads((run.path / "run.toml").read_text("utf-8"))


def test_check_says_it_with_numbers_and_how_to_overrule(note):
    assert note.startswith("note: mirroring off: of 24 training images a quick test recognises ")
    assert note.endswith("; mirrored 'left' looks like 'right'; --set augment.flip=true overrules")


def test_training_follows_and_writes_it_down(run, note):
    written = table(run)
    assert written["augment"]["flip"] is False
    assert f"note: mirroring {written['info']['data']['mirroring']};" in note


def test_it_is_said_before_training(signs, note, command):
    settings = [f"{key}={value}" for key, value in FAST.items()]
    arguments = ("--method", "softmax", "--no-report", "--device", "cpu", "--set", *settings)
    done = command("train", signs, *arguments)
    assert " ".join(note.split()) in " ".join(done.out.split())
    told = command("train", signs, *arguments, "augment.flip=true")
    assert "mirroring" not in told.out
    assert "augmentation standard with flip" in told.out


def test_a_user_overrules_it(signs, tmp_path):
    settings = FAST | {"augment.flip": True}
    out = tmp_path / "run"
    other = wcdas.train(signs, "softmax", settings=settings, out=out, device="cpu", workers=0)
    written = table(other)
    assert written["augment"]["flip"] is True
    assert "mirroring" not in written["info"]["data"]


def test_a_run_toml_repeats_it(signs, run, pictures, tmp_path):
    recipe = run.path / "run.toml"
    around = {"recipe": recipe, "device": "cpu", "workers": 0, "report": False}
    again = wcdas.train(signs, out=tmp_path / "again", **around)
    assert table(again) == table(run)
    photographs = pictures(tmp_path / "photographs", china=9, flower=9)
    other = table(wcdas.train(photographs, out=tmp_path / "other", **around))
    assert other["augment"]["flip"] is False
    assert "mirroring" not in other["info"]["data"]


def test_a_sweep_decides_alike(signs, run, tmp_path):
    around = {"out": tmp_path / "sweep", "device": "cpu", "workers": 0, "report": False}
    wcdas.sweep(signs, "softmax", 1, settings=FAST, **around)
    swept = wcdas.sweep(seeds=2, resume=True, **around)
    for name in ("softmax-s0", "softmax-s1"):
        written = tomllib.loads((swept.path / name / "run.toml").read_text("utf-8"))
        assert written["augment"] == table(run)["augment"]
        assert written["info"]["data"] == table(run)["info"]["data"]


def test_the_page_and_the_card_say_it(run, tmp_path):
    page = (run.path / "report.html").read_text("utf-8")
    assert "Mirroring off: of 24 training images" in page
    assert "--set augment.flip=true" in page
    card = wcdas.export(run, "card", tmp_path / "card.md").path.read_text("utf-8")
    assert "It learnt no mirrored images" in card
