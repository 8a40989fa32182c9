"""`wcdas …` as a program: signals are listened to from its first moment on, and not in its last."""

import os
import signal
import sys
from contextlib import nullcontext

from wcdas.interrupt import PARENT, SIGNALS, Interrupt, stopped_with_parent


def main() -> None:
    parent = os.environ.get(PARENT)
    watched = stopped_with_parent(int(parent)) if parent else nullcontext()
    try:
        with Interrupt(raises=True) as interrupt, watched:
            try:
                from wcdas.cli import main as command  # takes a while

                command()
            except KeyboardInterrupt:
                from wcdas.usage import stopped

                sys.exit(stopped("", interrupt.number))
    finally:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    main()
