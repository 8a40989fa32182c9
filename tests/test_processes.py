"""Losses with a running state: two processes with half a batch each are as one with the whole."""

import torch
import torch.distributed as dist

from wcdas import processes
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
    in_processes(moved_states, 2, tmp_path)
    moved_states(0, 1, tmp_path)
    one, *two = (torch.load(tmp_path / f"{name}.pt") for name in ("1-0", "2-0", "2-1"))
    for other in two:
        torch.testing.assert_close(other, one)
