"""Hugging Face `datasets`: an object in memory, or the Arrow folder that `save_to_disk` writes.

Splits named train and test (or validation) are the two sets. Encoded images stay where they are,
in memory-mapped files as a rule, and are decoded when asked for. A folder is read without the
library; paths stored in it are never opened. Those of an object are: its maker put them there.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from wcdas.data.dataset import Dataset
from wcdas.data.sources.assembly import Options, dataset_of_images
from wcdas.data.sources.tables import columns_of, images_of, split_names, stored_class_names
from wcdas.errors import InputError, explained
from wcdas.files import check_regular, read_json

if TYPE_CHECKING:
    import datasets

    HuggingFace: TypeAlias = datasets.Dataset | datasets.DatasetDict
else:
    HuggingFace = Any  # the library is not needed

IN_MEMORY = "datasets:"  # what a run calls an object, before its name


def in_memory(data: object) -> str | None:
    """Return what to call data that is an object of `datasets`; None for a name or a path."""
    if isinstance(data, str | Path):
        return None
    kind = type(data).__name__
    if type(data).__module__.partition(".")[0] != "datasets" or kind.startswith("Iterable"):
        raise InputError(
            f"data is a {type(data).__module__}.{kind}; expected a name, a path, or a Dataset or "
            "DatasetDict of Hugging Face `datasets`"
        )
    one: Any = next(iter(data.values()), None) if isinstance(data, Mapping) else data
    return f"{IN_MEMORY}{getattr(getattr(one, 'info', None), 'dataset_name', None) or 'dataset'}"


def is_saved(path: Path) -> bool:
    """Return whether `save_to_disk` wrote the folder."""
    return any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))


def open_in_memory(data: HuggingFace, options: Options) -> Dataset:
    """Open a `Dataset`, or the splits of a `DatasetDict`."""
    name = in_memory(data) or ""
    splits = dict(data) if isinstance(data, Mapping) else {"": data}
    tables = {split: _rows(part, f"{name} {split}".strip()) for split, part in splits.items()}
    return _open(tables, name, options, paths=True)


def open_saved(path: Path, options: Options) -> Dataset:
    if (path / "dataset_dict.json").is_file():
        names = _read(path / "dataset_dict.json", _Splits)["splits"]
        tables = {name: _mapped(path / Path(name).name) for name in names}
    else:
        tables = {"": _mapped(path)}
    return _open(tables, str(path), options, paths=False)


def _open(tables: Mapping[str, pa.Table], name: str, options: Options, *, paths: bool) -> Dataset:
    if not tables:
        raise InputError(f"{name} has no splits; expected train, or train and test")
    train_names, test_names = split_names(list(tables), name)
    stored = stored_class_names(tables[train_names[0]].schema, name)
    class_names = options.class_names or stored
    description = {"source": "datasets", "splits": [*filter(None, [*train_names, *test_names])]}
    train, test = (
        {f"{name} {split}".strip(): tables[split] for split in names}
        for names in (train_names, test_names)
    )
    by_path = paths and all(map(_by_path, tables.values()))
    images, class_names = images_of(train, class_names, name, "train", by_path)
    held_out = images_of(test, class_names, name, "test", by_path)[0] if test else None
    return dataset_of_images(name, class_names, images, held_out, options, description)


def _by_path(table: pa.Table) -> bool:
    column = pc.struct_field(table[columns_of(table.schema, "")[0]], "bytes")
    return len(column) > 0 and column.null_count == len(column)


def _rows(part: Any, where: str) -> pa.Table:
    """Return the two columns of a dataset as stored, in the order of its rows."""
    plain = part.with_format("arrow")
    columns = columns_of(plain.features.arrow_schema, where)
    table: pa.Table = plain.select_columns(columns)[:]
    return table.replace_schema_metadata(plain.features.arrow_schema.metadata)


def _mapped(folder: Path) -> pa.Table:
    """Return the Arrow files of a folder as one table, mapped and not read."""
    parts = []
    for entry in _read(folder / "state.json", _State)["_data_files"]:
        file = folder / Path(entry["filename"]).name
        errors = (InputError, OSError, pa.ArrowException)
        with explained(f"{file} cannot be read as Arrow: ", *errors):
            check_regular(file)
            parts.append(pa.ipc.open_stream(pa.memory_map(str(file))).read_all())
    if not parts:
        raise InputError(f"{folder} names no Arrow files; expected what save_to_disk writes")
    return pa.concat_tables(parts)


class _Splits(TypedDict):
    splits: list[str]


class _File(TypedDict):
    filename: str


class _State(TypedDict):
    _data_files: list[_File]


def _read(file: Path, hint: Any) -> Any:
    expected = "); expected what save_to_disk of `datasets` writes"
    with explained(f"{file} cannot be read (", after=expected):
        return read_json(file, hint)
