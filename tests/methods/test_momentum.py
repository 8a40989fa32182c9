"""The queue of keys and the encoder that makes them."""

import numpy as np
import pytest
import torch
from torch import nn

from wcdas.backbones import create_backbone
from wcdas.methods.contrastive import EMPTY, KeyEncoder, MomentumContrast, Queue, projection


def keys(first, count):
    """Keys that tell which they are: key i is (i, −i), its label i."""
    numbers = torch.arange(first, first + count)
    return torch.stack((numbers, -numbers), dim=1).float(), numbers


@pytest.mark.parametrize("batches", [[3, 3, 3], [4, 1, 7, 2], [5, 5], [7, 3, 12, 1], [9], [23]])
def test_the_queue_holds_the_last_keys(batches):
    """Lengths that do not divide the queue's, as long as it is, and longer."""
    queue, seen = Queue(7, 2), 0
    for count in batches:
        queue.push(*keys(seen, count))
        seen += count
    held = sorted(label for label in queue.labels.tolist() if label != EMPTY)
    assert held == list(range(max(0, seen - 7), seen))
    assert int(queue.position) == seen % 7
    filled = queue.labels != EMPTY
    numbers = queue.labels[filled].float()
    torch.testing.assert_close(queue.keys[filled], torch.stack((numbers, -numbers), dim=1))
    assert (queue.keys[~filled] == 0).all()


def test_the_oldest_key_leaves_first():
    queue = Queue(4, 2)
    for i in range(4):
        queue.push(*keys(i, 1))
    queue.push(*keys(4, 2))
    assert queue.labels.tolist() == [4, 5, 2, 3]


def test_the_queue_is_saved_with_its_place():
    queue, other = Queue(5, 2), Queue(5, 2)
    queue.push(*keys(0, 3))
    other.load_state_dict(queue.state_dict())
    for each in (queue, other):
        each.push(*keys(3, 4))
    torch.testing.assert_close(other.state_dict(), queue.state_dict())
    assert other.labels.tolist() == [5, 6, 2, 3, 4]


def encoders(momentum=0.9):
    torch.manual_seed(0)
    backbone = create_backbone("resnet32", channels=1).double()
    network = projection(64, 8, batch_norm=True).double()
    return backbone, MomentumContrast(backbone, network, momentum, 16).double()


def test_the_key_encoder_follows_by_the_momentum_rule():
    backbone, contrast = encoders(momentum=0.9)
    trained = [*backbone.parameters(), *contrast.projection.parameters()]
    expected = [p.detach().numpy().copy() for p in trained]
    names = [name for name, _ in contrast.encoder.named_parameters()]
    for _ in range(3):
        with torch.no_grad():
            for p in trained:
                p.add_(torch.randn_like(p))
        contrast.encoder.follow(trained)
        queries = [p.detach().numpy() for p in trained]
        expected = [0.9 * k + (1 - 0.9) * q for k, q in zip(expected, queries, strict=True)]
    for name, key, by_hand in zip(names, contrast.encoder.parameters(), expected, strict=True):
        np.testing.assert_allclose(key.numpy(), by_hand, rtol=1e-14, atol=1e-15, err_msg=name)


def test_the_key_encoder_starts_as_a_copy_and_is_not_the_same():
    backbone, contrast = encoders()
    copies = dict(contrast.encoder.backbone.named_parameters())
    for name, parameter in backbone.named_parameters():
        assert torch.equal(copies[name], parameter)
        assert copies[name] is not parameter


def test_keys_have_unit_length_and_no_gradient():
    backbone, contrast = encoders()
    images = torch.randn(6, 1, 8, 8, dtype=torch.float64)
    made = contrast.keys(backbone, images, torch.float64)
    assert not made.requires_grad
    assert not any(p.requires_grad for p in contrast.encoder.parameters())
    torch.testing.assert_close(made.norm(dim=1), torch.ones(6, dtype=torch.float64))
    queries = contrast.queries(backbone(images))
    assert queries.requires_grad
    torch.testing.assert_close(queries.detach(), made)  # the same batch, the same weights


def test_the_batch_norm_of_the_keys_is_that_of_their_batch():
    """Statistics gathered by the trained network do not reach the keys."""
    backbone, contrast = encoders()
    images = torch.randn(6, 1, 8, 8, dtype=torch.float64)
    before = contrast.encoder(images, torch.float64)
    for _ in range(3):
        backbone(5 + 3 * images)
    contrast.encoder.follow([*backbone.parameters(), *contrast.projection.parameters()])
    torch.testing.assert_close(contrast.encoder(images, torch.float64), before)


def test_half_precision_of_the_backbone_gives_float32_keys():
    backbone = create_backbone("resnet32", channels=1)
    seen = []
    encoder = KeyEncoder(backbone, nn.Linear(64, 8), 0.9)
    encoder.backbone.register_forward_hook(lambda *call: seen.append(call[2].dtype))
    images = torch.randn(6, 1, 8, 8)
    assert encoder(images, torch.bfloat16).dtype == torch.float32
    assert encoder(images, torch.float32).dtype == torch.float32
    assert seen == [torch.bfloat16, torch.float32]
