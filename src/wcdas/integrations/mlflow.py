"""A run in MLflow; MLFLOW_TRACKING_URI and the like are read by MLflow itself."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wcdas.integrations.run_id import run_id
from wcdas.run.callbacks import Callback, numbers
from wcdas.run.spec import flat

BATCH = 100  # parameters that MLflow takes at once


class MLflow(Callback):
    """Every number of a log line, run.toml as parameters, the metrics under `final/`.

    Args:
        experiment: else $MLFLOW_EXPERIMENT_NAME, else `wcdas`.
    """

    def __init__(self, experiment: str | None = None) -> None:
        self.experiment = experiment

    def on_start(self, run: Path, config: Mapping[str, Any]) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self._client = MlflowClient()
        self._id = run_id(run, "mlflow", lambda: self._create(run.name))
        self._client.update_run(self._id, "RUNNING")
        parameters = [Param(key, str(value)) for key, value in flat(config).items()]
        for start in range(0, len(parameters), BATCH):
            self._client.log_batch(self._id, params=parameters[start : start + BATCH])

    def on_epoch(self, epoch: int, facts: Mapping[str, Any]) -> None:
        self._log(numbers(facts), epoch)
        self._epoch = epoch

    def on_end(self, metrics: Mapping[str, Any] | None) -> None:
        if metrics is not None:
            final = {f"final/{name}": value for name, value in numbers(metrics).items()}
            self._log(final, self._epoch)
        self._client.set_terminated(self._id, "FINISHED" if metrics is not None else "KILLED")

    def _create(self, name: str) -> str:
        wanted = self.experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "wcdas"
        known = self._client.get_experiment_by_name(wanted)
        experiment = known.experiment_id if known else self._client.create_experiment(wanted)
        return str(self._client.create_run(experiment, run_name=name).info.run_id)

    def _log(self, values: Mapping[str, float], epoch: int) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [Metric(name, float(value), now, epoch) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=metrics)
