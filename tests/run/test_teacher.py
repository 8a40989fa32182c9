"""A run learns from a trained model: by which logits, on which images, and from no other one."""

import hashlib
import shutil
import tomllib
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.special import rel_entr, softmax
from torch.distributions import Categorical, kl_divergence

import wcdas
from wcdas.errors import InputError, InterruptedRunError
from wcdas.run.diagnosis import chance
from wcdas.run.loop import Loop
from wcdas.run.model_file import load_model, save_model
from wcdas.run.stage import StageTraining, enter_stage
from wcdas.run.teacher import divergence

PLAIN = {"momentum": 0.0, "weight_decay": 0.0, "schedule": "constant", "augment": "none", "lr": 1.0}
SHORT = {"epochs": 2, "batch_size": 16, "evaluate_every": 99, "lr": 0.05}


def trained(data, method, out, **settings):
    settings = SHORT | settings
    return wcdas.train(data, method, settings=settings, out=out, device="cpu", report=False)


@pytest.fixture(scope="module")
def softmax_run(features, tmp_path_factory):
    """Its logits follow the class mix of training."""
    return trained(features, "softmax", tmp_path_factory.mktemp("teacher") / "run")


@pytest.fixture(scope="module")
def images_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("teacher") / "images"
    return trained("digits-lt", "softmax", out, **{"backbone.name": "resnet8"})


def rewritten(run, out, rows=None, **changes):
    """A model file with other facts, and the classes of its head in another order."""
    model, info = load_model(run.path / "model.safetensors")
    if rows is not None:
        with torch.no_grad():
            model.head.weight.copy_(model.head.weight[rows])
            model.head.bias.copy_(model.head.bias[rows])
    save_model(out, model, replace(info, **changes))
    return out


def begun(loop):
    enter_stage(loop.run, 0)
    stage = StageTraining(loop.run, 0)
    stage.parallel.train()
    stage.begin_epoch(0, 0)
    stage.set_rate(stage.stage.lr)
    return stage


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_the_divergence_is_that_of_the_textbooks(temperature):
    random = np.random.default_rng(0)
    z, t = (random.normal(size=(6, 5)) * 4 for _ in range(2))
    found = divergence(torch.tensor(z), torch.tensor(t), temperature)
    q, p = (softmax(each / temperature, axis=1) for each in (z, t))
    assert found.item() == pytest.approx(temperature**2 * rel_entr(p, q).sum(1).mean(), rel=1e-10)
    pair = [Categorical(logits=torch.tensor(each / temperature)) for each in (t, z)]
    torch.testing.assert_close(found, temperature**2 * kl_divergence(*pair).mean())
    assert divergence(torch.tensor(t), torch.tensor(t), temperature).item() == pytest.approx(0)


def test_at_a_high_temperature_it_draws_logits_together():
    """The paper's limit, with the means over classes taken out: 1/(2C) Σ (z − t)²."""
    z, t = torch.randn(2, 4, 7, generator=torch.Generator().manual_seed(0)).double()
    apart = (z - z.mean(1, keepdim=True)) - (t - t.mean(1, keepdim=True))
    expected = apart.square().sum(1).mean() / 14
    torch.testing.assert_close(divergence(z, t, 1e4), expected, rtol=1e-3, atol=0)


@pytest.mark.parametrize("prior", ["uniform", "train", "none"])
def test_it_says_what_it_predicts_for_the_class_mix_of_the_run(
    softmax_run, make_loop, tmp_path, prior
):
    file = rewritten(softmax_run, tmp_path / "model.safetensors", temperature=1.5)
    teacher = wcdas.load(file, device="cpu")
    assert teacher.info.prior == "train"
    run = make_loop(backbone="identity", one={}, settings={"teacher": str(file)}).run
    x = run.dataset.train.vectors[:50]
    found = run.teacher.for_prior(prior)(x)
    expected = teacher.logits(x, None if prior == "none" else prior)
    if prior == "train":  # that of the run, which has more images
        counts = [torch.tensor(teacher.info.class_counts), run.dataset.class_counts]
        assert not counts[0].equal(counts[1])
        theirs, ours = ((n / n.sum()).log() for n in counts)
        expected = expected + ours - theirs
    torch.testing.assert_close(found.softmax(1), expected.softmax(1))
    assert not found.requires_grad


@pytest.mark.parametrize(
    ("own", "given", "alike"), [("uniform", "uniform", True), ("none", "uniform", True),
                                ("none", "train", True), ("uniform", "train", False)],
)  # fmt: skip
def test_logits_of_the_same_or_of_no_known_mix_stay(
    own, given, alike, softmax_run, make_loop, tmp_path
):
    file = rewritten(softmax_run, tmp_path / "model.safetensors", prior=own)
    run = make_loop(backbone="identity", one={}, settings={"teacher": str(file)}).run
    x = run.dataset.train.vectors[:50]
    plain = wcdas.load(file, device="cpu").logits(x)
    found = run.teacher.for_prior(given)(x)
    assert torch.allclose(found.softmax(1), plain.softmax(1), atol=1e-5) == alike


@pytest.mark.parametrize(
    ("method", "stages", "priors"),
    [
        ("softmax", {"one": {}}, ["train"]),
        ("softmax", {"one": {"prior": 1.0}}, ["uniform"]),
        ("wcdas", {"one": {}, "two": {"sampler": "class-balanced"}}, ["train", "uniform"]),
        ("sade", {"representation": {}}, ["none"]),
        ("balpoe", {"representation": {"prior": 1.0}}, ["uniform"]),
    ],
)
def test_each_stage_has_a_mix_of_its_own(method, stages, priors, softmax_run, make_loop):
    settings = {"teacher": str(softmax_run.path)}
    run = make_loop(backbone="identity", method=method, settings=settings, **stages).run
    x = run.dataset.train.vectors[:9]
    for index, prior in enumerate(priors):
        assert run.teacher_in(index)(x).equal(run.teacher.for_prior(prior)(x))


def test_classes_are_found_by_name(softmax_run, make_loop, tmp_path):
    """A file with the classes in another order says the same of each."""
    _, info = load_model(softmax_run.path / "model.safetensors")
    rows = torch.tensor([3, 1, 4, 0, 5, 9, 2, 6, 8, 7])
    changes = {
        "class_names": [info.class_names[i] for i in rows],
        "class_counts": [info.class_counts[i] for i in rows],
    }
    other = rewritten(softmax_run, tmp_path / "model.safetensors", rows, **changes)
    found = []
    for path in (softmax_run.path, other):
        run = make_loop(backbone="identity", one={}, settings={"teacher": str(path)}).run
        found.append(run.teacher.for_prior("uniform")(run.dataset.train.vectors[:50]))
    torch.testing.assert_close(*found)


def test_another_normalisation_is_made_up_for(images_run, make_loop, tmp_path, digits):
    other = rewritten(images_run, tmp_path / "model.safetensors", mean=[0.1], std=[0.7])
    run = make_loop(backbone="resnet8", one={}, settings={"teacher": str(other)}).run
    pixels = digits.train.pixels[:20].float() / 255
    mean, std = (torch.tensor(run.loading[key]).view(-1, 1, 1) for key in ("mean", "std"))
    assert (mean, std) != (0.1, 0.7)
    found = run.teacher.for_prior("none")((pixels - mean) / std)
    expected = wcdas.load(other, device="cpu").logits((pixels - 0.1) / 0.7)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("weight", "temperature"), [(0.5, 2.0), (0.2, 4.0), (1.0, 1.0)])
def test_the_loss_of_a_step_by_hand(softmax_run, make_loop, weight, temperature):
    """The same mixed features to both; the prior is in the cross-entropy alone."""
    settings = {"teacher": str(softmax_run.path)}
    settings |= {"teacher_weight": weight, "teacher_temperature": temperature}
    stage = begun(
        make_loop(backbone="identity", one=PLAIN | {"mixup": 0.4, "prior": 1.0}, settings=settings)
    )
    batch = stage.data.next(stage.clock.step).batch
    stage.begin_epoch(0, 0)
    head = stage.model.head
    pair = [
        head.weight.detach().clone().requires_grad_(),
        head.bias.detach().clone().requires_grad_(),
    ]
    z = batch.inputs @ pair[0].T + pair[1]
    log_prior = (stage.run.dataset.class_counts / len(stage.run.dataset.train)).log()
    share = batch.target.lam
    labels = [F.cross_entropy(z + log_prior, y) for y in (batch.target.first, batch.target.second)]
    t = wcdas.load(softmax_run, device="cpu").logits(batch.inputs, "uniform")
    p, q = ((each / temperature).softmax(1) for each in (t, z))
    apart = (p * (p / q).log()).sum(1).mean()
    loss = (1 - weight) * (share * labels[0] + (1 - share) * labels[1])
    loss = loss + weight * temperature**2 * apart
    slopes = torch.autograd.grad(loss, pair)
    stage.train_step()
    for parameter, before, slope in zip((head.weight, head.bias), pair, slopes, strict=True):
        torch.testing.assert_close(before - parameter, slope, rtol=1e-4, atol=1e-6)
    assert stage.statistics.sums[0] / 32 == pytest.approx(loss.item(), rel=1e-5)


def test_parts_of_a_batch_give_the_step_of_the_batch(softmax_run, make_loop):
    weights = []
    for parts in (1, 3):
        one = PLAIN | {"accumulate": parts, "mixup": 0.4, "sam": 0.1}
        settings = {"teacher": str(softmax_run.path)}
        stage = begun(make_loop("wcdas", "identity", one=one, settings=settings))
        stage.train_step()
        weights.append(stage.model.head.weight)
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-5, atol=1e-6)


def test_the_teacher_stays_as_it_is(images_run, make_loop):
    stage = begun(make_loop(backbone="resnet8", one=PLAIN | {"lr": 0.01},
                            settings={"teacher": str(images_run.path)}))  # fmt: skip
    teacher = stage.run.teacher.model
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    stage.train_step()
    assert not teacher.training
    for name, value in teacher.state_dict().items():
        assert value.equal(before[name]), name
    ours = {id(p) for p in teacher.parameters()}
    assert not ours & {id(p) for group in stage.optimizer.param_groups for p in group["params"]}
    assert not any(name.startswith("teacher") for name in stage.state_dict()["model"])


def test_a_loss_with_a_teacher_has_no_level_of_chance(softmax_run, make_loop):
    settings = {"teacher": str(softmax_run.path)}
    taught, alone = (
        StageTraining(make_loop(backbone="identity", one={"augment": "none"}, settings=s).run, 0)
        for s in (settings, {})
    )
    levels = [
        chance(run.step, run.sampler.class_probabilities(0, 1), True) for run in (taught, alone)
    ]
    assert levels[0].loss is None
    assert levels[1].loss is not None


def test_a_method_learns_from_it_where_it_has_no_loss_of_its_own(features, softmax_run, tmp_path):
    settings = {"teacher": str(softmax_run.path), "epochs": 2}
    for method in ("balpoe", "ride", "equilibrium", "center-loss"):
        run = trained(features, method, tmp_path / method, **settings)
        assert run.metrics["top1"] > 0.3, method


def test_routers_and_margins_of_ones_own_have_none(make_loop, softmax_run):
    settings = {"teacher": str(softmax_run.path)}
    stages = {"representation": {}, "reweighting": {}, "routing": {"trains": "classifier"}}
    run = make_loop(backbone="identity", method="ride", settings=settings, **stages).run
    assert [run.teacher_in(i) is None for i in range(3)] == [False, False, True]


def test_a_student_of_experts_comes_near_them(features, digits, tmp_path):
    """KL from them on images of training: 0.003 to 0.09 over ten seeds, of a run of its own 0.31 to
    0.76."""
    longer = {"epochs": 20, "lr": 0.1}
    experts = trained(features, "balpoe", tmp_path / "experts", **longer)
    settings = longer | {"teacher": str(experts.path), "teacher_weight": 1.0}
    taught = trained(features, "wcdas-prior", tmp_path / "taught", **settings)
    alone = trained(features, "wcdas-prior", tmp_path / "alone", **longer)
    x = digits.train.pixels.flatten(1).float() / 255
    t, *others = (wcdas.load(run, device="cpu").logits(x) for run in (experts, taught, alone))
    near, far = (divergence(z, t, 1.0) for z in others)
    assert near < far / 2


def test_what_a_run_remembers(features, softmax_run, tmp_path, monkeypatch):
    """The path in full and the digest of the file; the trained model needs neither."""
    shutil.copytree(softmax_run.path, tmp_path / "teacher")
    monkeypatch.chdir(tmp_path)
    run = trained(features, "softmax", tmp_path / "run", teacher="teacher")
    table = tomllib.loads((run.path / "run.toml").read_text())
    file = tmp_path / "teacher" / "model.safetensors"
    assert table["teacher"] == str(tmp_path / "teacher")
    assert table["info"]["teacher"] == hashlib.sha256(file.read_bytes()).hexdigest()
    shutil.rmtree(tmp_path / "teacher")
    again = wcdas.evaluate_run(run, device="cpu")
    assert again["top1"] == run.metrics["top1"]
    resumed = wcdas.train(out=run.path, resume=True, device="cpu", report=False)
    assert resumed.metrics == run.metrics


def test_stopped_and_resumed_by_the_same_teacher_alone(
    features, softmax_run, images_run, tmp_path, monkeypatch
):
    teacher = tmp_path / "teacher.safetensors"
    shutil.copy(softmax_run.path / "model.safetensors", teacher)
    settings = {"teacher": str(teacher), "stages.representation.mixup": 0.4}
    whole = trained(features, "wcdas-prior", tmp_path / "whole", **settings)
    asked = Loop._asked
    with monkeypatch.context() as patch:
        patch.setattr(
            Loop, "_asked", lambda self, *at: (self.steps == 9 and 2, asked(self, *at)[1])
        )
        with pytest.raises(InterruptedRunError):
            trained(features, "wcdas-prior", tmp_path / "stopped", **settings)

    def resume(**given):
        return wcdas.train(
            out=tmp_path / "stopped", resume=True, settings=given, device="cpu", report=False
        )

    rewritten(softmax_run, teacher, temperature=3.0)
    with pytest.raises(InputError, match="is not the one that the run was started with; restore"):
        resume()
    teacher.write_bytes(teacher.read_bytes()[:100])
    with pytest.raises(InputError, match=r"teacher.safetensors is not the one that"):
        resume()
    teacher.unlink()
    with pytest.raises(InputError, match=r"teacher: .* holds no trained model; expected a run's"):
        resume()
    with pytest.raises(InputError, match=r"the run was started otherwise \(teacher: "):
        resume(teacher=str(images_run.path))
    shutil.copy(softmax_run.path / "model.safetensors", teacher)
    resumed = resume(teacher=str(teacher))
    first, second = ((run.path / "model.safetensors").read_bytes() for run in (whole, resumed))
    assert first == second


def test_runs_of_a_sweep_have_it_too(features, softmax_run, tmp_path):
    settings = SHORT | {"epochs": 1, "teacher": str(softmax_run.path)}
    sweep = wcdas.sweep(
        features, ["softmax", "wcdas-prior"], 1, settings=settings, out=tmp_path / "sweep",
        device="cpu", report=False,
    )  # fmt: skip
    assert not sweep.failed
    digest = hashlib.sha256((softmax_run.path / "model.safetensors").read_bytes()).hexdigest()
    for name in sweep.results["runs"]:
        table = tomllib.loads((tmp_path / "sweep" / name / "run.toml").read_text())
        assert table["info"]["teacher"] == digest


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"teacher": "nowhere"},
            "teacher: nowhere holds no trained model; expected a run's folder",
        ),
        ({"teacher": ""}, None),
        ({"teacher_weight": 0.3}, "teacher_weight is 0.3, but there is no teacher; leave it out"),
        ({"teacher_temperature": 3}, "teacher_temperature is 3, but there is no teacher"),
        ({"teacher": "RUN", "teacher_weight": 0}, "teacher_weight is 0.0; expected above 0"),
        ({"teacher": "RUN", "teacher_weight": 1.5}, "teacher_weight is 1.5; expected at most 1"),
        (
            {"teacher": "RUN", "method": "paco"},
            "teacher has no effect, since paco has its own loss",
        ),
        (
            {"teacher": "RUN", "sharded": True},
            "but a teacher's logits are of all classes; leave it",
        ),
        ({"teacher": "IMAGES"}, "teacher: it takes images, and the run feature vectors"),
        ({"teacher": "DAMAGED"}, r"teacher: .*model.safetensors is damaged; it is made again by: "),
        ({"teacher": "UNFINISHED"}, r"teacher: .* is not finished; go on with: wcdas train --out"),
    ],
)
def test_what_cannot_teach_is_refused(
    settings, message, features, softmax_run, images_run, tmp_path
):
    places = {"RUN": softmax_run.path, "IMAGES": images_run.path}
    for name in ("DAMAGED", "UNFINISHED"):
        places[name] = shutil.copytree(softmax_run.path, tmp_path / name)
    (places["UNFINISHED"] / "model.safetensors").unlink()
    file = places["DAMAGED"] / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    given = dict(settings)
    method = given.pop("method", "wcdas-prior")
    given["teacher"] = str(places.get(given.get("teacher"), given.get("teacher", "")))
    if message is None:
        assert trained(features, method, tmp_path / "run", **given).metrics["top1"] > 0
        return
    with pytest.raises(InputError, match=message):
        trained(features, method, tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_size": 16}, "it sees images at 16 px, and the run evaluates them at 8; expected"),
        (
            {"class_names": [*"012345678", "x"]},
            "'9' is a class of the run alone; expected the same",
        ),
    ],
)
def test_another_kind_of_images_or_classes(changes, message, images_run, tmp_path):
    file = rewritten(images_run, tmp_path / "model.safetensors", **changes)
    with pytest.raises(InputError, match=f"teacher: {message}"):
        trained("digits-lt", "softmax", tmp_path / "run", teacher=str(file))
    assert not (tmp_path / "run").exists()


def test_grey_images_are_no_colour_images(images_run, mixed_folder, tmp_path):
    settings = {"teacher": str(images_run.path), "input_size": 8, "backbone.weights": ""}
    with pytest.raises(
        InputError, match="takes 1 channels of an image, and the run 3; expected as"
    ):
        trained(mixed_folder, "softmax", tmp_path / "run", **settings)


def test_frozen_features_are_no_images(images_run, tmp_path):
    settings = {
        "teacher": str(images_run.path),
        "frozen": True,
        "backbone.weights": "x.safetensors",
    }
    with pytest.raises(InputError, match="but the backbone is frozen, and its features are what"):
        trained("digits-lt", "softmax", tmp_path / "run", **settings)
