"""A model as a program of `torch.export`."""

import json
from pathlib import Path
from typing import Any

import torch

from wcdas.deploy.agreement import largest_difference, sample_inputs
from wcdas.deploy.exportable import ExportableModel
from wcdas.deploy.metadata import metadata
from wcdas.deploy.model import Model
from wcdas.deploy.quiet import quiet
from wcdas.errors import WorkError

METADATA_FILE = "wcdas.json"


def write_torch(model: Model, path: Path, prior: str | None) -> float:
    """The largest difference of a probability to the model's, of the file loaded again."""
    extra: dict[str, Any] = {METADATA_FILE: json.dumps(metadata(model, prior))}
    try:
        with quiet():
            program = torch.export.export(
                ExportableModel(model, prior),
                (sample_inputs(model)[:2],),
                dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
            )
            torch.export.save(program, path, extra_files=extra)
            loaded = torch.export.load(path).module()
    # The tracer fails in many ways; the cause is in the first line.
    except Exception as error:
        first = (str(error).strip().splitlines() or [repr(error)])[0]
        raise WorkError(f"the model cannot be exported: {first}; try --format onnx") from error
    return largest_difference("the exported program", model, prior, loaded)
