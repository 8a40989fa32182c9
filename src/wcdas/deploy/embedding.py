"""Features of a dataset in a Parquet file, which `wcdas train` reads as data."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from torch import Tensor

from wcdas.backbones import check_timm_name
from wcdas.data import HuggingFace
from wcdas.data.dataset import Dataset, FeatureVectors
from wcdas.data.sources import open_data
from wcdas.deploy.model import Source, dataset_for, load, run_split
from wcdas.deploy.output import aside, check_file
from wcdas.errors import InputError
from wcdas.processes import Ranks, choose_device
from wcdas.run.console import busy, tell
from wcdas.run.frozen import compute_features, freeze
from wcdas.run.recipes import Settings, read_settings
from wcdas.run.settings import read_request
from wcdas.run.spec import Table, flat

Data = str | Path | HuggingFace
OF_A_BACKBONE = ("backbone.weights", "input_size", "evaluation_crop")


def embed(
    run: Source,
    data: Data | None = None,
    out: str | Path = "features.parquet",
    *,
    settings: Settings = None,
    device: str = "auto",
    workers: int = 0,
    skip_bad: bool = False,
    overwrite: bool = False,
    console: Console | None = None,
    **options: Any,
) -> int:
    """Write the features of training and test images; returns how many there are.

    Args:
        run: a run's folder, its model file, or the name of a backbone, with pretrained weights.
        data: another dataset than the run's own; for a backbone the one it is to see.
        out: the Parquet file to write.
        settings: `data.KEY`; for a backbone also `backbone.weights` and `input_size`.
        device: auto, cpu, cuda or cuda:N.
        workers: processes that decode images; 0 is none.
        skip_bad: leave unreadable images out.
        overwrite: replace a file that is there.
        console: where progress is shown; None is silent.
        options: those of `open_dataset`, such as root=DIR.
    """
    out = Path(out)
    check_file(out, overwrite, ".parquet")
    given = read_settings(settings)
    options = given.pop("data", {}) | options
    if is_backbone(run):
        dataset, features = _by_backbone(
            str(run), data, given, options, device, workers, skip_bad, console
        )
    else:
        _refuse(given, f"{run} is trained, and takes data.… alone, such as data.root=DIR")
        with busy(console, "reading the data"):
            model = load(run, device)
            dataset = dataset_for(model, Path(run), data, options, skip_bad)
        features = {
            name: run_split(model, split, workers, console, f"{name} features")[0]
            for name, split in (("train", dataset.train), ("test", dataset.test))
            if len(split)
        }
    table = pa.concat_tables(_table(dataset, name, vectors) for name, vectors in features.items())
    # As Hugging Face `datasets` stores the names of the classes.
    label = {"names": dataset.class_names, "_type": "ClassLabel"}
    metadata = {"huggingface": json.dumps({"info": {"features": {"label": label}}})}
    with aside(out) as draft:
        pq.write_table(table.replace_schema_metadata(metadata), draft)
    return len(table)


def is_backbone(run: Source) -> bool:
    """Whether this is the name of a backbone; refused if it is nothing at all."""
    name = str(run)
    if Path(run).exists() or Path(run).name != name:
        return False
    try:
        check_timm_name(name)
    except InputError as error:
        raise InputError(f"{name} is no run's folder and no model file; {error}") from None
    return True


def _by_backbone(
    name: str,
    data: Data | None,
    given: Table,
    options: Mapping[str, Any],
    device: str,
    workers: int,
    skip_bad: bool,
    console: Console | None,
) -> tuple[Dataset, dict[str, Tensor]]:
    """The features that a frozen run would be trained on, from the same store."""
    if data is None:
        raise InputError(f"{name} is a backbone, which has no data; try: wcdas embed {name} DATA")
    _refuse(
        {key: value for key, value in flat(given).items() if key not in OF_A_BACKBONE},
        f"expected {' or '.join(OF_A_BACKBONE)} for a backbone, or data.…",
    )
    chosen = choose_device(device)
    dataset = open_data(data, options, skip_bad)
    if isinstance(dataset.train, FeatureVectors):
        raise InputError(f"{data} holds feature vectors already; expected images")
    settings = flat(given) | {"backbone.name": name, "frozen": True}
    request = read_request(None, settings, None)
    config, notes = request.resolve(dataset, data, chosen.type, skip_bad)
    tell(console, *(f"note: {note}" for note in notes))
    frozen = freeze(config, dataset, workers)
    tell(console, f"weights: {frozen.network.weights_from}")
    compute_features(frozen, Ranks(0, 1, chosen), workers, console)
    assert isinstance(frozen.train, FeatureVectors)
    assert isinstance(frozen.test, FeatureVectors)
    return dataset, {"train": frozen.train.vectors, "test": frozen.test.vectors}


def _refuse(given: Mapping[str, Any], expected: str) -> None:
    for key in given:
        raise InputError(f"--set got {key!r}; {expected}")


def _table(dataset: Dataset, name: str, features: Tensor) -> pa.Table:
    """The rows of a split."""
    split = dataset.train if name == "train" else dataset.test
    rows = features.numpy()
    return pa.table(
        {
            "features": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1]),
            "label": split.labels.numpy(),
            "name": [split.name(i) for i in range(len(split))],
            "split": [name] * len(split),
        }
    )
