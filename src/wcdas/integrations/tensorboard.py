"""The log of a run as TensorBoard shows it: `tensorboard --logdir runs`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wcdas.run.callbacks import Callback, numbers

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


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
