"""What a stage does to the weights, looked at step by step."""

import copy
import itertools
import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

import wcdas
from wcdas.backbones import create_backbone
from wcdas.errors import InputError, InterruptedRunError
from wcdas.heads import LWSHead, create_head
from wcdas.losses import create_loss
from wcdas.methods.classifier import Classifier
from wcdas.run import checkpoint, stage_run
from wcdas.run.model_file import load_model
from wcdas.run.optimizer import create_optimizer
from wcdas.run.spec import Stage
from wcdas.run.stage_data import StageData
from wcdas.run.stage_run import StageRun

PLAIN = {"momentum": 0.0, "weight_decay": 0.0, "schedule": "constant", "augment": "none"}


def one_step(trainer):
    """The model before and after the first step, and the batch of that step."""
    trainer._enter(0)
    run = StageRun(trainer, 0)
    run.parallel.train()
    run._begin_epoch(0, 0)
    batch = run.data.next(run.clock.step).batch
    before = copy.deepcopy(trainer.model)
    run._begin_epoch(0, 0)
    run._set_rate(run.stage.lr)
    run._train_step()
    return before, trainer.model, batch


def weights(model):
    """All that a stage may change: the units of s and ρ stay as they are."""
    state = model.state_dict()
    return {name: value.clone() for name, value in state.items() if "_unit" not in name}


@pytest.mark.parametrize("parts", [2, 3, 32, 50])
def test_accumulated_parts_give_the_gradient_of_the_batch(make_trainer, parts):
    stage = PLAIN | {"lr": 1.0}
    _, whole, _ = one_step(make_trainer("wcdas", "identity", one=stage))
    _, cut, _ = one_step(make_trainer("wcdas", "identity", one=stage | {"accumulate": parts}))
    for name, value in weights(whole).items():
        torch.testing.assert_close(weights(cut)[name], value, rtol=1e-5, atol=1e-6)


def test_accumulated_parts_of_a_mixed_batch(make_trainer):
    stage = PLAIN | {"lr": 1.0, "mixup": 0.4}
    _, whole, _ = one_step(make_trainer("wcdas", "identity", one=stage))
    _, cut, _ = one_step(make_trainer("wcdas", "identity", one=stage | {"accumulate": 3}))
    torch.testing.assert_close(cut.head.weight, whole.head.weight, rtol=1e-5, atol=1e-6)


def test_clip_bounds_the_norm_of_the_step(make_trainer):
    stage = PLAIN | {"lr": 1.0, "clip": 0.01}
    before, after, _ = one_step(make_trainer(backbone="identity", one=stage))
    steps = [a - b for a, b in zip(after.parameters(), before.parameters(), strict=True)]
    assert math.sqrt(sum(float(s.detach().square().sum()) for s in steps)) == pytest.approx(0.01)


def gradient(before, loss):
    return torch.autograd.grad(loss, before.head.weight)[0]


def step_of_weight(make_trainer, **stage):
    before, after, batch = one_step(
        make_trainer(backbone="identity", one=PLAIN | {"lr": 1.0} | stage)
    )
    return before, batch, (before.head.weight - after.head.weight).detach()


def test_label_smoothing_reaches_the_loss(make_trainer):
    before, batch, step = step_of_weight(make_trainer, label_smoothing=0.2)
    logits = before(batch.inputs)
    expected = gradient(before, F.cross_entropy(logits, batch.labels, label_smoothing=0.2))
    torch.testing.assert_close(step, expected, rtol=1e-4, atol=1e-6)


def test_the_prior_reaches_the_loss(make_trainer, digits):
    before, batch, step = step_of_weight(make_trainer, prior=1.5)
    log_prior = (digits.class_counts / digits.class_counts.sum()).log()
    logits = before(batch.inputs) + 1.5 * log_prior
    expected = gradient(before, F.cross_entropy(logits, batch.labels))
    torch.testing.assert_close(step, expected, rtol=1e-4, atol=1e-6)


def test_another_loss_takes_its_options(make_trainer, digits):
    options = {"loss": "focal", "loss_options": {"gamma": 1.5}, "label_smoothing": 0.1}
    before, batch, step = step_of_weight(make_trainer, **options)
    focal = create_loss("focal", digits.class_counts, gamma=1.5, label_smoothing=0.1)
    expected = gradient(before, focal(before(batch.inputs), batch.labels))
    torch.testing.assert_close(step, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("loss", ["cross-entropy", "balanced-softmax"])
def test_mixup_reaches_the_loss(make_trainer, digits, loss):
    before, batch, step = step_of_weight(make_trainer, mixup=0.7, loss=loss)
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


def test_nesterov_looks_ahead(make_trainer):
    stage = PLAIN | {"lr": 1.0, "momentum": 0.5}
    before, after, batch = one_step(
        make_trainer(backbone="identity", one=stage | {"nesterov": True})
    )
    slope = gradient(before, F.cross_entropy(before(batch.inputs), batch.labels))
    # v = g, and the step is g + 0.5 v.
    step = (before.head.weight - after.head.weight).detach()
    torch.testing.assert_close(step, 1.5 * slope, rtol=1e-4, atol=1e-6)


def test_the_average_is_the_result(make_trainer, monkeypatch):
    """θ̄ ← 0.7 θ̄ + 0.3 θ after every step, from the weights after the first."""
    trainer = make_trainer(backbone="identity", one={"epochs": 2, "ema": 0.7, "augment": "none"})
    seen = []
    train_step = StageRun._train_step

    def spy(run):
        train_step(run)
        seen.append(run.model.head.weight.detach().double().clone())

    monkeypatch.setattr(StageRun, "_train_step", spy)
    trainer.run()
    average = seen[0]
    for value in seen[1:]:
        average = 0.7 * average + 0.3 * value
    torch.testing.assert_close(trainer.model.head.weight.double(), average, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(seen[-1], average)


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_a_classifier_stage_leaves_the_backbone_alone(make_trainer, ema):
    trainer = make_trainer("wcdas", one={"trains": "classifier", "epochs": 2, "ema": ema})
    before = weights(trainer.model)
    trainer.run()
    after = weights(trainer.model)
    assert any("running_mean" in name for name in before)
    for name, value in before.items():
        if name.startswith("backbone."):
            assert after[name].equal(value), name
        else:
            assert not after[name].equal(value), name


@pytest.mark.parametrize("neck", ["batch-norm", "linear"])
def test_a_neck_is_trained_with_the_backbone_and_left_alone_with_it(make_trainer, neck):
    trainer = make_trainer("wcdas", "identity", neck=neck, one={}, two={"trains": "classifier"})
    start = weights(trainer.model)
    trainer._enter(0)
    trainer._train(0, None)
    between = weights(trainer.model)
    trainer._enter(1)
    trainer._train(1, None)
    after = weights(trainer.model)
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
def test_a_neck_needs_two_samples_at_a_time(make_trainer, stage, parts):
    message = f"^stage one: {parts} one sample to the batch norm of the neck 'linear'; expected"
    with pytest.raises(InputError, match=message):
        make_trainer(backbone="identity", neck="linear", one=stage)
    make_trainer(backbone="identity", one=stage)
    make_trainer(backbone="identity", neck="linear", one={}, two=stage | {"trains": "classifier"})


def test_parts_of_two_samples_are_enough_for_a_neck(make_trainer):
    stage = {"batch_size": 9, "accumulate": 4}
    _, after, _ = one_step(make_trainer(backbone="identity", neck="batch-norm", one=stage))
    assert after.backbone.neck.norm.num_batches_tracked == 4


def test_the_representation_stage_trains_everything(make_trainer):
    trainer = make_trainer("wcdas", one={"epochs": 1})
    before = weights(trainer.model)
    trainer.run()
    after = weights(trainer.model)
    same = [name for name, value in before.items() if after[name].equal(value)]
    assert same == []


def test_a_fresh_head(make_trainer):
    stages = {"one": {"epochs": 1}, "two": {"head": "fresh", "trains": "classifier"}}
    trainer = make_trainer("wcdas", **stages)
    trainer._enter(0)
    trainer._train(0, None)
    old = trainer.model.head
    trainer._enter(1)
    new = trainer.model.head
    assert new is not old
    assert type(new) is type(old)
    first = create_head("wcdas", new.in_features, new.num_classes)
    assert new.w_rho.equal(first.w_rho)
    assert not old.w_rho.equal(first.w_rho)
    again = make_trainer("wcdas", **stages)
    again._enter(1)
    assert again.model.head.weight.equal(new.weight)  # its own seed, whatever came before


def test_lws_starts_from_the_trained_linear_head(make_trainer, tmp_path):
    """… leaves its weights, learns scales, and comes back from its file, bias and all."""
    lws = {"head": "lws", "trains": "classifier", "sampler": "class-balanced", "epochs": 2}
    trainer = make_trainer(
        backbone="identity", one={"epochs": 2}, two=lws, three=lws | {"head": "keep"}
    )
    trainer._enter(0)
    trainer._train(0, None)
    linear = weights(trainer.model)
    trainer._enter(1)
    assert isinstance(trainer.model.head, LWSHead)
    trainer._train(1, None)
    trainer._enter(2)
    trainer._train(2, None)
    head = trainer.model.head
    assert head.weight.equal(linear["head.weight"])
    assert head.bias.equal(linear["head.bias"])
    assert not head.class_scale.eq(1).all()
    assert (trainer.head_name, trainer.head_options) == ("lws", {"bias": True})


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
def test_a_later_stage_is_checked_before_any_work(make_trainer, stage, message):
    with pytest.raises(InputError, match=f"^stage two: .*{message}"):
        make_trainer(backbone="identity", one={}, two=stage)


def test_held_out_images_are_never_drawn(make_trainer, monkeypatch):
    trainer = make_trainer(
        "wcdas",
        "identity",
        holdout=0.1,
        one={"epochs": 2},
        two={"epochs": 5, "trains": "classifier", "sampler": "meta"},
    )
    drawn = {0: set(), 1: set()}
    begin = StageData.begin

    def spy(data, epoch, start):
        begin(data, epoch, start)
        for loader in data.loaders:
            drawn[data.index] |= set(loader.plan.indices.flatten().tolist())

    monkeypatch.setattr(StageData, "begin", spy)
    trainer.run()
    held_out = set(trainer.held_out.tolist())
    assert len(held_out) > 10
    assert not held_out & (drawn[0] | drawn[1])
    assert min(len(drawn[0]), len(drawn[1])) > 100


def test_accuracy_and_angle_in_the_log_are_those_of_the_weights(make_trainer, written):
    """With a rate of nearly nothing the log of an epoch describes the model itself."""
    stage = PLAIN | {"lr": 1e-12, "batch_size": 1}
    trainer = make_trainer("wcdas", "identity", one=stage)
    trainer.run()
    (line,) = written.log(trainer.folder.path)
    train = trainer.dataset.train
    logits = trainer.model.head(train.vectors).detach()
    accuracy = (logits.argmax(1) == train.labels).double().mean()
    # Of one image two logits differ by 3e-6 only.
    assert line["train_accuracy"] == pytest.approx(float(accuracy), abs=1.1 / len(train))
    assert line["loss"] == pytest.approx(float(F.cross_entropy(logits, train.labels)), rel=1e-4)
    head = trainer.model.head
    own = F.cosine_similarity(train.vectors, head.weight.detach()[train.labels]).acos()
    counts = trainer.class_counts[train.labels]
    few = own[counts < 20].mean()
    assert line["angle"]["few"] == pytest.approx(float(few), rel=1e-4)
    start = 1 / (1 + math.e)  # σ(−1)
    assert line["rho"] == pytest.approx({"many": start, "medium": start, "few": start})
    assert line["rho_by_class"] == pytest.approx(head.concentration.tolist())
    assert line["scale"] == pytest.approx(float(head.scale.detach()))


def test_rho_of_every_class_is_logged_when_a_stage_ends(make_trainer, written):
    trainer = make_trainer("wcdas", "identity", one=PLAIN | {"epochs": 2}, two=PLAIN)
    trainer.run()
    log = written.log(trainer.folder.path)
    assert ["rho_by_class" in line for line in log] == [False, True, True]
    assert log[2]["rho_by_class"] == pytest.approx(trainer.model.head.concentration.tolist())
    assert log[1]["rho_by_class"] != log[2]["rho_by_class"]


def test_checkpoints_every_so_many_seconds(make_trainer, monkeypatch):
    trainer = make_trainer(backbone="identity", one={"epochs": 1})
    clock = itertools.count(step=60.0)  # a minute passes with every look at it
    monkeypatch.setattr(stage_run, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    steps = []
    save = checkpoint.save
    monkeypatch.setattr(
        checkpoint, "save", lambda f, step, state: steps.append(step) or save(f, step, state)
    )
    trainer.run()
    assert trainer.global_step == 10
    assert steps == [6, 10]


@pytest.mark.parametrize("step", [1, 10, 15, 20, 25, 30])
def test_stopped_after_any_step_it_goes_on_the_same(make_trainer, monkeypatch, step):
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
    whole = make_trainer("wcdas", "identity", **stages)
    whole.run()
    assert whole.global_step == 40
    for file in whole.folder.checkpoints.iterdir():
        file.unlink()

    stopped = make_trainer("wcdas", "identity", **stages)
    asked = StageRun._asked

    def stop(run, at):
        return (True, False) if run.trainer.global_step == step else asked(run, at)

    monkeypatch.setattr(StageRun, "_asked", stop)
    with pytest.raises(InterruptedRunError):
        stopped.run()
    monkeypatch.undo()
    resumed = make_trainer("wcdas", "identity", **stages)
    resumed.run()
    for name, value in weights(whole.model).items():
        assert weights(resumed.model)[name].equal(value), name


def test_center_is_no_loss_of_a_stage(make_trainer):
    with pytest.raises(InputError, match="stage one: center is a loss on features"):
        make_trainer(backbone="identity", one={"loss": "center"})


def test_the_log_has_the_probabilities(make_trainer, written):
    meta = {"trains": "classifier", "sampler": "meta", "epochs": 2, "augment": "none"}
    trainer = make_trainer("wcdas", "identity", one={}, two=meta)
    trainer.run()
    first, *logged = (line.get("class_probabilities") for line in written.log(trainer.folder.path))
    assert first is None
    assert all(sum(p) == pytest.approx(1, abs=1e-5) for p in logged)
    assert logged[0] != logged[1]
