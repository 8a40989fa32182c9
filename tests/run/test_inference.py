"""Many images are looked at in order, in batches and a format that suit the device."""

import time

import pytest
import torch

from wcdas.backbones import create_backbone
from wcdas.data.dataset import ArrayImages
from wcdas.data.loader import EvalLoader
from wcdas.heads import create_head
from wcdas.methods.classifier import Classifier
from wcdas.run.inference import images_at_a_time, in_threads, memory_format
from wcdas.run.prediction import predict_split

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def test_a_cpu_takes_fewer_large_images_at_a_time():
    sizes = [8, 16, 32, 64, 128, 224, 4096]
    assert [images_at_a_time(size, CPU) for size in sizes] == [256, 256, 64, 16, 4, 4, 4]
    assert {images_at_a_time(size, GPU) for size in sizes} == {256}
    assert images_at_a_time(0, CPU) == 256  # feature vectors


@pytest.mark.parametrize(
    ("name", "size", "device", "expected"),
    [
        ("resnet32", 8, CPU, torch.contiguous_format),
        ("resnet32", 32, CPU, torch.channels_last),
        ("resnet32", 32, GPU, torch.contiguous_format),
        ("resnet10", 64, GPU, torch.channels_last),
        ("identity", 0, CPU, torch.contiguous_format),
    ],
)
def test_the_format_suits_network_size_and_device(name, size, device, expected):
    backbone = create_backbone(name, channels=3, input_size=size)
    assert memory_format(backbone, size, device) is expected


def test_answers_come_in_the_order_of_what_was_given():
    before = torch.get_num_threads()

    def slowly(number: int) -> tuple[int, int]:
        time.sleep(0.02 * (number % 2))
        return number, torch.get_num_threads()

    torch.set_num_threads(3)
    try:
        assert list(in_threads(slowly, range(11), CPU)) == [(i, 1) for i in range(11)]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_what_fails_is_raised_and_the_threads_are_as_they_were():
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError):
        list(in_threads(lambda number: 1 / number, [2, 1, 0, 1], CPU))
    assert torch.get_num_threads() == before


def test_a_split_looked_at_in_batches_is_that_of_one_batch():
    torch.manual_seed(0)
    pixels = torch.randint(0, 256, (37, 3, 48, 48), dtype=torch.uint8)
    split = ArrayImages(pixels, torch.arange(37) % 5, "test")
    backbone = create_backbone("resnet8", channels=3, input_size=48)
    model = Classifier(backbone, create_head("wcdas", 64, 5)).double().eval()
    loading = {"size": 48, "channels": 3, "mean": [0.5] * 3, "std": [0.25] * 3}
    formats = [torch.contiguous_format, torch.channels_last]
    for batch_size, form in zip([37, 4], formats, strict=True):
        model.float().to(memory_format=form)
        loader = EvalLoader(split, batch_size=batch_size, memory_format=form, **loading)
        features, scores = predict_split(model, loader)
        logits = scores.inputs
        assert not logits.requires_grad
        inputs = (pixels.double() / 255 - 0.5) / 0.25
        with torch.no_grad():
            expected = model.double().features(inputs)
            torch.testing.assert_close(features.double(), expected, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(logits.double(), model.head(expected), rtol=1e-3, atol=1e-3)
