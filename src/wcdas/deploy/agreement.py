"""An exported model has to say what the model says, on real images, before anyone gets it."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from PIL import Image
from torch import Tensor

from wcdas.deploy.model import Model
from wcdas.errors import WorkError

TOLERANCE = 1e-4
LOWEST = -60.0  # logarithm of a probability that is told from 0
BOXES = ((0, 0, 640, 427), (0, 0, 427, 427), (200, 100, 360, 260), (320, 0, 640, 100))
NOISY = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir", "timm")

Outputs = tuple[Tensor, Tensor]  # logits and probabilities


def outputs(model: Model, inputs: Tensor, prior: str | None = None) -> Outputs:
    logits = model.logits(inputs, prior)
    return logits, logits.softmax(1)


@torch.no_grad()
def largest_difference(
    what: str, model: Model, prior: str | None, exported: Callable[[Tensor], Outputs]
) -> float:
    """The largest one of a probability, in batches of one and of all; above 1e-4 it is refused."""
    inputs = sample_inputs(model)
    expected = outputs(model, inputs, prior)
    whole = exported(inputs)
    first, second = zip(*map(exported, inputs.split(1)), strict=True)
    single = torch.cat(first), torch.cat(second)
    largest = 0.0
    for got in (whole, single):
        for name, ours, theirs in compared(expected, got):
            off = float((theirs - ours).abs().nan_to_num(torch.inf).max())
            if not torch.allclose(theirs, ours, rtol=TOLERANCE, atol=TOLERANCE):
                raise WorkError(
                    f"{what} does not agree with PyTorch: {name} differ by up to {off:.1e}, more "
                    f"than {TOLERANCE:g}; nothing was written. Try another format"
                )
            largest = max(largest, off if name == "probabilities" else 0.0)
    return largest


def compared(expected: Outputs, got: Outputs) -> Iterator[tuple[str, Tensor, Tensor]]:
    """What has to agree: all logits and probabilities, or those of the most probable classes, with
    the highest there are and with the model's of the same classes.

    Of very many classes all may be improbable, so logarithms are compared too.
    """
    logits, probabilities = expected
    if got[1].is_floating_point():
        yield "logits", logits, got[0]
        yield "probabilities", probabilities, got[1]
    else:
        highest, classes = got
        logs, of_highest = (p.log().clamp_min(LOWEST) for p in (probabilities, highest))
        yield "probabilities", probabilities.topk(highest.shape[1]).values, highest
        yield "logarithms of probabilities", logs.topk(highest.shape[1]).values, of_highest
        yield "logarithms of probabilities", logs.gather(1, classes), of_highest


def sample_inputs(model: Model) -> Tensor:
    """Cuts of scikit-learn's two photographs; for a model of features random vectors."""
    if model.takes_features:
        return torch.randn(8, model.info.channels, generator=torch.Generator().manual_seed(0))
    from sklearn.datasets import load_sample_images  # slow to import

    photographs = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    cuts = [photograph.crop(box) for photograph in photographs for box in BOXES]
    return torch.stack([model.preprocess(cut) for cut in cuts])


@contextmanager
def quiet() -> Iterator[None]:
    """Exporters talk to their developers; inside there are no warnings and log lines of theirs."""
    loggers = [logging.getLogger(name) for name in NOISY]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
