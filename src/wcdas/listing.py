"""What can be named on the command line, a line each."""

from wcdas.backbones import list_backbones
from wcdas.data import list_datasets
from wcdas.errors import InputError
from wcdas.heads import HEADS
from wcdas.losses import LOSSES
from wcdas.methods import METHODS
from wcdas.names import unknown
from wcdas.recipes import list_recipes, read_recipe_header


def listing(kind: str) -> list[str]:
    """The names of a kind, with what each is."""
    described = {
        "methods": lambda: {
            name: f"{m.summary} ({m.paper}); stages: {', '.join(m.defaults['stages'])}"
            for name, m in METHODS.items()
        },
        "heads": lambda: {name: _first_line(head) for name, head in HEADS.items()},
        "losses": lambda: {name: _first_line(loss) for name, loss in LOSSES.items()},
        "datasets": lambda: dict.fromkeys(list_datasets(), ""),
        "backbones": lambda: dict.fromkeys([*list_backbones(), "… and every name of timm"], ""),
        "recipes": lambda: {name: read_recipe_header(name) for name in list_recipes()},
    }
    if kind not in described:
        raise InputError(str(unknown("kind", kind, described)))
    rows = described[kind]()
    width = max(map(len, rows))
    return [f"{name:<{width}}  {text}".rstrip() for name, text in rows.items()]


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().splitlines()[0]
