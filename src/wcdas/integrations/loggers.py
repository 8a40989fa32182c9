"""Callbacks that log a run with other packages, each imported only when it is used.

WANDB_MODE, MLFLOW_TRACKING_URI and the like are read by the packages themselves.
"""

import os
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wcdas.run.callbacks import Callback, numbers
from wcdas.run.spec import flat

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

BATCH = 100  # parameters that MLflow takes at once


class TensorBoard(Callback):
    """Every number of a log line as a scalar, over the epochs of the whole run."""

    _folder: Path
    _writer: "SummaryWriter | None" = None

    def on_start(self, run: Path, config: Mapping[str, Any]) -> None:
        self._folder = run / "tensorboard"

    def on_epoch(self, epoch: int, facts: Mapping[str, Any]) -> None:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter  # slow to import

            # A resumed run drops what was logged after its checkpoint.
            self._writer = SummaryWriter(str(self._folder), purge_step=epoch)
        for name, value in numbers(facts).items():
            if name != "epoch":
                self._writer.add_scalar(name, value, epoch)

    def on_end(self, metrics: Mapping[str, Any] | None) -> None:
        if self._writer is not None:
            self._writer.close()


class Wandb(Callback):
    """Every number of a log line, run.toml as the configuration, the metrics as the summary.

    Args:
        project: else $WANDB_PROJECT, else `wcdas`.
    """

    def __init__(self, project: str | None = None) -> None:
        self.project = project

    def on_start(self, run: Path, config: Mapping[str, Any]) -> None:
        import wandb

        self._run = wandb.init(
            project=self.project or os.environ.get("WANDB_PROJECT") or "wcdas",
            name=run.name,
            id=_run_id(run / "wandb", lambda: uuid.uuid4().hex[:8]),
            resume="allow",
            reinit="create_new",  # runs of a sweep may be at work side by side
            dir=str(run),
            config=dict(config),
            settings=wandb.Settings(console="off"),
        )

    def on_epoch(self, epoch: int, facts: Mapping[str, Any]) -> None:
        self._run.log(numbers(facts) | {"stage": facts["stage"]}, step=epoch)

    def on_end(self, metrics: Mapping[str, Any] | None) -> None:
        if metrics is not None:
            self._run.summary.update(_final(metrics))
        self._run.finish(exit_code=0 if metrics is not None else 1)


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
        self._id = _run_id(run / "mlflow", lambda: self._create(run.name))
        self._client.update_run(self._id, "RUNNING")
        parameters = [Param(key, str(value)) for key, value in flat(config).items()]
        for start in range(0, len(parameters), BATCH):
            self._client.log_batch(self._id, params=parameters[start : start + BATCH])

    def on_epoch(self, epoch: int, facts: Mapping[str, Any]) -> None:
        self._log(numbers(facts), epoch)
        self._epoch = epoch

    def on_end(self, metrics: Mapping[str, Any] | None) -> None:
        if metrics is not None:
            self._log(_final(metrics), self._epoch)
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


def _final(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {f"final/{name}": value for name, value in numbers(metrics).items()}


def _run_id(folder: Path, create: Callable[[], str]) -> str:
    """A logger's name for a run: created the first time, and the same when the run is resumed."""
    file = folder / "run_id"
    if not file.exists():
        folder.mkdir(exist_ok=True)
        file.write_text(create(), encoding="utf-8")
    return file.read_text(encoding="utf-8")
