"""Features of a dataset in a Parquet file, which `wcdas train` reads as data."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from wcdas.deploy.model import load
from wcdas.deploy.splits import dataset_for, run_split


def embed(
    run: str | Path,
    data: str | Path | None,
    out: str | Path,
    *,
    device: str = "auto",
    workers: int = 0,
    **options: Any,
) -> int:
    """Write the features of training and test samples; returns how many there are."""
    model = load(run, device)
    dataset = dataset_for(model, Path(run), data, options)
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
    pq.write_table(table.replace_schema_metadata(metadata), out)
    return len(table)
