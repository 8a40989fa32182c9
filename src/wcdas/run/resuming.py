"""A run is taken up only as it was started."""

from pathlib import Path
from typing import Any

from wcdas.data import HuggingFace
from wcdas.data.dataset import Dataset
from wcdas.errors import InputError
from wcdas.run.places import place, placed
from wcdas.run.spec import Config, build, flat

Table = dict[str, Any]


def unchanged(
    stored: Table,
    data: str | Path | HuggingFace | None,
    method: str | None,
    layers: list[Table],
    seed: int | None,
) -> Config:
    """The stored configuration, refused if what is given now differs from it."""
    table = {key: value for key, value in stored.items() if key != "info"}
    wanted = flat(table)
    now = dict(wanted)
    for layer in layers:
        full = layer | {"data": placed(layer.get("data", {}))}
        for key, value in flat(full).items():
            of_stages = [f"stages.{name}.{key}" for name in table["stages"]]
            for full_key in [k for k in of_stages if k in wanted] or [key]:
                now[full_key] = value
    if data is not None:
        now["data.source"] = place(data)
    now |= {} if method is None else {"method": method}
    now |= {} if seed is None else {"seed": seed}
    changes = [f"{k}: {wanted.get(k)} → {v}" for k, v in now.items() if wanted.get(k) != v]
    if changes:
        raise InputError(
            f"the run was started otherwise ({'; '.join(changes[:5])}); "
            "resume it as it was, or start a new one with another --out"
        )
    return build(table)


def same_data(stored: Table, dataset: Dataset) -> None:
    if stored["info"]["fingerprint"] != dataset.fingerprint:
        before, now = stored["info"]["class_counts"], dataset.class_counts.tolist()
        raise InputError(
            f"the data has changed since the run started ({sum(before)} training samples in "
            f"{len(before)} classes then, {sum(now)} in {len(now)} now, or other contents or "
            "another split); restore it, or start a new run with another --out"
        )
