"""Datasets: a name, a folder, a list file, Parquet or features in; two checked splits out."""

from wcdas.data.dataset import (
    ArrayImages,
    BytesImages,
    Dataset,
    FeatureVectors,
    FileImages,
    Split,
    StoredImages,
)
from wcdas.data.description import LongTailSummary, summary
from wcdas.data.sources import OPTIONS, TAILED, list_datasets, open_dataset
from wcdas.data.sources.hugging_face import HuggingFace, in_memory
from wcdas.data.split import long_tail_counts
from wcdas.groups import groups

__all__ = [
    "OPTIONS",
    "TAILED",
    "ArrayImages",
    "BytesImages",
    "Dataset",
    "FeatureVectors",
    "FileImages",
    "HuggingFace",
    "LongTailSummary",
    "Split",
    "StoredImages",
    "groups",
    "in_memory",
    "list_datasets",
    "long_tail_counts",
    "open_dataset",
    "summary",
]
