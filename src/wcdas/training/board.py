"""The log of a run as TensorBoard shows it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wcdas.training.config import flat


class Board:
    """Every number of a log line as a scalar, over the epochs of the whole run."""

    def __init__(self, folder: Path, logged: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # slow to import

        self._writer = SummaryWriter(str(folder), purge_step=logged)

    def add(self, line: Mapping[str, Any], epoch: int) -> None:
        for name, value in flat(line).items():
            if isinstance(value, int | float) and name != "epoch":
                self._writer.add_scalar(name.replace(".", "/"), value, epoch)

    def close(self) -> None:
        self._writer.close()
