"""Exporters talk to their developers; a user hears what came out."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

NOISY = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir", "timm")


@contextmanager
def quiet() -> Iterator[None]:
    """Inside, there are no warnings and no log lines of exporters."""
    loggers = [logging.getLogger(name) for name in NOISY]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
