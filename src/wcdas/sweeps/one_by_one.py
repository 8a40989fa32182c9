"""Runs one after the other, in this process."""

import gc
from collections.abc import Callable, Generator, Sequence

import torch

from wcdas.errors import InputError, InterruptedRunError, WorkError
from wcdas.sweeps.plan import SweepRun


def one_by_one(
    runs: Sequence[SweepRun], train: Callable[[SweepRun], None]
) -> Generator[tuple[SweepRun, str | None], None, None]:
    """Each run as it ends, with the reason if it failed."""
    for run in runs:
        yield run, reason_of(lambda run=run: train(run))  # type: ignore[misc]
        gc.collect()  # a model of a failed run may still be held by a cycle
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def reason_of(work: Callable[[], None]) -> str | None:
    """Why a run failed, or None."""
    try:
        work()
    except InterruptedRunError:
        raise
    except (InputError, WorkError) as error:
        return str(error)
    except Exception as error:  # a fault in one method must not cost the others
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return None
