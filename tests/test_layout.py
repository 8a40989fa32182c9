"""The folders follow the data: each imports only from those above it, and none in circles."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import wcdas

ROOT = Path(wcdas.__file__).parent
# From the top of the house downwards: a room may use what stands before it.
SHARED = [
    "errors",
    "checks",
    "groups",
    "targets",
    "shapes",
    "files",
    "rng",
    "interrupt",
    "processes",
    "threads",
    "streams",
]
FOLDERS = [
    "circular",
    "heads",
    "backbones",
    "losses",
    "data",
    "evaluation",
    "methods",
    "run",
    "integrations",
    "sweeps",
    "deploy",
    "report",
    "paper",
]
# The paper's tables are made by wcdas.api, as a user would make them.
ORDER = [*SHARED, *FOLDERS[:-1], "listing", "api", "paper", "usage", "cli", "__main__"]
MODULES = {
    ".".join(("wcdas", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in sorted(ROOT.rglob("*.py"))
}


def imports(path: Path) -> set[str]:
    """The modules of wcdas that a file imports anywhere, for types too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= inside & set(MODULES) or {node.module}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name.split(".")[0] == "wcdas"} - {"wcdas"}


@pytest.mark.parametrize("module", [name for name in MODULES if name != "wcdas"])
def test_imports_point_upwards(module):
    place = module.split(".")[1]
    assert place in ORDER
    allowed = ORDER[: ORDER.index(place) + 1]
    assert {name.split(".")[1] for name in imports(MODULES[module])} <= set(allowed)


def test_no_modules_import_each_other():
    graph = {name: imports(path) for name, path in MODULES.items() if name != "wcdas"}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"modules that import each other: {' → '.join(error.args[1])}")


def test_every_folder_is_in_the_order():
    assert {p.parent.name for p in ROOT.glob("*/__init__.py")} == set(FOLDERS)


def test_tests_mirror_the_folders():
    tests = Path(__file__).parent
    assert all((tests / folder).is_dir() for folder in FOLDERS)
