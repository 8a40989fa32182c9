"""What a stage does to the weights, looked at step by step."""

import copy
import itertools
import math
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

import wcdas
from wcdas import rng
from wcdas.backbones import create_backbone
from wcdas.data.samplers import MetaSampler
from wcdas.errors import InputError, InterruptedRunError
from wcdas.heads import HEADS, LinearHead, LWSHead, create_head
from wcdas.losses import create_loss
from wcdas.methods import METHODS
from wcdas.methods.classifier import Classifier
from wcdas.run import checkpoint
from wcdas.run import loop as loop_module
from wcdas.run.batches import Batches
from wcdas.run.loop import Loop
from wcdas.run.model_file import load_model
from wcdas.run.optimizer import create_optimizer
from wcdas.run.spec import Stage
from wcdas.run.stage import StageTraining, enter_stage, set_values

PLAIN = {"momentum": 0.0, "weight_decay": 0.0, "schedule": "constant", "augment": "none"}

VIT = "vit_tiny_patch16_224"


def one_step(loop):
    """The model before and after the first step, and the batch of that step."""
    enter_stage(loop.run, 0)
    stage = StageTraining(loop.run, 0)
    stage.parallel.train()
    stage.begin_epoch(0, 0)
    batch = stage.data.next(stage.clock.step).batch
    before = copy.deepcopy(loop.run.model)
    stage.begin_epoch(0, 0)
    stage.set_rate(stage.stage.lr)
    stage.train_step()
    return before, loop.run.model, batch


def weights(model):
    """All that a stage may change: the units of s and ρ stay as they are."""
    state = model.state_dict()
    return {name: value.clone() for name, value in state.items() if "_unit" not in name}


@pytest.mark.parametrize("head", ["linear", "wcdas"])
def test_an_imprinted_head_starts_from_the_class_means(make_loop, head):
    loop = make_loop(head, "identity", holdout=0.1, one={"imprint": True})
    run = loop.run
    enter_stage(run, 0)
    expected = copy.deepcopy(run.model.head)
    set_values(run, 0, lambda: None)
    images = run.dataset.train.subset(run.kept)
    means = [images.vectors[images.labels == c].double().mean(0) for c in range(10)]
    expected.imprint(torch.stack(means).float())
    for own, same in zip(run.model.head.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(own, same)


@pytest.mark.parametrize("parts", [2, 3, 32, 50])
def test_accumulated_parts_give_the_gradient_of_the_batch(make_loop, parts):
    stage = PLAIN | {"lr": 1.0}
    _, whole, _ = one_step(make_loop("wcdas", "identity", one=stage))
    _, cut, _ = one_step(make_loop("wcdas", "identity", one=stage | {"accumulate": parts}))
    for name, value in weights(whole).items():
        torch.testing.assert_close(weights(cut)[name], value, rtol=1e-5, atol=1e-6)


def test_accumulated_parts_of_a_mixed_batch(make_loop):
    stage = PLAIN | {"lr": 1.0, "mixup": 0.4}
    _, whole, _ = one_step(make_loop("wcdas", "identity", one=stage))
    _, cut, _ = one_step(make_loop("wcdas", "identity", one=stage | {"accumulate": 3}))
    torch.testing.assert_close(cut.head.weight, whole.head.weight, rtol=1e-5, atol=1e-6)


def test_clip_bounds_the_norm_of_the_step(make_loop):
    stage = PLAIN | {"lr": 1.0, "clip": 0.01}
    before, after, _ = one_step(make_loop(backbone="identity", one=stage))
    steps = [a - b for a, b in zip(after.parameters(), before.parameters(), strict=True)]
    assert math.sqrt(sum(float(s.detach().square().sum()) for s in steps)) == pytest.approx(0.01)


def gradient(before, loss):
    return torch.autograd.grad(loss, before.head.weight)[0]


def step_of_weight(make_loop, **stage):
    before, after, batch = one_step(make_loop(backbone="identity", one=PLAIN | {"lr": 1.0} | stage))
    return before, batch, (before.head.weight - after.head.weight).detach()


def test_label_smoothing_reaches_the_loss(make_loop):
    before, batch, step = step_of_weight(make_loop, label_smoothing=0.2)
    logits = before(batch.inputs)
    expected = gradient(before, F.cross_entropy(logits, batch.labels, label_smoothing=0.2))
    torch.testing.assert_close(step, expected, rtol=1e-4, atol=1e-6)


def test_the_prior_reaches_the_loss(make_loop, digits):
    before, batch, step = step_of_weight(make_loop, prior=1.5)
    log_prior = (digits.class_counts / digits.class_counts.sum()).log()
    logits = before(batch.inputs) + 1.5 * log_prior
    expected = gradient(before, F.cross_entropy(logits, batch.labels))
    torch.testing.assert_close(step, expected, rtol=1e-4, atol=1e-6)


def test_another_loss_takes_its_options(make_loop, digits):
    options = {"loss": "focal", "loss_options": {"gamma": 1.5}, "label_smoothing": 0.1}
    before, batch, step = step_of_weight(make_loop, **options)
    focal = create_loss("focal", digits.class_counts, gamma=1.5, label_smoothing=0.1)
    expected = gradient(before, focal(before(batch.inputs), batch.labels))
    torch.testing.assert_close(step, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("loss", ["cross-entropy", "balanced-softmax"])
def test_mixup_reaches_the_loss(make_loop, digits, loss):
    before, batch, step = step_of_weight(make_loop, mixup=0.7, loss=loss)
    mixed = batch.target
    assert 0 < mixed.lam < 1
    of = create_loss(loss, digits.class_counts)
    logits = before(batch.inputs)
    value = mixed.lam * of(logits, mixed.first) + (1 - mixed.lam) * of(logits, mixed.second)
    torch.testing.assert_close(step, gradient(before, value), rtol=1e-4, atol=1e-6)


def decayed(**options):
    """w_ρ and weight of a WCDAS head after a step without any gradient."""
    head = create_head("wcdas", 4, 3, init=1.0, start="paper")
    model = Classifier(create_backbone("identity", channels=4), head)
    weight = head.weight.detach().clone()
    optimizer = create_optimizer(model, Stage(lr=0.5, weight_decay=0.1, **options))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    torch.testing.assert_close(head.weight.detach(), weight * 0.95)
    return head.w_rho.tolist()


def test_concentrations_have_their_own_weight_decay():
    assert decayed() == pytest.approx([0.95] * 3)
    assert decayed(concentration_weight_decay=0.0) == [1.0] * 3
    assert decayed(concentration_weight_decay=0.2) == pytest.approx([0.9] * 3)


def test_nesterov_looks_ahead(make_loop):
    stage = PLAIN | {"lr": 1.0, "momentum": 0.5}
    before, after, batch = one_step(make_loop(backbone="identity", one=stage | {"nesterov": True}))
    slope = gradient(before, F.cross_entropy(before(batch.inputs), batch.labels))
    # v = g, and the step is g + 0.5 v.
    step = (before.head.weight - after.head.weight).detach()
    torch.testing.assert_close(step, 1.5 * slope, rtol=1e-4, atol=1e-6)


def test_the_average_is_the_result(make_loop, monkeypatch):
    """θ̄ ← d θ̄ + (1 − d) θ after step t, d = min(0.7, (1 + t)/(10 + t)), from the weights after the
    first."""
    loop = make_loop(backbone="identity", one={"epochs": 3, "ema": 0.7, "augment": "none"})
    seen = []
    train_step = StageTraining.train_step

    def spy(stage):
        train_step(stage)
        seen.append(stage.model.head.weight.detach().double().clone())

    monkeypatch.setattr(StageTraining, "train_step", spy)
    loop.train()
    average = seen[0]
    for t, value in enumerate(seen[1:], start=1):
        decay = min(0.7, (1 + t) / (10 + t))
        average = decay * average + (1 - decay) * value
    assert len(seen) > 21  # the decay gets to 0.7
    torch.testing.assert_close(loop.run.model.head.weight.double(), average, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(seen[-1], average)


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_a_classifier_stage_leaves_the_backbone_alone(make_loop, ema):
    loop = make_loop("wcdas", one={"trains": "classifier", "epochs": 2, "ema": ema})
    before = weights(loop.run.model)
    loop.train()
    after = weights(loop.run.model)
    assert any("running_mean" in name for name in before)
    for name, value in before.items():
        if name.startswith("backbone."):
            assert after[name].equal(value), name
        else:
            assert not after[name].equal(value), name


@pytest.mark.parametrize("neck", ["batch-norm", "linear"])
def test_a_neck_is_trained_with_the_backbone_and_left_alone_with_it(make_loop, neck):
    loop = make_loop("wcdas", "identity", neck=neck, one={}, two={"trains": "classifier"})
    start = weights(loop.run.model)
    enter_stage(loop.run, 0)
    loop.train_stage(StageTraining(loop.run, 0))
    between = weights(loop.run.model)
    enter_stage(loop.run, 1)
    loop.train_stage(StageTraining(loop.run, 1))
    after = weights(loop.run.model)
    assert [name for name in start if start[name].equal(between[name])] == []
    assert {name for name in start if between[name].equal(after[name])} == {
        name for name in start if name.startswith("backbone.neck.")
    }


@pytest.mark.parametrize(
    ("stage", "parts"),
    [
        ({"batch_size": 1}, "a batch of 1 leaves"),
        ({"batch_size": 8, "accumulate": 5}, "a batch of 8 in 5 parts leaves"),
        ({"batch_size": 8, "accumulate": 100}, "a batch of 8 in 100 parts leaves"),
        ({"batch_size": 512, "accumulate": 200}, "a batch of 331 in 200 parts leaves"),
    ],
)
def test_a_neck_needs_two_samples_at_a_time(make_loop, stage, parts):
    message = f"^stage one: {parts} one sample to the batch norm of the neck 'linear'; expected"
    with pytest.raises(InputError, match=message):
        make_loop(backbone="identity", neck="linear", one=stage)
    make_loop(backbone="identity", one=stage)
    make_loop(backbone="identity", neck="linear", one={}, two=stage | {"trains": "classifier"})


def test_parts_of_two_samples_are_enough_for_a_neck(make_loop):
    stage = {"batch_size": 9, "accumulate": 4}
    _, after, _ = one_step(make_loop(backbone="identity", neck="batch-norm", one=stage))
    assert after.backbone.neck.norm.num_batches_tracked == 4


def test_the_representation_stage_trains_everything(make_loop):
    loop = make_loop("wcdas", one={"epochs": 1})
    before = weights(loop.run.model)
    loop.train()
    after = weights(loop.run.model)
    same = [name for name, value in before.items() if after[name].equal(value)]
    assert same == []


def test_a_fresh_head(make_loop):
    stages = {"one": {"epochs": 1}, "two": {"head": "fresh", "trains": "classifier"}}
    loop = make_loop("wcdas", **stages)
    enter_stage(loop.run, 0)
    loop.train_stage(StageTraining(loop.run, 0))
    old = loop.run.model.head
    enter_stage(loop.run, 1)
    new = loop.run.model.head
    assert new is not old
    assert type(new) is type(old)
    first = create_head("wcdas", new.in_features, new.num_classes)
    assert new.w_rho.equal(first.w_rho)
    assert not old.w_rho.equal(first.w_rho)
    again = make_loop("wcdas", **stages)
    enter_stage(again.run, 1)
    assert again.run.model.head.weight.equal(new.weight)  # its own seed, whatever came before


def test_lws_starts_from_the_trained_linear_head(make_loop, tmp_path):
    """… leaves its weights, learns scales, and comes back from its file, bias and all."""
    lws = {"head": "lws", "trains": "classifier", "sampler": "class-balanced", "epochs": 2}
    loop = make_loop(backbone="identity", one={"epochs": 2}, two=lws, three=lws | {"head": "keep"})
    enter_stage(loop.run, 0)
    loop.train_stage(StageTraining(loop.run, 0))
    linear = weights(loop.run.model)
    enter_stage(loop.run, 1)
    assert isinstance(loop.run.model.head, LWSHead)
    loop.train_stage(StageTraining(loop.run, 1))
    enter_stage(loop.run, 2)
    loop.train_stage(StageTraining(loop.run, 2))
    head = loop.run.model.head
    assert head.weight.equal(linear["head.weight"])
    assert head.bias.equal(linear["head.bias"])
    assert not head.class_scale.eq(1).all()
    assert loop.run.config.head_after(None) == ("lws", True)
    assert head.built_options() == {"bias": True}


def test_a_run_with_another_head_can_be_loaded(tmp_path, features):
    settings = {
        "epochs": 1,
        "stages.classifier.head": "lws",
        "head.name": "linear",
    }
    run = wcdas.train(
        features, "wcdas", settings=settings, out=tmp_path / "run", device="cpu", report=False
    )
    model, info = load_model(run.path / "model.safetensors")
    assert info.head == "lws"
    assert isinstance(model.head, LWSHead)


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ({"sampler": "class-balancd"}, "did you mean 'class-balanced'"),
        ({"sampler": "meta", "sampler_options": {"rate": 1}}, "unknown option of sampler 'meta'"),
        ({"sampler_options": {"per_class": 4}}, "unknown option of sampler"),
        ({"augment": "standart"}, "did you mean 'standard'"),
        ({"loss": "focl"}, "did you mean 'focal'"),
        ({"loss": "focal", "loss_options": {"gama": 1}}, "did you mean 'gamma'"),
        ({"loss": "focal", "loss_options": {"gamma": "a"}}, "not supported"),
        ({"loss": "focal", "prior": 1.0}, "prior is 1, but it acts on cross-entropy alone"),
        ({"loss_options": {"gamma": 1}}, "cross-entropy has none"),
        ({"head": "lsw"}, "did you mean 'lws'"),
        ({"cutmix": 1.0}, "features are no images"),
    ],
)
def test_a_later_stage_is_checked_before_any_work(make_loop, stage, message):
    with pytest.raises(InputError, match=f"^stage two: .*{message}"):
        make_loop(backbone="identity", one={}, two=stage)


def test_held_out_images_are_never_drawn(make_loop, monkeypatch):
    loop = make_loop(
        "wcdas",
        "identity",
        holdout=0.1,
        one={"epochs": 2},
        two={"epochs": 5, "trains": "classifier", "sampler": "meta"},
    )
    drawn = {0: set(), 1: set()}
    begin = Batches.begin

    def spy(data, epoch, start):
        begin(data, epoch, start)
        for loader in data.loaders:
            drawn[int(isinstance(data.sampler, MetaSampler))] |= set(
                loader.plan.indices.flatten().tolist()
            )

    monkeypatch.setattr(Batches, "begin", spy)
    loop.train()
    held_out = set(loop.run.held_out.tolist())
    assert len(held_out) > 10
    assert not held_out & (drawn[0] | drawn[1])
    assert min(len(drawn[0]), len(drawn[1])) > 100


def test_meta_images_are_held_out(make_loop):
    """Of Meta-Weight-Net: the classes as often as each other, and none of them in first batches,
    but that classes with fewer than 20 images lend those they train on."""
    stage = {"second_sampler": "class-balanced", "epochs": 2, "augment": "none"}
    loop = make_loop("linear", "identity", method="meta-weight-net", representation=stage)
    run = loop.run
    labels, data = run.dataset.train.labels, Batches(run, 0)
    data.begin(1, 0)
    first, second = (loader.plan.indices.flatten() for loader in data.loaders)
    assert len(first) == len(second) > len(run.selection)
    assert set(first.tolist()) <= set(run.kept.tolist())
    few = torch.isin(labels, (run.dataset.class_counts < 20).nonzero()[:, 0])
    assert few[run.selection].logical_not().all()
    assert set(second.tolist()) <= set(run.selection.tolist()) | set(
        run.kept[few[run.kept]].tolist()
    )
    assert few[run.kept].sum() == few.sum()
    counts = torch.bincount(labels[second], minlength=10)
    # Of a binomial with p = 0.1 five standard deviations.
    assert (counts - len(second) / 10).abs().max() < 5 * (0.09 * len(second)) ** 0.5
    again = Batches(run, 0)
    again.begin(0, 0)
    assert not again.loaders[1].plan.indices.flatten().equal(second)


def test_accuracy_and_angle_in_the_log_are_those_of_the_weights(make_loop, written):
    """With a rate of nearly nothing the log of an epoch describes the model itself."""
    stage = PLAIN | {"lr": 1e-12, "batch_size": 1}
    loop = make_loop("wcdas", "identity", one=stage)
    loop.train()
    (line,) = written.log(loop.run.folder.path)
    train = loop.run.dataset.train
    logits = loop.run.model.head(train.vectors).detach()
    accuracy = (logits.argmax(1) == train.labels).double().mean()
    # Of one image two logits differ by 3e-6 only.
    assert line["train_accuracy"] == pytest.approx(float(accuracy), abs=1.1 / len(train))
    assert line["loss"] == pytest.approx(float(F.cross_entropy(logits, train.labels)), rel=1e-4)
    head = loop.run.model.head
    own = F.cosine_similarity(train.vectors, head.weight.detach()[train.labels]).acos()
    counts = loop.run.dataset.class_counts[train.labels]
    few = own[counts < 20].mean()
    assert line["angle"]["few"] == pytest.approx(float(few), rel=1e-4)
    start = 1 / (1 + math.e)  # σ(−1)
    assert line["rho"] == pytest.approx({"many": start, "medium": start, "few": start})
    assert line["rho_by_class"] == pytest.approx(head.concentration.tolist())
    assert line["scale"] == pytest.approx(float(head.scale.detach()))


def test_rho_of_every_class_is_logged_when_a_stage_ends(make_loop, written):
    loop = make_loop("wcdas", "identity", one=PLAIN | {"epochs": 2}, two=PLAIN)
    loop.train()
    log = written.log(loop.run.folder.path)
    assert ["rho_by_class" in line for line in log] == [False, True, True]
    assert log[2]["rho_by_class"] == pytest.approx(loop.run.model.head.concentration.tolist())
    assert log[1]["rho_by_class"] != log[2]["rho_by_class"]


def test_checkpoints_every_so_many_seconds(make_loop, monkeypatch):
    loop = make_loop(backbone="identity", one={"epochs": 1})
    clock = itertools.count(step=60.0)  # a minute passes with every look at it
    monkeypatch.setattr(loop_module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    steps = []
    save = checkpoint.save
    monkeypatch.setattr(
        checkpoint, "save", lambda f, step, *state: steps.append(step) or save(f, step, *state)
    )
    loop.train()
    assert loop.steps == 10
    assert steps == [5, 10]


@pytest.mark.parametrize("step", [1, 10, 15, 20, 25, 30])
def test_stopped_after_any_step_it_goes_on_the_same(make_loop, monkeypatch, step):
    """In both stages, at the end of an epoch and inside; ψ moves far within an epoch."""
    stages = {
        "one": {"epochs": 2, "ema": 0.5, "mixup": 0.4},
        "two": {
            "epochs": 2,
            "trains": "classifier",
            "sampler": "meta",
            "sampler_options": {"lr": 0.5},
        },
    }
    whole = make_loop("wcdas", "identity", **stages)
    whole.train()
    assert whole.steps == 40
    for file in whole.run.folder.checkpoints.iterdir():
        file.unlink()

    stopped = make_loop("wcdas", "identity", **stages)
    asked = Loop._asked

    def stop(loop, stage, at):
        return (True, False) if loop.steps == step else asked(loop, stage, at)

    monkeypatch.setattr(Loop, "_asked", stop)
    with pytest.raises(InterruptedRunError):
        stopped.train()
    monkeypatch.undo()
    resumed = make_loop("wcdas", "identity", **stages)
    resumed.train()
    for name, value in weights(whole.run.model).items():
        assert weights(resumed.run.model)[name].equal(value), name


def test_center_is_no_loss_of_a_stage(make_loop):
    with pytest.raises(InputError, match="stage one: center is a loss on features"):
        make_loop(backbone="identity", one={"loss": "center"})


def test_the_log_has_the_probabilities(make_loop, written):
    meta = {"trains": "classifier", "sampler": "meta", "epochs": 2, "augment": "none"}
    loop = make_loop("wcdas", "identity", one={}, two=meta)
    loop.train()
    first, *logged = (line.get("class_probabilities") for line in written.log(loop.run.folder.path))
    assert first is None
    assert all(sum(p) == pytest.approx(1, abs=1e-5) for p in logged)
    assert logged[0] != logged[1]


@pytest.mark.parametrize(
    "stage", [{"prior": 0.5, "label_smoothing": 0.1}, {"loss": "focal"}], ids=["prior", "loss"]
)
def test_the_stage_s_loss_of_another_head_with_a_prior_of_its_own(make_loop, stage):
    """As the experts of a method have it."""
    loop = make_loop("wcdas", "identity", one={"epochs": 1, **stage})
    enter_stage(loop.run, 0)
    step = StageTraining(loop.run, 0).step
    head, own = create_head("wcdas", 64, 10).requires_grad_(False), torch.randn(10)
    x, labels = torch.randn(8, 64), torch.arange(8)
    mixed = wcdas.MixedLabels(labels, labels.flip(0), 0.3)
    prior = loop.run.dataset.class_counts / loop.run.dataset.class_counts.sum()
    added = own + stage.get("prior", 0) * prior.log()
    if "loss" in stage:
        expected = create_loss("focal")(head(x) + added, mixed)
    else:
        expected = head.loss(x, mixed, label_smoothing=0.1, log_prior=added)
    torch.testing.assert_close(step._loss(x, mixed, head, own), expected)


def test_a_fresh_head_is_given_the_class_counts_too(make_loop, monkeypatch):
    class Counting(LinearHead):
        def __init__(self, in_features, num_classes, class_counts):
            super().__init__(in_features, num_classes)
            self.counted = list(class_counts)

    monkeypatch.setitem(HEADS, "counting", Counting)
    fresh = {"head": "fresh", "trains": "classifier"}
    run = make_loop("counting", "identity", one={}, two=fresh).run
    enter_stage(run, 1)
    assert run.model.head.counted == run.dataset.class_counts.tolist()


def test_a_run_is_built_alike_whatever_other_threads_draw(make_loop, monkeypatch):
    """All that is drawn from PyTorch's own sequence is drawn while others wait."""
    drawn = []
    uniform = torch.nn.init.kaiming_uniform_

    def may_draw():
        free = rng._ONE_AT_A_TIME.acquire(blocking=False)
        if free:
            rng._ONE_AT_A_TIME.release()
        return free

    def watched(*given, **options):
        with ThreadPoolExecutor() as pool:
            drawn.append(pool.submit(may_draw).result())
        return uniform(*given, **options)

    monkeypatch.setattr(torch.nn.init, "kaiming_uniform_", watched)
    enter_stage(make_loop("wcdas", one={}, two={"head": "fresh"}).run, 1)
    assert drawn
    assert not any(drawn)


def test_a_loss_is_checked_with_the_images_there_are(make_loop, digits):
    emptied = replace(digits, class_names=[*digits.class_names, "ten"])
    with pytest.raises(InputError, match=r"^stage one: ldam needs an image of every class"):
        make_loop(dataset=emptied, one={"loss": "ldam"})


def test_a_size_of_evaluation_that_a_network_does_not_take_is_refused(tmp_path):
    settings = {"backbone.name": VIT, "input_size": 32, "evaluation_size": 64}
    with pytest.raises(InputError, match=f"evaluation_size is 64, which {VIT} does not take"):
        wcdas.train("digits-lt", settings=settings, out=tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_step_knows_its_epoch_and_the_log_is_of_the_batch_alone(make_loop, written, monkeypatch):
    """What else runs through the backbone with the batch is not counted."""
    epochs = []

    def training_step(model, batch, state):
        epochs.append(float(state.epoch))
        both = state.features(torch.cat((batch.inputs, batch.inputs.flip(0))))
        return state.loss(both[: len(batch.inputs)], batch.target)

    plain = METHODS["softmax"]
    monkeypatch.setitem(METHODS, "both", replace(plain, training_step=training_step))
    logs = []
    for method in ("softmax", "both"):
        loop = make_loop("linear", "identity", method=method, one=PLAIN | {"epochs": 3})
        loop.train()
        logs.append(written.log(loop.run.folder.path))
        shutil.rmtree(loop.run.folder.path)
    assert logs[0] == logs[1]
    assert epochs == [0.0] * 10 + [1.0] * 10 + [2.0] * 10
