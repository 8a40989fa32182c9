"""Heads on a GPU: the same numbers, no host synchronisation, capturable as a graph."""

import pytest
import torch

from wcdas import WCDASHead, create_head, list_heads

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture
def _tf32():
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = False


def batch(classes: int = 50):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(32, 16, generator=generator)
    return features, torch.randint(classes, (32,), generator=generator)


@pytest.mark.usefixtures("_tf32")
@pytest.mark.parametrize("name", list_heads())
def test_equals_the_cpu_under_autocast_and_tf32(name):
    torch.manual_seed(0)
    head = create_head(name, 16, 50)
    features, labels = batch()
    expected = head.loss(features, labels)
    expected.backward()
    wanted = {k: p.grad for k, p in head.named_parameters() if p.grad is not None}
    head.zero_grad()
    head.cuda()
    with torch.autocast("cuda", torch.bfloat16):
        loss = head.loss(features.cuda(), labels.cuda())
    loss.backward()
    exact = name not in ("linear", "lws", "tau-norm")  # those leave TF32 to the user
    tolerance = {"rtol": 1e-4, "atol": 1e-6} if exact else {"rtol": 1e-2, "atol": 1e-3}
    torch.testing.assert_close(loss.cpu(), expected, **tolerance)
    for key, gradient in wanted.items():
        got = dict(head.named_parameters())[key].grad.cpu()
        torch.testing.assert_close(got, gradient, **tolerance)


@pytest.mark.parametrize("classes", [50, 3_000])
def test_wcdas_never_waits_for_the_device(classes):
    head = WCDASHead(16, classes).cuda()
    features, labels = (t.cuda() for t in batch(classes))
    head.loss(features, labels).backward()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        head.loss(features, labels, label_smoothing=0.1).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", list_heads())
def test_a_step_can_be_captured(name):
    head = create_head(name, 16, 50).cuda()
    features, labels = (t.cuda() for t in batch())
    parameters = [p for p in head.parameters() if p.requires_grad]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            torch.autograd.grad(head.loss(features, labels), parameters)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = head.loss(features, labels)
        gradients = torch.autograd.grad(loss, parameters)
    features.copy_(features.flip(0))
    graph.replay()
    torch.testing.assert_close(loss, head.loss(features, labels))
    expected = torch.autograd.grad(head.loss(features, labels), parameters)
    for replayed, eager in zip(gradients, expected, strict=True):
        torch.testing.assert_close(replayed, eager)
