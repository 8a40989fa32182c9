"""What processes tell each other, and how they part."""

import multiprocessing
import os
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from wcdas import processes
from wcdas.errors import InputError
from wcdas.losses import CenterLoss, EquilibriumLoss


def moved_states(rank, world, folder):
    torch.set_num_threads(1)
    if world > 1:
        address = f"file://{folder}/meeting"
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
    x = torch.randn(12, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y, own = torch.arange(12) % 4, slice(rank * 12 // world, (rank + 1) * 12 // world)
    equilibrium, center = EquilibriumLoss(5).double(), CenterLoss(5, 4).double()
    losses = []
    for _ in range(3):
        losses += [equilibrium(x[own], y[own]), center(x[own], y[own])]
    state = {
        "losses": processes.mean(torch.stack(losses)),
        "scores": equilibrium.scores,
        "centers": center.centers,
    }
    if world > 1:
        dist.destroy_process_group()
    torch.save(state, folder / f"{world}-{rank}.pt")


def test_two_processes_are_as_one(tmp_path, in_processes):
    """Losses with a running state: each process has half a batch."""
    in_processes(moved_states, 2, tmp_path)
    moved_states(0, 1, tmp_path)
    one, *two = (torch.load(tmp_path / f"{name}.pt") for name in ("1-0", "2-0", "2-1"))
    for other in two:
        torch.testing.assert_close(other, one)


def train_in_parallel(fails):
    model = DistributedDataParallel(nn.Linear(2, 1))
    model.itself = lambda: model  # as a model may be held by a cycle
    model(torch.ones(4, 2)).sum().backward()
    dist.all_reduce(torch.ones(1))
    assert gloo_threads()
    if fails:
        try:
            refuse(model)
        except ValueError:
            raise KeyError("of another error") from None


def refuse(model):
    raise ValueError("while a call holds the model")


def gloo_threads():
    names = [file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")]
    return names.count("pt_gloo_runloop")


def leave_the_group(fails):
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    expected = pytest.raises(KeyError) if fails else nullcontext()
    with expected as error, processes.ranks("cpu"):
        train_in_parallel(fails)
    assert (error is not None) == fails
    assert not gloo_threads()  # though the error is there


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("how", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_the_group_ends_with_its_block(how, fails):
    """Whatever an error holds; also where torch has not imported all it needs (spawn)."""
    child = multiprocessing.get_context(how).Process(target=leave_the_group, args=(fails,))
    child.start()
    child.join(600)
    assert child.exitcode == 0


def start_methods(rank, world, folder):
    assert processes.start_method(2) is None
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=1)
    context = processes.start_method(2)
    assert context is not None
    assert context.get_start_method() == "forkserver"
    assert processes.start_method(0) is None
    dist.destroy_process_group()


def test_no_worker_is_forked_beside_the_threads_of_gloo(in_processes, tmp_path):
    in_processes(start_methods, 1, tmp_path)


def decide_together(rank, world, folder):
    address = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
    here = processes.Ranks(rank, world, torch.device("cpu"))
    decided = processes.agreed(here, lambda: {"by": rank})

    def refuse():
        raise InputError(f"refused by {rank}")

    try:
        processes.agreed(here, refuse)
    except InputError as error:
        decided["refused"] = str(error)
    dist.destroy_process_group()
    torch.save(decided, folder / f"{rank}.pt")


def test_the_first_process_decides_for_all(tmp_path, in_processes):
    in_processes(decide_together, 2, tmp_path)
    for rank in (0, 1):
        assert torch.load(tmp_path / f"{rank}.pt") == {"by": 0, "refused": "refused by 0"}


def look_at_parents(launched):
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    os.environ |= {"TORCHELASTIC_RUN_ID": "1"} if launched else {}
    with processes.ranks("cpu"):
        watches = "watches parent" in [thread.name for thread in threading.enumerate()]
        assert watches == launched


@pytest.mark.parametrize("launched", [True, False])
def test_only_torchrun_takes_its_processes_with_it(launched):
    """The shell that another launcher was started from may end."""
    child = multiprocessing.get_context("forkserver").Process(
        target=look_at_parents, args=(launched,)
    )
    child.start()
    child.join(600)
    assert child.exitcode == 0
