"""What does a run of a sweep on a machine of a Ray cluster.

A run has an actor of its own, which Ray puts where there is room for it, and which does the run in
a process of its own, as a sweep without Ray does several at a time. Where the actor dies with its
machine the run gets another one, and goes on from its last checkpoint.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, floor
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from wcdas.errors import InterruptedRunError, WorkError
from wcdas.files import holder
from wcdas.interrupt import END_SECONDS, PARENT, Interrupt
from wcdas.run.folder import RunFolder
from wcdas.sweeps.cluster import Cluster, Found, look
from wcdas.sweeps.execute import LostClusterError, in_process

POLL_SECONDS = 0.5
WAIT_SECONDS = 2 * END_SECONDS  # for a run that the process on a lost machine has not let go of
SEEN_SECONDS = 120  # until a shared disk shows on one machine what was written on another
MOST_LOST = 100  # machines with one run; more are no accident

Command = Callable[[Path], Sequence[str]]


class Runner:
    """The actor of a run."""

    def __init__(self) -> None:
        os.environ[PARENT] = str(os.getpid())  # with which the process of the run ends
        self.interrupt = Interrupt()

    def look(self, paths: Sequence[Path]) -> Found:
        return look(paths)

    def do(self, command: Command, folder: Path, threads: int) -> None:
        """Do the run in a folder, once no process of a lost machine is at work in it."""
        end = time.monotonic() + WAIT_SECONDS
        while holder(folder) and time.monotonic() < end and not self.interrupt.requested:
            time.sleep(POLL_SECONDS)
        in_process(command(folder), threads, None, self.interrupt)

    def stop(self, number: int, at_once: bool) -> None:
        self.interrupt.number, self.interrupt.at_once = number, at_once
        self.interrupt.requested = True


@dataclass(frozen=True)
class Room:
    """What the runs get of a cluster.

    Args:
        cluster: where they are done.
        takes: what each gets of a machine, in Ray's words.
        cpus: how many cores that is.
        runs: how many there is room for.
        files: that a machine must see.
    """

    cluster: Cluster
    takes: Mapping[str, float]
    cpus: int
    runs: int
    files: Sequence[Path]

    @property
    def told(self) -> str:
        machines = len(self.cluster.machines)
        where = f"{machines} machine{'s' * (machines > 1)}"
        if self.cluster.kind == "cuda":
            where += f" with {self.cluster.gpus} GPU{'s' * (self.cluster.gpus > 1)}"
        return f"Ray: {self.runs} run{'s' * (self.runs > 1)} at a time on {where}"

    def do(
        self,
        begin: Callable[[], RunFolder],
        command: Command,
        threads: int,
        lost: Callable[[str], None],
        interrupt: Interrupt,
    ) -> None:
        """Do a run.

        Args:
            begin: returns its folder; called once there is a machine for it.
            command: does it, in that folder.
            threads: of its process.
            lost: is told of each machine that has gone with it.
            interrupt: stops it at a checkpoint, or at once.
        """
        options = {"max_concurrency": 2, "scheduling_strategy": "SPREAD", **self.takes}
        actor, folder = ray.remote(Runner).options(**options), None
        for _ in range(MOST_LOST):
            self._check_cluster()  # without which Ray would wait for it
            runner: Any = actor.remote()
            machine = ""
            try:
                machine = self._placed(runner, interrupt)
                folder = folder or begin()
                self._done(runner, command, folder.path.absolute(), threads, interrupt)
                return _wait_until_seen(folder)
            except RayTaskError as error:
                raise error.cause from None
            except RayError as error:
                if interrupt.requested:
                    raise InterruptedRunError(number=interrupt.number) from None
                if not isinstance(error, RayActorError) or error.actor_init_failed:
                    raise
                if machine:
                    lost(machine)
            finally:
                if not self.cluster.is_lost:
                    ray.kill(runner)
        raise WorkError(f"it was on {MOST_LOST} machines that Ray has lost")

    def _placed(self, runner: Any, interrupt: Interrupt) -> str:
        """Wait for a machine with room; return its name."""
        asked = runner.look.remote(self.files)
        found: Found = self._answer(asked, interrupt, partial(ray.kill, runner))
        if found.unfit:
            raise WorkError(found.unfit)
        return found.machine

    def _done(
        self, runner: Any, command: Command, folder: Path, threads: int, interrupt: Interrupt
    ) -> None:
        def stop() -> None:
            runner.stop.remote(interrupt.number, interrupt.at_once)

        self._answer(runner.do.remote(command, folder, threads), interrupt, stop)

    def _answer(self, asked: Any, interrupt: Interrupt, stop: Callable[[], object]) -> Any:
        """Wait for an answer; where a stop is asked for, have it come soon."""
        while not ray.wait([asked], timeout=POLL_SECONDS)[0]:
            self._check_cluster()
            if interrupt.requested:
                stop()
        return ray.get(asked)

    def _check_cluster(self) -> None:
        if self.cluster.is_lost:
            raise LostClusterError(
                f"the Ray cluster at {self.cluster.head} does not answer any more; start it again"
            )


def share_out(
    cluster: Cluster,
    runs: int,
    parallel: int | None,
    most: int,
    threads: int,
    files: Sequence[Path],
) -> Room:
    """Share a cluster out.

    A GPU gets no more runs than it must where there are others. On a CPU a run has as many cores as
    threads.

    Args:
        cluster: of machines that can do the runs.
        runs: how many are to be done.
        parallel: how many were asked for on a GPU, or on a machine without.
        most: how many fit on a GPU.
        threads: of a run on a CPU.
        files: that a machine must see.
    """
    if cluster.kind == "cuda":
        each = min(most, ceil(runs / cluster.gpus))
        takes = {"num_cpus": 0, "num_gpus": floor(10_000 / each) / 10_000}
        cpus = min(m.cpus // (m.gpus * each) for m in cluster.machines)
        return Room(cluster, takes, max(1, cpus), cluster.gpus * each, files)
    cpus = min(cluster.cpus, max(threads, cluster.cpus // (parallel or cluster.cpus)))
    at_a_time = sum(machine.cpus // cpus for machine in cluster.machines)
    return Room(cluster, {"num_cpus": cpus}, cpus, at_a_time, files)


def _wait_until_seen(folder: RunFolder) -> None:
    end = time.monotonic() + SEEN_SECONDS
    while not folder.is_finished:
        if time.monotonic() > end:
            raise WorkError(f"it is finished, but its files are not in {folder.path}")
        time.sleep(POLL_SECONDS)
