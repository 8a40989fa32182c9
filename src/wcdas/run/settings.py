"""A user's settings become the configuration of a run.

Later wins: the method's own values, what suits data and machine, the shipped recipe of the dataset,
`--recipe`, `--set`. A dataset's recipe speaks of stages by name; a method takes what concerns the
stages it has, so that all methods train under one protocol. What a method needs otherwise stands in
the recipe's table `methods.NAME`.
"""

import copy
import itertools
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from wcdas.data import OPTIONS, HuggingFace, in_memory, list_datasets
from wcdas.data.augment import RESIZED_CROP_FROM
from wcdas.data.dataset import Dataset, FeatureVectors
from wcdas.data.images import CENTRE_CROP_FROM
from wcdas.data.mirroring import decide_mirroring, without_verdict
from wcdas.data.sources.hugging_face import IN_MEMORY
from wcdas.errors import InputError, explained, unknown
from wcdas.files import digest
from wcdas.methods import Method, find_method
from wcdas.run.automatic import (
    FROM_SCRATCH,
    LARGEST_ZOOM,
    Chosen,
    automatic,
    fine_tuning,
    fits,
    on_features,
    single_step,
)
from wcdas.run.checks import check_stages, why_not_sharded
from wcdas.run.folder import trained_model
from wcdas.run.recipes import Settings, check_layer, list_recipes, read_recipe, read_settings
from wcdas.run.schedule import planned
from wcdas.run.spec import (
    EVERY_STAGE,
    AugmentConfig,
    Config,
    Stage,
    Table,
    as_table,
    build,
    flat,
    idle_keys,
    keys,
    unread_keys,
)
from wcdas.shapes import check_shape

DEFAULT_METHOD = "wcdas-prior"
SHARDED_FROM = 100_000  # classes
PATHS = ("source", "root", "classes", "labels")  # options of a dataset that are paths

Source = str | Path | HuggingFace


@dataclass(frozen=True)
class Request:
    """A user's words on a run.

    Args:
        named: the method; None where nobody names one.
        layers: tables over the shipped recipe, later over earlier; single settings are the last.
        given: the same as a run.toml remembers it for other methods.
        seed: over whatever the layers say.
    """

    named: str | None
    layers: Sequence[Table]
    given: Sequence[Table] = ()
    seed: int | None = None

    @property
    def method(self) -> str:
        return DEFAULT_METHOD if self.named is None else self.named

    @property
    def data(self) -> Table:
        """The options of the dataset."""
        return _merged(layer.get("data", {}) for layer in self.layers)

    def ask_about_mirroring(self, dataset: Dataset) -> Dataset:
        """Let the images decide about mirroring, unless a user does or none is seen mirrored.

        A run.toml repeats what its images decided; these ones are asked why, if they agree.
        """
        said, given = (
            _merged(layer.get("augment", {}) for layer in layers).get("flip")
            for layers in (self.layers, self.given)
        )
        settings = _merged(self.layers)
        unseen = is_frozen(self.layers) and settings.get("views", 1) == 1
        if given is not None or unseen:
            return dataset
        decided = decide_mirroring(dataset)
        return decided if said in (None, decided.augment_flip) else dataset

    def _chosen(self, dataset: Dataset) -> Chosen:
        """What is said of the network already."""
        settings = _merged(self.layers)
        backbone = _merged(layer.get("backbone", {}) for layer in self.layers)
        weights, frozen = backbone.get("weights"), settings.get("frozen")
        if dataset.name in list_recipes() and not frozen and weights is None:
            weights = ""  # shipped recipes train from scratch
        spread: Table = {"stages": {"representation": {}}}
        for layer in self.layers:
            _merge(spread, _spread(layer, spread["stages"]))
        stage, method = spread["stages"]["representation"], find_method(self.method)
        trained = {"lora", "drop_path"} & {*backbone} or "layer_decay" in stage
        taught = bool(settings.get("teacher"))
        if frozen is None and (trained or taught or self._acts_on_images() or method.views):
            frozen = False
        return Chosen(
            name=backbone.get("name"),
            weights=weights,
            frozen=frozen,
            input_size=settings.get("input_size", 0),
            epochs=stage.get("epochs", 0),
            crops=stage.get("augment") != "none",
            experts=method.experts,
        )

    def _acts_on_images(self) -> bool:
        """Whether something is set that has no effect on features."""
        try:
            allowed = ("input_size", "evaluation_crop", "augment.flip", "cache")
            _check_effect_on_features(self.layers, "", *allowed)
        except InputError:
            return True
        return False

    def check(self, dataset: str) -> Config:
        """Refuse what is wrong whatever is in the dataset; return what is known by its name."""
        config = resolve(self.method, dataset, self.layers, {}, self.seed)
        check_stages(config, find_method(self.method))
        return config

    def resolve(
        self,
        dataset: Dataset,
        source: Source,
        device: str | torch.device,
        skip_bad: bool,
        at_a_time: int = 1,
    ) -> tuple[Config, list[str]]:
        """Resolve everything for a dataset and a device, on which so many runs train at a time,
        and say what was decided."""
        device = torch.device(device)
        suitable, notes = automatic(dataset, device.type, self._chosen(dataset))
        frozen = is_frozen([suitable, *self.layers])
        images = len(dataset.train)
        config = resolve(self.method, dataset.name, self.layers, suitable, self.seed, images)
        features = isinstance(dataset.train, FeatureVectors)
        if features:
            _check_effect_on_features(self.layers, "features are no images")
        elif frozen and not config.backbone.weights:
            raise InputError(
                "frozen is true, but backbone.weights is empty, and random weights are worth no "
                "features; set it to pretrained or a file"
            )
        elif frozen and config.views == 1:
            seen = "every image is seen as it is; for others set views to 2 or more"
            allowed = ("input_size", "evaluation_crop", "frozen", "augment.flip")
            _check_effect_on_features(self.layers, seen, *allowed)
        if features or (frozen and config.views == 1):
            stages = {name: replace(stage, augment="none") for name, stage in config.stages.items()}
            config = replace(config, stages=stages)
        data = with_full_paths(config.data) | {"source": full_path(source)}
        if skip_bad:
            data["skip_bad"] = True
        if data["source"] in list_datasets() and data["source"] != "digits-lt":
            data.setdefault("root", full_path(os.environ.get("WCDAS_DATA") or "data"))
        size = config.input_size or suitable.get("input_size") or dataset.input_size
        if size < RESIZED_CROP_FROM and not features:
            self._check_no_resized_crop(size)
        _check_size(size, dataset)
        many = dataset.num_classes >= SHARDED_FROM and "sharded" not in _merged(self.layers)
        if many and not why_not_sharded(config, find_method(self.method)):
            config = replace(config, sharded=True)
        decided = "cache" in _merged(self.layers) or frozen
        config = replace(config, data=data, input_size=size)
        if config.evaluated_at < CENTRE_CROP_FROM and "evaluation_crop" in _merged(self.given):
            why = f"images of {config.evaluated_at} px are evaluated whole"
            raise _no_effect("evaluation_crop", why)
        if not decided and fits(dataset, config, device, at_a_time):
            config = replace(config, cache=True)
        return config, [*notes, *single_step(config, dataset)]

    def _check_no_resized_crop(self, size: int) -> None:
        scale = _merged(layer.get("augment", {}) for layer in self.layers).get("scale")
        if scale not in (None, AugmentConfig.scale):
            why = f"RandomResizedCrop is from {RESIZED_CROP_FROM} pixels on, and images of {size}"
            raise _no_effect("augment.scale", f"{why} are trained on")


def _check_size(size: int, dataset: Dataset) -> None:
    """Refuse images that would be enlarged beyond all measure."""
    largest = LARGEST_ZOOM * dataset.image_side
    if largest and size > largest:
        raise InputError(
            f"input_size is {size}, but most images of {dataset.name} are {dataset.image_side} "
            f"pixels; expected at most {largest}, {LARGEST_ZOOM} times as much: set input_size, or "
            "give larger images"
        )


def read_request(
    recipe: str | Path | None, settings: Settings, method: str | None, seed: int | None = None
) -> Request:
    """Read what a user gives over the shipped recipe; later wins."""
    table, named = read_own(recipe)
    last = read_settings(settings)
    for layer in (table, last):
        _find_files(layer)
    method = last.pop("method", named if method is None else method)
    if method is not None and not isinstance(method, str):
        raise InputError(f"method is {method!r}; expected a name of `wcdas list methods`")
    layers = [*for_method(table, DEFAULT_METHOD if method is None else method), last]
    return Request(method, layers, remembered(table, last), seed)


def _find_files(layer: Table) -> None:
    """Give weights and teacher their full paths, so that a run can be taken up from anywhere."""
    if isinstance(teacher := layer.get("teacher"), str) and teacher:
        layer["teacher"] = full_path(teacher)
    match layer:
        case {"backbone": {"weights": str(weights)}} if weights not in ("", "pretrained"):
            layer["backbone"] |= {"weights": full_path(weights)}


def read_own(recipe: str | Path | None) -> tuple[Table, Any]:
    """Read a recipe, or a run's `run.toml`, and the method it names.

    Of a run's `info` there stays what another method needs: `method` and `given`.
    """
    table = read_recipe(recipe) if recipe is not None else {}
    info, method = table.pop("info", {}), table.pop("method", None)
    if "given" in info:
        given = info["given"]
        with explained(f"recipe {recipe}: "):
            check_shape(given, list[dict[str, Any]], "info.given")
            check_shape(method, str, "method")
        table["info"] = {"method": method, "given": [check_layer(layer) for layer in given]}
    return table, method


def for_method(recipe: Mapping[str, Any], method: str) -> list[Table]:
    """Return the tables of a recipe: what it says of all methods, and of this one."""
    if "info" in recipe and recipe["info"]["method"] != method:
        return _of_another(recipe, method)
    own = recipe.get("methods", {}).get(method, {})
    return [layer for layer in (_without(recipe, "methods", "info"), own) if layer]


def remembered(recipe: Mapping[str, Any], settings: Mapping[str, Any]) -> list[Table]:
    """Return what a user set for a run, for its `info.given`: data, seed and method stand
    elsewhere."""
    before = recipe["info"]["given"] if "info" in recipe else [recipe]
    layers = [_without(layer, "data", "seed") for layer in (*before, settings)]
    return [layer for layer in layers if layer]


def _of_another(run: Mapping[str, Any], method: str) -> list[Table]:
    """Take from a run of another method its data, its seed and what was set for it, but for its own
    head, options and stages."""
    known = find_method(method).defaults["stages"]
    layers = []
    for layer in (part for given in run["info"]["given"] for part in for_method(given, method)):
        shared = _without(layer, "head", "options")
        if "stages" in shared:
            shared["stages"] = {k: v for k, v in shared["stages"].items() if k in known}
        layers.append(shared)
    return [*layers, {key: run[key] for key in ("data", "seed") if key in run}]


def resolve(
    method: str,
    dataset: str,
    given: Sequence[Table],
    suitable: Table,
    seed: int | None,
    images: int = 10_000,
) -> Config:
    """Build the configuration of a run from its layers.

    Args:
        method: a name of `list_methods()`.
        dataset: its name; there may be a shipped recipe for it.
        given: own recipes, which may add stages, and last the single settings, which may not.
        suitable: what suits data and machine.
        seed: over whatever the layers say.
        images: how many are trained on; fine-tuning goes by it.
    """
    hooks = find_method(method)
    table: Table = {"options": dict(hooks.options)} | copy.deepcopy(dict(hooks.defaults))
    shipped = read_recipe(dataset) if dataset in list_recipes() else {}
    below = [suitable, shipped]
    network = _merged(layer.get("backbone", {}) for layer in (*below, *given))
    if is_frozen([suitable, *given]):  # whatever the shipped recipe trains
        kept = ("backbone", "input_size", "evaluation_crop")
        decided = {key: value for key, value in suitable.items() if key in kept}
        below += [decided, on_features(images)]
    elif network.get("weights"):
        below.append(fine_tuning(str(network.get("name", FROM_SCRATCH)), images))
    for layer in itertools.chain.from_iterable(for_method(part, method) for part in below):
        _lay(table, _for_stages(_spread(layer, table["stages"]), table["stages"]))
    *recipes, settings = given
    for layer in recipes:
        _lay(table, _spread(layer, table["stages"]))
    for name in settings.get("stages", {}):
        if name not in table["stages"]:
            raise unknown(f"stage of {method}", name, table["stages"])
    _lay(table, _spread(settings, table["stages"]))
    _check_options(table["options"], hooks.options, method)
    if seed is not None:
        table["seed"] = seed
    config = build({"method": method, "data": {}} | table)
    planned(config.stages)  # refuses stages without epochs
    return config


def _lay(table: Table, layer: Mapping[str, Any]) -> None:
    """Lay a layer over a table, key by key."""
    for part in ("head", "neck"):  # another head or neck leaves the options of the one before
        name = layer.get(part, {}).get("name")
        if name is not None and name != table.get(part, {}).get("name"):
            table[part] = {}
    _merge(table, layer)


def _merge(table: Table, layer: Mapping[str, Any]) -> None:
    for key, value in layer.items():
        if isinstance(value, Mapping) and isinstance(table.get(key), dict):
            _merge(table[key], value)
        else:
            table[key] = copy.deepcopy(value)


def _merged(tables: Iterable[Mapping[str, Any]]) -> Table:
    return {key: value for table in tables for key, value in table.items()}


def _without(layer: Mapping[str, Any], *keys: str) -> Table:
    return {key: value for key, value in layer.items() if key not in keys}


def _spread(layer: Mapping[str, Any], stages: Iterable[str]) -> Table:
    """A layer whose bare `epochs`, `lr`, … are those of every stage, unless a stage has its own."""
    result = copy.deepcopy(dict(layer))
    bare = {key: result.pop(key) for key in EVERY_STAGE if key in result}
    if bare:
        own = result.setdefault("stages", {})
        for name in dict.fromkeys([*stages, *own]):
            own[name] = bare | own.get(name, {})
    return result


def _for_stages(layer: Table, names: Iterable[str]) -> Table:
    """A dataset's recipe without the stages that a method does not have."""
    stages = layer.get("stages", {})
    return layer | {"stages": {name: stages[name] for name in names if name in stages}}


def _check_options(given: Table, known: Mapping[str, Any], method: str) -> None:
    for name, value in given.items():
        if name not in known:
            if not known:
                raise InputError(f"options.{name} is given, but {method} has none; leave it out")
            raise unknown(f"option of {method}", name, known)
        if type(value) in (int, float) and not 0 <= value < math.inf:
            raise InputError(f"options.{name} is {value}; expected a number of at least 0")
        kind = type(known[name])
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise InputError(f"options.{name} is {value!r}; expected a value like {known[name]!r}")


def check_keys(layers: Iterable[Table], method: str) -> None:
    """Refuse an unknown method or key, bare `epochs` and the like being keys too."""
    hooks = find_method(method)
    known = [item.name for item in fields(Config)] + list(EVERY_STAGE)
    for key in (key for layer in layers for key in layer):
        if key not in known:
            if paths := _paths(key, hooks):
                raise InputError(f"unknown key {key!r}; did you mean {' or '.join(paths[:3])}?")
            raise unknown("key", key, known)


def _paths(key: str, method: Method) -> list[str]:
    """The dotted keys whose last part is `key`, among those a run of a method can be given."""
    config = build({"method": "", "data": {}, "options": method.options, **method.defaults})
    paths = [*flat(as_table(config)), *(f"data.{name}" for name in OPTIONS)]
    cut = [f"{path}.".partition(f".{key}.") for path in paths]
    return list(dict.fromkeys(f"'{before}.{key}'" for before, found, _ in cut if found))


def check_effect(runs: Iterable[tuple[Config, Sequence[Table]]]) -> None:
    """Refuse a key of a stage that has no effect on any of the runs it is given for.

    Args:
        runs: each configuration, and the recipes and settings of a user that it was resolved from.
    """
    reasons: dict[str, list[str | None]] = {}
    for config, layers in runs:
        for layer in layers:
            for name, given in layer.get("stages", {}).items():
                idle = _unread(config, name, given) | idle_keys(config.stages[name])
                for key in given:
                    reasons.setdefault(f"stages.{name}.{key}", []).append(idle.get(key))
    for path, why in reasons.items():
        if all(why):
            raise _no_effect(path, str(why[0]))


def _unread(config: Config, name: str, given: Table) -> dict[str, str]:
    """Keys without effect; a run.toml repeats those that a method has by itself, which is no
    fault."""
    defaults = build({"method": "", "data": {}, **find_method(config.method).defaults})
    own = as_table(defaults.stages.get(name, Stage()))
    unread = unread_keys(config, name)
    return {key: why for key, why in unread.items() if key in given and _new(given, own, key)}


def _new(given: Table, own: Table, key: str) -> bool:
    value, before = given[key], own.get(key)
    return {**before, **value} != before if isinstance(before, dict) else value != before


def seen_by(config: Config, dataset: Dataset) -> Dataset:
    """Return the dataset as a run sees it: nothing is said on mirroring where none is augmented."""
    augmented = any(stage.augment != "none" for stage in config.stages.values())
    return dataset if augmented else without_verdict(dataset)


def is_frozen(layers: Iterable[Table]) -> bool:
    """Whether a user asks for frozen features."""
    return bool(_merged(layers).get("frozen"))


def _check_effect_on_features(layers: Iterable[Table], why: str, *allowed: str) -> None:
    """Refuse what acts on images alone, unless it says that nothing be done, or is a number as it
    is anyway."""
    of_stages = {f"stages.{key}": item for key, item in keys(Stage).items()}
    schema = keys(Config) | of_stages
    of_images = {key: item for key, item in schema.items() if item.metadata.get("of_images")}
    for path, value in (item for layer in layers for item in flat(layer).items()):
        key = re.sub(r"^stages\.[^.]+\.", "stages.", path)
        if key not in of_images or key in allowed or value in (0, False, "none"):
            continue
        if not isinstance(value, float) or value != of_images[key].default:
            raise _no_effect(path, why)


def _no_effect(path: str, why: str) -> InputError:
    return InputError(f"{path} has no effect, since {why}; leave it out")


def unchanged(stored: Table, request: Request, data: Source | None) -> Config:
    """Return the stored configuration, refused if what is given now differs from it."""
    check_keys(request.layers, request.named or stored["method"])
    table = _without(stored, "info")
    wanted = flat(table)
    now = dict(wanted)
    for layer in request.layers:
        full = layer | {"data": with_full_paths(layer.get("data", {}))}
        for key, value in flat(full).items():
            of_stages = [f"stages.{name}.{key}" for name in table["stages"]]
            for full_key in [k for k in of_stages if k in wanted] or [key]:
                now[full_key] = value
    if data is not None:
        now["data.source"] = full_path(data)
    now |= {} if request.named is None else {"method": request.named}
    now |= {} if request.seed is None else {"seed": request.seed}
    remedy = "resume it as it was, or start a new one with another --out"
    check_same("the run", changes(wanted, now), remedy)
    return build(table)


def changes(before: Mapping[str, Any], now: Mapping[str, Any], missing: Any = None) -> list[str]:
    """Say which keys have another value now; `missing` stands for one that is not there."""
    return [
        f"{key}: {before.get(key, missing)} → {missing if value is None else value}"
        for key, value in now.items()
        if before.get(key) != value
    ]


def check_same(what: str, changed: Sequence[str], remedy: str) -> None:
    """Refuse to go on with what was started otherwise."""
    if changed:
        raise InputError(f"{what} was started otherwise ({'; '.join(changed[:5])}); {remedy}")


def same_data(stored: Table, dataset: Dataset) -> None:
    """Refuse data that is not what a stored run or sweep was started on."""
    if stored["info"]["fingerprint"] != dataset.fingerprint:
        before, now = stored["info"]["class_counts"], dataset.class_counts.tolist()
        raise InputError(
            f"the data has changed since the run started ({sum(before)} training samples in "
            f"{len(before)} classes then, {sum(now)} in {len(now)} now, or other contents or "
            "another split); restore it, or start a new run with another --out"
        )


def same_teacher(stored: Table) -> None:
    """Refuse a teacher that is not the one that a stored run has begun to learn from."""
    if not (teacher := stored["teacher"]):
        return
    with explained("teacher: "):
        found = digest(trained_model(Path(teacher)))
    if found != stored["info"].get("teacher"):
        raise InputError(
            f"the teacher {teacher} is not the one that the run was started with; restore it, or "
            "start a new run with another --out"
        )


def full_path(data: Source) -> str:
    """Return a dataset's name, or the full path of one's own data."""
    if not isinstance(data, str | Path):
        return str(in_memory(data))
    path = Path(data).expanduser()
    return str(path.resolve()) if path.exists() else str(data)


def with_full_paths(options: Mapping[str, Any]) -> Table:
    """Give the options of a dataset full paths, so that a run can be taken up from anywhere."""
    return {k: full_path(str(v)) if k in PATHS else v for k, v in options.items()}


def short_name(source: Source) -> str:
    """Return what a run's folder calls the data: a dataset's name, or that of folder or file."""
    path = Path(full_path(source).removeprefix(IN_MEMORY))
    return (path.stem if path.is_file() else path.name) or "data"
