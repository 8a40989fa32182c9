"""The fused engine beside the same formula in float64, on a GPU and through Triton's interpreter.

The interpreter has to be chosen before Triton is imported, so it runs in a process of its own.
"""

import contextlib
import math
import multiprocessing
import os
import sys
from importlib.util import find_spec
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.heads.test_wcdas import near_prototypes

from wcdas import MixedLabels, ShardedWCDASHead, WCDASHead
from wcdas.heads.functional import chunked, fused, plain
from wcdas.heads.functional.fused import Tile

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
ENGINES = ["fused", "fused-fast"]
TOLERANCE = {"fused": 1e-4, "fused-fast": 2e-2}
# Through the interpreter on tiles as small as can be, on a GPU on those that are used.
TINY = {False: Tile(16, 32, 16, 4, 1), True: Tile(16, 32, 16, 4, 1)}


def interpret():
    assert "triton" not in sys.modules
    os.environ["TRITON_INTERPRET"] = "1"
    torch.set_num_threads(1)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("interpreter", marks=needs_triton),
        pytest.param("cuda", marks=needs_cuda),
    ],
)
def run(request):
    """Calls `work(device, *given)` where the kernels run, and returns what it finds."""
    if request.param == "cuda":
        yield lambda work, *given: work("cuda", *given)
        return
    with multiprocessing.get_context("spawn").Pool(1, interpret) as pool:
        yield lambda work, *given: pool.apply(work, ("cpu", *given))


@contextlib.contextmanager
def chunks(device, number):
    """Tiny tiles for the interpreter, and chunks of about `number` classes × samples."""
    with pytest.MonkeyPatch.context() as patch:
        if device == "cpu":
            patch.setattr(fused, "FORWARD", TINY)
            patch.setattr(fused, "BACKWARD", TINY)
        for name in ("LOGITS", "SLOPES"):
            patch.setattr(fused, name, number)
        yield


def error(ours, exact):
    return ((ours.double().cpu() - exact).norm() / exact.norm().clamp_min(1e-12)).item()


class Case(NamedTuple):
    engine: str
    batch: int
    classes: int
    features: int
    chunk: int
    smoothing: float
    prior: bool
    target: str
    weighted: bool
    seed: int


def head_errors(device, case):
    """Of the loss, and of its gradients to features, parameters and prior."""
    grown = 1 if device == "cpu" else 8  # as the tiles
    batch, classes = grown * case.batch - grown // 2, grown * case.classes - grown // 2
    generator = torch.Generator().manual_seed(case.seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x, log_prior = normal(batch, case.features), normal(classes).log_softmax(0)
    x[0] = 0
    first, second = (torch.randint(classes, (batch,), generator=generator) for _ in range(2))
    target = {
        "hard": first,
        "mixed": MixedLabels(first, second, 0.3),
        "soft": normal(batch, classes).softmax(1),
    }[case.target]
    sample_weight = normal(batch).abs() if case.weighted else None
    w_rho, weight = normal(classes).clamp(-2, 2), normal(classes, case.features)
    found = []
    for engine, dtype, place in (
        ("plain", torch.float64, "cpu"),
        (case.engine, torch.float32, device),
    ):
        head = WCDASHead(case.features, classes, scale_init=15.0, start="paper", engine=engine)
        with torch.no_grad():
            head.weight.copy_(weight)
            head.w_rho.copy_(w_rho)
        head = head.to(place, dtype)
        kind = {"device": place, "dtype": dtype}
        inputs = [x.to(**kind).requires_grad_(), *head.parameters()]
        own_prior = log_prior.to(**kind).requires_grad_() if case.prior else None
        inputs += [] if own_prior is None else [own_prior]
        if case.target == "mixed":
            own = MixedLabels(first.to(place), second.to(place), 0.3)
        else:
            own = target.to(place) if case.target == "hard" else target.to(**kind)
        with chunks(device, grown**2 * case.chunk):
            loss = head.loss(
                inputs[0],
                own,
                sample_weight=None if sample_weight is None else sample_weight.to(**kind),
                label_smoothing=case.smoothing,
                log_prior=own_prior,
            )
            found.append([loss.detach(), *torch.autograd.grad(loss, inputs)])
    assert (found[1][1][0] == 0).all()  # of a zero vector
    return [error(ours, exact) for exact, ours in zip(*found, strict=True)]


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=5)
@given(
    batch=st.integers(1, 36),
    classes=st.integers(2, 50),
    features=st.sampled_from([16, 33, 40]),
    chunk=st.sampled_from([1, 600, 10**6]),
    smoothing=st.sampled_from([0.0, 0.1]),
    prior=st.booleans(),
    target=st.sampled_from(["hard", "hard", "mixed", "soft"]),
    weighted=st.booleans(),
    seed=st.integers(0, 100),
)
def test_equals_float64(run, engine, **given):
    assert max(run(head_errors, Case(engine, **given))) < TOLERANCE[engine]


def prototype_errors(device, engine, rho, angle):
    found = []
    for kind, dtype, place in ((plain, torch.float64, "cpu"), (chunked, torch.float32, device)):
        *inputs, labels = near_prototypes(rho, angle, dtype)
        inputs = [t.detach().to(place).requires_grad_() for t in inputs]
        options = {} if kind is plain else {"engine": engine}
        losses = kind.wcdas_losses(*inputs, labels.to(place), **options)
        found.append(torch.autograd.grad(losses.mean(), inputs))
    return [error(ours, exact) for exact, ours in zip(*found, strict=True)]


HARD = [(0.05, 0.003), (0.5, 0.003), (0.88, 0.03), (0.982, 0.03), (0.9975, 0.003)]
ALL = [(r, a) for r in (0.05, 0.5, 0.88, 0.982, 0.9975) for a in (0.003, 0.03, 0.3, 1.0)]


@pytest.mark.parametrize(
    ("rho", "angle"),
    [pytest.param(*p, marks=[] if p in HARD else [pytest.mark.slow]) for p in ALL],
)
def test_gradients_are_exact(run, rho, angle):
    assert max(run(prototype_errors, "fused", rho, angle)) <= 1e-4


@pytest.mark.parametrize(("rho", "angle"), [(0.5, 0.003), (0.88, 0.03), (0.88, 1.0)])
def test_the_fast_engine_is_nearly_so(run, rho, angle):
    assert max(run(prototype_errors, "fused-fast", rho, angle)) <= 2e-2


def rival_errors(device, engine, rho):
    """With another class's prototype 0.03 rad from that of every sample in half of the classes."""
    *inputs, labels = near_prototypes(rho, 0.03, torch.float64)
    weight = inputs[1].detach()
    own = weight[:128] / weight[:128].norm(dim=1, keepdim=True)
    away = weight[128:256] - (weight[128:256] * own).sum(1, keepdim=True) * own
    away /= away.norm(dim=1, keepdim=True)
    weight[128:256] = math.cos(0.03) * own + math.sin(0.03) * away
    found = []
    for kind, dtype, place in ((plain, torch.float64, "cpu"), (chunked, torch.float32, device)):
        own = [t.detach().float().to(place, dtype).requires_grad_() for t in inputs]
        options = {} if kind is plain else {"engine": engine}
        losses = kind.wcdas_losses(*own, labels.to(place), **options)
        found.append(torch.autograd.grad(losses.mean(), own))
    return [error(ours, exact) for exact, ours in zip(*found, strict=True)]


def test_a_rival_near_by(run):
    """Where float32 itself errs by 1e-3."""
    assert max(run(rival_errors, "fused", 0.982)) < 3e-3
    assert 3e-3 < max(run(rival_errors, "fused-fast", 0.88)) < 0.3


def of_larger_concentrations(device, engine):
    """Losses of the fast engine, and of the exact one with what it takes for the concentrations."""
    torch.manual_seed(0)
    x, weight, w_rho = torch.randn(20, 16), torch.randn(50, 16), torch.linspace(-4, 6, 50)
    most = torch.tensor(fused.LARGEST_RHO).logit()
    inputs = [t.to(device) for t in (x, weight, w_rho, torch.tensor(12.0))]
    inputs[2].requires_grad_()
    labels = torch.randint(50, (20,)).to(device)
    with chunks(device, 600):
        losses = chunked.wcdas_losses(*inputs, labels, engine=engine)
        (to_rho,) = torch.autograd.grad(losses.sum(), inputs[2])
    inputs[2] = w_rho.clamp(max=most)
    exact = plain.wcdas_losses(*(t.double().cpu() for t in inputs), labels.cpu())
    return error(losses.detach(), exact.detach()), (to_rho.cpu()[w_rho > most] == 0).all().item()


def test_the_fast_engine_takes_no_larger_concentration(run):
    found, is_still = run(of_larger_concentrations, "fused-fast")
    assert found < 1e-2
    assert is_still
    found, is_still = run(of_larger_concentrations, "fused")
    assert found > 1e-2
    assert not is_still


def finite_at(device, engine, w_rho, scale, angle):
    weight = torch.eye(3, 16)
    direction = math.cos(angle) * weight[0] + math.sin(angle) * weight[1]
    inputs = [direction.repeat(4, 1), weight, torch.full((3,), w_rho), torch.tensor(scale)]
    inputs = [t.to(device).requires_grad_() for t in inputs]
    with chunks(device, 600):
        losses = chunked.wcdas_losses(*inputs, torch.tensor([0, 1, 2, 0]).to(device), engine=engine)
        gradients = torch.autograd.grad(losses.mean(), inputs)
    return all(t.isfinite().all().item() for t in (losses, *gradients))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("w_rho", [-25.0, 0.0, 25.0])
def test_finite_at_the_extremes(run, engine, w_rho):
    for scale in (1.0, 1e5):
        for angle in (0.0, 1e-2, math.pi):
            assert run(finite_at, engine, w_rho, scale, angle)


def only_class(device, engine, batch):
    x = torch.randn(batch, 16, device=device, requires_grad=True)
    head = WCDASHead(16, 1, engine=engine).to(device)
    with chunks(device, 600):
        loss = head.loss(x, torch.zeros(batch, dtype=torch.long, device=device), reduction="sum")
        gradients = torch.autograd.grad(loss, [x, *head.parameters()])
    return all((t == 0).all().item() for t in (loss, *gradients))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("batch", [0, 3])
def test_one_class_costs_nothing(run, engine, batch):
    assert run(only_class, engine, batch)


def joined(device, engine):
    """The loss and gradients of parts of the classes joined, and those of all in float64."""
    torch.manual_seed(0)
    x, weight, w_rho, scale = torch.randn(20, 16), torch.randn(41, 16), torch.randn(41), 20.0
    given = (x, weight, w_rho, torch.tensor(scale), torch.randn(41).log_softmax(0))
    labels = torch.randint(41, (20,))
    exact = [t.double().requires_grad_() for t in given]
    expected = plain.wcdas_losses(*exact[:4], labels, 0.1, exact[4])
    inputs = [t.to(device).requires_grad_() for t in given]
    found = []
    with chunks(device, 600):
        for classes in (slice(0, 40), slice(40, 41)):  # the only class of a part
            own = labels - classes.start
            own = torch.where((own >= 0) & (labels < classes.stop), own, -1).to(device)
            x, weight, w_rho, scale, log_prior = inputs
            mine = (x, weight[classes], w_rho[classes], scale, own, log_prior[classes], True)
            found.append(chunked.of_classes(*mine, engine))
        negatives, target, total = map(torch.stack, zip(*found, strict=True))
        parts = plain.Parts(negatives.logsumexp(0), target.sum(0), total.sum(0))
        ours = parts.losses(41, 0.1)
        gradients = torch.autograd.grad(ours.sum(), inputs)
    wanted = torch.autograd.grad(expected.sum(), exact)
    pairs = zip((ours.detach(), *gradients), (expected.detach(), *wanted), strict=True)
    return [error(a, b) for a, b in pairs]


@pytest.mark.parametrize("engine", ENGINES)
def test_parts_of_classes_make_the_whole(run, engine):
    assert max(run(joined, engine)) < TOLERANCE[engine]


NAMES = ("x", "w", "w_rho", "scale", "log_prior")


def partly_frozen(device, trained):
    torch.manual_seed(0)
    given = [torch.randn(6, 16), torch.randn(50, 16), torch.randn(50), torch.tensor(9.0)]
    given.append(torch.randn(50).log_softmax(0))
    labels = torch.randint(50, (6,))
    found = []
    for engine in ("chunked", "fused"):
        place = "cpu" if engine == "chunked" else device
        inputs = [
            tensor.to(place).requires_grad_(name in trained)
            for name, tensor in zip(NAMES, given, strict=True)
        ]
        with chunks(device, 600):
            losses = chunked.wcdas_losses(
                *inputs[:4], labels.to(place), 0.1, inputs[4], engine=engine
            )
            asked = [t for t in inputs if t.requires_grad]
            found.append([g.cpu() for g in torch.autograd.grad(losses.sum(), asked)])
    return [error(ours, exact.double()) for exact, ours in zip(*found, strict=True)]


@pytest.mark.parametrize("trained", [("x",), ("w", "w_rho", "scale"), ("log_prior",)])
def test_what_is_frozen_gets_no_gradient_and_the_rest_its_own(run, trained):
    found = run(partly_frozen, trained)
    assert len(found) == len(trained)
    assert max(found) < 1e-4


def compiled(device):
    head = WCDASHead(16, 50, init="he", engine="fused").to(device)
    x, labels = torch.randn(6, 16, device=device), torch.randint(50, (6,), device=device)
    gradients = []
    for loss_of in (head.loss, torch.compile(head.loss, fullgraph=True, backend="aot_eager")):
        with chunks(device, 600):
            loss = loss_of(x, labels, label_smoothing=0.1)
            gradients.append([loss, *torch.autograd.grad(loss, list(head.parameters()))])
    return all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_compiles_as_one_graph(run):
    assert run(compiled)


def each_sample(device):
    """Gradients sample by sample through vmap, and those of their sum."""
    torch.manual_seed(0)
    weight, w_rho, scale = torch.randn(50, 16), torch.randn(50), torch.tensor(9.0)
    weight, w_rho, scale = (t.to(device) for t in (weight, w_rho, scale))
    x, labels = torch.randn(3, 16, device=device), torch.randint(50, (3,), device=device)

    def loss(weight, x, labels):
        return chunked.wcdas_losses(x, weight, w_rho, scale, labels, engine="fused").sum()

    of_each = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))
    with chunks(device, 600):
        apart = of_each(weight, x[:, None], labels[:, None]).sum(0)
        return error(apart, torch.func.grad(loss)(weight, x, labels).double().cpu())


def test_vmap(run):
    assert run(each_sample) < 1e-4


def sharded(device):
    torch.manual_seed(0)
    head = ShardedWCDASHead(16, 50, engine="fused").to(device)
    x, labels = torch.randn(6, 16), torch.randint(50, (6,))
    loss = head.loss(x.to(device), labels.to(device))
    whole = head.whole()  # which anybody can use
    assert whole.engine == "auto"
    return error(loss.detach(), whole.double().loss(x.double(), labels).detach())


def test_classes_spread_over_processes(run):
    assert run(sharded) < 1e-5


@needs_cuda
class TestOnAGPU:
    @pytest.fixture
    def step(self):
        """Makes a step of the loss: `step(engine, batch, features, classes)`."""

        def make(engine, batch=512, features=256, classes=20_000):
            torch.manual_seed(0)
            head = WCDASHead(features, classes, engine=engine).cuda()
            x = torch.randn(batch, features, device="cuda", requires_grad=True)
            labels = torch.randint(classes, (batch,), device="cuda")
            inputs = [x, *head.parameters()]

            def work():
                loss = head.loss(x, labels, label_smoothing=0.1)
                return [loss, *torch.autograd.grad(loss, inputs)]

            return work, x

        return make

    @pytest.mark.parametrize("engine", ENGINES)
    def test_equals_the_chunked_loss_at_size(self, step, engine):
        exact = step("chunked")[0]()
        for ours, theirs in zip(step(engine)[0](), exact, strict=True):
            assert error(ours.detach(), theirs.detach().double().cpu()) < TOLERANCE[engine]

    @pytest.mark.parametrize("engine", ENGINES)
    def test_memory_beside_the_gradients(self, step, engine):
        work, _ = step(engine, 4096, 512, 100_000)
        gradients = sum(t.nbytes for t in work()[1:])
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        extra = torch.cuda.max_memory_allocated() - before - gradients
        assert extra <= {"fused": 128, "fused-fast": 64}[engine] * 2**20

    @pytest.mark.parametrize("engine", ENGINES)
    def test_a_step_can_be_captured_and_never_waits(self, step, engine):
        work, x = step(engine)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            work()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            work()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = work()
        with torch.no_grad():
            x.copy_(x.flip(0))
        graph.replay()
        for replayed, eager in zip(captured, work(), strict=True):
            torch.testing.assert_close(replayed, eager)


def test_a_device_without_the_kernels_is_refused_in_one_line(monkeypatch):
    head = WCDASHead(4, 5, engine="fused-fast")
    x, labels = torch.randn(2, 4), torch.tensor([0, 1])
    assert head(x).shape == (2, 5)  # predictions need no engine
    monkeypatch.setattr(fused, "find_spec", lambda name: object())
    with pytest.raises(ValueError, match="but the device is 'cpu'; set engine='auto'") as caught:
        head.loss(x, labels)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("engine 'fused-fast' needs Triton and an NVIDIA GPU")
    monkeypatch.setattr(fused, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="but Triton is not installed"):
        head.loss(x, labels)


def test_float64_is_refused(monkeypatch):
    monkeypatch.setattr(fused, "check_device", lambda engine, device: None)
    with pytest.raises(ValueError, match=r"in float32, but features are torch\.float64"):
        WCDASHead(4, 5, engine="fused").double().loss(torch.ones(2, 4).double(), torch.arange(2))
