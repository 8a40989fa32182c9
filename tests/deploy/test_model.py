"""A loaded model predicts what the run was measured by."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import wcdas
from wcdas.errors import InputError


def test_load_gives_the_predictions_of_the_evaluation(mixed_run, mixed_folder):
    test = wcdas.open_dataset(mixed_folder).test
    files = [mixed_folder / test.name(i) for i in range(len(test))]
    probabilities = wcdas.load(mixed_run, device="cpu").predict(files)
    right = probabilities.argmax(1) == test.labels
    assert right.double().mean() == mixed_run.metrics["top1"]
    nll = torch.nn.functional.nll_loss(probabilities.log(), test.labels)
    assert float(nll) == pytest.approx(mixed_run.metrics["nll"], abs=1e-5)


def test_preprocessing_is_that_of_the_evaluation(mixed_run, mixed_folder):
    from wcdas.data.loader import EvalLoader

    model, test = wcdas.load(mixed_run, device="cpu"), wcdas.open_dataset(mixed_folder).test
    info = model.info
    loader = EvalLoader(
        test,
        size=info.input_size,
        channels=info.channels,
        mean=info.mean,
        std=info.std,
        batch_size=64,
        device="cpu",
        workers=0,
    )
    (batch,) = list(loader)
    own = torch.stack([model.preprocess(mixed_folder / test.name(i)) for i in range(len(test))])
    torch.testing.assert_close(own, batch.inputs, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["0.jpg", "1.png", "3.png", "4.jpg"])
def test_an_opened_picture_is_treated_like_its_file(mixed_run, mixed_folder, name):
    model = wcdas.load(mixed_run, device="cpu")
    file = mixed_folder / "test" / "flower" / name
    torch.testing.assert_close(
        model.preprocess(Image.open(file)), model.preprocess(file), rtol=0, atol=0
    )


def test_the_turned_picture_is_turned_upright(mixed_run, mixed_folder):
    model = wcdas.load(mixed_run, device="cpu")
    file = mixed_folder / "test" / "flower" / "4.jpg"
    lying = Image.fromarray(np.asarray(Image.open(file)))  # without its EXIF
    assert not torch.allclose(model.preprocess(lying), model.preprocess(file))
    upright = lying.transpose(Image.Transpose.ROTATE_270)
    torch.testing.assert_close(model.preprocess(upright), model.preprocess(file), rtol=0, atol=0)


def test_one_picture_needs_no_list(mixed_run, mixed_folder):
    model = wcdas.load(mixed_run, device="cpu")
    file = mixed_folder / "test" / "china" / "0.jpg"
    assert torch.equal(model.predict(str(file)), model.predict([file]))
    assert model.predict([]).shape == (0, 3)


def test_the_model_file_is_enough(mixed_run, mixed_folder, tmp_path, monkeypatch):
    file = shutil.copy(mixed_run.path / "model.safetensors", tmp_path / "moved.safetensors")
    monkeypatch.chdir(tmp_path)
    model = wcdas.load(file, device="cpu")
    picture = mixed_folder / "test" / "china" / "0.jpg"
    assert torch.equal(model.predict(picture), mixed_run.model.predict(picture))
    assert model.class_names == ["china", "flower", "roof"]


def test_digits_predicted_as_pictures(digits_run):
    test = wcdas.open_dataset("digits-lt").test
    images = [Image.fromarray(pixels[0].numpy()) for pixels in test.pixels]
    model = wcdas.load(digits_run, device="cpu")
    batches = [model.predict(images[i : i + 256]) for i in (0, 256)]  # as in the evaluation
    predicted = torch.cat(batches).argmax(1)
    assert (predicted == test.labels).double().mean() == digits_run.metrics["top1"]


def test_a_prior_moves_the_logits_by_its_logarithm(mixed_run, mixed_folder, tmp_path):
    model = wcdas.load(mixed_run, device="cpu")
    inputs = model.preprocess(mixed_folder / "test" / "china" / "0.jpg")[None]
    plain, counts = model.logits(inputs), torch.tensor([12.0, 8.0, 4.0])
    torch.testing.assert_close(model.logits(inputs, prior="train"), plain)
    (tmp_path / "mix.csv").write_text("roof,3\nchina,2\nflower,1\n")
    mix = torch.tensor([2.0, 1.0, 3.0]) / 6
    expected = plain + mix.log() - (counts / 24).log()
    torch.testing.assert_close(model.logits(inputs, prior=str(tmp_path / "mix.csv")), expected)


def test_the_file_of_a_prior_is_read_once(mixed_run, mixed_folder, tmp_path):
    class Images(list):
        def __getitem__(self, part):
            mix.unlink(missing_ok=True)
            return super().__getitem__(part)

    model, file = wcdas.load(mixed_run, device="cpu"), mixed_folder / "test" / "china" / "0.jpg"
    mix = tmp_path / "mix.csv"
    mix.write_text("roof,3\nchina,2\nflower,1\n")
    expected = model.logits(model.preprocess(file)[None], str(mix)).softmax(1)
    found = model.predict(Images([file, file]), str(mix), batch=1)
    torch.testing.assert_close(found, expected.expand(2, -1), rtol=0, atol=0)


def test_a_balanced_model_has_the_uniform_prior_already(digits_run):
    model = wcdas.load(digits_run, device="cpu")
    inputs = torch.zeros(1, 1, 8, 8)
    torch.testing.assert_close(model.logits(inputs, prior="uniform"), model.logits(inputs))


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\x80\x04pickled", "cannot be read as a model"), (b"", "cannot be read as a model")],
)
def test_no_model_file(tmp_path, content, message):
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(InputError, match=message):
        wcdas.load(file)


def test_nothing_to_load(tmp_path):
    with pytest.raises(InputError, match="holds no trained model"):
        wcdas.load(tmp_path)
    Path(tmp_path, "run.toml").write_text("")
    with pytest.raises(InputError, match="not finished; go on with: wcdas train"):
        wcdas.load(tmp_path)


@pytest.mark.parametrize("k", [1, 2, 9])
def test_the_top_classes(mixed_run, mixed_folder, k, at_a_time, tmp_path):
    """Of few classes they are those of all probabilities; of many they are found some at a time."""
    model = wcdas.load(mixed_run, device="cpu")
    files = [mixed_folder / "test" / "china" / f"{i}.jpg" for i in (0, 2)]
    mix = tmp_path / "mix.csv"
    mix.write_text("roof,3\nchina,2\nflower,0\n")
    for prior in (None, str(mix)):
        best = model.predict(files, prior).sort(dim=1, descending=True, stable=True)
        found = model.top(files, k, prior, batch=1)
        with at_a_time(1, 2):
            parts = model.top(files, k, prior)
        torch.testing.assert_close(found[0], best.values[:, :k])
        assert torch.equal(found[1], best.indices[:, :k])
        torch.testing.assert_close(parts[0], found[0])
        assert torch.equal(parts[1], found[1])


def test_the_top_classes_of_nothing(mixed_run):
    probabilities, classes = mixed_run.model.top([], 2)
    assert probabilities.shape == classes.shape == (0, 2)
    with pytest.raises(InputError, match="k is 0; expected a whole number of at least 1"):
        mixed_run.model.top([], 0)
