"""Sweeps on the machines of a Ray cluster, some of which are lost."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch

import wcdas
from wcdas.errors import InputError
from wcdas.interrupt import SIGNALS
from wcdas.run.folder import RunFolder

pytest.importorskip("ray", reason="ray is not installed")

from ray.cluster_utils import Cluster

from wcdas.sweeps.cluster import joined

SETTINGS = {"epochs": 2, "batch_size": 64}
SET = ["--set", *(f"{key}={value}" for key, value in SETTINGS.items())]
# Four runs on GPUs that only Ray believes in; each goes on when all have begun.
ON_GPUS = """
import sys
from pathlib import Path
import torch
from wcdas.run.folder import RunFolder
from wcdas.sweeps.cluster import joined
from wcdas.sweeps.execute import side_by_side
from wcdas.sweeps.plan import SweepRun
from wcdas.sweeps.runner import share_out

_, address, finished, here = sys.argv
RUN = (
    "import os, sys, time; from pathlib import Path; here = Path(sys.argv[1]); "
    "(here / f'gpu-{os.getpid()}').write_text(os.environ['CUDA_VISIBLE_DEVICES'])\\n"
    "while len(list(here.glob('gpu-*'))) < 4: time.sleep(0.01)"
)

def command(folder):
    return [sys.executable, "-c", RUN, here]

with joined(address, "cuda", torch.device("cuda")) as cluster:
    room = share_out(cluster, 4, None, 8, 1, [Path(here)])
    print(room.told)
    def do(run, interrupt):
        room.do(lambda: RunFolder(Path(finished)), command, 1, print, interrupt)
    for run, reason in side_by_side([SweepRun("softmax", seed) for seed in range(4)], 4, do):
        assert reason is None, reason
"""


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("address", ["", "cluster", "ray://10.0.0.1:10001", "10.0.0.1:ray", ":1"])
def test_what_is_no_address(refused, address):
    said = refused("sweep", "--methods", "softmax", "--device", "cpu", "--ray", address)
    assert f"--ray is {address!r}; expected local, auto, or HOST:PORT" in said


def test_nobody_answers(refused, nobody):
    said = refused("sweep", "--methods", "softmax", "--device", "cpu", "--ray", nobody)
    assert f"--ray is {nobody}, where nobody answers: " in said


def test_a_plain_installation_says_what_is_missing(sweep, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"needs ray, which .* pip install 'wcdas\[ray\]'"):
        sweep("softmax", out=tmp_path / "sweep", ray="local")
    assert not (tmp_path / "sweep").exists()


def test_ray_says_which_gpu():
    with (
        pytest.raises(InputError, match="'cuda:1'; with --ray expected auto, cpu or cuda, since"),
        joined("local", "cuda:1", torch.device("cuda:1")),
    ):
        pass


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Starts machines of a cluster, the first of which is its head; nothing is left of them."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_worker_register_timeout_seconds", "600")  # on a busy machine
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # the names of sockets are short
    cluster = Cluster()

    def start(path=None, **more):
        """One whose processes look for modules in a path."""
        first = cluster.head_node is None
        given = {"num_cpus": 1, "object_store_memory": 100 * 2**20} | more
        given |= {"temp_dir": folder, "include_dashboard": False} if first else {}
        with monkeypatch.context() as patched:
            if path is not None:
                patched.setenv("PYTHONPATH", path)
            node = cluster.add_node(wait=False, **given)
        cluster.wait_for_nodes(600)
        return node

    start.cluster = cluster
    yield start
    cluster.shutdown()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    wait_for(lambda: not processes(folder) + processes(str(tmp_path)))
    shutil.rmtree(folder)


@pytest.fixture
def on_ray(machine, tmp_path):
    """Starts `wcdas sweep … --ray ADDRESS`."""
    children = []

    def start(*arguments, ray=None, **environment):
        command = [sys.executable, "-m", "wcdas", "sweep", *map(str, arguments)]
        command += ["--ray", ray or machine.cluster.address, "--no-report", "--log", "none"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        own = {"CUDA_VISIBLE_DEVICES": "", "HOME": str(tmp_path)} | environment
        child = subprocess.Popen(command, **pipes, cwd=tmp_path, env=os.environ | own)
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()
        child.communicate()


def ended(child):
    out, err = child.communicate(timeout=600)
    return child.returncode, out, err


def wait_for(condition):
    end = time.monotonic() + 600  # no test waits for ever
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def processes(words):
    """The command lines that have some words in them."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in found if words in line]


def one_is_held(out, runs):
    """Whether all runs are finished but one, which waits after its first epoch."""
    folders = [RunFolder(out / run) for run in runs]
    left = [folder for folder in folders if not folder.is_finished]
    return [folder.epochs_logged for folder in left] == [1]


def assert_same(sweep, other):
    for run in other.results["runs"]:
        for name in ("run.toml", "metrics.json", "model.safetensors"):
            assert (sweep / run / name).read_bytes() == (other.path / run / name).read_bytes(), name
    for name in ("table.txt", "table.csv", "results.json", "sweep.toml"):
        assert (sweep / name).read_bytes() == (other.path / name).read_bytes(), name


@pytest.mark.slow
def test_a_machine_is_lost(machine, on_ray, holding, features, sweep, tmp_path):
    """In the middle of a run, which another machine goes on with to the same end."""
    out = tmp_path / "sweep"
    machine()
    lost = machine(holding)
    child = on_ray(features, "--methods", "softmax,wcdas", "--seeds", 1, "--out", out, *SET)
    wait_for(lambda: one_is_held(out, ["softmax-s0", "wcdas-s0"]))
    machine.cluster.remove_node(lost, allow_graceful=False)
    status, said, error = ended(child)
    assert (status, error) == (0, "")
    assert "note: Ray: 2 runs at a time on 2 machines\n" in said
    (told,) = (line for line in said.splitlines() if "Ray has lost" in line)
    assert told.endswith("where it was; it goes on from its last checkpoint")
    assert not processes(str(out))
    whole = sweep(
        "softmax", "wcdas", seeds=1, settings=SETTINGS, out=tmp_path / "whole", callbacks=[]
    )
    assert said.endswith(f"\n{whole.table()}\n\n{out}\n")
    assert_same(out, whole)


@pytest.mark.slow
def test_a_sweep_goes_on_on_a_cluster_and_without(
    machine, on_ray, holding, features, sweep, tmp_path
):
    """Begun on this machine's own cluster, stopped on another, ended without one."""
    out = tmp_path / "sweep"
    begun = on_ray(features, "--methods", "softmax", "--seeds", 1, "--out", out, *SET, ray="local")
    status, said, error = ended(begun)
    assert (status, error) == (0, "")
    assert not processes(str(out))
    machine()
    machine(holding)
    child = on_ray("--out", out, "--resume", "--methods", "wcdas", "--seeds", 2)
    wait_for(lambda: one_is_held(out, ["softmax-s0", "wcdas-s0", "softmax-s1", "wcdas-s1"]))
    child.send_signal(signal.SIGINT)
    status, said, error = ended(child)
    address = machine.cluster.address
    assert (status, error) == (
        130,
        f"wcdas: stopped; go on with: wcdas sweep --out {out} --resume --ray {address}\n",
    )
    assert not processes(str(out))
    assert [line for line in said.splitlines() if "2 methods × 2 seeds, 3 of them to do" in line]
    again = sweep(settings=None, data=None, out=out, resume=True, callbacks=[])
    whole = sweep(
        "softmax", "wcdas", seeds=2, settings=SETTINGS, out=tmp_path / "whole", callbacks=[]
    )
    assert again.table() == whole.table()
    assert_same(out, whole)


@pytest.mark.slow
def test_before_the_first_run(machine, on_ray, path_where, features, mixed_run, tmp_path):
    """Machines that cannot do runs are refused, SIGTERM is heard, each run gets a GPU's share."""
    machine()
    given = [features, "--methods", "softmax", "--device", "cpu", "--out"]
    stays = path_where("sweep", "stay", "wcdas.api.check_buildable")
    child = on_ray(*given, tmp_path / "sweep", PYTHONPATH=stays)
    assert child.stdout.readline() == "stays here\n"
    child.terminate()
    assert ended(child) == (143, "", "wcdas: stopped; start it again with the same command\n")
    # On every machine it is another folder.
    status, _, error = ended(on_ray(*given, "/proc/self/cwd/sweep"))
    assert status == 2
    assert " does not see what is written to /proc/self/cwd here; the sweep's folder and" in error

    package = Path(wcdas.__file__).parent
    shutil.copytree(package, tmp_path / "other" / "wcdas")
    (tmp_path / "other" / "wcdas" / "__init__.py").open("a").write("__version__ = '9.9'\n")
    other = machine(str(tmp_path / "other"), num_gpus=2)
    status, _, error = ended(on_ray(*given, tmp_path / "sweep"))
    assert status == 2
    assert re.search(r"has wcdas 9\.9 \(\w+\) and PyTorch \S+, this machine wcdas 0", error)
    given.remove("cpu")
    given.remove("--device")
    status, _, error = ended(on_ray(*given, tmp_path / "sweep"))
    assert status == 2
    assert "the Ray cluster has 2 GPUs, but this machine, for which the runs would be" in error
    assert not (tmp_path / "sweep").exists()

    machine.cluster.remove_node(other)
    machine(num_gpus=2)
    words = [sys.executable, "-c", ON_GPUS, machine.cluster.address, mixed_run.path, tmp_path]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Ray: 4 runs at a time on 1 machine with 2 GPUs\n"
    seen = sorted(file.read_text() for file in tmp_path.glob("gpu-*"))
    assert seen == ["0", "0", "1", "1"]
