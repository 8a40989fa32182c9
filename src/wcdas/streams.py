"""Streams of a GPU: each thread has its own, so that none gets into what another captures."""

import threading
from types import TracebackType

import torch

_own = threading.local()


def own_stream(purpose: str) -> torch.cuda.Stream:
    """This thread's stream for a purpose on the current GPU, always the same one.

    PyTorch has 32 streams and hands them out in turn; whoever asks for new ones all the time gets
    those that others are using.
    """
    streams: dict[tuple[str, int], torch.cuda.Stream] = _own.__dict__.setdefault("streams", {})
    key = purpose, torch.cuda.current_device()
    if key not in streams:
        streams[key] = torch.cuda.Stream()
    return streams[key]


class Beside:
    """`with beside: …` runs beside what follows, until `beside.join()`; on a CPU, in turn.

    What is used inside must live until the join.
    """

    def __init__(self, purpose: str, device: torch.device) -> None:
        self.stream = own_stream(purpose) if device.type == "cuda" else None

    def __enter__(self) -> None:
        if self.stream is not None:
            self.main = torch.cuda.current_stream()
            self.stream.wait_stream(self.main)
            torch.cuda.set_stream(self.stream)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.stream is not None:
            torch.cuda.set_stream(self.main)

    def join(self) -> None:
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
