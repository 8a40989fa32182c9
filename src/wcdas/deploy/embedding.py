"""Features of a dataset in a Parquet file, which `wcdas train` reads as data."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from wcdas.data import HuggingFace
from wcdas.deploy.model import Source, dataset_for, load, run_split
from wcdas.deploy.output import aside, check_file


def embed(
    run: Source,
    data: str | Path | HuggingFace | None = None,
    out: str | Path = "features.parquet",
    *,
    device: str = "auto",
    workers: int = 0,
    skip_bad: bool = False,
    overwrite: bool = False,
    **options: Any,
) -> int:
    """Write the features of training and test images; returns how many there are.

    Args:
        run: a run's folder, or its model file.
        data: another dataset than the run's own.
        out: the Parquet file to write.
        device: auto, cpu, cuda or cuda:N.
        workers: processes that decode images; 0 is none.
        skip_bad: leave unreadable images out.
        overwrite: replace a file that is there.
        options: those of `open_dataset`, such as root=DIR.
    """
    out = Path(out)
    check_file(out, overwrite, ".parquet")
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
    with aside(out) as draft:
        pq.write_table(table.replace_schema_metadata(metadata), draft)
    return len(table)
