"""Sweeps: many runs under one protocol, one table."""

from wcdas.sweeps.plan import Asked
from wcdas.sweeps.result import Sweep
from wcdas.sweeps.run import run_sweep
from wcdas.sweeps.summary import mean_and_std

__all__ = ["Asked", "Sweep", "mean_and_std", "run_sweep"]
