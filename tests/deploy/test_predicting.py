"""`wcdas predict`, here and in a process of its own, and `predict_files`."""

import csv
import json
import os
import pty
import subprocess
import sys
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from PIL import Image

import wcdas
from wcdas import cli, usage
from wcdas.deploy.predicting import write_predictions


@pytest.fixture
def command(capsys):
    """Runs `wcdas predict …` in this process."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        words = ["predict", *map(str, arguments)]
        return subprocess.CompletedProcess(words, usage.run(cli.app, words), *capsys.readouterr())

    return run


def test_probabilities_are_those_of_the_model(odd_run, odd_names, every_kind):
    answers = list(wcdas.predict_files(odd_run, every_kind, top=9, batch_size=4, device="cpu"))
    model = wcdas.load(odd_run, device="cpu")
    files = [answer.file for answer in answers]
    assert len(files) == len(list(every_kind.iterdir()))
    probabilities = model.predict(files)
    for answer, row in zip(answers, probabilities, strict=True):
        got = {guess.name: guess.probability for guess in answer.top}
        expected = dict(zip(model.class_names, row.tolist(), strict=True))
        assert got == pytest.approx(expected, abs=1e-4)
        assert [g.probability for g in answer.top] == sorted(got.values(), reverse=True)
    counts = {guess.name: (guess.train_images, guess.group) for guess in answers[0].top}
    assert counts == dict(zip(odd_names, [(104, "many"), (24, "medium"), (6, "few")], strict=True))


def test_classes_some_at_a_time(odd_run, every_kind, at_a_time, tmp_path):
    """The same answers where the logits of all are never held."""
    texts = []
    for rows in (0, 2):
        out = tmp_path / f"{rows}.jsonl"
        with at_a_time(rows, 2) if rows else nullcontext():
            write_predictions(odd_run, [every_kind], top=3, abstain=0.6, out=out, device="cpu")
        texts.append([json.loads(line) for line in out.open()])
    assert len(texts[0]) > 5
    for kept, found in zip(*texts, strict=True):
        assert found["answer"] == kept["answer"]
        for one, other in zip(kept["top"], found["top"], strict=True):
            assert other["class"] == one["class"]
            assert other["probability"] == pytest.approx(one["probability"], abs=1e-5)


def test_the_size_of_a_batch_and_bad_files_between_change_nothing(odd_run, every_kind, tmp_path):
    files = sorted(every_kind.iterdir())
    (tmp_path / "bad.png").write_bytes(b"no picture")
    mixed = [part for file in files for part in (file, tmp_path / "bad.png")]
    one, many = (
        list(wcdas.predict_files(odd_run, mixed, batch_size=size, device="cpu")) for size in (1, 64)
    )
    assert [a.file for a in one] == [a.file for a in many] == [str(path) for path in mixed]
    for first, second in zip(one, many, strict=True):
        assert first.error == second.error
        for a, b in zip(first.top, second.top, strict=True):
            assert (a.name, a.probability) == (b.name, pytest.approx(b.probability, abs=1e-4))
    assert sum(answer.error is not None for answer in one) == len(files)


def test_bad_files_have_their_lines_and_the_rest_goes_on(command, odd_run, every_kind, tmp_path):
    whole = (every_kind / "turned.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.png").write_text("no picture")
    (tmp_path / "empty.gif").touch()
    Image.new("1", (20_000, 20_000)).save(tmp_path / "huge.png")
    (tmp_path / 'it\'s "q".jpg').write_bytes(whole)
    done = command(odd_run.path, tmp_path, tmp_path / "none.jpg", "--format", "jsonl")
    assert done.returncode == 1
    assert done.stderr == "wcdas: 5 of 6 images could not be read; see their lines\n"
    tables = [json.loads(line) for line in done.stdout.splitlines()]
    errors = {Path(table["file"]).name: table.get("error") for table in tables}
    assert list(errors) == ["cut.jpg", "empty.gif", "huge.png", "it's \"q\".jpg", "text.png",
                            "none.jpg"]  # fmt: skip
    assert errors['it\'s "q".jpg'] is None
    assert "truncated" in errors["cut.jpg"]
    assert "100,000,000 pixels" in errors["huge.png"]
    assert errors["none.jpg"] == "the file cannot be read: no such file"
    assert all("not an image" in errors[name] for name in ("empty.gif", "text.png"))


@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes")
@pytest.mark.slow
def test_a_file_name_that_is_no_text(odd_run, every_kind, tmp_path):
    folder = os.fsencode(tmp_path)
    with open(folder + b"/\xff.jpg", "wb") as file:
        file.write((every_kind / "turned.jpg").read_bytes())
    words = ["predict", str(odd_run.path), str(tmp_path), "--format"]
    code = "import sys; from wcdas import cli, usage; " + "; ".join(
        f"assert usage.run(cli.app, [*sys.argv[1:], {form!r}]) == 0"
        for form in ("text", "csv", "jsonl")
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(r"\udcff.jpg") == 3


def test_output_to_a_file(command, odd_run, odd_names, every_kind, tmp_path):
    out = tmp_path / "answers.csv"
    done = command(odd_run.path, every_kind, "--out", out, "--top", 2)
    count = len(list(every_kind.iterdir()))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{out}, {count} images\n", "")
    with out.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(list(every_kind.iterdir()))
    assert {row["class_1"] for row in rows} <= {odd_names[0], "'" + odd_names[1], "rare"}


def test_abstaining(odd_run, every_kind):
    def answers(p: float) -> list[str | None]:
        found = wcdas.predict_files(odd_run, every_kind, abstain=p, device="cpu")
        return [answer.answer for answer in found]

    plain = list(wcdas.predict_files(odd_run, every_kind, device="cpu"))
    best = sorted(answer.top[0].probability for answer in plain)
    gap, low, high = max((b - a, a, b) for a, b in pairwise(best))
    assert gap > 1e-3  # the widest, which no rounding closes
    assert answers((low + high) / 2).count(None) == best.index(high)
    assert None not in answers(0)
    assert answers(1) == [None] * len(plain)


def test_another_class_mix(odd_run, odd_names, every_kind, tmp_path):
    """The model was trained for equal frequencies, so `uniform` is what it says already."""
    plain, uniform, train = (
        next(wcdas.predict_files(odd_run, every_kind / "colour.png", prior=prior, device="cpu"))
        for prior in (None, "uniform", "train")
    )
    assert plain == uniform
    p = {guess.name: guess.probability for guess in plain.top}
    weighted = torch.tensor([p[name] for name in odd_names]) * torch.tensor([104.0, 24.0, 6.0])
    expected = dict(zip(odd_names, (weighted / weighted.sum()).tolist(), strict=True))
    moved = {guess.name: guess.probability for guess in train.top}
    assert moved == pytest.approx(expected, abs=1e-5)
    prior = tmp_path / "mix.csv"
    prior.write_text("0\n0\n1\n")
    (only,) = wcdas.predict_files(odd_run, every_kind / "grey.png", prior=str(prior), top=1)
    assert (only.answer, only.top[0].probability) == ("rare", 1.0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"top": 0}, "top is 0; expected 1 or more"),
        ({"abstain": 1.5}, "abstain is 1.5; expected a probability"),
        ({"abstain": float("nan")}, "abstain is nan; expected a probability"),
        ({"batch_size": 0}, "batch-size is 0; expected 1 to 1048576"),
        ({"prior": "nowhere.csv"}, "prior 'nowhere.csv' is neither"),
    ],
)
def test_bad_options(odd_run, every_kind, refused, options, said):
    refused(said, wcdas.predict_files, odd_run, every_kind, **options)


def test_a_model_of_features_takes_no_pictures(features, every_kind, tmp_path, refused):
    run = wcdas.train(
        features, "softmax", settings={"epochs": 1}, out=tmp_path / "run", report=False
    )
    refused("takes vectors of 64 numbers, not images", wcdas.predict_files, run, every_kind)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("RUN", "missing argument 'IMAGE"),
        ("nowhere x.jpg", "nowhere holds no trained model"),
        ("RUN x.jpg", "x.jpg does not exist"),
        ("nowhere KINDS", "nowhere holds no trained model"),
        ("RUN KINDS --format cvs", "unknown format 'cvs'; did you mean 'csv'?"),
        ("RUN KINDS --out photo.jpg", "expected a name in .csv, .jsonl or .txt"),
        ("RUN KINDS --out no/folder.csv", "no/folder.csv cannot be written"),
    ],
)
def test_slips(command, odd_run, every_kind, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    words = [{"RUN": odd_run.path, "KINDS": every_kind}.get(w, w) for w in arguments.split()]
    done = command(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_file_is_replaced_only_if_asked(command, odd_run, every_kind, tmp_path):
    out, bad = tmp_path / "answers.jsonl", tmp_path / "bad.jpg"
    out.write_text("the last one")
    bad.write_text("no image")
    done = command(odd_run.path, every_kind, "--out", out)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"wcdas: {out} exists; replace it with --overwrite, or choose another with --out\n"
    )
    assert out.read_text() == "the last one"
    done = command(odd_run.path, bad, every_kind / "dot.png", "--out", out, "--overwrite")
    assert (done.returncode, done.stdout) == (1, "")
    said = f"wcdas: 1 of 2 images could not be read; see their lines in {out}\n"
    assert done.stderr == said
    tables = [json.loads(line) for line in out.read_text().splitlines()]
    assert [table["status"] for table in tables] == ["unreadable", "ok"]


def test_progress_is_shown_on_a_terminal(odd_run, every_kind, tmp_path):
    ours, theirs = pty.openpty()
    arguments = [odd_run.path, every_kind, "--out", tmp_path / "x.csv", "--batch-size", 2]
    with subprocess.Popen(
        [sys.executable, "-m", "wcdas.cli", "predict", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=os.environ | {"OMP_NUM_THREADS": "1", "TERM": "xterm"},
    ) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            seen += part
        assert process.stdout is not None
        assert process.stdout.read().startswith(f"{tmp_path}/x.csv, ".encode())
    os.close(ours)
    assert process.returncode == 0
    assert b"predicting" in seen
    assert f"{len(list(every_kind.iterdir()))}".encode() in seen
