"""From a trained run to predictions, metrics and features."""

from wcdas.deploy.embedding import embed
from wcdas.deploy.evaluate import Correction, evaluate_run
from wcdas.deploy.model import Model, load

__all__ = ["Correction", "Model", "embed", "evaluate_run", "load"]
