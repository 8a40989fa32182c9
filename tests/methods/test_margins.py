"""Angular rows: their published constants, and the annealing that some margins need."""

import pytest
import torch

from wcdas.methods import find_method, list_methods
from wcdas.run.schedule import annealed
from wcdas.run.settings import resolve
from wcdas.run.spec import Annealing

PUBLISHED = {
    "l-softmax": {"margin": 4},
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


def test_annealing_against_the_formula():
    schedule = Annealing(base=1000.0, gamma=0.12, power=1.0, minimum=5.0, iterations=28_000)
    assert annealed(schedule, 0.0) == 1000
    assert annealed(schedule, 0.01) == pytest.approx(1000 / (1 + 0.12 * 280))
    assert annealed(schedule, 1.0) == 5


@pytest.mark.parametrize("name", ["l-softmax", "sphereface", "arcface"])
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


def test_only_heads_with_margins_are_annealed():
    for name in list_methods():
        head = find_method(name).defaults["head"]["name"]
        stages = resolve(name, "cifar100-lt", [{}], {}, None).stages.values()
        wanted = head in ("l-softmax", "sphereface", "arcface")
        assert any(stage.annealing.base > 0 for stage in stages) == wanted
