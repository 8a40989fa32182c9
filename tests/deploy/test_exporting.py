"""Exported models say what the model says; one that does not is not handed over."""

import json
import re
import subprocess
import sys
from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch
from PIL import Image
from torch import nn

import wcdas
from wcdas import cli, usage
from wcdas.deploy import agreement, exporting
from wcdas.errors import WorkError

DOCS = Path(__file__).parents[2] / "docs"
# Every kind of head, several experts, and a corrected weight.
METHODS = ["lws", "gaussian-affinity"]
MORE = [
    "wndas",
    "ride",
    "softmax",
    "angular-softmax",
    "tau-norm",
    "sade-wcdas",
    "t-vmf",
    "l-softmax",
]


@pytest.fixture(scope="module")
def quick_run(features, tmp_path_factory) -> wcdas.Run:
    """Of a small model, which is exported fast."""
    out = tmp_path_factory.mktemp("runs") / "quick"
    settings = {"epochs": 1}
    return wcdas.train(features, "softmax", settings=settings, out=out, device="cpu", report=False)


@pytest.fixture(scope="module")
def onnx_file(odd_run, tmp_path_factory) -> Path:
    return wcdas.export(odd_run, "onnx", tmp_path_factory.mktemp("onnx") / "model.onnx").path


def run_onnx(path: Path, inputs: torch.Tensor) -> list[torch.Tensor]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return [torch.from_numpy(x) for x in session.run(None, {"images": inputs.numpy()})]


@pytest.mark.parametrize(
    "method", METHODS + [pytest.param(name, marks=pytest.mark.slow) for name in MORE]
)
def test_every_head_in_onnx_runtime_and_torch_export(method, features, tmp_path):
    epochs = 2 if method == "ride" else 1  # its stages share them
    settings = {"epochs": epochs}
    run = wcdas.train(
        features, method, settings=settings, out=tmp_path / "run", device="cpu", report=False
    )
    check_exported(run, torch.rand(5, 64))


@pytest.mark.parametrize("method", ["oltr", pytest.param("ride", marks=pytest.mark.slow)])
def test_a_backbone_that_a_method_changes(method, tmp_path):
    settings = {"epochs": 2, "backbone.name": "resnet8"}
    run = wcdas.train(
        method=method, settings=settings, out=tmp_path / "run", device="cpu", report=False
    )
    check_exported(run, torch.randn(5, 1, 8, 8))


def check_exported(run, inputs):
    model = wcdas.load(run, device="cpu")
    logits = model.logits(inputs)
    done = wcdas.export(run)
    assert done == (run.path / "model.onnx", done.difference)
    assert done.difference < 1e-5
    program = torch.export.load(wcdas.export(run, "torch").path).module()
    for got in (run_onnx(done.path, inputs), program(inputs)):
        torch.testing.assert_close(got[0], logits, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(got[1], logits.softmax(1), rtol=0, atol=1e-4)


def test_the_documented_preprocessing_on_every_kind_of_picture(
    odd_run, onnx_file, every_kind, monkeypatch
):
    """`prepare` of the page on export, which knows nothing but the file, `wcdas predict` and
    `wcdas.load` agree."""
    monkeypatch.chdir(onnx_file.parent)
    page = (DOCS / "export.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (code,) = [block for block in blocks if "def prepare" in block]
    assert "import wcdas" not in code
    names: dict[str, object] = {}
    exec(compile(code, "export.md", "exec"), names)
    model = wcdas.load(odd_run, device="cpu")
    answers = list(wcdas.predict_files(odd_run, every_kind, top=3, device="cpu"))
    assert len(answers) >= 15
    for answer in answers:
        _, (probabilities,) = names["session"].run(None, {"images": names["prepare"](answer.file)})
        loaded = model.predict(answer.file)[0].numpy()
        assert probabilities == pytest.approx(loaded, abs=1e-4)
        said = {guess.name: guess.probability for guess in answer.top}
        ours = dict(zip(names["class_names"], probabilities.tolist(), strict=True))
        assert said == pytest.approx(ours, abs=1e-4)


@pytest.mark.parametrize("centre", [0.875, 1.0])
def test_a_large_picture_is_cut_as_documented(photographs, pictures, tmp_path, monkeypatch, centre):
    """From 112 pixels on the centre is cut out; it is predicted and documented as evaluated."""
    monkeypatch.chdir(tmp_path)
    folder = pictures(tmp_path / "pictures", china=6, flower=4)
    settings = {"epochs": 1, "backbone.name": "resnet8", "input_size": 128}
    settings["evaluation_crop"] = centre
    options = {"out": "run", "device": "cpu", "workers": 0, "report": False}
    run = wcdas.train(folder, "softmax", settings=settings, **options)
    wcdas.export(run, "onnx", "model.onnx")
    page = (DOCS / "export.md").read_text(encoding="utf-8")
    (code,) = [b for b in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def prepare" in b]
    names: dict[str, object] = {}
    exec(code, names)
    Image.fromarray(photographs["china"]).save("china.png")
    model, test = wcdas.load(run, device="cpu"), wcdas.open_dataset(folder).test
    ours = model.preprocess("china.png")[None].numpy()
    assert names["prepare"]("china.png") == pytest.approx(ours, abs=1e-6)
    found = model.predict([folder / test.name(i) for i in range(len(test))])
    nll = torch.nn.functional.nll_loss(found.log(), test.labels)
    assert float(nll) == pytest.approx(run.metrics["nll"], abs=1e-5)


def test_what_the_file_says_about_itself(odd_run, odd_names, onnx_file, tmp_path):
    session = onnxruntime.InferenceSession(str(onnx_file))
    said = session.get_modelmeta().custom_metadata_map
    info = odd_run.model.info
    assert json.loads(said["class_names"]) == odd_names
    assert json.loads(said["class_counts"]) == [104, 24, 6]
    assert json.loads(said["temperature"]) == info.temperature
    assert json.loads(said["prior"]) == {"trained": "uniform", "predicts_for": None}
    assert json.loads(said["preprocessing"])["mean"] == info.mean
    assert said["wcdas_format"] == "1"
    (images,) = session.get_inputs()
    assert (images.name, images.shape) == ("images", ["batch", 3, 32, 32])
    assert [output.name for output in session.get_outputs()] == ["logits", "probabilities"]
    path = wcdas.export(odd_run, "torch", tmp_path / "model.pt2").path
    extra = {"wcdas.json": ""}
    torch.export.load(path, extra_files=extra)
    assert json.loads(extra["wcdas.json"]) == said


@pytest.mark.slow
def test_a_class_mix_is_built_in(odd_run, every_kind, tmp_path):
    (tmp_path / "mix.csv").write_text("3\n1\n0\n")
    model = wcdas.load(odd_run, device="cpu")
    inputs = model.preprocess(every_kind / "colour.png")[None]
    mix = str(tmp_path / "mix.csv")
    path = wcdas.export(odd_run, "onnx", tmp_path / "model.onnx", prior=mix).path
    expected = model.logits(inputs, mix).softmax(1)
    torch.testing.assert_close(run_onnx(path, inputs)[1], expected, rtol=0, atol=1e-4)
    path = wcdas.export(odd_run, "torch", tmp_path / "model.pt2", prior="train").path
    expected = model.logits(inputs, "train").softmax(1)
    got = torch.export.load(path).module()(inputs)[1]
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-4)


TOP = ["wcdas", "wndas", "oltr"]


@pytest.mark.parametrize(
    "method", TOP + [pytest.param(name, marks=pytest.mark.slow) for name in MORE[1:] + METHODS]
)
def test_the_top_classes_alone(method, features, tmp_path, monkeypatch):
    """Three classes at a time, where none depends on others, and then no tensor has them all."""
    monkeypatch.setattr(exporting, "CLASSES", 3)
    data = "digits-lt" if method == "oltr" else features
    options = {"settings": {"epochs": 2}, "out": tmp_path / "run", "device": "cpu"}
    run = wcdas.train(data, method, report=False, **options)
    model = wcdas.load(run, device="cpu")
    inputs = torch.randn(7, 1, 8, 8) if method == "oltr" else torch.rand(7, 64)
    expected = model.logits(inputs).softmax(1).topk(2)
    done = wcdas.export(run, top=2)
    assert done.difference < 1e-5
    program = torch.export.load(wcdas.export(run, "torch", top=2).path).module()
    for values, classes in (run_onnx(done.path, inputs), program(inputs)):
        torch.testing.assert_close(values, expected.values, rtol=1e-4, atol=1e-6)
        assert classes.dtype == torch.int64
        probabilities = model.logits(inputs).softmax(1)
        torch.testing.assert_close(probabilities.gather(1, classes), values, rtol=1e-4, atol=1e-6)
    graph = onnx.load(done.path).graph
    shapes = [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in graph.value_info]
    assert len(shapes) > 30
    assert ([0, 10] in shapes) == (not model.classifier.head.separable)


def test_all_of_few_classes_on_top_and_none_that_is_excluded(quick_run, tmp_path, monkeypatch):
    """Of the first four classes a whole part is excluded."""
    monkeypatch.setattr(exporting, "CLASSES", 3)
    mix = tmp_path / "mix.csv"
    mix.write_text("0\n0\n0\n0\n1\n1\n1\n1\n1\n1\n")
    inputs = torch.rand(5, 64)
    expected = quick_run.model.logits(inputs, str(mix)).softmax(1).sort(1, descending=True)
    for form, name in (("onnx", "m.onnx"), ("torch", "m.pt2")):
        path = wcdas.export(quick_run, form, tmp_path / name, top=50, prior=str(mix)).path
        program = torch.export.load(path).module() if form == "torch" else None
        values, classes = program(inputs) if program else run_onnx(path, inputs)
        torch.testing.assert_close(values, expected.values, rtol=1e-4, atol=1e-6)
        assert torch.equal(classes[:, :6], expected.indices[:, :6])
        assert torch.equal(classes.sort(1).values, torch.arange(10).expand(5, 10))


def test_what_a_file_of_top_classes_says_about_itself(quick_run, tmp_path):
    path = wcdas.export(quick_run, "onnx", tmp_path / "m.onnx", top=2).path
    session = onnxruntime.InferenceSession(str(path))
    said = json.loads(session.get_modelmeta().custom_metadata_map["outputs"])
    assert list(said) == ["top_probabilities", "top_classes"]
    assert [(o.name, o.shape) for o in session.get_outputs()] == [(n, ["batch", 2]) for n in said]


def swapped(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The right probabilities with the classes of the lowest ones."""
    return logits.softmax(1).topk(2).values, (-logits).topk(2).indices


def cold(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    best = (1.01 * logits).softmax(1).topk(2)
    return best.values, best.indices


@pytest.mark.parametrize("wrong", [swapped, cold])
def test_top_classes_that_disagree(quick_run, wrong):
    """Also where all of them are improbable."""
    model = wcdas.load(quick_run, device="cpu")
    with pytest.raises(WorkError, match="does not agree with PyTorch: "):
        agreement.largest_difference("it", model, None, lambda x: wrong(model.logits(x)))


@pytest.mark.parametrize("method", ["wcdas", pytest.param("sade", marks=pytest.mark.slow)])
def test_a_neck_is_part_of_the_file(method, features, tmp_path):
    settings = {"epochs": 1, "neck.name": "linear", "neck.features": 24}
    run = wcdas.train(
        features, method, settings=settings, out=tmp_path / "run", device="cpu", report=False
    )
    model, vectors = wcdas.load(run, device="cpu"), torch.rand(3, 64)
    path = wcdas.export(run).path
    said = onnxruntime.InferenceSession(str(path)).get_modelmeta().custom_metadata_map
    assert said["neck"] == "linear"
    program = torch.export.load(wcdas.export(run, "torch").path).module()
    for got in (run_onnx(path, vectors), program(vectors)):
        torch.testing.assert_close(got[0], model.logits(vectors), rtol=1e-4, atol=1e-4)
    folder = wcdas.export(run, "hub").path
    again = wcdas.load(folder, device="cpu")
    assert again.logits(vectors).equal(model.logits(vectors))
    assert again.info == model.info
    card = (folder / "README.md").read_text("utf-8")
    assert f"identity with the neck linear and the head {model.info.head}" in card


class Wrong(nn.Module):
    """A model that exporters take, but not the one that was asked for."""

    def __init__(self, model: wcdas.Model, prior: str | None = None) -> None:
        super().__init__()
        self.classifier = model.classifier

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.classifier(images) * 1.01
        return logits, logits.softmax(1)


@pytest.mark.parametrize("form", ["onnx", "torch"])
def test_a_file_that_disagrees_is_not_left_behind(quick_run, tmp_path, monkeypatch, form):
    monkeypatch.setattr(exporting, "ExportableModel", Wrong)
    out = tmp_path / exporting.NAMES[form]
    out.write_text("the last one")
    with pytest.raises(WorkError, match="does not agree with PyTorch"):
        wcdas.export(quick_run, form, out, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    assert out.read_text() == "the last one"


class Unsupported(Wrong):
    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = torch.special.i0e(self.classifier(images))
        return logits, logits.softmax(1)


def test_what_onnx_has_no_operator_for(quick_run, tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "ExportableModel", Unsupported)
    with pytest.raises(WorkError, match=r"cannot be written as ONNX: .*; try --format torch") as e:
        wcdas.export(quick_run, "onnx", tmp_path / "model.onnx")
    assert "\n" not in str(e.value)
    assert not list(tmp_path.iterdir())


def test_not_a_number_is_no_agreement(odd_run):
    model = wcdas.load(odd_run, device="cpu")

    def nothing(inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = torch.full((len(inputs), 3), torch.nan)
        return z, z

    with pytest.raises(WorkError, match="differ by up to inf"):
        agreement.largest_difference("it", model, None, nothing)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("onxx",), "unknown format 'onxx'; did you mean 'onnx'?"),
        (("onnx", "model.pb"), "expected a name that ends in .onnx"),
        (("torch", "no/model.pt2"), "no/model.pt2 cannot be written"),
        (("hub", "used"), "used is a folder that is in use"),
        (("hub", "file"), "file is a file; expected a folder"),
        (("onnx", "folder.onnx"), "folder.onnx is a folder that is in use"),
    ],
)
def test_slips(odd_run, tmp_path, monkeypatch, refused, arguments, said):
    monkeypatch.chdir(tmp_path)
    Path("used").mkdir()
    Path("folder.onnx").mkdir()
    Path("used/x").touch()
    Path("file").touch()
    refused(said, wcdas.export, odd_run, *arguments)
    refused(said, wcdas.export, odd_run, *arguments, overwrite=True)
    refused("a prior is no part of the format hub", wcdas.export, odd_run, "hub", prior="train")
    refused(
        "a number of top classes is no part of the format card",
        wcdas.export,
        odd_run,
        "card",
        top=3,
    )
    refused("top is 0; expected 1 or more", wcdas.export, odd_run, top=0)
    refused("nowhere holds no trained model", wcdas.export, "nowhere", "onnx", "x.onnx")


@pytest.mark.parametrize(
    ("call", "hidden", "extra"),
    [
        (wcdas.export, "onnxruntime", "export"),
        (wcdas.export, "onnxscript", "export"),
        (wcdas.serve, "starlette", "serve"),
        (wcdas.serve, "uvicorn", "serve"),
    ],
)
def test_a_plain_installation_says_what_is_missing(odd_run, monkeypatch, call, hidden, extra):
    monkeypatch.setitem(sys.modules, hidden, None)
    with pytest.raises(wcdas.InputError) as error:
        call(odd_run)
    assert str(error.value) == (
        f"this needs {hidden}, which a plain installation leaves out; "
        f"install with: pip install 'wcdas[{extra}]'"
    )


@pytest.mark.parametrize("form", ["onnx", "torch", "card"])
def test_a_file_is_replaced_only_if_asked(quick_run, tmp_path, refused, form):
    out = tmp_path / exporting.NAMES[form]
    out.write_text("the last one")
    said = f"{out} exists; replace it with --overwrite, or choose another with --out"
    refused(said, wcdas.export, quick_run, form, out)
    assert out.read_text() == "the last one"
    assert wcdas.export(quick_run, form, out, overwrite=True).path == out
    assert out.read_bytes() != b"the last one"
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_weights_too_large_for_an_onnx_file_lie_beside_it(quick_run, tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "LARGEST", 1000)
    out = wcdas.export(quick_run, "onnx", tmp_path / "m.onnx").path
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for name in ("m.onnx", "m.onnx.data"):
        (tmp_path / name).rename(moved / name)
    inputs = torch.rand(5, 64)
    logits = quick_run.model.logits(inputs)
    torch.testing.assert_close(run_onnx(moved / out.name, inputs)[0], logits, rtol=1e-4, atol=1e-4)


def test_the_command(quick_run, tmp_path, capfd):
    command, out = ["export", str(quick_run.path), "--format", "torch", "--out"], tmp_path / "m.pt2"
    out.touch()
    assert usage.run(cli.app, [*command, str(out)]) == 2
    assert "m.pt2 exists; replace it with --overwrite" in capfd.readouterr().err
    assert usage.run(cli.app, [*command, str(out), "--overwrite"]) == 0
    said = rf"{tmp_path}/m\.pt2, agrees with PyTorch to \d?e-\d\d\n"
    assert re.fullmatch(said, capfd.readouterr().out)


@pytest.mark.slow
def test_the_command_in_a_process_of_its_own(odd_run, tmp_path):
    """Where nothing hides what exporters say."""
    command = [sys.executable, "-m", "wcdas.cli", "export", odd_run.path, "--out"]
    for options in ([], ["--overwrite"]):
        done = subprocess.run(
            [*command, tmp_path / "m.onnx", *options], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert re.fullmatch(rf"{tmp_path}/m\.onnx, agrees with PyTorch to \d?e-\d\d\n", done.stdout)
