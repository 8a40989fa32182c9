"""The seed, and nothing else, decides what comes out."""

import tomllib

import pytest
import torch

import wcdas

SETTINGS = {"epochs": 2, "evaluate_every": 2, "stages.representation.mixup": 0.4}
SETTINGS |= {"backbone.name": "resnet8"}


@pytest.fixture
def train(tmp_path):
    def trained(name, seed=0, **settings):
        run = wcdas.train(
            method="wcdas-meta",
            seed=seed,
            settings=SETTINGS | settings,
            out=tmp_path / name,
            device="cpu",
            report=False,
        )
        return run.path

    return trained


def test_one_seed_one_result(train, written):
    one, two, other = train("one"), train("two"), train("other", seed=1)
    written.assert_same(one, two)
    name = "model.safetensors"
    assert (one / name).read_bytes() != (other / name).read_bytes()
    run = tomllib.loads((other / "run.toml").read_text())
    assert run["seed"] == 1
    assert len(run["info"]["fingerprint"]) == 64
    assert run["info"]["versions"]["torch"] == torch.__version__


def test_deterministic_algorithms(train, written, monkeypatch):
    asked = []
    use = torch.use_deterministic_algorithms
    monkeypatch.setattr(
        torch, "use_deterministic_algorithms", lambda wanted: asked.append(wanted) or use(wanted)
    )
    plain, strict = train("plain"), train("strict", deterministic=True)
    assert asked == [False, False, True, False]
    assert not torch.are_deterministic_algorithms_enabled()
    written.assert_same(plain, strict)  # on a CPU they are anyway


def test_the_state_of_other_random_numbers_does_not_matter(train, written):
    torch.manual_seed(1)
    one = train("one")
    torch.manual_seed(2)
    written.assert_same(one, train("two"))
