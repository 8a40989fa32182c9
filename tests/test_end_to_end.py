"""Whole runs in processes of their own: pictures in, a model and its numbers out."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import wcdas

SHARED = Path(__file__).parents[2] / "shared" / "data"
SHORT = {"epochs": 2, "backbone.name": "resnet8"}
HELD = (str(Path(__file__).with_name("child.py")), "hold", "1", "0")  # after its first epoch


def start(*arguments: str, cwd: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )


@pytest.mark.slow
def test_stop_and_go_on(tmp_path):
    """Ctrl-C ends a run cleanly and says how to go on; the end is that of a run left alone."""
    values = (f"{key}={value}" for key, value in SHORT.items())
    settings = ["--method", "softmax", "--no-report", "--device", "cpu", "--set", *values]
    stopped = start(*HELD, "train", *settings, "--out", "stopped", cwd=tmp_path)
    log = tmp_path / "stopped" / "log.jsonl"
    while not (log.exists() and log.read_text()):
        assert stopped.poll() is None
        time.sleep(0.01)
    stopped.send_signal(signal.SIGINT)
    _, said = stopped.communicate()
    assert stopped.returncode == 130
    assert said == "wcdas: stopped; go on with: wcdas train --out stopped --resume\n"

    again = ["train", "--out", "stopped", "--resume", "--no-report"]
    resumed = start("-m", "wcdas.cli", *again, cwd=tmp_path)
    out, said = resumed.communicate()
    assert (resumed.returncode, said) == (0, "")
    assert "few (< 20)" in out
    wcdas.train(
        method="softmax", settings=SHORT, out=tmp_path / "alone", device="cpu", report=False
    )
    first, second = (wcdas.load(tmp_path / name, "cpu") for name in ("stopped", "alone"))
    for name, value in first.classifier.state_dict().items():
        assert torch.equal(value, second.classifier.state_dict()[name]), name
    metrics = [
        json.loads((tmp_path / n / "metrics.json").read_text()) for n in ("stopped", "alone")
    ]
    assert metrics[0] == metrics[1]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the real images are not here")
def test_real_images_from_parquet(tmp_path):
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    (tmp_path / "some").mkdir()
    for name, count in (("train", 60), ("test", 20)):
        table = pq.read_table(SHARED / "cifar10" / f"{name}.parquet")
        table = table.filter(pc.less(table["label"], 2))
        pq.write_table(table.take(list(range(0, len(table), len(table) // count))[:count]),
                       tmp_path / "some" / f"{name}.parquet")  # fmt: skip
    settings = {"epochs": 1, "batch_size": 16, "backbone.weights": ""}
    run = wcdas.train(tmp_path / "some", "softmax", settings=settings, out=tmp_path / "run",
                      device="cpu", workers=0)  # fmt: skip
    assert run.metrics["test_images"] == 20
    assert run.model.info.input_size == 32
    assert wcdas.evaluate_run(run, device="cpu")["confusion"] == run.metrics["confusion"]
