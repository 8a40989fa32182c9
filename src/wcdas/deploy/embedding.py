"""Features of a dataset in a Parquet file, which `wcdas train` reads as data."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from wcdas.data import HuggingFace
from wcdas.deploy.model import Source, load
from wcdas.deploy.splits import dataset_for, run_split
from wcdas.errors import InputError


def embed(
    run: Source,
    data: str | Path | HuggingFace | None = None,
    out: str | Path = "features.parquet",
    *,
    device: str = "auto",
    workers: int = 0,
    skip_bad: bool = False,
    **options: Any,
) -> int:
    """Write the features of training and test samples; returns how many there are.

    Args:
        run: a run's folder, or its model file.
        data: another dataset than the run's own.
        out: the Parquet file to write.
        device: auto, cpu, cuda or cuda:N.
        workers: processes that decode images; 0 is none.
        skip_bad: leave unreadable images out.
        options: those of `open_dataset`, such as root=DIR.
    """
    out = _writable(Path(out))
    model = load(run, device)
    dataset = dataset_for(model, Path(run), data, options, skip_bad)
    tables = []
    for name, split in (("train", dataset.train), ("test", dataset.test)):
        if len(split) == 0:
            continue
        features = run_split(model, split, workers)[0].numpy()
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), features.shape[1])
        names = [split.name(i) for i in range(len(split))]
        columns = {"features": vectors, "label": split.labels.numpy(), "name": names}
        tables.append(pa.table(columns | {"split": [name] * len(split)}))
    table = pa.concat_tables(tables)
    # As Hugging Face `datasets` stores the names of the classes.
    label = {"names": model.class_names, "_type": "ClassLabel"}
    metadata = {"huggingface": json.dumps({"info": {"features": {"label": label}}})}
    _write(table.replace_schema_metadata(metadata), out)
    return len(table)


def _writable(out: Path) -> Path:
    """The file to write, refused before any work where it cannot be written."""
    if out.suffix != ".parquet":
        raise InputError(f"the output is {out}; expected a name that ends in .parquet")
    if out.is_dir() or not out.parent.is_dir() or not os.access(out.parent, os.W_OK):
        raise InputError(
            f"{out} cannot be written; expected a file in an existing folder one may write to"
        )
    return out


def _write(table: pa.Table, out: Path) -> None:
    aside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        pq.write_table(table, aside)
        aside.replace(out)
    except PermissionError as error:
        raise InputError(f"{out} cannot be written: {error.strerror}") from None
    finally:
        aside.unlink(missing_ok=True)
