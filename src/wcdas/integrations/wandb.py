"""A run in Weights & Biases; WANDB_MODE, WANDB_ENTITY and the like are read by wandb itself."""

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wcdas.integrations.run_id import run_id
from wcdas.run.callbacks import Callback, numbers


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
            id=run_id(run, "wandb", lambda: uuid.uuid4().hex[:8]),
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
            self._run.summary.update({f"final/{k}": v for k, v in numbers(metrics).items()})
        self._run.finish(exit_code=0 if metrics is not None else 1)
