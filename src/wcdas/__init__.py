"""Image classification on long-tailed data."""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

# `__init__.pyi` says where a name comes from; it is imported when it is first asked for, so that
# `import wcdas` and `wcdas --help` stay quick.
_ORIGINS = {
    alias.name: node.module
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8")).body
    if isinstance(node, ast.ImportFrom) and node.module is not None
    for alias in node.names
}
__all__ = sorted(_ORIGINS)


def __getattr__(name: str) -> Any:
    if name not in _ORIGINS:
        raise AttributeError(f"module 'wcdas' has no attribute {name!r}")
    origin = _ORIGINS[name]
    module = import_module(f"wcdas.{name}" if origin == "wcdas" else origin)
    globals()[name] = value = module if origin == "wcdas" else getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
