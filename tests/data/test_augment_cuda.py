"""On a GPU: the same random numbers, and the same augmented images, without waiting for it."""

import pytest
import torch

from wcdas import rng
from wcdas.data.augment import AUGMENTATIONS, create_augmentation

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

POLICIES = [policy for policy in AUGMENTATIONS if policy != "none"]


@pytest.fixture(params=["rgb", "grey", "large"])
def pictures(request, tiles, digits):
    return {"rgb": tiles(), "grey": digits[0][:256], "large": tiles(112, 64)}[request.param]


def augmentation(policy, images):
    channels, size = images.shape[1], images.shape[-1]
    return create_augmentation(policy, size=size, mean=(0.5, 0.4, 0.3)[:channels], erase=0.5)


def warm_up(augment, *arguments):
    """Copies the tables, on a stream of its own as a capture wants it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        augment(*arguments)
    torch.cuda.current_stream().wait_stream(stream)


def test_random_numbers_equal_those_of_the_cpu():
    counters = torch.arange(100_000)
    for key in (3, torch.tensor(3, device="cuda")):
        assert rng.bits(key, counters.cuda(), 8).cpu().equal(rng.bits(3, counters, 8))
        assert rng.uniform(key, counters.cuda(), 8).cpu().equal(rng.uniform(3, counters, 8))


@pytest.mark.parametrize("policy", AUGMENTATIONS)
def test_images_equal_those_of_the_cpu(policy, pictures):
    positions = torch.arange(len(pictures))
    augment = augmentation(policy, pictures)
    found = augment(pictures.cuda(), 5, positions.cuda()).cpu()
    assert found.equal(augment(pictures, 5, positions))


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_waits_for_the_gpu(policy, pictures):
    augment = augmentation(policy, pictures)
    arguments = (pictures.cuda(), 5, torch.arange(len(pictures), device="cuda"))
    augment(*arguments)
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = augment(*arguments)
    finally:
        torch.cuda.set_sync_debug_mode(before)
    assert found.cpu().equal(augment(pictures, 5, torch.arange(len(pictures))))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_graph_replays_with_other_keys_and_positions(policy, pictures):
    augment = augmentation(policy, pictures)
    images, places = pictures.cuda(), torch.arange(len(pictures))
    key, positions = torch.tensor(5, device="cuda"), places.cuda()
    warm_up(augment, images, key, positions)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = augment(images, key, positions)
    for other_key, start in ((5, 0), (5, 1000), (rng.stream(2, 3), 77)):
        key.fill_(other_key)
        positions.copy_(places + start)
        graph.replay()
        assert result.cpu().equal(augment(pictures, other_key, places + start))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_graph_holds_a_key_that_is_a_number(policy, tiles):
    augment, images, positions = augmentation(policy, tiles()), tiles().cuda(), torch.arange(256)
    static = positions.cuda()
    warm_up(augment, images, 9, static)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = augment(images, 9, static)
    for start in (0, 512):
        static.copy_(positions + start)
        graph.replay()
        assert result.cpu().equal(augment(tiles(), 9, positions + start))
