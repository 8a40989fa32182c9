"""Checkpoints: whole or not at all, two kept, the newest whole one loaded."""

import re
from pathlib import Path

import pytest
import torch

import wcdas
from wcdas import files
from wcdas.run import checkpoint, loop

SOURCE = Path(wcdas.__file__).parent


def state(step):
    return {"step": step, "weights": torch.arange(1000.0) + step}


@pytest.fixture
def folder(tmp_path):
    for step in (10, 20, 30):
        checkpoint.save(tmp_path, step, state(step))
    return tmp_path


def newest(folder):
    return max(folder.glob("*.pt"))


def test_two_are_kept(folder):
    assert sorted(int(file.name[:9]) for file in folder.iterdir()) == [20, 30]
    loaded = checkpoint.load_latest(folder)
    assert loaded["step"] == 30
    assert loaded["weights"].equal(state(30)["weights"])


def test_without_any_there_is_nothing_to_load(tmp_path):
    assert checkpoint.load_latest(tmp_path / "missing") is None


def truncate(file):
    file.write_bytes(file.read_bytes()[:-100])


def flip_a_bit(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def empty(file):
    file.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, empty])
def test_a_damaged_one_is_not_loaded(folder, damage):
    last, first, told = newest(folder), min(folder.glob("*.pt")), []
    assert checkpoint.load_latest(folder, told.append)["step"] == 30
    assert not told
    damage(last)
    assert checkpoint.load_latest(folder, told.append)["step"] == 20
    assert told.pop() == f"{last} is damaged, so the run goes on from the one before"
    damage(first)
    assert checkpoint.load_latest(folder, told.append) is None
    assert told == [f"{last}, {first} are damaged, so the run goes on from its beginning"]


def test_a_torn_write_leaves_nothing_to_load_and_is_cleared_away(folder):
    torn = folder / ".000000040-0123456789abcdef.pt.partial"
    torn.write_bytes(newest(folder).read_bytes()[:500])
    assert checkpoint.load_latest(folder)["step"] == 30
    checkpoint.save(folder, 40, state(40))
    assert not torn.exists()
    assert len(list(folder.iterdir())) == 2


def test_a_run_that_went_on_from_the_one_before_keeps_two_whole_ones(folder):
    truncate(newest(folder))
    checkpoint.save(folder, 25, state(25))
    assert sorted(int(file.name[:9]) for file in folder.iterdir()) == [20, 25]
    truncate(newest(folder))
    assert checkpoint.load_latest(folder)["step"] == 20


def test_a_failed_write_keeps_the_file_before(tmp_path, monkeypatch):
    file = tmp_path / "file"
    files.write_synced(file, b"old")

    def no_sync(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", no_sync)
    with pytest.raises(OSError, match="No space"):
        files.write_synced(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("whole", [1, 0])
def test_a_run_goes_on_from_what_is_whole(whole, tmp_path, written, monkeypatch):
    """The newest checkpoints of a real run are damaged, its end removed; it ends the same."""
    monkeypatch.setattr(loop, "EPOCH_SECONDS", -1)  # one for every epoch
    settings = {"epochs": 2, "evaluate_every": 2, "backbone.name": "resnet8"}
    run, other = tmp_path / "run", tmp_path / "other"
    for path in (run, other):
        wcdas.train(out=path, method="softmax", settings=settings, device="cpu", report=False)
    files = sorted((run / "checkpoint").glob("*.pt"), reverse=True)
    assert len(files) == 2
    for file in files[: 2 - whole]:
        truncate(file)
    (run / "model.safetensors").unlink()
    wcdas.train(out=run, resume=True, device="cpu", report=False)
    written.assert_same(run, other)


def test_nothing_is_unpickled():
    for file in SOURCE.rglob("*.py"):
        text = file.read_text()
        assert not re.search(r"(pickle|dill|joblib|shelve|marshal)\.(load|open|Unpickler)", text)
        for call in re.findall(r"(?<!safetensors\.)torch\.load\((?:[^()]|\([^()]*\))*\)", text):
            assert "weights_only=True" in call, file
        for call in re.findall(r"np\.load\((?:[^()]|\([^()]*\))*\)", text):
            assert "allow_pickle=True" not in call, file
    assert "torch.load(" in (SOURCE / "run/checkpoint.py").read_text()


def test_a_checkpoint_with_code_is_refused(tmp_path):
    """Its digest is right, so it is read, but nothing in it is run."""

    class Harmful:
        def __reduce__(self):
            return (print, ("run",))

    checkpoint.save(tmp_path, 1, {"step": Harmful()})
    with pytest.raises(Exception, match=r"weights_only|Weights only"):
        checkpoint.load_latest(tmp_path)
