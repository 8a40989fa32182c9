"""The machines of a Ray cluster: the connection to them, and whether they have what runs need."""

import logging
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

# Before the import: Ray tells nobody that it is used, leaves it to this to say what becomes of
# machines, and does not take SIGTERM for a crash.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
os.environ.setdefault("RAY_DISABLE_FAILURE_SIGNAL_HANDLER", "1")

import ray
import torch
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from wcdas.errors import InputError, first_line
from wcdas.run.origin import source, versions

CONNECT_SECONDS, ANSWER_SECONDS = 60, 120  # that a cluster, and each of its machines, may take
LOOK_SECONDS, GONE_SECONDS = 5, 30  # between two looks for the head, and without it
PROBE = ".wcdas-"  # begins the name of a file that is written to see who sees it
OBJECTS = 100 * 2**20  # bytes for what actors tell each other, the least that Ray takes


@contextmanager
def joined(address: str, device: str, chosen: torch.device) -> Iterator["Cluster"]:
    """Be connected to a Ray cluster.

    Args:
        address: HOST:PORT, "auto" for the cluster that this machine belongs to, or "local" for one
            of this machine alone, which begins and ends with the block.
        device: what was asked for.
        chosen: what that is on this machine.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise InputError(
            f"device is {device!r}; with --ray expected auto, cpu or cuda, since Ray gives each "
            "run a GPU"
        )
    if address != "local":
        _check_answers(address)
    connection = _Connection(address)
    try:
        connection.begin()
        yield Cluster(connection, device, chosen.type)
    finally:
        connection.end()


def _check_answers(address: str) -> None:
    """Refuse what is no address, where nobody answers, or what Ray cannot connect to.

    Ray waits long for what is not there, and aborts the process for a cluster that this machine
    does not belong to; so another process tries it first.
    """
    if address != "auto":
        host, _, port = address.rpartition(":")
        if not host or "/" in host or not port.isdecimal():
            raise InputError(
                f"--ray is {address!r}; expected local, auto, or HOST:PORT as `ray start --head` "
                "prints it"
            )
        try:
            _connect(address)
        except (OSError, OverflowError) as error:
            raise InputError(f"--ray is {address}, where nobody answers: {error}") from None
    program = "import ray, sys; ray.init(sys.argv[1], log_to_driver=False, logging_level='ERROR')"
    try:
        tried = subprocess.run(
            [sys.executable, "-c", program, address], capture_output=True, timeout=CONNECT_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"--ray is {address}, where no Ray cluster answers") from None
    said = tried.stderr.decode(errors="replace")
    if tried.returncode == 0:
        return
    if "InvalidAuthToken" in said:
        reason = "the cluster wants a token; RAY_AUTH_MODE=token before the command sends yours"
    elif "raylet_ipc_client" in said:
        reason = "this machine is not of that cluster; `ray start --address=HOST:PORT` adds it"
    else:
        reason = " ".join(said.rpartition("Error: ")[2].split()).partition(". ")[0]
    raise InputError(f"--ray is {address}: {reason}")


def _connect(address: str) -> None:
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), LOOK_SECONDS).close()


class _Connection:
    """A connection to Ray, which a thread of its own has.

    In the main thread Ray would take over the signals. What it starts ends with the thread.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.head, self.is_lost = "", False
        self._ready, self._over = threading.Event(), threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._hold, name="connected to Ray", daemon=True)

    def begin(self) -> None:
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise InputError(f"--ray is {self.address}: {first_line(self._error)}")

    def end(self) -> None:
        self._over.set()
        if self._ready.is_set():
            self._thread.join()

    def _hold(self) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
        if self.address == "local":
            options |= {"include_dashboard": False, "object_store_memory": OBJECTS}
        try:
            ray.init(self.address, **options)
            here = ray.get_runtime_context()
            self.head = here.gcs_address
            (own,) = (node for node in ray.nodes() if node["NodeID"] == here.get_node_id())
        except Exception as error:
            self._error = error
        self._ready.set()
        if self._error is None:
            self._watch([self.head, f"{own['NodeManagerAddress']}:{own['NodeManagerPort']}"])
            ray.shutdown()

    def _watch(self, needed: Sequence[str]) -> None:
        """Notice that the head has gone before Ray does, which would end this process for it."""
        answered = time.monotonic()
        while not self._over.wait(LOOK_SECONDS):
            try:
                for address in needed:
                    _connect(address)
                answered = time.monotonic()
            except OSError:
                self.is_lost = time.monotonic() - answered > GONE_SECONDS


class Found(NamedTuple):
    """What there is on a machine."""

    machine: str
    code: str
    missing: list[Path]

    @property
    def unfit(self) -> str:
        """Why it cannot do the runs of this machine; empty where it can."""
        if self.missing:
            first = self.missing[0]
            seen = (
                f"what is written to {first.parent} here" if first.name.startswith(PROBE) else first
            )
            return (
                f"{self.machine} does not see {seen}; the sweep's folder and the data must be on a "
                "disk that all machines of the cluster share, at the same place"
            )
        if self.code != _code():
            return (
                f"{self.machine} has {self.code}, this machine {_code()}; install the same on all"
            )
        return ""


def look(paths: Sequence[Path]) -> Found:
    """Say what code this machine has, and which files it does not see."""
    machine = f"{os.uname().nodename} ({ray.util.get_node_ip_address()})"
    return Found(machine, _code(), [path for path in paths if not os.path.exists(path)])


def _code() -> str:
    found = versions()
    return f"wcdas {found['wcdas']} ({source()}) and PyTorch {found['torch']}"


class Machine(NamedTuple):
    """A machine of the cluster."""

    node: str
    name: str
    cpus: int
    gpus: int


class Cluster:
    """The machines of a Ray cluster that can do runs.

    Args:
        connection: to it.
        device: what was asked for.
        kind: of device that this machine has for it, and the runs are planned for.
    """

    def __init__(self, connection: _Connection, device: str, kind: str) -> None:
        self._connection, self.kind = connection, kind
        machines = [_machine(node) for node in ray.nodes() if node["Alive"]]
        gpus = sum(machine.gpus for machine in machines)
        if kind == "cpu" and device == "auto" and gpus:
            raise InputError(
                f"the Ray cluster has {gpus} GPUs, but this machine, for which the runs would "
                "be planned, has none; start the sweep on a machine with a GPU, or with "
                "--device cpu"
            )
        self.machines = [m for m in machines if (m.gpus if kind == "cuda" else m.cpus)]
        self._check_any()

    def _check_any(self) -> None:
        if not self.machines:
            needed = "GPU" if self.kind == "cuda" else "CPU"
            raise InputError(f"the Ray cluster has no {needed} for the runs; see `ray status`")

    @property
    def gpus(self) -> int:
        return sum(machine.gpus for machine in self.machines)

    @property
    def cpus(self) -> int:
        """How many cores the smallest machine has."""
        return min(machine.cpus for machine in self.machines)

    @property
    def head(self) -> str:
        return self._connection.head

    @property
    def is_lost(self) -> bool:
        return self._connection.is_lost

    def check(self, folder: Path, files: Sequence[Path]) -> None:
        """Refuse machines that do not see the folder or the files, or have other code."""
        above = next(path for path in (folder, *folder.parents) if path.is_dir())
        with tempfile.NamedTemporaryFile(prefix=PROBE, dir=above) as probe:
            paths = [Path(probe.name), *files]
            asked = {_look_on(machine, paths): machine for machine in self.machines}
            _, silent = ray.wait([*asked], num_returns=len(asked), timeout=ANSWER_SECONDS)
            for answer, machine in asked.items():
                if answer in silent:
                    raise InputError(f"{machine.name} of the Ray cluster does not answer")
                try:
                    unfit = ray.get(answer).unfit
                except RayTaskError as error:
                    reason = str(error).strip().splitlines()[-1]
                    unfit = f"{machine.name} cannot do runs: {reason}; install wcdas there"
                except RayError:
                    self.machines.remove(machine)  # it has left the cluster
                    continue
                if unfit:
                    raise InputError(unfit)
            self._check_any()


def _machine(node: dict[str, Any]) -> Machine:
    cpus, gpus = (int(node["Resources"].get(resource, 0)) for resource in ("CPU", "GPU"))
    name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
    return Machine(node["NodeID"], name, cpus, gpus)


def _look_on(machine: Machine, paths: Sequence[Path]) -> Any:
    there = NodeAffinitySchedulingStrategy(machine.node, soft=False)
    return ray.remote(look).options(num_cpus=0, scheduling_strategy=there).remote(paths)
