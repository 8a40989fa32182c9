"""Sweeps: many runs under one protocol, one table."""

from wcdas.sweeps.folder import Sweep
from wcdas.sweeps.plan import Asked
from wcdas.sweeps.results import mean_and_std
from wcdas.sweeps.run import run_sweep

__all__ = ["Asked", "Sweep", "mean_and_std", "run_sweep"]
