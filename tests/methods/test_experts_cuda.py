"""On a GPU a step of the experts' methods waits for nothing: a CUDA graph can record it."""

import pytest
import torch

from wcdas.backbones import create_backbone
from wcdas.heads import create_head
from wcdas.losses import create_loss
from wcdas.methods import Method
from wcdas.methods.balpoe import BALPOE, BALPOE_WCDAS
from wcdas.methods.method import Parts, StepBatch, StepState
from wcdas.methods.ride import RIDE, RIDE_WCDAS
from wcdas.methods.sade import SADE, SADE_WCDAS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

CLASSES = 20


@pytest.mark.parametrize(
    ("method", "stage", "loss"),
    [
        (RIDE, "representation", "ldam"),
        (RIDE, "reweighting", "ldam"),
        (RIDE, "routing", "cross-entropy"),
        (RIDE_WCDAS, "reweighting", "balanced-softmax"),
        (SADE, "representation", "cross-entropy"),
        (SADE_WCDAS, "representation", "cross-entropy"),
        (BALPOE, "representation", "cross-entropy"),
        (BALPOE_WCDAS, "representation", "cross-entropy"),
    ],
)
@pytest.mark.parametrize("amp", [False, True])
def test_a_step_is_recorded(method: Method, stage, loss, amp):
    torch.manual_seed(0)
    counts = torch.arange(CLASSES, 0, -1) ** 2
    options = dict(method.defaults["head"])
    kind = options.pop("name")
    model = method.build_model(
        Parts(
            create_backbone("resnet32"),
            lambda length: create_head(kind, length, CLASSES, **options),
            counts,
            method.options,
        )
    ).cuda()
    named = create_loss(loss, counts).cuda()
    state = StepState(
        stage,
        counts.cuda(),
        method.options,
        model.features,
        lambda features, target, head, shift=0: named(head(features, target) + shift, target),
    )
    labels = torch.randint(CLASSES, (16,), device="cuda")
    batch = StepBatch(torch.randn(16, 3, 32, 32, device="cuda"), labels, labels)

    def step() -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16, enabled=amp, cache_enabled=False):
            value = method.training_step(model, batch, state)
        value.backward()
        return value.detach()

    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    model.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = step()
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(recorded, step(), rtol=1e-2, atol=1e-2)
