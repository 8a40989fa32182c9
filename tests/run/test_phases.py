"""A run says where its time went."""

import json
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

import wcdas
from wcdas.run import phases as module
from wcdas.run.phases import Phases


def test_a_phase_inside_another_counts_once(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    phases = Phases()
    now[0] = 1
    with phases("training"):
        now[0] = 3
        with phases("evaluation"):
            now[0] = 8
        now[0] = 9
        with pytest.raises(ZeroDivisionError), phases("evaluation"):
            now[0] = 10 / 0
    assert phases.table() == {"training": 3, "evaluation": 5, "all": 9}
    assert str(phases) == "9.0 s: training 3.0, evaluation 5.0"


@pytest.mark.parametrize("resumed", [False, True])
def test_the_last_line_and_a_file_of_a_run_say_it(resumed, tmp_path):
    said = StringIO()
    given = {"out": tmp_path / "run", "device": "cpu", "console": Console(file=said, width=500)}
    settings = {"epochs": 1, "backbone.name": "resnet8"}
    wcdas.train("digits-lt", "softmax", settings=settings, report=False, **given)
    if resumed:
        (tmp_path / "run" / "metrics.json").unlink()
        said.truncate(0)
        wcdas.train(resume=True, **given)
    seconds = json.loads((tmp_path / "run" / "seconds.json").read_text())
    expected = ["data", "model", "decoding", "training", "evaluation"]
    assert list(seconds) == [*expected, *(["report"] if resumed else []), "all"]
    assert said.getvalue().splitlines()[-1].startswith("time: ")
