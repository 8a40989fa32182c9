"""Sweeps: many runs under one protocol, one table."""

from wcdas.sweeps.folder import Sweep
from wcdas.sweeps.keep import keep_results
from wcdas.sweeps.plan import Asked
from wcdas.sweeps.results import mean_and_std
from wcdas.sweeps.results_file import Line, given_settings, read_results, select
from wcdas.sweeps.run import run_sweep

__all__ = [
    "Asked",
    "Line",
    "Sweep",
    "given_settings",
    "keep_results",
    "mean_and_std",
    "read_results",
    "run_sweep",
    "select",
]
