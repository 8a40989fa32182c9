"""Images that are decoded once: the same crops as of the files."""

import numpy as np
import pytest
import torch
from PIL import Image

from wcdas.data.canvas import bytes_needed, canvases, squares
from wcdas.data.dataset import ArrayImages, Dataset, FileImages
from wcdas.data.images import Crop, training_square
from wcdas.data.inputs import open_inputs
from wcdas.data.loader import EvalLoader
from wcdas.errors import InputError

CPU = torch.device("cpu")
NORMAL = {"channels": 3, "mean": [0.0] * 3, "std": [1.0] * 3}


@pytest.fixture
def make_files(tmp_path):
    def make(sizes: list[tuple[int, int]]) -> FileImages:
        rng = np.random.default_rng(0)
        names = []
        for i, (width, height) in enumerate(sizes):
            # Smooth images, of which a resampling shows little.
            small = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8))
            small.resize((width, height), Image.Resampling.BICUBIC).save(tmp_path / f"{i}.png")
            names.append(f"{i}.png")
        return FileImages(tmp_path, names, torch.arange(len(sizes)), 3)

    return make


def test_images_of_the_canvas_size_are_cut_as_a_tensor_of_them_is(make_files):
    files = make_files([(128, 128)] * 6)
    held = canvases(files, 128, 3, CPU, workers=0)
    pixels = torch.stack(
        [torch.from_numpy(np.array(files.load(i))).permute(2, 0, 1) for i in range(6)]
    )
    assert torch.equal(held.pixels, pixels)
    array = ArrayImages(pixels, files.labels, "train")
    indices, positions = torch.tensor([3, 0, 5]), torch.tensor([7, 8, 9])
    crop = Crop(torch.tensor(5), 0.3)
    one, other = (
        open_inputs(split, 128, 3, CPU, 0).take(indices, positions, crop) for split in (held, array)
    )
    assert torch.equal(one, other)


@pytest.mark.parametrize("shape", [(400, 300), (300, 400), (700, 300)])
def test_crops_show_what_those_of_the_file_show(make_files, shape):
    files = make_files([shape] * 4)
    held = canvases(files, 128, 3, CPU, workers=0)
    assert min(held.pixels.shape[-2:]) == round(8 / 7 * 128)
    assert held.shapes.tolist() == [[shape[1], shape[0]]] * 4
    indices, positions = torch.arange(4), torch.arange(10, 14)
    crop = Crop(torch.tensor(3), 0.08)
    cut = open_inputs(held, 128, 3, CPU, 0).take(indices, positions, crop)
    for i in range(4):
        image = training_square(files.load(i), 128, Crop(3, 0.08), int(positions[i]))
        expected = torch.from_numpy(np.array(image)).permute(2, 0, 1)
        assert (cut[i].float() - expected.float()).abs().mean() < 3


@pytest.mark.parametrize(("workers", "centre"), [(0, 0.875), (2, 0.875), (0, 1.0)])
def test_test_images_are_those_that_a_loader_decodes(make_files, workers, centre):
    files = make_files([(150, 130), (90, 300), (128, 128)])
    held = squares(files, 128, 3, CPU, workers, centre)
    options = NORMAL | {"size": 128, "batch_size": 2, "centre": centre}
    one, other = (
        torch.cat([b.inputs for b in EvalLoader(split, **options)]) for split in (files, held)
    )
    assert torch.equal(one, other)


@pytest.mark.parametrize("centre", [0.875, 1.0])
def test_without_a_crop_the_centre_is_taken(make_files, centre):
    files = make_files([(400, 300)] * 3)
    held = canvases(files, 128, 3, CPU, workers=0)
    cut = open_inputs(held, 128, 3, CPU, 0, centre).take(torch.arange(3), torch.arange(3), None)
    expected = squares(files, 128, 3, CPU, 0, centre).pixels
    assert (cut.float() - expected.float()).abs().mean() < 2


def test_a_file_that_has_gone_is_named(make_files, tmp_path):
    files = make_files([(64, 64)] * 3)
    (tmp_path / "2.png").unlink()
    with pytest.raises(InputError, match=r"2\.png"):
        canvases(files, 128, 3, CPU, workers=2)


def test_what_is_held_takes_no_more_than_was_reckoned(make_files):
    files = make_files([(900, 200)] * 5)
    dataset = Dataset("x", list("abcde"), files, files, 128, 3, True, "")
    held, square = canvases(files, 128, 3, CPU, 0), squares(files, 160, 3, CPU, 0, 1.0)
    assert held.pixels.numel() + square.pixels.numel() <= bytes_needed(dataset, 128, 160)
