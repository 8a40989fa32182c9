"""Pages are written at the end of a run, again without its data, and never at its cost."""

import html
import json
import os
import shlex
import shutil
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import datasets
import numpy as np
import pytest
import tomli_w
from PIL import Image
from rich.console import Console

import wcdas
from wcdas import cli, usage
from wcdas.errors import InputError
from wcdas.report import write_report
from wcdas.report.baseline import beside_told, differing, find_baseline
from wcdas.report.record import read_record

ONE_EPOCH = {"epochs": 1}
SMALL = ONE_EPOCH | {"backbone.name": "resnet8"}


@pytest.fixture
def copy(digits_run, tmp_path):
    return shutil.copytree(digits_run.path, tmp_path / "copy")


def text_of(page: Path) -> str:
    """A page as a browser shows it, where a line break is a space."""
    return " ".join(page.read_text("utf-8").split())


def charts_of(page: str) -> set[str]:
    return set(json.loads(page.split('id="data">')[1].split("</script>")[0])["charts"])


def test_a_run_leaves_page_and_numbers(digits_run):
    page = (digits_run.path / "report.html").read_text("utf-8")
    assert charts_of(page) == {
        "accuracy", "rho", "angles", "learning", "loss", "rho-training", "reliability", "map",
        "tail",
    }  # fmt: skip
    assert (digits_run.path / "report.json").exists()
    assert not (digits_run.path / "figures").exists()
    assert "figures/" not in page.split("<script>")[0]


def test_figures_are_written_where_somebody_asks(copy):
    assert usage.run(cli.app, ["report", str(copy), "--figures"]) == 0
    page, figures = (copy / "report.html").read_text("utf-8"), copy / "figures"
    assert "the same charts are in figures/." in page
    assert {p.stem for p in figures.glob("*.svg")} == charts_of(page)
    assert {p.stem for p in figures.glob("*.png")} == charts_of(page)
    for path in figures.glob("*.png"):
        assert Image.open(path).size == (1280, 800)
    for path in figures.glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_the_page_is_built_again_without_data(odd_run, tmp_path):
    copy = shutil.copytree(odd_run.path, tmp_path / "copy")
    (copy / "model.safetensors").unlink()
    (copy / "metrics.json").replace(copy / "kept")
    with pytest.raises(InputError, match="is not finished"):
        write_report(copy)
    (copy / "kept").replace(copy / "metrics.json")
    (copy / "report.html").unlink()
    assert write_report(copy) == copy / "report.html"
    before = (odd_run.path / "report.html").read_text("utf-8")
    text = (copy / "report.html").read_text("utf-8")
    assert text.split('id="data">')[1] == before.split('id="data">')[1]


def test_a_run_without_its_numbers_is_measured_again(digits_run, copy):
    before = json.loads((copy / "report.json").read_text())
    (copy / "report.json").unlink()
    write_report(copy)
    again = json.loads((copy / "report.json").read_text())
    for key in ("rho", "angles", "reliability", "confusions"):
        assert again[key] == before[key]


def test_numbers_of_another_format_are_measured_again(copy):
    (copy / "report.json").write_text('{"format": 0}')
    write_report(copy)
    assert read_record(copy) is not None


@pytest.mark.parametrize(
    "text", ['{"format"', "[]", '{"format": 1}', "[" * 100_000, '{"format": 1, "rho": [0.5]}']
)
def test_damaged_numbers_are_measured_again(copy, text):
    whole = (copy / "report.json").read_text()
    (copy / "report.json").write_text(text)
    write_report(copy)
    again = json.loads((copy / "report.json").read_text())
    assert again["confusions"] == json.loads(whole)["confusions"]


def test_the_baseline_is_found_beside_the_run(odd_run, odd_softmax):
    page = write_report(odd_run).read_text("utf-8")
    assert "softmax (linear)" in page
    assert f"The baseline is {odd_softmax.path.name}, seed 0." in page
    assert f"{100 * odd_softmax.metrics['medium']:.1f}" in page
    assert "softmax (linear)" not in (odd_softmax.path / "report.html").read_text("utf-8")


def test_a_baseline_with_other_settings_is_told(odd_run, odd_data, tmp_path):
    run = shutil.copytree(odd_run.path, tmp_path / "run")
    settings = {"epochs": 2, "input_size": 32, "batch_size": 8, "lr": 0.01, "backbone.weights": ""}
    wcdas.train(odd_data, "softmax", settings=settings, out=tmp_path / "s", device="cpu", workers=0)
    page = write_report(run).read_text("utf-8")
    assert (
        "The baseline is s, seed 0. It was trained with other settings: "
        "stages.representation.epochs 2 instead of 1, "
        "stages.representation.lr 0.01 instead of 0.025."
    ) in page


@pytest.mark.parametrize(
    ("holdout", "counts", "told"),
    [
        (0.1, 60, "Probabilities calibrated by a temperature of {}, fitted on 24 training images"),
        (0.1, 30, "Probabilities after a temperature of {}, fitted on 12 training images held out"),
        (
            0.1,
            15,
            "no temperature was fitted, since it takes 20 training images of a class to hold",
        ),
        (0.0, 30, "no temperature was fitted, since calibration.holdout is 0."),
    ],
)
def test_what_is_true_of_the_temperature(holdout, counts, told, tmp_path, capsys):
    """Random vectors are learnt by heart, so that the temperature is above 1 where there is one."""
    generator = np.random.default_rng(0)
    images = counts * 4 * 10 // 8  # a fifth becomes the test set
    np.save(tmp_path / "x.npy", generator.normal(size=(images, 64)).astype("float32"))
    np.save(tmp_path / "x_labels.npy", np.arange(images) % 4)
    settings = ["epochs=20", f"calibration.holdout={holdout}"]
    out = tmp_path / "run"
    words = ["train", str(tmp_path / "x.npy"), "--method", "softmax", "--out", str(out)]
    assert usage.run(cli.app, [*words, "--device", "cpu", "--set", *settings]) == 0
    printed, page = capsys.readouterr().out, text_of(out / "report.html")
    metrics = json.loads((out / "metrics.json").read_text())
    value, held_out = f"{metrics['temperature']:.2f}", metrics["held_out"]
    assert told.format(value) in page
    if held_out:
        assert ("So few do not tell whether they are calibrated." in page) == (held_out < 20)
        fitted = f" (temperature {value}, fitted on {held_out} images), classes never"
        assert fitted in printed
        assert usage.run(cli.app, ["evaluate", str(out), "--device", "cpu"]) == 0
        assert fitted in capsys.readouterr().out
    else:
        assert "Probabilities as training left them" in page
        assert " (no temperature fitted), classes never" in printed
    assert usage.run(cli.app, ["evaluate", str(out), "--device", "cpu", "--temperature", "3"]) == 0
    assert " (temperature 3.00), classes never" in capsys.readouterr().out


def test_a_temperature_that_came_to_1_is_told(odd_run, tmp_path):
    copy = shutil.copytree(odd_run.path, tmp_path / "copy")
    metrics = json.loads((copy / "metrics.json").read_text())
    told = "the temperature, fitted on 12 training images held out of the classes with 20 or more, "
    few = "no temperature was fitted, since only 1 training image was held out, and it takes 10."
    for held_out, said in ((12, told), (1, few)):
        changed = metrics | {"temperature": 1.0, "held_out": held_out}
        (copy / "metrics.json").write_text(json.dumps(changed))
        assert said in text_of(write_report(copy, overwrite=True))


def test_data_in_memory_has_no_command(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (12, 40, 40, 3), dtype=np.uint8)
    given = datasets.Dataset.from_dict(
        {"image": [Image.fromarray(p) for p in pixels], "label": [0] * 8 + [1] * 4},
        features=datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(2)}),
    )
    run = wcdas.train(given, settings=ONE_EPOCH, out=tmp_path / "run", device="cpu", workers=0)
    page = html.unescape((run.path / "report.html").read_text("utf-8"))
    assert "Train the linear softmax baseline" in page
    assert "wcdas train " not in page
    call = f"wcdas.train(DATASET, recipe='{run.path / 'run.toml'}', out=\"NEW_FOLDER\")"
    assert call in page


def test_a_baseline_on_other_data_is_none(digits_run, odd_softmax, tmp_path):
    run = shutil.copytree(digits_run.path, tmp_path / "run")
    shutil.copytree(odd_softmax.path, tmp_path / "softmax")
    assert "softmax (linear)" not in write_report(run).read_text("utf-8")


def with_neck(run, folder, neck):
    """A copy of a run whose run.toml has another table `neck`, or none at all."""
    file = shutil.copytree(run.path, folder) / "run.toml"
    table = tomllib.loads(file.read_text("utf-8"))
    del table["neck"]
    file.write_text(tomli_w.dumps(table | neck), "utf-8")
    return read_record(folder)


def test_a_baseline_with_the_same_neck_comes_first(odd_run, odd_softmax, tmp_path):
    batch_norm = {"neck": {"name": "batch-norm", "features": 0}}
    record = with_neck(odd_run, tmp_path / "wcdas", batch_norm)
    plain = with_neck(odd_softmax, tmp_path / "plain", {})
    assert find_baseline(record).folder == plain.folder
    assert "neck.name none instead of batch-norm" in beside_told(record, plain)
    necked = with_neck(odd_softmax, tmp_path / "necked", batch_norm)
    os.utime(necked.folder / "run.toml", (0, 0))  # the plain one is newer
    assert find_baseline(record).folder == necked.folder


def test_a_run_from_before_there_were_necks_has_none(odd_run, odd_softmax, tmp_path):
    old = with_neck(odd_softmax, tmp_path / "softmax", {})
    assert not any(key.startswith("neck") for key in differing([read_record(odd_run.path), old]))
    write_report(old.folder, overwrite=True)
    assert "resnet32 with head linear" in text_of(old.folder / "report.html")


def test_features_have_no_pictures(features, tmp_path):
    run = wcdas.train(features, settings=ONE_EPOCH, out=tmp_path / "run", device="cpu")
    page = (run.path / "report.html").read_text("utf-8")
    assert "<img" not in page.split("<script>")[0]
    assert "Samples: " in page


def test_a_run_of_experts(features, tmp_path):
    run = wcdas.train(
        features, "ride-wcdas", settings={"epochs": 2}, out=tmp_path / "r", device="cpu"
    )
    assert len(read_record(run.path).measured["rho"]) == 10


def test_a_report_that_fails_does_not_cost_the_run(tmp_path, monkeypatch):
    def fail(*given):
        raise ZeroDivisionError("drawn\nbadly")

    monkeypatch.setattr("wcdas.api.report_on", fail)
    console = Console(record=True, width=500)
    out = tmp_path / "a run"
    run = wcdas.train(settings=SMALL, out=out, device="cpu", console=console)
    assert run.metrics["test_images"] == 500
    told = [line for line in console.export_text().splitlines() if "the report" in line]
    assert told == [
        "warning: the report could not be written (drawn badly), the run is whole; try again "
        f"with: wcdas report '{out}'"
    ]
    monkeypatch.undo()
    assert write_report(run).exists()


def test_without_a_report(tmp_path):
    run = wcdas.train(settings=SMALL, out=tmp_path / "run", device="cpu", report=False)
    assert not any((run.path / name).exists() for name in ("report.html", "report.json", "figures"))
    assert write_report(run) == run.path / "report.html"


def test_several_runs_on_one_page(odd_run, odd_softmax, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = write_report(odd_softmax, odd_run, figures=True)
    assert page == Path("runs/report-1/report.html")
    text = page.read_text("utf-8")
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    titles = [column["title"] for column in data["columns"]]
    assert titles[-3:] == ["softmax %", "wcdas %", "wcdas − softmax"]
    one, other, change = (column["values"] for column in data["columns"][-3:])
    for a, b, c in zip(one, other, change, strict=True):
        assert c is None if a is None else c == pytest.approx(b - a, abs=0.01)
    assert "head.name" in text
    assert {p.stem for p in Path("runs/report-1/figures").glob("*.png")} == set(data["charts"])
    assert write_report(odd_softmax, odd_run) == Path("runs/report-2/report.html")


def test_runs_on_other_classes_are_compared_by_group(odd_run, digits_run, tmp_path):
    text = write_report(odd_run, digits_run, out=tmp_path / "both").read_text("utf-8")
    assert "The runs are not on the same data" in text
    assert "so none are compared" in text


def test_runs_of_one_method_are_told_apart(digits_run, copy, tmp_path):
    text = write_report(digits_run, copy, out=tmp_path / "both").read_text("utf-8")
    assert f"<title>digits-lt: {digits_run.path.name}, copy</title>" in text
    assert "Nothing: the settings are the same." in text


def test_the_command(digits_run, copy, tmp_path, capsys):
    (copy / "report.html").unlink()
    assert usage.run(cli.app, ["report", str(copy)]) == 0
    assert capsys.readouterr().out.strip() == str(copy / "report.html")
    both = tmp_path / "both"
    assert usage.run(cli.app, ["report", str(digits_run.path), str(copy), "--out", str(both)]) == 0
    assert (both / "report.html").exists()
    capsys.readouterr()
    for runs in ([digits_run.path, copy], [copy]):
        (both / "report.html").write_text("the last one")
        again = ["report", *map(str, runs), "--out", str(both)]
        assert usage.run(cli.app, again) == 2
        assert "report.html exists; replace it with --overwrite" in capsys.readouterr().err
        assert (both / "report.html").read_text() == "the last one"
        assert usage.run(cli.app, [*again, "--overwrite"]) == 0
        assert (both / "report.html").read_text("utf-8").startswith("<!")


def test_a_folder_of_runs_is_answered_with_a_command(digits_run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sweep = wcdas.sweep(
        methods="softmax,crt", seeds=1, settings=SMALL, out="my sweep", device="cpu",
        report=False,
    )  # fmt: skip
    assert usage.run(cli.app, ["report", str(sweep.path)]) == 2
    said = capsys.readouterr().err
    command = "wcdas report 'my sweep/softmax-s0' 'my sweep/crt-s0'"
    assert said == f"wcdas: my sweep is a sweep's folder; expected runs, such as: {command}\n"
    assert usage.run(cli.app, shlex.split(command)[1:]) == 0
    with pytest.raises(InputError, match=r"expected a run's folder, such as my sweep/crt-s0, or"):
        wcdas.load(sweep)
    for name in ("softmax-s0", "crt-s0"):
        (sweep.path / name / "metrics.json").unlink()
    with pytest.raises(InputError, match=r"none of its runs is finished; go on with: wcdas sweep"):
        write_report(sweep)
    shutil.copytree(digits_run.path, tmp_path / "runs" / "digits")
    with pytest.raises(InputError, match=r"runs is a folder of runs; .*: wcdas report runs/digits"):
        write_report("runs")


def test_bad_input_is_one_line(digits_run, odd_run, copy, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    cases = {
        "is no folder": ["nowhere"],
        "holds no run": [tmp_path / "empty"],
        "choose another with --out": [digits_run.path, odd_run.path, "--out", copy],
    }
    for words, given in cases.items():
        assert usage.run(cli.app, ["report", *map(str, given)]) == 2
        said = capsys.readouterr().err
        assert words in said
        assert said.count("\n") == 1
    with pytest.raises(InputError, match="11 runs were named"):
        write_report(*[shutil.copytree(copy, tmp_path / f"c{i}") for i in range(11)])
