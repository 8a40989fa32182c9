"""What can be named on the command line, and what each is."""

import textwrap
from collections.abc import Callable
from importlib import import_module

from wcdas.errors import unknown


def listing(kind: str, width: int | None = None) -> list[str]:
    """The names of a kind, with what each is: a line each, or wrapped at a width."""
    if kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    rows = KINDS[kind]()
    column = max(map(len, rows)) + 2
    lines = [f"{name:<{column}}{text}".rstrip() for name, text in rows.items()]
    return wrapped(lines, column, width)


def wrapped(lines: list[str], column: int, width: int | None) -> list[str]:
    """Lines that go on below their text, or nearer to the edge where that leaves little room."""
    if width is None:
        return lines
    indent = " " * (column if column <= width // 2 else 4)
    fold = textwrap.TextWrapper(width, subsequent_indent=indent, break_on_hyphens=False)
    return [part for line in lines for part in fold.wrap(line)]


# Each imports what it needs, so that none waits for the others.


def _registry(module: str, name: str) -> Callable[[], dict[str, str]]:
    """Return what reads the names of a registry and the first line of each class."""

    def read() -> dict[str, str]:
        registry = getattr(import_module(module), name)
        return {key: cls.__doc__.strip().split("\n")[0] for key, cls in registry.items()}

    return read


def _methods() -> dict[str, str]:
    from wcdas.methods import METHODS

    rows = {}
    for name, method in METHODS.items():
        stages = f"stages: {' → '.join(method.defaults['stages'])}"
        reported = f"reported: {method.reported}" if method.reported else ""
        parts = (method.summary, method.paper, stages, reported)
        rows[name] = "; ".join(part for part in parts if part not in ("", "—"))
    return rows


def _datasets() -> dict[str, str]:
    from wcdas.data.sources import NAMED

    return {name: dataset.summary for name, dataset in NAMED.items()}


def _backbones() -> dict[str, str]:
    from wcdas.backbones import list_backbones, packaged

    rows = {name: "ImageNet weights are installed" * packaged(name) for name in list_backbones()}
    return rows | {"… and every name of timm": ""}


def _recipes() -> dict[str, str]:
    from wcdas.run.recipes import list_recipes, read_recipe_header

    # The first line of a header is the command, the second says what the recipe is.
    headers = {name: read_recipe_header(name).split("  ") for name in list_recipes()}
    return {name: lines[min(1, len(lines) - 1)] for name, lines in headers.items()}


KINDS: dict[str, Callable[[], dict[str, str]]] = {
    "methods": _methods,
    "heads": _registry("wcdas.heads", "HEADS"),
    "losses": _registry("wcdas.losses", "LOSSES"),
    "datasets": _datasets,
    "backbones": _backbones,
    "necks": _registry("wcdas.backbones.necks", "NECKS"),
    "recipes": _recipes,
    "samplers": _registry("wcdas.data.samplers", "SAMPLERS"),
    "augmentations": _registry("wcdas.data.augment", "AUGMENTATIONS"),
}
