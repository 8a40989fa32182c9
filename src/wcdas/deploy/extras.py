"""Packages that only some commands need."""

from importlib.util import find_spec

from wcdas.errors import InputError


def need(extra: str, *packages: str) -> None:
    """Refuse in one line that says what to install."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise InputError(
            f"this needs {' and '.join(missing)}, which a plain installation leaves out; "
            f"install with: pip install 'wcdas[{extra}]'"
        )
