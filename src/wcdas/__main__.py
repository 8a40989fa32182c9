"""`wcdas …` as a program: signals are listened to from its first moment on, and not in its last."""

import signal
import sys

from wcdas.interrupt import SIGNALS, Interrupt


def main() -> None:
    try:
        with Interrupt(raises=True) as interrupt:
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
