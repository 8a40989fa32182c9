"""What a sweep is asked for, and what may be added to it later."""

from pathlib import Path

import pytest

from wcdas.errors import InputError
from wcdas.sweeps.plan import Asked, extended, new_plan


def plan(methods="softmax,wcdas", **asked):
    return new_plan(Asked(methods=methods, **asked))


def test_every_method_has_every_seed():
    names = [run.name for run in plan(seeds=2).runs]
    assert names == ["softmax-s0", "wcdas-s0", "softmax-s1", "wcdas-s1"]
    assert plan().seeds == 3
    assert plan(["softmax", " wcdas "]).methods == ("softmax", "wcdas")


def test_a_stage_is_set_for_the_methods_that_have_it():
    settings = {"epochs": 2, "stages.classifier.lr": 0.5}
    asked = plan(settings=settings)
    asked.check()
    assert asked.request("wcdas").layers == [{"epochs": 2, "stages": {"classifier": {"lr": 0.5}}}]
    assert asked.request("softmax").layers == [{"epochs": 2, "stages": {}}]
    with pytest.raises(InputError, match="unknown stage of softmax or wcdas-prior 'class"):
        plan("softmax,wcdas-prior", settings=settings).check()


def test_a_stage_that_no_method_has_is_added_to_all(tmp_path):
    recipe = tmp_path / "own.toml"
    recipe.write_text("[stages.more]\nepochs = 4\n[stages.classifier]\nepochs = 5\n")
    asked = plan(recipe=recipe)
    asked.check()
    more = {"more": {"epochs": 4}}
    assert asked.request("softmax").layers == [{"stages": more}, {}]
    assert asked.request("wcdas").layers == [{"stages": more | {"classifier": {"epochs": 5}}}, {}]


def test_a_key_of_a_stage_that_one_method_has_no_use_for_is_left_to_the_others():
    plan("crt,ncm", settings={"stages.classifier.lr": 0.5}).check()
    second = {"stages.representation.second_sampler": "square-root"}
    plan("softmax,meta-weight-net", settings=second).check()
    with pytest.raises(InputError, match="softmax takes no second batch"):
        plan("softmax,ncm", settings=second).check()


def test_the_recipe_of_a_run_lends_its_method_where_none_is_named_and_no_seed(tmp_path):
    recipe = tmp_path / "run.toml"
    recipe.write_text('method = "wcdas"\nseed = 7\nepochs = 1\n[info]\nfingerprint = "x"\n')
    assert plan(recipe=recipe).recipe == {"epochs": 1}
    assert plan(recipe=recipe).methods == ("softmax", "wcdas")
    assert plan(None, recipe=recipe).methods == ("wcdas",)


def test_a_recipe_may_say_something_of_one_method(tmp_path):
    recipe = tmp_path / "own.toml"
    recipe.write_text("[methods.softmax]\nlr = 0.5\n")
    asked = plan(recipe=recipe)
    asked.check()
    assert asked.request("softmax").layers == [{"lr": 0.5}, {}]
    assert asked.request("wcdas").layers == [{}]


def test_paths_are_full(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("images").mkdir()
    asked = plan(data="images", settings={"data.root": "images"})
    full = str(tmp_path / "images")
    assert asked.data == {"root": full, "source": full}
    assert asked.settings == {"data": {"root": full}}


def test_methods_and_seeds_can_be_added():
    before = plan(seeds=2, settings={"epochs": 2})
    more = extended(before, Asked(methods="wcdas-prior,wcdas", seeds=4))
    assert more.methods == ("softmax", "wcdas", "wcdas-prior")
    assert more.seeds == 4
    assert extended(before, Asked()) == before
    same = Asked("digits-lt", "softmax", 2, settings=["epochs=2"])
    assert extended(before, same) == before


@pytest.mark.parametrize("seeds", [[0, 1], 2.0, True, "3"])
def test_seeds_are_counted(seeds):
    with pytest.raises(InputError, match=r"--seeds is .*; expected how many, 1 to 1,000"):
        plan(seeds=seeds)


@pytest.mark.parametrize("methods", [3, [3], {"softmax"}])
def test_methods_are_names(methods):
    with pytest.raises(InputError, match=r"methods are .*; expected names, such as"):
        plan(methods)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (Asked(seeds=1), "seeds: 2 → 1"),
        (Asked(data="cifar10-lt"), "data: digits-lt → cifar10-lt"),
        (Asked(settings={"epochs": 3}), "epochs: 2 → 3"),
        (Asked(settings={"epochs": 2, "lr": 1.0}), "lr: not set → 1.0"),
        (Asked(recipe="digits-lt"), "stages.representation.epochs: not set → 60"),
        (Asked(methods="softmax,softmax"), "'softmax' more than once"),
        (Asked(methods="sofmax"), "unknown method 'sofmax'; did you mean 'softmax'"),
    ],
)
def test_nothing_else_can_be_changed(asked, said):
    with pytest.raises(InputError, match=said):
        extended(plan(seeds=2, settings={"epochs": 2}), asked)


def test_a_recipe_must_stay_whole(tmp_path):
    recipe = tmp_path / "own.toml"
    recipe.write_text("epochs = 4\namp = 'bf16'\n")
    before = plan(recipe=recipe)
    assert extended(before, Asked(recipe=recipe)) == before
    recipe.write_text("epochs = 4\n")
    with pytest.raises(InputError, match=r"\(amp: bf16 → not set\)"):
        extended(before, Asked(recipe=recipe))
