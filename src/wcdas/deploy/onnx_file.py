"""A model as an ONNX file."""

from pathlib import Path

import torch
from torch import Tensor

from wcdas.deploy.agreement import Outputs, largest_difference, sample_inputs
from wcdas.deploy.exportable import ExportableModel
from wcdas.deploy.metadata import metadata
from wcdas.deploy.model import Model
from wcdas.deploy.quiet import quiet
from wcdas.errors import WorkError


def write_onnx(model: Model, path: Path, prior: str | None) -> float:
    """The largest difference of a probability to PyTorch's in ONNX Runtime."""
    import onnxruntime

    try:
        with quiet():
            program = torch.onnx.export(
                ExportableModel(model, prior),
                (sample_inputs(model)[:2],),
                dynamo=True,
                input_names=["images"],
                output_names=["logits", "probabilities"],
                dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
                verbose=False,
            )
            assert program is not None
            program.model.metadata_props.update(metadata(model, prior))
            program.save(str(path), external_data=False)
            session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    # The exporter fails in many ways, and its message is a page; the cause is in its first line.
    except Exception as error:
        cause = str(error.__cause__ or error).strip().splitlines()
        raise WorkError(
            f"the model cannot be written as ONNX: {cause[0] if cause else error!r}; "
            "try --format torch"
        ) from error

    def exported(inputs: Tensor) -> Outputs:
        logits, probabilities = session.run(None, {"images": inputs.numpy()})
        return torch.from_numpy(logits), torch.from_numpy(probabilities)

    return largest_difference("the ONNX model", model, prior, exported)
