"""Recipes: what overrides what, and what is refused."""

import re
import tomllib

import pytest
import tomli_w

import wcdas
from wcdas.errors import InputError
from wcdas.methods import list_methods
from wcdas.run.recipes import list_recipes, parse_settings, read_recipe, read_recipe_header
from wcdas.run.schedule import planned
from wcdas.run.settings import check_effect, check_keys, read_request, resolve
from wcdas.run.spec import as_table, build


def config(method="wcdas", dataset="digits-lt", *, recipe=None, settings=(), automatic=None):
    layers = ([recipe] if recipe else []) + [parse_settings(settings)]
    return resolve(method, dataset, layers, automatic or {}, None)


def stage(name="representation", **options):
    return config(**options).stages[name]


@pytest.mark.parametrize("dataset", [name for name in list_recipes() if "wcdas" not in name])
@pytest.mark.parametrize("method", list_methods())
def test_every_method_has_a_recipe_for_every_dataset(method, dataset):
    assert config(method, dataset).method == method


@pytest.mark.parametrize("name", [name for name in list_recipes() if "wcdas" in name])
def test_paper_recipes(name):
    dataset = read_recipe_header(name).split()[2]
    assert dataset in list_recipes()
    given = read_recipe(name)
    resolved = config("wcdas", dataset, recipe=given)
    for key, values in given["stages"].items():
        assert {k: getattr(resolved.stages[key], k) for k in values} == values
    assert read_recipe_header(name).startswith(f"wcdas train {dataset} --recipe {name}")


def test_later_layers_win():
    own = {"stages": {"representation": {"lr": 0.5}}}
    assert stage(dataset="own folder").lr == 0.2  # the method
    assert stage().lr == 0.1  # the shipped recipe of digits-lt
    assert stage(recipe=own).lr == 0.5
    assert stage(recipe=own, settings=["lr=0.7"]).lr == 0.7
    assert stage(recipe=own, settings=["stages.representation.lr=0.7"]).lr == 0.7


def test_what_suits_the_data_is_below_the_shipped_recipe():
    automatic = {"stages": {"representation": {"lr": 0.9, "clip": 2.0}}, "augment": {"flip": True}}
    resolved = config(automatic=automatic)
    assert (resolved.stages["representation"].lr, resolved.augment.flip) == (0.1, False)
    assert resolved.stages["representation"].clip == 2.0


def test_a_method_may_need_rates_of_its_own():
    """A fresh classifier needs a larger rate than one that goes on."""
    assert stage("classifier", method="wcdas", dataset="cifar100-lt").lr == 0.005
    assert stage("classifier", method="crt", dataset="cifar100-lt").lr == 0.2
    assert stage("classifier", method="crt", dataset="cifar100-lt", settings=["lr=0.3"]).lr == 0.3
    request = read_request("cifar100-lt", None, "crt")
    assert request.check("own folder").stages["classifier"].lr == 0.2


def test_a_continued_stage_is_as_the_one_before_it():
    resolved = config("ldam-drw", "cifar100-lt")
    first, second = resolved.stages.values()
    assert (second.augment, second.batch_size, second.loss) == ("strong", 256, "ldam")
    assert (first.loss_options.get("beta"), second.loss_options["beta"]) == (None, 0.9999)
    assert [stage.epochs for _, stage in planned(resolved.stages)] == [160, 40]
    again = build(tomllib.loads(tomli_w.dumps(as_table(resolved))))
    assert planned(again.stages) == planned(resolved.stages)


def test_bare_keys_set_every_stage():
    keys = ["epochs=3", "lr=0.25", "batch_size=8", "weight_decay=0.5"]
    for each in config(settings=keys).stages.values():
        assert (each.epochs, each.lr, each.batch_size, each.weight_decay) == (3, 0.25, 8, 0.5)


def test_a_stage_of_its_own_is_above_a_bare_key_whatever_the_order():
    for settings in (["epochs=3", "stages.classifier.epochs=5"],) * 2:
        stages = config(settings=settings).stages
        assert [s.epochs for s in stages.values()] == [3, 5]
        settings.reverse()


def test_bare_keys_of_a_recipe_set_the_stages_it_adds():
    own = {"epochs": 4, "stages": {"deferred": {"optimizer": "continue"}}}
    stages = config("softmax", recipe=own).stages
    assert {name: s.epochs for name, s in stages.items()} == {"representation": 4, "deferred": 4}


def test_a_dataset_speaks_of_stages_a_method_may_not_have():
    assert list(config("softmax").stages) == ["representation"]


@pytest.mark.parametrize(
    ("method", "setting", "reason"),
    [
        ("ncm", "stages.classifier.epochs=1", "nothing is trained there"),
        ("tau-norm", "stages.classifier.sampler_options.x=1", "nothing is trained there"),
        ("ldam-drw", "stages.reweighting.epochs=9", "it takes a share of the epochs"),
        ("ldam-drw", "stages.reweighting.lr=0.1", "it continues the optimizer"),
        ("softmax", "stages.representation.second_sampler=class-balanced", "softmax takes no sec"),
        ("wcdas", "stages.classifier.milestones=[0.5]", "the schedule is 'cosine'"),
        ("wcdas", "stages.representation.gamma=0.5", "the schedule is 'cosine'"),
        ("wcdas", "stages.classifier.cutmix_share=0.5", "there is no CutMix"),
        ("wcdas", "stages.classifier.cutmix_sampler='class-balanced'", "there is no CutMix"),
        ("wcdas", "stages.classifier.cutmix_rest=3", "there is no CutMix"),
        (
            "wcdas",
            "stages.representation.annealing.base=9",
            "the head 'wcdas' has no margin to ann",
        ),
        (
            "softmax",
            "stages.representation.annealing.power=2",
            "the head 'linear' has no margin to",
        ),
    ],
)
def test_what_has_no_effect_is_refused(method, setting, reason):
    given = parse_settings([setting, "epochs=5"])
    for layers in ([given], [given, {}]):  # a setting, and a recipe
        with pytest.raises(InputError, match=f"has no effect, since {reason}.*; leave it out"):
            check_effect([(resolve(method, "digits-lt", layers, {}, None), layers)])


@pytest.mark.parametrize(
    ("method", "setting"),
    [
        ("ncm", "epochs=3"),
        ("ldam-drw", "lr=0.3"),
        ("ldam-drw", "stages.reweighting.share=0.5"),
        ("wcdas-meta", "stages.classifier.second_sampler=square-root"),
        ("meta-weight-net", "stages.representation.second_sampler=square-root"),
        ("l-softmax", "stages.representation.annealing.base=0"),
        ("sphereface", "stages.classifier.annealing.base=9"),
    ],
)
def test_what_has_an_effect_is_not_refused(method, setting):
    layers = [parse_settings([setting])]
    check_effect([(resolve(method, "digits-lt", layers, {}, None), layers)])


def test_the_step_schedule_has_its_keys():
    keys = ["schedule='step'", "milestones=[0.5]", "gamma=0.5"]
    layers = [parse_settings([f"stages.representation.{key}" for key in keys])]
    check_effect([(resolve("wcdas", "digits-lt", layers, {}, None), layers)])


def test_a_head_that_a_stage_brings_decides_on_annealing():
    for head, refused in (("sphereface", False), ("cosine", True)):
        stage = {"head": head, "annealing": {"base": 9.0}}
        layers = [{"stages": {"classifier": stage}}, {}]
        run = (resolve("crt", "digits-lt", layers, {}, None), layers)
        if refused:
            with pytest.raises(InputError, match="the head 'cosine' has no margin to anneal"):
                check_effect([run])
        else:
            check_effect([run])


@pytest.mark.parametrize(
    "method", ["ncm", "ldam-drw", "softmax", "hybrid-contrastive", "l-softmax"]
)
def test_the_table_of_a_run_is_a_recipe(method):
    resolved = config(method)
    layers = [as_table(resolved), {}]
    again = resolve(method, "", layers, {}, None)
    check_effect([(again, layers)])
    assert as_table(again) == as_table(resolved)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["stages.clasifier.lr=1"],
            "stage of wcdas 'clasifier'; did you mean 'classifier'",
        ),
        (["epoch=3"], "unknown key 'epoch'"),
        (["stages.classifier.epoch=3"], "did you mean 'stages.classifier.epochs'"),
        (["epochs=0"], "epochs is 0; expected at least 1"),
        (["epochs=many"], "epochs is 'many'; expected a whole number"),
        (["epochs"], "--set got 'epochs'; expected key=value"),
        (["=3"], "--set got '=3'; expected key=value"),
        (["head=linear"], "head is 'linear'; expected a table"),
        (["backbone=resnet50", "epochs=2"], "backbone is 'resnet50'; expected a table"),
        (["stages=3", "epochs=2"], "stages is 3; expected a table"),
        (["stages.classifier=3", "epochs=2"], "stages.classifier is 3; expected a table"),
        (["head.init=1", "head.init.x=2"], "'init' has a value already"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        config(settings=settings)


@pytest.mark.parametrize(
    ("method", "key", "said"),
    [
        ("wcdas", "mixup", "'stages.representation.mixup' or 'stages.classifier.mixup'?"),
        ("ncm", "mixup", "did you mean 'stages.representation.mixup'?"),
        ("wcdas", "flip", "did you mean 'augment.flip'?"),
        ("wcdas", "holdout", "'calibration.holdout' or 'selection.holdout'?"),
        ("wcdas", "imbalance", "did you mean 'data.imbalance'?"),
        ("ride", "experts", "did you mean 'options.experts'?"),
        ("wcdas", "classifier", "did you mean 'stages.classifier'?"),
        ("wcdas", "epoch", "did you mean 'epochs'?"),
        ("wcdas", "xyzzy", "known: amp, augment"),
    ],
)
def test_a_bare_key_is_answered_with_its_place(method, key, said):
    with pytest.raises(InputError, match=f"unknown key '{key}'; .*{re.escape(said)}"):
        check_keys([{key: 1}], method)


def test_unknown_names():
    with pytest.raises(InputError, match="unknown method 'wcdsa'; did you mean 'wcdas'"):
        config("wcdsa")
    with pytest.raises(InputError, match=r"unknown recipe 'cifar100'; did you mean 'cifar100-lt'"):
        read_recipe("cifar100")


def test_own_recipes(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text("[head]\ninit = 1.0\n")
    assert read_recipe(file) == {"head": {"init": 1.0}}
    file.write_text("[head\n")
    with pytest.raises(InputError, match=r"own.toml .* TOML"):
        read_recipe(file)
    file.write_text('backbone = "resnet50"\n')
    with pytest.raises(InputError, match="backbone is 'resnet50'; expected a table"):
        read_recipe(file)
    file.write_text("[methods]\nsoftmax = 3\n")
    with pytest.raises(InputError, match=r"methods.softmax is 3; expected a table"):
        read_recipe(file)
    file.write_text("[methods.softmax.stages]\nrepresentation = 3\n")
    with pytest.raises(InputError, match=r"methods.softmax.stages.representation is 3; expected"):
        read_recipe(file)
    file.write_text("[methods.sofmax]\nlr = 0.1\n")
    with pytest.raises(InputError, match=r"methods.sofmax: unknown method 'sofmax'; did you mean"):
        read_recipe(file)
    file.write_text("info = 3\n")
    with pytest.raises(InputError, match="info is 3; expected a table"):
        read_recipe(file)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"own.toml cannot be read as TOML"):
        read_recipe(file)


def test_values_are_toml_or_text():
    given = [
        "a=1",
        "b=0.5",
        "c=true",
        "d=[1, 2]",
        "e=resnet50",
        "f='x y'",
        "g=a/b.toml",
        "h=",
        "i=a=b",
    ]
    assert parse_settings(given) == {
        "a": 1,
        "b": 0.5,
        "c": True,
        "d": [1, 2],
        "e": "resnet50",
        "f": "x y",
        "g": "a/b.toml",
        "h": "",
        "i": "a=b",
    }


@pytest.mark.parametrize("name", list_recipes())
def test_resolved_recipes_survive_writing(name):
    recipe = {key: value for key, value in read_recipe(name).items() if key != "methods"}
    resolved = config(recipe=recipe)
    assert build(tomllib.loads(tomli_w.dumps(as_table(resolved)))) == resolved


def test_run_toml_has_the_resolved_recipe(tmp_path):
    settings = {"epochs": 1, "stages.classifier.lr": 0.05}
    where = {"out": tmp_path / "run", "device": "cpu", "report": False}
    run = wcdas.train(method="wcdas", settings=settings, seed=3, **where)
    table = tomllib.loads((run.path / "run.toml").read_text())
    assert table["seed"] == 3
    assert table["stages"]["classifier"]["lr"] == 0.05
    assert table["stages"]["representation"]["lr"] == 0.1
    assert table["info"]["prior"] == "uniform"


def test_settings_from_python_may_be_tables():
    settings = {"stages.classifier.sampler_options": {"per_class": 8}, "amp": "bf16"}
    (table,) = read_request(None, settings, None).layers
    assert table["stages"]["classifier"]["sampler_options"] == {"per_class": 8}
    assert table["amp"] == "bf16"


def test_another_head_does_not_inherit_the_options_of_the_method():
    assert config("arcface", settings=["head.name=cosine"]).head == {"name": "cosine"}
    assert config("arcface", settings=["head.margin=0.3"]).head["scale"] == 64.0
    given = config("sade", settings=["head.name=wcdas", "head.init=1.0"]).head
    assert given == {"name": "wcdas", "init": 1.0}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[info]\ngiven = 3", "recipe .*: info.given is 3; expected a list"),
        ("method = 'crt'\n[info]\ngiven = [3]", r"info.given\[0\] is 3; expected a table"),
        ("method = 'crt'\n[info]\ngiven = [{stages = 3}]", "stages is 3; expected a table"),
        ("method = 3\n[info]\ngiven = []", "method is 3; expected a text"),
    ],
)
def test_what_only_looks_like_a_run_is_refused_in_a_line(text, told, tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=told):
        wcdas.train(recipe=file, method="softmax", out=tmp_path / "run")
