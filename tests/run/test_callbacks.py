"""What a callback is told, and when."""

import pytest

import wcdas
from wcdas.errors import InterruptedRunError

ONE_EPOCH = {"epochs": 1, "backbone.name": "resnet8"}


class Diary(wcdas.Callback):
    def __init__(self, fails_in: str = "", error: BaseException | None = None) -> None:
        self.told: list[tuple] = []
        self.fails_in, self.error = fails_in, error

    def _tell(self, what, *values):
        self.told.append((what, *values))
        if what == self.fails_in and self.error is not None:
            raise self.error

    def on_start(self, run, config):
        self._tell("start", run, config["method"], config["info"]["class_counts"][0])

    def on_epoch(self, epoch, facts):
        self._tell("epoch", epoch, facts["stage"], facts["epoch"])

    def on_end(self, metrics):
        self._tell("end", metrics and metrics["top1"])


def train(out, *callbacks):
    options = {"out": out, "device": "cpu", "callbacks": callbacks, "report": False}
    return wcdas.train("digits-lt", "wcdas", settings=ONE_EPOCH, **options)


def test_a_run_is_told_from_start_to_end(tmp_path):
    diary = Diary()
    run = train(tmp_path / "run", diary)
    assert diary.told == [
        ("start", tmp_path / "run", "wcdas", 120),
        ("epoch", 0, "representation", 1),
        ("epoch", 1, "classifier", 1),
        ("end", run.metrics["top1"]),
    ]


@pytest.mark.parametrize("where", ["start", "epoch", "end"])
def test_one_that_fails_is_dropped_with_a_warning(tmp_path, where):
    failing, other = Diary(where, ValueError("no\ndisk")), Diary()
    with pytest.warns(RuntimeWarning, match=rf"Diary failed in on_{where} \(no disk\)"):
        run = train(tmp_path / "run", failing, other)
    assert failing.told[-1][0] == where
    assert other.told[-1] == ("end", run.metrics["top1"])


def test_a_run_that_is_stopped_ends_without_metrics(tmp_path):
    stopping, other = Diary("epoch", KeyboardInterrupt()), Diary()
    with pytest.raises(InterruptedRunError, match="stopped; go on with: wcdas train"):
        train(tmp_path / "run", other, stopping)
    assert other.told[-1] == ("end", None)


def test_the_warning_is_a_line_of_the_console(tmp_path):
    from rich.console import Console

    console = Console(record=True, soft_wrap=True)
    wcdas.train(
        settings=ONE_EPOCH,
        out=tmp_path / "run",
        device="cpu",
        callbacks=[Diary("epoch", ValueError("[no] disk"))],
        console=console,
        report=False,
    )
    lines = [line for line in console.export_text().splitlines() if line.startswith("warning: D")]
    assert lines == ["warning: Diary failed in on_epoch ([no] disk); the run goes on without it"]
