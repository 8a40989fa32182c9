"""Loaders: the same batches with any number of workers, from any step, over any ranks."""

import os
import signal
from dataclasses import replace

import pytest
import torch
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as tv

from wcdas import rng
from wcdas.data.augment import create_augmentation
from wcdas.data.dataset import ArrayImages, FeatureVectors, FileImages
from wcdas.data.images import (
    Crop,
    evaluation_square,
    needed_side,
    resized_crop_boxes,
    to_pixels,
)
from wcdas.data.loader import EvalLoader, TrainLoader, channel_statistics
from wcdas.data.operations import resized_crop
from wcdas.data.samplers import create_sampler
from wcdas.errors import InputError
from wcdas.interrupt import SIGNALS

MEAN, STD = [0.4, 0.45, 0.5], [0.2, 0.25, 0.3]


@pytest.fixture(scope="module")
def arrays(tiles):
    return ArrayImages(tiles(32, 100), torch.arange(100) % 7, "train")


@pytest.fixture(scope="module")
def files(tmp_path_factory, photographs):
    """22 pictures of different sizes."""
    root = tmp_path_factory.mktemp("files")
    paths = []
    for i in range(22):
        paths.append(f"{i:02}.png")
        left, top = 20 * i, 10 * i
        box = (left, top, left + 100 + 5 * i, top + 180 - 4 * i)
        photographs[i % 2].crop(box).save(root / paths[-1])
    return FileImages(root, paths, torch.arange(22) % 5, 3)


def train_loader(split, size=32, policy="strong", **options):
    channels = options.pop("channels", 3)
    mean, std = MEAN[:channels], STD[:channels]
    scale = options.pop("scale", 0.08)
    augmentation = create_augmentation(policy, size=size, mean=mean, scale=scale)
    return TrainLoader(
        split,
        size=size,
        channels=channels,
        mean=mean,
        std=std,
        augmentation=augmentation,
        **{"batch_size": 8, **options},
    )


def eval_loader(split, size=32, channels=3, **options):
    mean, std = MEAN[:channels], STD[:channels]
    return EvalLoader(
        split, size=size, channels=channels, mean=mean, std=std, **{"batch_size": 8, **options}
    )


def sequence_of(split, epoch=0):
    num_classes = int(split.labels.max()) + 1
    return create_sampler("class-balanced", split.labels, num_classes).sequence(1, epoch, 10)


def assert_same(batches, others):
    batches, others = list(batches), list(others)
    assert len(batches) == len(others) > 0
    for one, other in zip(batches, others, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a.equal(b)


def test_batches_follow_the_sequence(arrays):
    loader = train_loader(arrays, policy="none", batch_size=16)
    sequence = sequence_of(arrays)
    batches = list(loader.epoch(sequence, key=1))
    assert len(batches) == 6
    assert torch.cat([batch.indices for batch in batches]).equal(sequence[:96])
    assert torch.cat([batch.positions for batch in batches]).equal(torch.arange(96))
    assert torch.cat([batch.labels for batch in batches]).equal(arrays.labels[sequence[:96]])
    mean, std = (torch.tensor(x, dtype=torch.float64).view(3, 1, 1) for x in (MEAN, STD))
    expected = (arrays.pixels[sequence[:96]].double() / 255 - mean) / std
    inputs = torch.cat([batch.inputs for batch in batches])
    assert inputs.dtype == torch.float32
    torch.testing.assert_close(inputs.double(), expected, rtol=1e-5, atol=1e-6)


def test_augmented_by_key_and_position(arrays):
    loader = train_loader(arrays)
    sequence = sequence_of(arrays)
    first = list(loader.epoch(sequence, key=1))
    assert_same(first, loader.epoch(sequence, key=1))
    other = list(loader.epoch(sequence, key=2))
    assert not first[0].inputs.equal(other[0].inputs)
    larger = next(train_loader(arrays, batch_size=16).epoch(sequence, key=1))
    assert larger.inputs.equal(torch.cat([first[0].inputs, first[1].inputs]))


def test_a_set_smaller_than_a_batch_is_one_batch(arrays):
    loader = train_loader(arrays, batch_size=256)
    (batch,) = loader.epoch(sequence_of(arrays), key=1)
    assert len(batch.labels) == 100
    (third,) = train_loader(arrays, batch_size=256, rank=2, world=4).epoch(sequence_of(arrays), 1)
    assert third.inputs.equal(batch.inputs[50:75])


@pytest.mark.parametrize("count", [1, 2, 16, 17, 32, 33, 100])
def test_processes_know_how_many_batches_all_of_them_evaluate(arrays, count):
    """What they do together after a batch, all of them have to do."""
    split = arrays.subset(torch.arange(count))
    loaders = [eval_loader(split, rank=rank, world=2) for rank in range(2)]
    fewest = min(len(list(loader)) for loader in loaders)
    assert [loader.batches_of_all for loader in loaders] == [fewest, fewest]


@pytest.mark.parametrize("start", [0, 1, 7, 12])
def test_start_skips_batches(arrays, start):
    loader, sequence = train_loader(arrays), sequence_of(arrays)
    rest = list(loader.epoch(sequence, key=4, start=start))
    expected = list(loader.epoch(sequence, key=4))[start:]
    assert len(rest) == 12 - start
    if expected:
        assert_same(rest, expected)


@pytest.mark.parametrize("kind", ["arrays", "files"])
def test_slices_of_the_ranks_join(kind, request):
    split = request.getfixturevalue(kind)
    sequence = sequence_of(split)
    whole = list(train_loader(split).epoch(sequence, key=3))
    ranks = [train_loader(split, rank=r, world=2).epoch(sequence, key=3) for r in range(2)]
    for batch, *parts in zip(whole, *ranks, strict=True):
        for field in ("inputs", "labels", "indices", "positions"):
            joined = torch.cat([getattr(part, field) for part in parts])
            assert joined.equal(getattr(batch, field))


@pytest.mark.parametrize(("size", "policy"), [(32, "strong"), (112, "standard")])
def test_workers_change_nothing(files, size, policy):
    sequence = sequence_of(files)
    alone = train_loader(files, size, policy)
    with_workers = train_loader(files, size, policy, workers=2)
    state = torch.get_rng_state()
    for key in (1, 2):
        assert_same(with_workers.epoch(sequence, key), alone.epoch(sequence, key))
    abandoned = with_workers.epoch(sequence, 5)
    next(abandoned)
    assert_same(with_workers.epoch(sequence, 3, start=1), alone.epoch(sequence, 3, start=1))
    assert torch.get_rng_state().equal(state)


def test_workers_leave_signals_to_the_main_process(files):
    loader = train_loader(files, workers=1)
    sequence = sequence_of(files)
    list(loader.epoch(sequence, 1))
    (worker,) = loader.source.loader._iterator._workers
    for number in SIGNALS:
        os.kill(worker.pid, number)
    assert_same(loader.epoch(sequence, 2), train_loader(files).epoch(sequence, 2))
    loader.close()


@pytest.mark.slow
def test_a_worker_that_hangs_is_ended(files):
    loader = train_loader(files, workers=1)
    list(loader.epoch(sequence_of(files), 1))
    (worker,) = loader.source.loader._iterator._workers
    loader.close()
    assert worker.exitcode == 0

    loader = train_loader(files, workers=1)
    list(loader.epoch(sequence_of(files), 1))
    (worker,) = loader.source.loader._iterator._workers
    os.kill(worker.pid, signal.SIGSTOP)
    loader.close()
    worker.join(600)
    assert worker.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_file_is_one_input_error(files, workers, tmp_path):
    Image.new("RGB", (40, 40)).save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_bytes((tmp_path / "good.png").read_bytes()[:40])
    split = FileImages(tmp_path, ["good.png", "bad.png"], torch.tensor([0, 1]), 3)
    with pytest.raises(InputError, match=r"bad\.png") as caught:
        list(eval_loader(split, workers=workers))
    assert "\n" not in str(caught.value)


def test_closed_workers_are_gone_and_come_back(files):
    loader = eval_loader(files, workers=2)
    first = list(loader)
    workers = list(loader.source.loader._iterator._workers)
    loader.close()
    assert not any(worker.is_alive() for worker in workers)
    assert_same(loader, first)
    loader.close()


@pytest.mark.parametrize("kind", ["arrays", "files"])
@pytest.mark.parametrize("world", [1, 3])
def test_evaluation_sees_every_image_once(kind, world, request):
    split = request.getfixturevalue(kind)
    seen = []
    for rank in range(world):
        batches = list(eval_loader(split, rank=rank, world=world))
        assert torch.cat([batch.indices for batch in batches]).equal(
            torch.arange(rank, len(split), world)
        )
        for batch in batches:
            assert batch.labels.equal(split.labels[batch.indices])
            seen += batch.indices.tolist()
    assert sorted(seen) == list(range(len(split)))
    if world == 1:
        assert_same(eval_loader(split), eval_loader(split))


def test_more_ranks_than_images(tiles):
    split = ArrayImages(tiles(32, 10)[:2], torch.tensor([0, 1]), "test")
    assert list(eval_loader(split, rank=2, world=3)) == []


def test_grey_digits_of_8_pixels(digits):
    pixels, labels = digits
    split = ArrayImages(pixels, labels, "train")
    for policy in ("none", "standard", "strong", "rand-augment"):
        loader = train_loader(split, 8, policy, channels=1, batch_size=128)
        batch = next(loader.epoch(sequence_of(split), key=1))
        assert batch.inputs.shape == (128, 1, 8, 8)
        assert batch.inputs.isfinite().all()
    colour = next(iter(eval_loader(split, 16, 3)))
    assert colour.inputs.shape == (8, 3, 16, 16)
    levels = colour.inputs * torch.tensor(STD).view(3, 1, 1) + torch.tensor(MEAN).view(3, 1, 1)
    torch.testing.assert_close(levels[:, 0], levels[:, 2])


def test_features_are_handed_out_as_they_are():
    vectors = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    split = FeatureVectors(vectors, torch.arange(50) % 3, "train")
    augmentation = create_augmentation("none", size=1)
    options = {"size": 0, "channels": 6, "mean": [], "std": [], "batch_size": 16}
    loader = TrainLoader(split, augmentation=augmentation, **options)
    for batch in loader.epoch(sequence_of(split), key=1):
        assert batch.inputs.equal(vectors[batch.indices])
    assert torch.cat([b.inputs for b in EvalLoader(split, **options)]).equal(vectors)
    assert channel_statistics(split, 6, 0) == ([], [])


def test_channels_last(arrays):
    loader = train_loader(arrays, memory_format=torch.channels_last)
    batch = next(loader.epoch(sequence_of(arrays), key=1))
    assert batch.inputs.is_contiguous(memory_format=torch.channels_last)
    plain = next(train_loader(arrays).epoch(sequence_of(arrays), key=1))
    assert batch.inputs.equal(plain.inputs)


@pytest.mark.parametrize("scale", [0.08, 0.7])
def test_large_arrays_are_cropped_on_the_device(scale, tiles):
    split = ArrayImages(tiles(112, 16), torch.arange(16), "train")
    loader = train_loader(split, 112, "standard", scale=scale, batch_size=16)
    sequence = torch.arange(16)
    batch = next(loader.epoch(sequence, key=1))
    one = train_loader(split, 112, "standard", scale=scale, batch_size=1)
    assert next(one.epoch(sequence, key=1)).inputs.equal(batch.inputs[:1])
    loader.augmentation.steps.clear()
    boxes = resized_crop_boxes(Crop(rng.stream(1, 1), scale), sequence, 112, 112)
    expected = resized_crop(split.pixels, boxes, 112)
    assert next(loader.epoch(sequence, key=1)).inputs.equal(loader.normalise(expected))


@pytest.mark.parametrize("scale", [0.08, 0.5])
@pytest.mark.parametrize(("height", "width"), [(224, 224), (200, 300), (40, 900), (500, 3), (1, 1)])
def test_boxes_are_those_of_random_resized_crop(height, width, scale):
    boxes = resized_crop_boxes(Crop(3, scale), torch.arange(4000), height, width)
    top, left, h, w = boxes.unbind(1)
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2:] > 0).all()
    assert (top + h <= height).all()
    assert (left + w <= width).all()
    transform = v2.RandomResizedCrop(224, (scale, 1.0))
    torch.manual_seed(0)
    image = torch.empty(1, height, width)
    drawn = [transform.make_params([image]) for _ in range(4000)]
    theirs = torch.tensor([[d["top"], d["left"], d["height"], d["width"]] for d in drawn])
    for mine, other in zip(boxes.T.double(), theirs.T.double(), strict=True):
        error = (mine.var() / 4000 + other.var() / 4000).sqrt()
        assert abs(mine.mean() - other.mean()) <= 4.5 * error
        assert float(mine.std()) == pytest.approx(float(other.std()), rel=0.1, abs=0.02)


@pytest.mark.parametrize("scale", [0.08, 0.7])
def test_training_crop_is_the_box_resized(scale, files):
    loader = train_loader(files, 112, "standard", scale=scale, batch_size=22)
    loader.augmentation.steps.clear()
    (batch,) = loader.epoch(torch.arange(22), key=6)
    for index, found in enumerate(batch.inputs):
        image = files.load(index)
        crop = Crop(rng.stream(6, 1), scale)
        box = resized_crop_boxes(crop, torch.tensor([index]), image.height, image.width)[0]
        expected = to_pixels(tv.resized_crop(image, *box.tolist(), [112, 112]))
        assert found.equal(loader.normalise(expected))


def test_evaluation_square(photographs):
    square = photographs[0].crop((0, 0, 427, 427)).resize((512, 512))
    expected = tv.center_crop(tv.resize(square, [256, 256]), [224, 224])
    found = evaluation_square(square, 224)
    assert (to_pixels(found).int() - to_pixels(expected).int()).abs().max() <= 1
    whole = evaluation_square(square, 224, centre=1.0)
    assert to_pixels(whole).equal(to_pixels(tv.resize(square, [224, 224])))
    small = evaluation_square(photographs[0], 32)
    assert to_pixels(small).equal(to_pixels(photographs[0].resize((32, 32), 2)))
    thin = Image.new("L", (60_000, 1), 7)
    assert evaluation_square(thin, 224).getextrema() == (7, 7)


def test_channel_statistics_of_arrays(arrays):
    mean, std = channel_statistics(arrays, 3, 32)
    scaled = arrays.pixels.double() / 255
    assert mean == pytest.approx(scaled.mean(dim=(0, 2, 3)).tolist())
    assert std == pytest.approx(scaled.std(dim=(0, 2, 3), correction=0).tolist())
    black = ArrayImages(torch.zeros(3, 1, 8, 8, dtype=torch.uint8), torch.zeros(3).long(), "train")
    assert channel_statistics(black, 1, 8) == ([0.0], [1.0])


def test_channel_statistics_of_files(files):
    mean, std = channel_statistics(files, 3, 32)
    loaded = [to_pixels(evaluation_square(files.load(i), 32)) for i in range(22)]
    scaled = torch.stack(loaded).double() / 255
    assert mean == pytest.approx(scaled.mean(dim=(0, 2, 3)).tolist())
    assert std == pytest.approx(scaled.std(dim=(0, 2, 3), correction=0).tolist())


def test_channel_statistics_are_taken_once(files, monkeypatch):
    split = replace(files)
    first = channel_statistics(split, 3, 24), channel_statistics(split, 3, 16)
    monkeypatch.setattr("wcdas.data.loader._statistics", None)
    assert (channel_statistics(split, 3, 24), channel_statistics(split, 3, 16)) == first
    assert first[0] != first[1]


def test_bad_input_is_named(arrays, files):
    with pytest.raises(InputError, match="batch size 9 does not divide into 2"):
        train_loader(arrays, batch_size=9, world=2)
    with pytest.raises(InputError, match="batch size is 0"):
        eval_loader(arrays, batch_size=0)
    with pytest.raises(InputError, match="mean has 1"):
        EvalLoader(arrays, size=32, channels=3, mean=[0.5], std=[0.5], batch_size=8)
    with pytest.raises(InputError, match="rank is 2"):
        eval_loader(arrays, rank=2, world=2)
    with pytest.raises(InputError, match="workers is -1"):
        eval_loader(files, workers=-1)


def test_arrays_are_evaluated_as_their_files_are(arrays, tmp_path):
    names = []
    for i in range(4):
        tv.to_pil_image(arrays.pixels[i]).save(tmp_path / f"{i}.png")
        names.append(f"{i}.png")
    stored = FileImages(tmp_path, names, arrays.labels[:4], 3)
    for size, centre in ((32, 0.875), (128, 0.875), (128, 1.0)):
        one, other = (
            torch.cat([batch.inputs for batch in eval_loader(split, size, centre=centre)])
            for split in (arrays.subset(torch.arange(4)), stored)
        )
        assert (one - other).abs().max() <= 1.01 / 255 / min(STD)


def test_large_photographs_are_decoded_smaller(photographs, tmp_path):
    photographs[0].resize((1600, 1200)).save(tmp_path / "large.jpg", quality=95)
    files = FileImages(tmp_path, ["large.jpg"], torch.tensor([0]), 3)
    assert files.load(0, at_least=300).size == (400, 300)
    (batch,) = eval_loader(files, 128)
    whole = to_pixels(evaluation_square(files.load(0), 128)) / 255
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    assert (batch.inputs[0] * std + mean - whole).abs().mean() < 0.01


@pytest.mark.parametrize("scale", [0.08, 0.5, 1.0])
def test_no_crop_is_smaller_than_it_is_seen(scale):
    side = needed_side(128, scale)
    boxes = resized_crop_boxes(Crop(1, scale), torch.arange(2000), side, side)
    assert boxes[:, 2:].min() >= 127
