"""How long those who ask a server may take, and how many they may be."""

from dataclasses import dataclass

RETRY = {"Retry-After": "1"}  # the header of an answer that may be another one soon


@dataclass(frozen=True)
class Limits:
    """Limits of a server; times are in seconds.

    Args:
        headers: from a connection, or its last answer, to the end of the next request's headers.
        body: for the body of a request.
        answer: for an answer, with the time an image waits for others.
        linger: for the rest of a body whose request is answered already.
        stop: what is under way may still take when the server is stopped.
        connections: at a time.
        queue: images that wait while others are looked at.
    """

    headers: float = 10
    body: float = 30
    answer: float = 30
    linger: float = 10
    stop: float = 1
    connections: int = 100
    queue: int = 32

    @property
    def request(self) -> float:
        """What a request may take in all, with a reader who does not take the answer."""
        return self.body + self.answer + self.linger
