"""The WCDAS head with its classes spread over processes.

Every process has some of the classes and some of the samples. The features are gathered, each
process computes the parts of its own classes for all samples, and three numbers a sample and
process are what is exchanged of the logits. All processes need as many samples.

Gradients are those of the mean over the processes of what each computes, as DistributedDataParallel
forms it for the backbone.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from wcdas import processes
from wcdas.heads.base import Head, off_axis, point
from wcdas.heads.functional import chunked, plain
from wcdas.heads.functional.arithmetic import matmul, unit
from wcdas.heads.wcdas import WCDASHead


class ShardedWCDASHead(Head):
    """A `WCDASHead` of which every process holds, trains and remembers its part of the classes.

    For numbers of classes whose weights, gradients and momentum do not fit on one GPU. Each process
    gives the features and labels of its own samples, as many as the others, and gets their logits
    or their loss over all classes. Gradients are those of the mean over the processes, so the
    backbone goes into DistributedDataParallel and the head, whose gradients are complete, does not.

    Args:
        in_features: length of a feature vector.
        num_classes: number of classes, of all processes together.
        options: of `WCDASHead`.

    Example, under torchrun::

        dist.init_process_group("nccl")
        backbone = DistributedDataParallel(backbone)
        head = wcdas.ShardedWCDASHead(512, 1_000_000).cuda()
        optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.1)
        head.loss(backbone(images), labels).backward()
    """

    def __init__(self, in_features: int, num_classes: int, **options: Any) -> None:
        nn.Module.__init__(self)  # not the weights of all classes
        if not (dist.is_available() and dist.is_initialized()):
            raise RuntimeError(
                "there is no process group to spread the classes over; call "
                "torch.distributed.init_process_group first, or use WCDASHead"
            )
        rank, world = dist.get_rank(), dist.get_world_size()
        if num_classes < world:
            raise ValueError(
                f"num_classes is {num_classes}; expected at least one for each of {world} processes"
            )
        self.in_features, self.num_classes = in_features, num_classes
        self.options = options = options | _start(in_features, num_classes, options)
        ends = [num_classes * part // world for part in range(world + 1)]
        self.sizes = [ends[part + 1] - ends[part] for part in range(world)]
        self.classes = slice(ends[rank], ends[rank + 1])
        seed = [torch.initial_seed()]
        dist.broadcast_object_list(seed)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed[0])
            of_all = WCDASHead(1, num_classes, **options)  # its w_ρ may depend on their number
            # No two processes' classes are alike.
            torch.default_generator.manual_seed((seed[0] + rank + 1) % 2**63)
            self.shard = WCDASHead(in_features, self.sizes[rank], **options)
        self.shared = ["w_scale"] if len(of_all.w_rho) == num_classes else ["w_scale", "w_rho"]
        self._take("w_rho", of_all.w_rho)

    @property
    def concentration(self) -> Tensor:
        """ρ of this process's classes."""
        return self.shard.concentration

    @property
    def scale(self) -> Tensor:
        """s, the same on every process."""
        return self.shard.scale

    def logits(self, x: Tensor, labels: Tensor | None) -> Tensor:
        weight, w_rho, scale = self._parameters_as(x)
        cosine = matmul(unit(processes.of_all(x))[0], unit(weight)[0].mT)
        mine = scale * plain.density((1 - cosine).clamp_min(0), w_rho)
        start = dist.get_rank() * len(x)
        return processes.joined(mine.mT, self.sizes).mT[start : start + len(x)]

    def losses(
        self, x: Tensor, labels: Tensor, label_smoothing: float, log_prior: Tensor | None
    ) -> Tensor:
        own = processes.of_all(labels) - self.classes.start
        own = torch.where((own >= 0) & (own < self.shard.num_classes), own, -1)
        prior = None if log_prior is None else log_prior[self.classes]
        here = chunked.of_classes(processes.of_all(x), *self._parameters_as(x), own, prior)
        negatives, target, total = processes.of_all(torch.stack(here)[None]).unbind(1)
        parts = plain.Parts(negatives.logsumexp(0), target.sum(0), total.sum(0))
        start = dist.get_rank() * len(x)
        return parts.losses(self.num_classes, label_smoothing)[start : start + len(x)]

    def imprint(self, means: Tensor) -> None:
        point(self.shard.weight, off_axis(means)[self.classes])

    @torch.no_grad()
    def whole(self) -> WCDASHead:
        """The head of all classes, on the CPU of every process: to save, export and predict with.

        All processes have to ask for it.
        """
        head = WCDASHead(self.in_features, self.num_classes, **self.options)
        head = head.to(self.shard.weight.dtype)
        for name, mine in self.shard.named_parameters():
            rows = mine if name in self.shared else processes.joined(mine, self.sizes)
            head.get_parameter(name).copy_(rows)
        for name, buffer in self.shard.named_buffers():
            head.get_buffer(name).copy_(buffer)
        return head

    def load_whole(self, head: WCDASHead) -> None:
        """Take this process's classes of a head of all of them, however many had trained it."""
        for name, parameter in head.named_parameters():
            self._take(name, parameter)
        for name, buffer in head.named_buffers():
            self.shard.get_buffer(name).copy_(buffer)

    @torch.no_grad()
    def _take(self, name: str, of_all: Tensor) -> None:
        own = of_all if name in self.shared else of_all[self.classes]
        self.shard.get_parameter(name).copy_(own)

    def _parameters_as(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Weight, σ⁻¹(ρ) and s, with gradients of the mean over the processes."""
        shard, mean = self.shard, processes.of_the_mean
        weight = mean(shard.weight, shared=False)
        w_rho = mean(shard.w_rho, shared="w_rho" in self.shared).expand(shard.num_classes)
        w_rho = shard.concentration_unit * w_rho
        scale = mean(shard.scale, shared=True)
        return weight.to(x.dtype), w_rho.to(x.dtype), scale.to(x.dtype)


def _start(in_features: int, num_classes: int, options: dict[str, Any]) -> dict[str, float]:
    """The scale that a head of all classes starts at, where it is not given."""
    with torch.device("meta"):
        whole = WCDASHead(in_features, num_classes, **options)
    auto = whole.scale_is_trainable and options.get("start") != "paper"
    return {"scale_init": whole.auto_scale} if auto and "scale_init" not in options else {}
