"""The folders follow the data: each imports only from those above it."""

import ast
from pathlib import Path

import pytest

import wcdas

ROOT = Path(wcdas.__file__).parent
SHARED = ["names", "errors", "checks", "targets"]
FOLDERS = [
    "circular",
    "data",
    "kernels",
    "backbones",
    "heads",
    "losses",
    "evaluation",
    "training",
    "integrations",
    "methods",
    "recipes",
    "sweeps",
    "deploy",
    "report",
    "paper",
]
# The paper's tables are made by wcdas.api, as a user would make them.
ORDER = [*SHARED, *FOLDERS[:-1], "listing", "api", "paper", "usage", "cli"]


def imported_folders(path: Path) -> set[str]:
    modules = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
    parts = [module.split(".") for module in modules]
    return {part[1] for part in parts if part[0] == "wcdas" and len(part) > 1}


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_upwards(path):
    place = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if place == "__init__":
        return
    assert place in ORDER
    allowed = ORDER[: ORDER.index(place) + 1]
    assert imported_folders(path) & set(ORDER) <= set(allowed)


def test_every_folder_is_in_the_order():
    assert {p.parent.name for p in ROOT.glob("*/__init__.py")} == set(FOLDERS)


def test_tests_mirror_the_folders():
    tests = Path(__file__).parent
    assert all((tests / folder).is_dir() for folder in FOLDERS)
