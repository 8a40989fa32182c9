"""A head whose classes are spread over processes, in a training loop of one's own.

torchrun --nproc-per-node 2 examples/sharded_head.py [--classes 20000] [--steps 100] [--out FILE]

Vectors around a centre for each class stand for the features of images; on GPUs the process group
is "nccl" and everything goes `.cuda()`. Process 0 can write the whole head, a plain `WCDASHead`.
"""

import argparse
import gc
import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # imported later, as DDP does, its functions keep the process group
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import wcdas

FEATURES = 64


def batch(centres: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Samples of this process; every process draws as many."""
    labels = torch.randint(len(centres), (size,))
    return centres[labels] + 0.5 * torch.randn(size, FEATURES), labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", metavar="FILE")
    given = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("start it by torchrun: torchrun --nproc-per-node 2 examples/sharded_head.py")

    dist.init_process_group("gloo")
    train(given.classes, given.steps, given.out)
    gc.collect()
    dist.destroy_process_group()


def train(classes: int, steps: int, out: str | None) -> None:
    """Nothing of it may live on when the process group ends."""
    torch.manual_seed(0)
    centres = torch.randn(classes, FEATURES)
    backbone = DistributedDataParallel(nn.Linear(FEATURES, FEATURES))
    head = wcdas.ShardedWCDASHead(FEATURES, classes, scale="trainable", scale_init=20.0)
    optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=5.0, momentum=0.9)
    torch.manual_seed(dist.get_rank())
    print(f"process {dist.get_rank()}: {head.shard.num_classes:,} of {classes:,} classes")
    for step in range(steps):
        x, labels = batch(centres, 256)
        loss = head.loss(backbone(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and (step + 1) % max(1, steps // 5) == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)

    whole = head.whole()  # all processes ask, one writes
    if dist.get_rank() == 0 and out is not None:
        torch.save(whole.state_dict(), out)
        print(f"{out}: the head of all classes")


if __name__ == "__main__":
    main()
