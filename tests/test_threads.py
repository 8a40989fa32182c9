"""How many threads a CPU computes with: as many as cores are free, unless somebody chose."""

import tomllib

import pytest
import torch

import wcdas
from wcdas import threads
from wcdas.errors import WorkError

IDLE, BUSY = (1000, 1000), (0, 1000)  # of 1,000 ticks in the moment that is looked at


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine of so many cores; PyTorch has a thread for each."""

    def make(cores, quota="max 100000"):
        times = [[(0, 0)] * len(cores), cores]
        for name in threads.SET_BY:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(threads, "_cpus", lambda: list(range(len(cores))))
        monkeypatch.setattr(threads, "_times", lambda cpus: times.pop(0))
        monkeypatch.setattr(threads.torch, "get_num_threads", lambda: len(cores))
        monkeypatch.setattr(threads, "SYS", tmp_path)
        monkeypatch.setattr(threads, "SAMPLE_SECONDS", 0)
        (tmp_path / "fs/cgroup").mkdir(parents=True)
        (tmp_path / "fs/cgroup/cpu.max").write_text(quota)

    return make


@pytest.mark.parametrize(
    ("cores", "quota", "expected"),
    [
        ([IDLE] * 4, "max 100000", 4),
        ([IDLE, IDLE, IDLE, BUSY], "max 100000", 3),
        ([IDLE, BUSY], "max 100000", 1),
        ([BUSY, BUSY], "max 100000", 1),
        ([(900, 1000), (880, 1000)], "max 100000", 2),
        ([IDLE] * 8, "200000 100000", 2),
        ([IDLE] * 8, "50000 100000", 1),
    ],
)
def test_as_many_as_cores_are_free(machine, cores, quota, expected):
    machine(cores, quota)
    count, why = threads.choose_threads()
    assert count == expected
    assert why.startswith(f"threads: {expected}, since ")
    assert "OMP_NUM_THREADS" in why


def test_tiny_images_have_one(machine):
    machine([IDLE] * 4)
    assert threads.choose_threads("8 pixels")[0] == 1


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "WORLD_SIZE"])
def test_whoever_sets_them_is_heeded(machine, monkeypatch, name):
    machine([BUSY] * 4)
    monkeypatch.setenv(name, "4")
    assert threads.choose_threads("8 pixels") == (4, "")


def test_a_number_that_was_set_in_python_is_kept(machine, monkeypatch):
    machine([BUSY] * 4)
    monkeypatch.setattr(threads.torch, "get_num_threads", lambda: 3)
    assert threads.choose_threads() == (3, "")


def test_all_are_free_where_the_system_does_not_tell(monkeypatch, tmp_path):
    monkeypatch.setattr(threads, "PROC", tmp_path)
    monkeypatch.setattr(threads, "SYS", tmp_path)
    assert threads.free_cores() == len(threads._cpus())


def test_this_machine_tells():
    assert 0 <= threads.free_cores() <= len(threads._cpus())


def test_a_resumed_run_keeps_its_threads(tmp_path, monkeypatch):
    seen = []

    def stopped(run, seen_already):
        seen.append(torch.get_num_threads())
        raise WorkError("stopped")

    options = {"out": tmp_path / "run", "device": "cpu", "callbacks": []}
    settings = {"epochs": 1, "backbone.name": "resnet8"}
    monkeypatch.setattr("wcdas.api.finish", stopped)
    with monkeypatch.context() as patch:
        patch.setattr("wcdas.api.threads_for", lambda config, kind, classes: (2, ""))
        with pytest.raises(WorkError, match="stopped"):
            wcdas.train("digits-lt", "softmax", settings=settings, **options)
    run = tomllib.loads((tmp_path / "run/run.toml").read_text("utf-8"))
    assert run["info"]["threads"] == 2
    with pytest.raises(WorkError, match="stopped"):
        wcdas.train(resume=True, **options)
    assert seen == [2, 2]
    assert torch.get_num_threads() == 1
