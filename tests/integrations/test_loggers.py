"""Every logger on a real run, read back with its own library and held against log.jsonl."""

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import wcdas
from wcdas.errors import InputError, InterruptedRunError
from wcdas.integrations import MLflow, read_names
from wcdas.run.callbacks import numbers

TWO_EPOCHS = {"epochs": 2, "backbone.name": "resnet8"}


class Stop(wcdas.Callback):
    """Ctrl-C after an epoch."""

    def on_epoch(self, epoch, facts):
        if epoch == 1:
            raise KeyboardInterrupt


def train(out: Path, callbacks, **options) -> wcdas.Run:
    options |= {"out": out, "device": "cpu", "callbacks": callbacks, "report": False}
    return wcdas.train("digits-lt", "wcdas", settings=TWO_EPOCHS, **options)


def log(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    names = events.Tags()["scalars"]
    return {name: {e.step: e.value for e in events.Scalars(name)} for name in names}


def test_tensorboard_is_on_by_default(tmp_path):
    out = tmp_path / "run"
    wcdas.train("digits-lt", "wcdas", settings=TWO_EPOCHS, out=out, device="cpu", report=False)
    found = scalars(out / "tensorboard")
    assert found["loss"] == pytest.approx({i: line["loss"] for i, line in enumerate(log(out))})
    assert found["test/top1"][3] == pytest.approx(log(out)[3]["test"]["top1"])
    assert "epoch" not in found


def test_tensorboard_of_a_resumed_run_has_every_epoch_once(tmp_path):
    out = tmp_path / "run"
    with pytest.raises(InterruptedRunError, match="stopped; go on with: wcdas train"):
        train(out, ["tensorboard", Stop()])
    train(out, ["tensorboard"], resume=True)
    found = scalars(out / "tensorboard")
    assert found["loss"] == pytest.approx({i: line["loss"] for i, line in enumerate(log(out))})


def test_none_leaves_no_log_of_others(tmp_path):
    train(tmp_path / "run", [])
    assert not (tmp_path / "run" / "tensorboard").exists()
    assert len(log(tmp_path / "run")) == 4


def chunks(data: bytes) -> Iterator[bytes]:
    """The records of a .wandb file, a LevelDB log behind a header of seven bytes."""
    block, header, full, last = 32_768, 7, 1, 4
    assert data[:4] == b":W&B"
    at, record = header, b""
    while at < len(data):
        if block - at % block < header:  # the rest of a block is padding
            at += block - at % block
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + header : at + header + length]
        at += header + length
        if kind in (full, last):
            yield record
            record = b""


def wandb_records(run: Path) -> list:
    from wandb.proto import wandb_internal_pb2

    files = sorted(run.glob("wandb/offline-run-*/*.wandb"))
    chunked = [chunk for file in files for chunk in chunks(file.read_bytes())]
    return [wandb_internal_pb2.Record.FromString(chunk) for chunk in chunked]


def test_wandb_offline(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    out = tmp_path / "run"
    with pytest.raises(InterruptedRunError, match="stopped; go on with: wcdas train"):
        train(out, ["wandb", Stop()])
    wandb.teardown()  # as the end of a process does
    run = train(out, ["wandb"], resume=True)
    wandb.teardown()
    records = wandb_records(out)

    started = [record.run for record in records if record.HasField("run")]
    assert {record.run_id for record in started} == {(out / "wandb" / "run_id").read_text()}
    assert (started[0].project, started[0].display_name) == ("wcdas", "run")
    config = {item.key: json.loads(item.value_json) for item in started[0].config.update}
    assert config["method"] == "wcdas"

    history = {}
    for record in records:
        if record.HasField("history"):
            items = {"/".join(i.nested_key) or i.key: i for i in record.history.item}
            step = json.loads(items["_step"].value_json)
            history[step] = {name: json.loads(i.value_json) for name, i in items.items()}
    for epoch, line in enumerate(log(out)):
        assert history[epoch]["stage"] == line["stage"]
        expected = numbers(line)
        del expected["seconds"]  # of an epoch that was begun twice
        assert {k: history[epoch][k] for k in expected} == pytest.approx(expected)

    summary = {}
    for record in records:
        for item in record.summary.update:
            summary["/".join(item.nested_key) or item.key] = json.loads(item.value_json)
    assert summary["final/top1"] == run.metrics["top1"]


def test_mlflow_file_store(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    out = tmp_path / "run"
    with pytest.raises(InterruptedRunError, match="stopped; go on with: wcdas train"):
        train(out, [MLflow("digits"), Stop()])
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("digits").experiment_id
    (stopped,) = client.search_runs([experiment])
    assert stopped.info.status == "KILLED"

    run = train(out, [MLflow("digits")], resume=True)
    (found,) = client.search_runs([experiment])
    assert (found.info.run_name, found.info.status) == ("run", "FINISHED")
    assert found.data.params["backbone.name"] == "resnet8"
    assert found.data.metrics["final/top1"] == pytest.approx(run.metrics["top1"])
    losses = {m.step: m.value for m in client.get_metric_history(found.info.run_id, "loss")}
    assert losses == pytest.approx({i: line["loss"] for i, line in enumerate(log(out))})


def test_a_logger_that_fails_does_not_cost_the_run(tmp_path, monkeypatch):
    """MLflow is sent to a server that is not there; the numbers are those of a run without it."""
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.warns(RuntimeWarning, match="MLflow failed in on_start .* the run goes on") as all:
        run = train(tmp_path / "run", ["mlflow"])
    assert len([w for w in all if "MLflow" in str(w.message)]) == 1
    assert run.metrics == train(tmp_path / "plain", []).metrics


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_package_that_is_missing_is_one_line_before_any_work(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    with pytest.raises(InputError, match=rf"^{name} is not installed; run `pip install {name}`"):
        train(tmp_path / "run", [name])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("callbacks", "line"),
    [
        ("wandb", r"callbacks is 'wandb'; expected a list, such as \['wandb'\]"),
        (["wandv"], "unknown logger 'wandv'; did you mean 'wandb'"),
        ([Stop], "expected a wcdas.Callback or one of tensorboard, wandb, mlflow"),
    ],
)
def test_bad_callbacks(tmp_path, callbacks, line):
    with pytest.raises(InputError, match=line):
        train(tmp_path / "run", callbacks)


def test_names_of_the_command_line():
    assert read_names(["tensorboard, mlflow", "tensorboard"]) == ["tensorboard", "mlflow"]
    assert read_names(["none"]) == []
    with pytest.raises(InputError, match="none goes with no other"):
        read_names(["none", "wandb"])
