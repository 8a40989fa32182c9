"""Evaluation: logits and labels → numbers, and corrections after training."""

from wcdas.evaluation.calibration import (
    expected_calibration_error,
    fit_temperature,
    reliability_bins,
)
from wcdas.evaluation.difference import Difference, difference
from wcdas.evaluation.expert_aggregation import aggregate_experts
from wcdas.evaluation.metrics import evaluate
from wcdas.evaluation.posthoc import adjust_logits, choose, max_norm, shift_prior
from wcdas.evaluation.prior import read_prior
from wcdas.evaluation.table import class_table, result_table

__all__ = [
    "Difference",
    "adjust_logits",
    "aggregate_experts",
    "choose",
    "class_table",
    "difference",
    "evaluate",
    "expected_calibration_error",
    "fit_temperature",
    "max_norm",
    "read_prior",
    "reliability_bins",
    "result_table",
    "shift_prior",
]
