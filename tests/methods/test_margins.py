"""Angular rows: their published constants, and the annealing that some margins need."""

import pytest
import torch

from wcdas.methods import list_methods
from wcdas.run.recipes import parse_settings
from wcdas.run.schedule import annealed
from wcdas.run.settings import resolve
from wcdas.run.spec import Annealing

PUBLISHED = {
    "l-softmax": {"margin": 2},
    "sphereface": {"margin": 4},
    "am-softmax": {"margin": 0.35, "scale": 30.0},
    "arcface": {"margin": 0.5, "scale": 64.0},
    "t-vmf": {"fixed_kappa": 16.0},
    "ldam-drw": {"scale": 30.0},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_constants(name, on_pixels):
    """They reach the head that is trained."""
    head = on_pixels(name, epochs=2).model.classifier.head
    for option, value in PUBLISHED[name].items():
        assert torch.as_tensor(getattr(head, option)).eq(value).all()


@pytest.mark.parametrize("name", ["wcdas-single", "wndas-single", "wcdas", "wndas"])
def test_one_concentration_or_one_a_class(name, on_pixels):
    head = on_pixels(name, epochs=1).model.classifier.head
    assert head.w_rho.numel() == (1 if "single" in name else 10)


NECKS = {
    "l-softmax": "linear-relu",
    "sphereface": "batch-norm",
    "am-softmax": "batch-norm",
    "arcface": "batch-norm",
    "gaussian-affinity": "batch-norm",
    "t-vmf": "none",
    "softmax": "none",
}


@pytest.mark.parametrize("name", NECKS)
def test_necks(name):
    """Of the method, unless a setting says otherwise."""
    assert resolve(name, "cifar100-lt", [{}], {}, None).neck.name == NECKS[name]
    settings = parse_settings(["neck.name=linear", "neck.features=24"])
    chosen = resolve(name, "cifar100-lt", [settings], {}, None).neck
    assert (chosen.name, chosen.features) == ("linear", 24)


# Iterations and λ there, by the authors' max(λ_min, base·(1 + γi)^−power) with the numbers of
# their files, and the iterations of their solvers.
ANNEALED = {
    "l-softmax": (30_000, {0: 1000.0, 3_000: 264.44, 16_591: 1.0, 30_000: 0.0074567}),
    "sphereface": (28_000, {0: 1000.0, 28: 229.36, 280: 28.902, 1_658: 5.0011, 28_000: 5.0}),
}


@pytest.mark.parametrize("name", ANNEALED)
def test_annealing_of_the_authors(name):
    annealing = resolve(name, "", [{}], {}, None).stages["representation"].annealing
    iterations, values = ANNEALED[name]
    for i, value in values.items():
        assert annealed(annealing, i / iterations) == pytest.approx(value, rel=1e-3)


def test_annealing_against_the_formula():
    schedule = Annealing(base=1000.0, gamma=0.12, power=1.0, minimum=5.0, iterations=28_000)
    assert annealed(schedule, 0.0) == 1000
    assert annealed(schedule, 0.01) == pytest.approx(1000 / (1 + 0.12 * 280))
    assert annealed(schedule, 1.0) == 5


@pytest.mark.parametrize("name", ["l-softmax", "sphereface"])
def test_the_run_anneals_its_head(name, on_pixels):
    """λ of the last step of stage 1, which stage 2 keeps; the step is counted over the stage."""
    run = on_pixels(name, **{"stages.representation.epochs": 4, "stages.classifier.epochs": 2})
    stage = resolve(name, "", [{}], {}, None).stages["representation"]
    steps = run_steps(run)
    last = annealed(stage.annealing, (4 * steps - 1) / (4 * steps))
    assert float(run.model.classifier.head.annealing) == pytest.approx(last, rel=1e-5)
    assert last < 6


def run_steps(run):
    import tomllib

    table = tomllib.loads((run.path / "run.toml").read_text())
    kept = sum(table["info"]["class_counts"])
    from wcdas.data import open_dataset

    labels = open_dataset(table["data"]["source"]).train.labels
    assert len(labels) == kept
    held_out = sum(max(1, int(0.05 * n)) for n in table["info"]["class_counts"] if n >= 20)
    return (kept - held_out) // table["stages"]["representation"]["batch_size"]


def test_only_margins_that_multiply_the_angle_are_annealed():
    for name in list_methods():
        stages = resolve(name, "cifar100-lt", [{}], {}, None).stages.values()
        wanted = name in ("l-softmax", "sphereface")
        assert any(stage.annealing.base > 0 for stage in stages) == wanted
