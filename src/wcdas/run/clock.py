"""What changes from one step of an epoch to the next, as tables on the device."""

import torch
from torch import Tensor


class Clock:
    """A counter of steps, and the values of the step it points at.

    An epoch's values are laid down at its beginning; a step looks its own up, so that it is the
    same work every time.
    """

    def __init__(self, names: list[str], steps: int, device: torch.device) -> None:
        self.step = torch.zeros(1, dtype=torch.int64, device=device)
        self.table = torch.zeros(steps, len(names), device=device)
        self.now = torch.zeros(len(names), device=device)
        self.values: dict[str, Tensor] = dict(zip(names, self.now.unbind(), strict=True))

    def begin(self, rows: list[list[float]], start: int) -> None:
        """The values of every step of an epoch, which begins or goes on at step `start`."""
        self.table.copy_(torch.tensor(rows))
        self.step.fill_(start)

    def look(self) -> None:
        """Bring the values of the step up to date."""
        self.now.copy_(self.table.index_select(0, self.step).squeeze(0))

    def tick(self) -> None:
        self.step += 1
