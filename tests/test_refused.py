"""Odd input and odd places to write to: one line, in our words, that blames what is to blame."""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import wcdas
from wcdas.deploy.predicting import predict_files
from wcdas.errors import InputError
from wcdas.evaluation.table import metrics_text


def in_a_shell(rest):
    line = f"{sys.executable} -m wcdas.cli {rest}"
    return subprocess.run(line, shell=True, capture_output=True, text=True, check=False)


def test_a_closed_output_is_no_fault():
    done = in_a_shell("list methods >&-")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("what", ["list methods", "predict {run} {picture}"])
def test_a_full_device_is_told_in_our_words(what, mixed_run, mixed_folder):
    picture = mixed_folder / "test/china/0.jpg"
    done = in_a_shell(what.format(run=mixed_run.path, picture=picture) + " >/dev/full")
    told = "wcdas: no space is left where the output goes; make room, or write elsewhere\n"
    assert (done.returncode, done.stderr) == (1, told)


def test_a_file_is_no_run_to_go_on_with(command, tmp_path):
    file = tmp_path / "notes.txt"
    file.touch()
    status, _, err = command("train", "--out", file, "--resume")
    assert status == 2
    assert err == f"wcdas: --out is {file}, a file; expected the folder of a run to go on with\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--method", ""], "unknown method ''"),
        (["--seed", "-1"], "seed is -1; expected"),
        (["--set", "batch_size=1000000000"], "batch_size is 1000000000; expected"),
        (
            ["--set", "head.engine=fused", "--device", "cpu"],
            "head: engine 'fused' needs Triton and an NVIDIA GPU",
        ),
    ],
)
def test_what_train_refuses(refused, arguments, told):
    assert told in refused("train", *arguments)


def test_a_wrong_run_is_to_blame_and_not_the_picture(refused, tmp_path):
    assert refused("predict", tmp_path, "nothing.png").startswith(
        f"wcdas: {tmp_path} holds no trained model; "
    )


def test_batches_of_a_billion_are_not_predicted(mixed_run, mixed_folder):
    with pytest.raises(InputError, match="batch-size is 1000000000; expected 1 to 1048576"):
        predict_files(mixed_run, mixed_folder / "test", batch_size=10**9)


@pytest.mark.parametrize("wrap", [lambda a: a, lambda a: [a]])
def test_an_array_is_no_picture(mixed_run, wrap):
    array = np.zeros((40, 40, 3), dtype=np.uint8)
    with pytest.raises(InputError, match=r"images are numpy.ndarray; expected files or PIL images"):
        mixed_run.model.predict(wrap(array))


def test_parquet_without_rows_says_so(tmp_path):
    file = tmp_path / "empty.parquet"
    pq.write_table(pa.table({"image": pa.array([], pa.null()), "label": pa.array([])}), file)
    with pytest.raises(InputError, match="has no rows; expected one with a label for each image"):
        wcdas.open_dataset(str(file))


@pytest.mark.parametrize(
    ("held_out", "value", "told"),
    [
        (1, 1.0, "(no temperature fitted: 1 image held out, fewer than 10)"),
        (9, 1.0, "(no temperature fitted: 9 images held out, fewer than 10)"),
        (9, 2.0, "(temperature 2.00, fitted on 9 images)"),
        (10, 1.0, "(temperature 1.00, fitted on 10 images)"),
    ],
)
def test_a_temperature_takes_ten_images(digits_run, held_out, value, told):
    assert told in metrics_text(digits_run.metrics | {"held_out": held_out, "temperature": value})


def test_two_held_out_images_fit_no_temperature(features, tmp_path):
    run = wcdas.train(
        features,
        "softmax",
        settings={"epochs": 1, "calibration.holdout": 0.001},
        out=tmp_path / "run",
        device="cpu",
    )
    assert 0 < run.metrics["held_out"] < 10
    assert run.metrics["temperature"] == 1
    page = " ".join((run.path / "report.html").read_text("utf-8").split())
    assert f"since only {run.metrics['held_out']} training images were held out" in page
