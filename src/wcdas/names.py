"""Names users type: an unknown one is answered with the nearest known ones."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

T = TypeVar("T")


def unknown(kind: str, given: str, known: Iterable[str]) -> ValueError:
    """The error for a name that is not known, to be raised by the caller."""
    known = sorted(known)
    near = get_close_matches(given.lower().replace("_", "-"), known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known: {', '.join(known)}"
    return ValueError(f"unknown {kind} {given!r}; {hint}")


def create(
    kind: str,
    classes: Mapping[str, Callable[..., T]],
    name: str,
    options: dict[str, Any],
    **context: Any,
) -> T:
    """Build `classes[name]` from the user's options and whatever of the context it takes."""
    if name not in classes:
        raise unknown(kind, name, classes)
    accepted = inspect.signature(classes[name]).parameters
    for option in options:
        if option not in accepted:
            raise unknown(f"option of {kind} {name!r}", option, set(accepted) - set(context))
    given = {key: value for key, value in context.items() if key in accepted} | options
    missing = [key for key, p in accepted.items() if p.default is p.empty and key not in given]
    if missing:
        raise ValueError(f"{kind} {name!r} needs {' and '.join(missing)}; give {missing[0]}=…")
    return classes[name](**given)
