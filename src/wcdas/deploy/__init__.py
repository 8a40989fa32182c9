"""From a trained run to predictions, metrics, features, other formats and a page."""

from wcdas.deploy.answers import Answer, Guess
from wcdas.deploy.embedding import embed
from wcdas.deploy.evaluating import Correction, evaluate_run
from wcdas.deploy.exporting import Exported, export
from wcdas.deploy.model import Model, load
from wcdas.deploy.predicting import predict_files
from wcdas.deploy.serving import serve

__all__ = [
    "Answer",
    "Correction",
    "Exported",
    "Guess",
    "Model",
    "embed",
    "evaluate_run",
    "export",
    "load",
    "predict_files",
    "serve",
]
