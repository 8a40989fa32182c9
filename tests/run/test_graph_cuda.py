"""The step as a CUDA graph: the same training as eagerly, resumable, for every method."""

import json
import threading

import pytest
import torch

import wcdas
from wcdas.errors import InterruptedRunError
from wcdas.methods import METHODS, list_methods
from wcdas.run.graph import StepGraph
from wcdas.run.loop import Loop

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.usefixtures("exact_products"),
]

SHORT = {"stages.representation.epochs": 3, "evaluate_every": 99, "backbone.name": "resnet8"}
SHORT |= {"amp": "none", "lr": 0.01}  # a small rate, so that roundings do not grow fast


def train(method, out, engine, **settings):
    given = SHORT | {"engine": engine} | settings
    stages = METHODS[method].defaults["stages"]
    if stages.get("classifier", {}).get("trains", "nothing") != "nothing":
        given["stages.classifier.epochs"] = 2
    if "routing" in stages:  # learns which experts are right, which a rounding can turn
        given["stages.routing.epochs"] = 1
    return wcdas.train(method=method, settings=given, out=out, device="cuda", report=False)


def test_a_gpu_by_its_number(tmp_path):
    """The last one; where there are several, it is not the one that a process begins on."""
    last, before = torch.cuda.device_count() - 1, torch.cuda.current_device()
    settings = SHORT | {"amp": "bf16", "backbone.name": "resnet32"}
    given = {"method": "wcdas-prior", "settings": settings, "report": False}
    one, other = (
        wcdas.train("digits-lt", out=tmp_path / name.replace(":", ""), device=name, **given)
        for name in ("cuda", f"cuda:{last}")
    )
    assert losses(one) == pytest.approx(losses(other), rel=0.05, abs=0.01)
    assert "eager" not in (other.path / "log.jsonl").read_text()
    options = {"settings": SHORT, "device": f"cuda:{last}", "parallel": 2, "report": False}
    assert not wcdas.sweep("digits-lt", ["softmax"], 2, out=tmp_path / "sweep", **options).failed
    assert torch.cuda.current_device() == before


def test_a_gpu_that_is_not_there():
    count = torch.cuda.device_count()
    with pytest.raises(wcdas.InputError, match=f"device is 'cuda:{count}'; expected cuda:0 to"):
        wcdas.train(device=f"cuda:{count}")


def losses(run):
    return [json.loads(line)["loss"] for line in (run.path / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("method", list_methods())
def test_graph_and_eager_train_alike(method, tmp_path):
    """Three epochs are thirty steps; rounding alone may differ, and grows from step to step."""
    one = losses(train(method, tmp_path / "graph", "auto"))
    other = losses(train(method, tmp_path / "eager", "eager"))
    assert one[0] == pytest.approx(other[0], rel=1e-3)
    assert one == pytest.approx(other, rel=0.05, abs=0.01)


@pytest.mark.parametrize(
    "settings",
    [
        {"stages.representation.mixup": 0.4},
        {"stages.representation.cutmix": 1.0, "stages.representation.mixup": 0.4},
        {
            "stages.representation.cutmix": 1.0,
            "stages.representation.cutmix_share": 0.5,
            "stages.representation.cutmix_sampler": "class-balanced",
            "stages.representation.cutmix_rest": 1,
        },
        {"stages.representation.ema": 0.9},
        {"stages.representation.clip": 0.1},
        {"stages.representation.sam": 0.05, "stages.representation.ema": 0.9},
        {"stages.representation.sam": 0.05, "amp": "bf16", "backbone.name": "resnet32"},
        {"stages.representation.augment": "strong"},
        {"stages.representation.nesterov": True, "amp": "bf16"},
        {"stages.representation.accumulate": 2},
        {"neck.name": "linear"},
        {"neck.name": "batch-norm", "amp": "bf16"},
    ],
)
def test_what_a_stage_may_say_is_in_the_graph(settings, tmp_path):
    one = losses(train("wcdas-prior", tmp_path / "graph", "auto", **settings))
    other = losses(train("wcdas-prior", tmp_path / "eager", "eager", **settings))
    assert one[:3] == pytest.approx(other[:3], rel=0.05 if "amp" in settings else 1e-2)
    assert "eager" not in (tmp_path / "graph" / "log.jsonl").read_text()


@pytest.mark.parametrize("amp", ["none", "bf16"])
def test_a_teacher_is_in_the_graph(amp, tmp_path):
    experts = train("balpoe", tmp_path / "experts", "auto", amp=amp)
    settings = {"teacher": str(experts.path), "amp": amp, "stages.representation.sam": 0.05}
    one = losses(train("wcdas-prior", tmp_path / "graph", "auto", **settings))
    other = losses(train("wcdas-prior", tmp_path / "eager", "eager", **settings))
    assert one[:3] == pytest.approx(other[:3], rel=0.05 if amp == "bf16" else 1e-2)
    assert "eager" not in (tmp_path / "graph" / "log.jsonl").read_text()


def test_the_losses_of_the_first_twenty_steps(tmp_path, monkeypatch):
    """The same sample randomness, float32 without TF32, the kernels out of the way."""
    step_losses = {}
    train_epoch = Loop.train_epoch

    def recorded(loop, stage, epoch, start, graph, progress):
        sums = []

        class Watch:
            def step(self, images):
                sums.append(stage.statistics.sums[:2].clone())

        train_epoch(loop, stage, epoch, start, graph, Watch())
        sums = torch.stack([torch.zeros_like(sums[0]), *sums])
        step_losses.setdefault(loop.run.config.engine, []).extend(
            (sums[1:] - sums[:-1]).unbind(1)[0].div((sums[1:] - sums[:-1])[:, 1]).tolist()
        )

    monkeypatch.setattr(Loop, "train_epoch", recorded)
    for engine in ("auto", "eager"):
        train("wcdas", tmp_path / engine, engine, **{"backbone.name": "resnet32"})
    graph, eager = (step_losses[engine][:20] for engine in ("auto", "eager"))
    assert len(graph) == 20
    assert graph == pytest.approx(eager, rel=1e-4)


def test_nothing_waits_for_the_gpu_inside_an_epoch(tmp_path, monkeypatch):
    replay = StepGraph.replay

    def watched(graph, seed):
        torch.cuda.set_sync_debug_mode("error")
        try:
            replay(graph, seed)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(StepGraph, "replay", watched)
    assert losses(train("wcdas", tmp_path / "run", "auto"))


def test_a_stopped_run_goes_on(tmp_path, monkeypatch):
    whole = train("wcdas", tmp_path / "whole", "auto")
    asked = Loop._asked

    def stop(loop, stage, step):
        return (stage.index == 0 and loop.steps == 17, asked(loop, stage, step)[1])

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_asked", stop)
        with pytest.raises(InterruptedRunError):
            train("wcdas", tmp_path / "stopped", "auto")
    resumed = wcdas.train(out=tmp_path / "stopped", resume=True, device="cuda", report=False)
    assert losses(resumed) == pytest.approx(losses(whole), rel=1e-3)


def test_random_numbers_are_those_of_the_seed_while_others_capture():
    """Each graph has a sequence of its own, whatever graphs of other threads do."""
    captured = threading.Event()

    def drawing():
        numbers = torch.zeros(1000, device="cuda")
        return numbers, StepGraph(lambda: numbers.uniform_(), lambda: None)

    def capture():
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(20):
                _, graph = drawing()
                graph.replay(99)
        captured.set()

    numbers, graph = drawing()
    expected = {}
    for seed in range(10):
        torch.manual_seed(seed)
        expected[seed] = torch.zeros_like(numbers).uniform_()
    thread = threading.Thread(target=capture)
    thread.start()
    rounds = 0
    while not captured.is_set() or rounds < 10:
        for seed, right in expected.items():
            graph.replay(seed)
            assert torch.equal(numbers, right)
        rounds += 1
    thread.join()


def test_a_sweep_in_threads_is_that_of_one_after_the_other(tmp_path):
    options = {"settings": SHORT, "device": "cuda"}
    methods = ["softmax", "wcdas", "equalization"]
    beside = wcdas.sweep(
        "digits-lt", methods, 2, parallel=4, out=tmp_path / "p", **options, report=False
    )
    alone = wcdas.sweep("digits-lt", methods, 2, out=tmp_path / "s", **options, report=False)
    for run in alone.results["runs"]:
        one, other = (json.loads(p.read_text().splitlines()[0])["loss"]
                      for p in ((tmp_path / "p" / run / "log.jsonl"),
                                (tmp_path / "s" / run / "log.jsonl")))  # fmt: skip
        assert one == pytest.approx(other, rel=1e-3), run
    assert not beside.failed
