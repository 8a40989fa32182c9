"""The command line as a person uses it: every slip is one line and exit status 2, nothing left."""

import json
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import wcdas

EPOCHS = ["--no-report", "--set", "epochs=1"]


def test_empty_folder(refused, tmp_path):
    assert "holds no images in class folders" in refused("train", tmp_path / "here")


def test_one_class(refused, pictures, tmp_path):
    assert "one class only (china)" in refused("train", pictures(tmp_path / "x", china=3))


def truncated(folder: Path) -> Path:
    file = folder / "china" / "2.jpg"
    file.write_bytes(file.read_bytes()[:400])
    (folder / "flower" / "1.png").write_bytes(b"no picture")
    return folder


def test_unreadable_images_are_named(refused, pictures, tmp_path):
    said = refused("train", truncated(pictures(tmp_path / "x", china=5, flower=5)))
    assert "2 of 10 images" in said
    assert "china/2.jpg" in said
    assert "flower/1.png" in said
    assert "--skip-bad" in said


def test_check_shows_the_tail_and_every_bad_image(command, pictures, tmp_path):
    folder = pictures(tmp_path / "x", china=30, flower=10)
    bad = [folder / "china" / f"{i}.{('jpg', 'png')[i % 2]}" for i in range(22)]
    for file in bad:
        file.write_bytes(b"no image")
    status, out, err = command("check", folder)
    assert status == 2
    assert err == (
        "wcdas: 22 of 40 images cannot be used; remove them, or leave them out with --skip-bad\n"
    )
    assert "14 training and 4 test" in out
    assert "largest class 8, smallest 6, imbalance 1.33" in out
    assert "no test" in out  # images that are in both splits
    lines = out.splitlines()
    at = lines.index("warning: bad images (22):") + 1
    named = [line.partition(" cannot be read: ")[0] for line in lines[at : at + 22]]
    assert named == [f"  {file.relative_to(folder)}" for file in bad]
    assert command("check", folder, "--skip-bad") == (0, out, "")
    said = command("train", folder).err
    assert said.count("china/") == 5
    assert "; and 17 more. " in said


def test_check_of_bad_images_alone(refused, tmp_path):
    for name in ("a", "b"):
        (tmp_path / "x" / name).mkdir(parents=True)
        (tmp_path / "x" / name / "1.png").write_bytes(b"no image")
    said = refused("check", tmp_path / "x")
    assert "2 of 2 images cannot be used: a/1.png cannot be read" in said
    assert "no image that can be read" in refused("check", tmp_path / "x", "--skip-bad")


def test_unreadable_images_are_skipped_and_counted(command, pictures, tmp_path):
    folder = truncated(pictures(tmp_path / "x", china=5, flower=5))
    status, out, err = command("train", folder, "--skip-bad", "--workers", 0, *EPOCHS)
    assert (status, err) == (0, "")
    assert "bad images left out (2): china/2.jpg" in out
    run = Path("runs/x-wcdas-prior-s0-1")
    assert f"\n{run}\n" in out
    # Neither a resumed run nor an evaluation has to be told again.
    (run / "metrics.json").unlink()
    assert command("train", "--out", run, "--resume", "--workers", 0).status == 0
    assert command("evaluate", run).status == 0
    # Nor has the run that is made of its run.toml, with the command of the page or of the card.
    again = "wcdas train --recipe runs/x-wcdas-prior-s0-1/run.toml --out NEW_FOLDER"
    assert again in (run / "report.html").read_text()
    assert command(*again.split()[1:], "--workers", 0, "--no-report").status == 0
    assert command("export", run, "--format", "card", "--out", "card.md").status == 0
    assert "wcdas train DATA --recipe run.toml\n" in Path("card.md").read_text()
    written = command(
        "train", folder, "--recipe", run / "run.toml", "--out", "third", "--no-report"
    )
    assert written.status == 0
    for other in ("NEW_FOLDER", "third"):
        assert (Path(other) / "run.toml").read_text() == (run / "run.toml").read_text()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("x/china/99.jpg 0", "line 5: x/china/99.jpg does not exist"),
        ("x/china/2.jpg 5", "labels have gaps"),
        ("../../etc/passwd 0", "leads out of"),
        ("x/china/2.jpg", "has no label"),
    ],
)
def test_list_files(refused, pictures, tmp_path, line, said):
    pictures(tmp_path / "x", china=4, flower=4)
    lines = [f"x/{name}/{i}.{end} {y}" for y, name in enumerate(("china", "flower"))
             for i, end in enumerate(("jpg", "png"))]  # fmt: skip
    (tmp_path / "list.txt").write_text("\n".join([*lines, line]))
    assert said in refused("train", tmp_path / "list.txt")


def test_names_that_differ_by_case(refused, pictures, tmp_path):
    pictures(tmp_path / "x", china=3, flower=3)
    pictures(tmp_path / "x", China=3)
    assert "'China' and 'china' differ only by case" in refused("train", tmp_path / "x")


def test_a_picture_of_too_many_pixels(refused, pictures, tmp_path):
    folder = pictures(tmp_path / "x", china=3, flower=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Image.new("1", (14_000, 14_000)).save(folder / "china" / "huge.png")
    said = refused("train", folder)
    assert "china/huge.png cannot be read: more than 100,000,000 pixels" in said


def test_output_folders(refused, command, tmp_path):
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        assert "file is a file); choose another with --out" in refused("train", "--out", out)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "x").touch()
    assert "used is not empty; choose another" in refused("train", "--out", tmp_path / "used")
    (tmp_path / "used" / "run.toml").touch()
    assert "used is not empty; go on with --resume" in refused("train", "--out", tmp_path / "used")
    assert "cannot be written" in refused("train", "--out", "/proc/no/run", *EPOCHS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--method wcdss", "unknown method 'wcdss'; did you mean 'wcdas'"),
        ("digit-lt", "unknown dataset 'digit-lt'; did you mean 'digits-lt'"),
        ("no/folder", "no/folder does not exist"),
        ("--recipe digits", "unknown recipe 'digits'; did you mean 'digits-lt'"),
        ("--device gpu", "device is 'gpu'; expected auto, cpu, cuda or cuda:N"),
        ("--device meta", "device is 'meta'; expected auto, cpu"),
        ("--workers -1", "--workers is -1; expected 0"),
        ("--resume", "--resume needs to know which run; name its folder with --out"),
        ("--resume --out nowhere", "nowhere holds no run"),
        ("--log wandv", "unknown logger 'wandv'; did you mean 'wandb'"),
        ("--log none,wandb", "--log none,wandb: none goes with no other; leave one out"),
        ("--log none --log", "'--log' requires an argument"),
        ("--seed one", "--seed is 'one'; expected a whole number"),
        ("--seed 1.5", "--seed is '1.5'; expected a whole number"),
        ("--workers all", "--workers is 'all'; expected a whole number"),
        ("--sed 1", "no such option: --sed"),
        ("a b", "unexpected extra argument"),
        ("--set", "'--set' requires an argument; see wcdas"),
        ("--set epochs", "--set got 'epochs'; expected key=value"),
        ("--set epoch=3", "unknown key 'epoch'; did you mean 'epochs'?"),
        ("--set backbon.name=x", "unknown key 'backbon'; did you mean 'backbone'"),
        ("--set backbone.name=resnet23", "unknown backbone 'resnet23'; did you mean"),
        ("--set backbone.name=nope", "unknown backbone 'nope'; see `wcdas list backbones`"),
        ("--set backbone.weights=no.pth", "weights file 'no.pth' does not exist"),
        (
            "--set neck.name=linar",
            "neck: unknown neck 'linar'; did you mean 'linear' or 'linear-relu'?",
        ),
        ("--set neck.features=8", "neck: features is 8, but a neck 'none' gives as many as it"),
        ("--set neck=linear", "neck is 'linear'; expected a table"),
        ("--set head.name=wcda", "unknown head 'wcda'; did you mean 'wcdas'"),
        ("--set head.inti=1", "'inti'; did you mean 'init'"),
        ("--set head.init=[1]", "head: "),
        ("--set stages.represent.lr=1", "'represent'; did you mean 'representation'"),
        ("--method crt --set stages.classifier.epoch=1", "did you mean 'stages.classifier.epochs'"),
        ("--method crt --set stages.classifier.loss=focall", "'focall'; did you mean 'focal'"),
        ("--method crt --set stages.classifier.sampler=clas", "did you mean 'class-aware'"),
        (
            "--method balms --set stages.classifier.sampler_options.lr=-1",
            "stage classifier: sampler_options.lr is -1; expected a number above 0",
        ),
        ("--method ride --set options.experts=100000", "options.experts is 100000; expected 2 to"),
        ("--method sade --set options.width=0", "options.width is 0; expected above 0"),
        ("--set mixup=0.2", "did you mean 'stages.representation.mixup'?"),
        ("--method crt --set mixup=0.2", "'stages.representation.mixup' or 'stages.clas"),
        ("--set stages.classifier.lr=1", "unknown stage of wcdas-prior 'classifier'; known: repr"),
        ("--method crt --set stages.classifier.augment=stron", "did you mean 'strong'"),
        ("--method crt --set stages.classifier.head=foo", "unknown head 'foo'"),
        ("--method crt --set stages.classifier.lr=-1", "classifier.lr is -1.0; expected above 0"),
        ("--set epochs=1.5", "epochs is 1.5; expected a whole number"),
        ("--set lr=fast", "lr is 'fast'; expected a number"),
        ("--set lr=inf", "lr is inf"),
        ("--set amp=fp8", "amp is 'fp8'; expected 'none' or 'bf16' or 'fp16'"),
        ("--set stages=3", "stages is 3"),
        ("--set data=3", "data is 3"),
        ("--set data.imbalanc=3", "unknown key 'data.imbalanc'; did you mean 'data.imbalance'"),
        ("--set data.imbalance=0", "data.imbalance is 0; expected a number from 1 to 120"),
        ("--set data.seed=x", "data.seed is 'x'; expected a whole number"),
        ("--set data.root=[1]", "data.root is [1]; expected a text"),
        ("--set data.profile=flat", "unknown data.profile 'flat'"),
        ("--set method=3", "method is 3"),
    ],
)
def test_slips_on_the_command_line(refused, arguments, said):
    assert said in refused("train", *arguments.split())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"epochs = = 3", "is not valid TOML"),
        (b"epoch = 3", "unknown key 'epoch'; did you mean 'epochs'"),
        (pickle.dumps({"epochs": 3}), "cannot be read as TOML"),
    ],
)
def test_bad_recipes(refused, tmp_path, content, said):
    (tmp_path / "own.toml").write_bytes(content)
    assert said in refused("train", "--recipe", tmp_path / "own.toml")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("trian", "did you mean 'train'"),
        ("evaluate", "missing argument 'RUN'; see wcdas evaluate --help"),
        ("evaluate nowhere", "nowhere holds no trained model"),
        ("evaluate nowhere --temperature 0", "temperature is 0.0; expected a number above 0"),
        ("evaluate nowhere --temperature hot", "--temperature is 'hot'; expected a number"),
        ("predict nowhere x.png --abstain half", "--abstain is 'half'; expected a number"),
        ("sweep --seeds three", "--seeds is 'three'; expected a whole number"),
        ("serve nowhere --port http", "--port is 'http'; expected a whole number"),
        ("list method", "unknown kind 'method'; did you mean 'methods'"),
        ("check digits-lt --set epochs=3", "expected data.… here"),
        ("check digits-lt --set data.rot=3", "did you mean 'data.root'"),
        ("embed nowhere --out x.csv", "ends in .parquet"),
        ("embed nowhere --out no/x.parquet", "no/x.parquet cannot be written"),
        ("embed nowhere", "nowhere is no run's folder and no model file; unknown backbone"),
        ("embed resnet_50 digits-lt", "did you mean 'resnet50"),
        ("embed no/where", "no/where holds no trained model"),
        ("embed resnet50", "resnet50 is a backbone, which has no data; try: wcdas embed resnet50"),
        ("embed resnet50 digits-lt --set lr=1", "--set got 'lr'; expected backbone.weights or"),
    ],
)
def test_slips_in_other_commands(refused, arguments, said):
    assert said in refused(*arguments.split()).replace("Did", "did")


def test_garbage_for_a_model(refused, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(pickle.dumps({"weights": [1, 2, 3]}))
    assert "cannot be read as a model" in refused("evaluate", tmp_path / "model.safetensors")


def test_a_class_with_one_image_and_files_that_are_none(command, pictures, tmp_path):
    folder = pictures(tmp_path / "x", china=6, flower=4, roof=1)
    (folder / "china" / "notes.txt").write_text("no picture")
    status, out, err = command("train", folder, "--out", "run", "--workers", 0, *EPOCHS)
    assert (status, err) == (0, "")
    assert out.count("warning: ") == 2
    assert "warning: files that are not images, ignored (1)" in out
    assert "warning: classes with one image only (1): roof" in out
    status, out, _ = command("evaluate", "run", "--per-class")
    assert status == 0
    assert any(line.split()[:4] == ["roof", "1", "0", "–"] for line in out.splitlines())


def test_a_class_without_test_images(command, pictures, tmp_path):
    pictures(tmp_path / "x" / "train", china=4, flower=4, roof=3)
    pictures(tmp_path / "x" / "test", china=2, flower=2)
    status, out, _ = command("check", tmp_path / "x")
    assert status == 0
    assert "warning: classes without test images (1): roof" in out
    assert "test images that are training images too" in out  # both were cut alike


def test_train_resume_evaluate_embed(command):
    settings = ["--no-report", "--set", "epochs=1", "backbone.name=resnet8"]
    status, out, _ = command("train", "--method", "softmax", "--seed", "3", *settings)
    run = "runs/digits-lt-softmax-s3-1"
    assert status == 0
    for part in ("331 training and 500 test", "imbalance 60", "1 epoch,", "few (< 20)", "top-5"):
        assert part in out
    assert out.endswith(f"\n{run}\n")
    finished = command("train", "--out", run, "--resume")
    assert finished.status == 0
    assert finished.out.strip() in out
    changed = command("train", "--out", run, "--resume", "--set", "lr=3")
    assert changed.status == 2
    assert "stages.representation.lr: 0.1 → 3" in changed.err

    status, out, _ = command("evaluate", run, "--json")
    metrics = json.loads(out)
    assert metrics["top1"] == json.loads(Path(run, "metrics.json").read_text())["top1"]
    prior = command("evaluate", run, "--prior", "uniform")
    assert prior.status == 0
    assert "digits-lt: 500 test samples" in prior.out
    assert "wcdas train features.parquet" in command("embed", run).out
    assert command("train", "features.parquet", "--out", "head", *EPOCHS).status == 0


def test_a_run_can_be_repeated_from_its_file(command):
    settings = ["--no-report", "--set", "epochs=1", "backbone.name=resnet8"]
    assert command("train", "--method", "softmax", "--out", "one", *settings).status == 0
    assert command("train", "--recipe", "one/run.toml", "--out", "two", "--no-report").status == 0
    assert wcdas.api.Run(Path("one")).metrics == wcdas.api.Run(Path("two")).metrics
    assert Path("one/run.toml").read_text() == Path("two/run.toml").read_text()


def test_set_takes_several(command):
    settings = ["--set=epochs=1", "data.imbalance=10", "batch_size=64", "backbone.name=resnet8"]
    options = ["--method", "softmax", "--out", "run", "--no-report"]
    assert command("train", *settings, *options).status == 0
    text = Path("run/run.toml").read_text()
    assert "imbalance = 10" in text
    assert "batch_size = 64" in text


def test_names_with_brackets_and_colons(command, pictures, tmp_path):
    folder = pictures(tmp_path / "x", china=4, flower=4, roof=1)
    (folder / "roof").rename(folder / "[red]:smile:")
    status, out, _ = command("check", folder)
    assert status == 0
    assert "[red]:smile:" in out


def test_features_in_npy(command, tmp_path):
    random = np.random.RandomState(0)
    np.save("x.npy", random.randn(40, 5).astype(np.float32))
    np.save("y.npy", np.arange(40) % 2)
    assert "has no labels" in command("train", "x.npy").err
    options = [*EPOCHS, "data.labels=y.npy"]
    assert command("train", "x.npy", *options, "--out", "run").status == 0
    os.chdir(tmp_path)  # the run knows where its data is
    assert command("evaluate", tmp_path / "here" / "run").status == 0


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("", "COMMAND [ARGS]..."),
        ("check", "DATA"),
        ("train", "[DATA]"),
        ("sweep", "[DATA]"),
        ("evaluate", "RUN"),
        ("predict", "RUN IMAGE …"),
        ("export", "RUN"),
        ("serve", "RUN"),
        ("report", "RUN …"),
        ("embed", "RUN|BACKBONE [DATA]"),
        ("paper", "[NAME …]"),
        ("list", "KIND"),
    ],
)
def test_help(command, name, arguments):
    status, out, err = command(*name.split(), "--help")
    assert (status, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert ("Examples:\n  " in out) if name else ("train" in out)
    assert out.startswith(f"{' '.join(['Usage: wcdas', *name.split()])} [OPTIONS] {arguments}\n")
    assert "<" not in out  # no Python types


@pytest.mark.parametrize("kind", ["methods", "heads", "losses", "datasets", "backbones", "necks",
                                  "recipes", "samplers", "augmentations"])  # fmt: skip
def test_listing(command, kind):
    status, out, _ = command("list", kind)
    assert status == 0
    names = {line.split()[0] for line in out.splitlines()}
    known = {"methods": wcdas.list_methods, "heads": wcdas.list_heads, "losses": wcdas.list_losses,
             "datasets": wcdas.list_datasets, "backbones": wcdas.list_backbones,
             "necks": wcdas.list_necks}  # fmt: skip
    assert names >= set(known[kind]() if kind in known else ())
    if kind in ("methods", "heads", "losses", "datasets", "recipes"):
        assert all(len(line.split()) > 2 for line in out.splitlines())


def test_help_and_version_do_not_wait_for_torch():
    code = (
        "import sys; sys.argv = ['wcdas', '--version']\n"
        "from wcdas.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"wcdas {wcdas.__version__}\n", "")


def test_in_a_process_of_its_own(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "wcdas.cli", "train", str(tmp_path / "nothing")],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "ascii:replace"},
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "does not exist" in done.stderr
    assert not list(tmp_path.iterdir())
