"""The library calls: the same as the command line, from a script, a thread or a notebook."""

import shlex
import signal
import threading
from pathlib import Path

import pytest
import torch

import wcdas
from wcdas.api import _deterministic
from wcdas.errors import InputError
from wcdas.run.folder import RunFolder

ONE_EPOCH = {"epochs": 1, "backbone.name": "resnet8"}


def test_every_public_name_can_be_had():
    for name in wcdas.__all__:
        assert getattr(wcdas, name) is not None
    assert set(wcdas.__all__) <= set(dir(wcdas))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        wcdas.nothing  # noqa: B018


def test_train_from_a_thread(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    runs = []
    thread = threading.Thread(
        target=lambda: runs.append(
            wcdas.train(
                method="softmax",
                settings=ONE_EPOCH,
                out=tmp_path / "run",
                device="cpu",
                report=False,
            )
        )
    )
    thread.start()
    thread.join()
    assert runs[0].metrics["test_images"] == 500
    assert signal.getsignal(signal.SIGINT) is before
    assert "few (< 20)" in runs[0].table()


def test_settings_as_a_table_or_as_lines(tmp_path):
    stage = "stages.representation"
    table = ONE_EPOCH | {"data.imbalance": 10}
    table |= {f"{stage}.schedule": "step", f"{stage}.milestones": [0.5]}
    lines = ["epochs=1", "backbone.name=resnet8", "data.imbalance=10"]
    lines += [f"{stage}.schedule=step", f"{stage}.milestones=[0.5]"]
    runs = [
        wcdas.train(
            method="softmax", settings=settings, out=tmp_path / str(i), device="cpu", report=False
        )
        for i, settings in enumerate((table, lines))
    ]
    first, second = ((run.path / "run.toml").read_text() for run in runs)
    assert first == second
    assert runs[0].metrics == runs[1].metrics


def test_a_text_that_looks_like_a_number_stays_one(tmp_path, pictures, monkeypatch):
    pictures(tmp_path / "2024", china=4, flower=4)
    (tmp_path / "list.txt").write_text(
        "\n".join(f"{c}/{i}.jpg {c}" for c in ("china", "flower") for i in (0, 2))
    )
    monkeypatch.chdir(tmp_path)
    lines = list(wcdas.check_data("list.txt", {"data.root": "2024"}))
    assert lines == list(wcdas.check_data("list.txt", ["data.root=2024"]))
    assert lines[0].startswith("list.txt: 2 training and 2 test images, 2 classes")


def test_the_method_comes_from_the_recipe_then_the_call_then_the_settings(tmp_path):
    recipe = tmp_path / "own.toml"
    recipe.write_text('method = "softmax"\nepochs = 1\nbackbone.name = "resnet8"\n')
    run = wcdas.train(recipe=recipe, out=tmp_path / "a", device="cpu", report=False)
    assert run.metrics["method"] == "softmax"
    run = wcdas.train(
        method="angular-softmax", recipe=recipe, out=tmp_path / "b", device="cpu", report=False
    )
    assert run.metrics["method"] == "angular-softmax"
    settings = {"method": "softmax"}
    run = wcdas.train(
        method="wcdas",
        settings=settings | ONE_EPOCH,
        out=tmp_path / "c",
        device="cpu",
        report=False,
    )
    assert run.metrics["method"] == "softmax"
    assert run.model.info.head == "linear"


@pytest.mark.parametrize("settings", [3, [3], {"epochs=1"}])
def test_settings_of_another_kind(settings):
    with pytest.raises(InputError, match=r"settings are .*; expected {'epochs': 50} or \['epochs"):
        wcdas.train(settings=settings, report=False)


def test_state_of_the_process_is_given_back(tmp_path):
    settings = ONE_EPOCH | {"deterministic": True}
    wcdas.train(
        method="softmax", settings=settings, out=tmp_path / "run", device="cpu", report=False
    )
    assert not torch.are_deterministic_algorithms_enabled()


def test_runs_side_by_side_are_deterministic_while_one_of_them_wants_it():
    on = torch.are_deterministic_algorithms_enabled
    first, second, plain = (_deterministic(wanted) for wanted in (True, True, False))
    first.__enter__()
    second.__enter__()
    plain.__enter__()
    assert on()
    first.__exit__(None, None, None)
    assert on()
    plain.__exit__(None, None, None)
    assert on()
    second.__exit__(None, None, None)
    assert not on()


@pytest.mark.parametrize(
    "settings",
    [
        {"stages.representation.head": "foo"},
        {"stages.representation.sampler_options.x": 1},
        {"stages.representation.sampler": "foo"},
        {"stages.representation.loss": "foo"},
    ],
)
def test_a_start_that_fails_leaves_nothing(tmp_path, settings):
    with pytest.raises(InputError):
        wcdas.train(settings=settings, out=tmp_path / "run", device="cpu", report=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "setting",
    [
        {"head.name": "foo"},
        {"stages.representation.sampler": "foo"},
        {"stages.representation.loss": "foo"},
        {"stages.representation.augment": "foo"},
        {"stages.representation.milestones": [0.5]},
    ],
)
def test_a_slip_is_refused_before_images_are_read(tmp_path, pictures, setting):
    folder = pictures(tmp_path / "x", china=3)
    (folder / "china" / "bad.png").write_bytes(b"no image")
    key = next(iter(setting)).rsplit(".", 1)[-1]
    with pytest.raises(InputError, match=rf"unknown \w+ 'foo'|{key} has no effect"):
        wcdas.train(folder, "softmax", settings=setting, out=tmp_path / "run", device="cpu")


def test_the_command_that_goes_on_can_be_pasted(tmp_path):
    folder = RunFolder(tmp_path / "my run")
    folder.create({})
    (*_, quoted, _) = shlex.split(str(folder.unfinished()))
    assert Path(quoted) == folder.path


def test_bad_input_in_the_first_step_leaves_nothing(tmp_path, pictures, monkeypatch):
    from wcdas.data import dataset
    from wcdas.data.images import Header

    folder = pictures(tmp_path / "x", china=6, flower=6)
    picture = folder / "china" / "0.jpg"
    picture.write_bytes(picture.read_bytes()[:400])
    # As if the file had been damaged after it was checked.
    monkeypatch.setattr(dataset, "check_image", lambda path, name: Header(40, 40, False))
    monkeypatch.setattr("wcdas.run.build.channel_statistics", lambda *a: ([0.5] * 3, [0.2] * 3))
    with pytest.raises(InputError, match=r"0\.jpg cannot be read"):
        wcdas.train(
            folder, settings=ONE_EPOCH, out=tmp_path / "run", device="cpu", workers=0, report=False
        )
    assert not (tmp_path / "run").exists()


def test_a_run_of_a_folder_is_named_after_it(tmp_path, pictures, monkeypatch):
    pictures(tmp_path / "my pictures", china=4, flower=4)
    monkeypatch.chdir(tmp_path)
    settings = ONE_EPOCH
    paths = [
        wcdas.train(data, "softmax", settings=settings, device="cpu", workers=0, report=False).path
        for data in (tmp_path / "my pictures", "my pictures/")
    ]
    assert paths == [Path(f"runs/my pictures-softmax-s0-{n}") for n in (1, 2)]
