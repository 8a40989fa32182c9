"""The WCDAS head with its classes spread over processes.

Every process has some of the classes and some of the samples. The features are gathered, each
process computes the parts of its own classes for all samples, and three numbers a sample and
process are what is exchanged of the logits. All processes need as many samples.

Gradients are those of the mean over the processes of what each computes, as DistributedDataParallel
forms it for the backbone.
"""

from typing import Any

import torch
from torch import Tensor, nn

from wcdas import processes, rng
from wcdas.checks import check_positive, check_whole
from wcdas.errors import InputError
from wcdas.heads.base import Head, off_axis, point
from wcdas.heads.drawing import Drawing
from wcdas.heads.functional import chunked, plain
from wcdas.heads.functional.arithmetic import matmul, unit
from wcdas.heads.wcdas import WCDASHead
from wcdas.targets import MixedLabels

BLOCK = 1024  # classes whose weights are drawn together, however many processes there are


class ShardedWCDASHead(Head):
    """A `WCDASHead` of which every process holds, trains and remembers its part of the classes.

    For numbers of classes whose weights, gradients and momentum do not fit on one GPU. Each process
    gives the features and labels of its own samples, as many as the others, and gets their logits
    or their loss over all classes. Gradients are those of the mean over the processes, so the
    backbone goes into DistributedDataParallel and the head, whose gradients are complete, does not.
    It starts alike for any number of processes; a single one, with or without a process group, has
    all classes.

    Args:
        in_features: length of a feature vector.
        num_classes: number of classes, of all processes together.
        negatives: share of the classes that a step of training draws beside those of the labels.
            Below 1 the optimizer has to be told, by `step_with`.
        options: of `WCDASHead`; the engine "auto" is "chunked" here, and "plain" there is not.

    Example, under torchrun::

        dist.init_process_group("nccl")
        backbone = DistributedDataParallel(backbone)
        head = wcdas.ShardedWCDASHead(512, 1_000_000).cuda()
        optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.1)
        head.loss(backbone(images), labels).backward()
    """

    def __init__(
        self, in_features: int, num_classes: int, negatives: float = 1.0, **options: Any
    ) -> None:
        nn.Module.__init__(self)  # not the weights of all classes
        check_whole("in_features", in_features)
        check_whole("num_classes", num_classes)
        check_positive("negatives", negatives, at_most=1)
        self.in_features, self.num_classes, self.negatives = in_features, num_classes, negatives
        self.options = options = options | _start(in_features, num_classes, options)
        self.sizes = processes.shares(num_classes, processes.count())
        first = sum(self.sizes[: processes.rank()])
        self.classes = slice(first, first + self.sizes[processes.rank()])
        seed = processes.of_the_first(torch.initial_seed())
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            of_all = WCDASHead(1, num_classes, **options)  # its w_ρ may depend on their number
            self.shard = WCDASHead(in_features, 1, **options)
            weight = _drawn_weights(in_features, self.classes, seed, options)
        if self.shard.engine == "plain":
            raise InputError("engine is 'plain', which needs all classes here; leave it out")
        self.engine = "chunked" if self.shard.engine == "auto" else self.shard.engine
        self.shard.weight, self.shard.num_classes = nn.Parameter(weight), len(weight)
        self.shared = ["w_scale"] if len(of_all.w_rho) == num_classes else ["w_scale", "w_rho"]
        own = of_all.w_rho if "w_rho" in self.shared else of_all.w_rho[self.classes]
        self.shard.w_rho = nn.Parameter(own.detach().clone())
        self.drawing = Drawing(negatives, rng.stream(seed, num_classes))

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """Those of this process's classes."""
        return self.shard.weight

    @property
    def concentration(self) -> Tensor:
        """ρ of this process's classes."""
        return self.shard.concentration.expand(self.shard.num_classes)

    @property
    def scale(self) -> Tensor:
        """s, the same on every process."""
        return self.shard.scale

    def of_every_class(self, own: Tensor) -> Tensor:
        """The rows of the classes of all processes; all of them have to ask."""
        return processes.joined(own, self.sizes)

    def sharded_parameters(self) -> dict[str, nn.Parameter]:
        """Those of which every process has other rows, by name."""
        named = self.named_parameters()
        return {name: p for name, p in named if name.split(".")[-1] not in self.shared}

    def loss(self, features: Tensor, target: Tensor | MixedLabels, **options: Any) -> Tensor:
        """As `Head.loss`; where negatives are drawn, labels are hard or mixed, and not smoothed."""
        if self._draws:
            self._draw(target, options.get("label_smoothing", 0.0))
        return super().loss(features, target, **options)

    def logits(self, x: Tensor, labels: Tensor | None) -> Tensor:
        start = processes.rank() * len(x)
        return self.logits_of_all(processes.of_all(x))[start : start + len(x)]

    def logits_of_all(self, x: Tensor) -> Tensor:
        """Logits of features that every process has alike."""
        weight, w_rho, scale = self._parameters_as(x, {})
        cosine = matmul(unit(x)[0], unit(weight)[0].mT)
        mine = scale * plain.density((1 - cosine).clamp_min(0), w_rho)
        return self.of_every_class(mine.mT).mT

    def losses(
        self, x: Tensor, labels: Tensor, label_smoothing: float, log_prior: Tensor | None
    ) -> Tensor:
        everyone, own = processes.of_all(x), self._own(processes.of_all(labels))
        offset = None if log_prior is None else log_prior[self.classes]
        if self._draws:
            own, offset = self.drawing.places(own), self.drawing.offset(offset, x)
        here = self._parts(everyone, own, offset, with_total=label_smoothing > 0)
        negatives, target, total = processes.of_all(torch.stack(here)[None]).unbind(1)
        parts = plain.Parts(negatives.logsumexp(0), target.sum(0), total.sum(0))
        start = processes.rank() * len(x)
        return parts.losses(self.num_classes, label_smoothing)[start : start + len(x)]

    def own_cosine(self, features: Tensor, labels: Tensor) -> Tensor:
        x, own = processes.of_all(features), self._own(processes.of_all(labels))
        found = x.new_zeros(len(x))
        here = own >= 0
        found[here] = (unit(x[here])[0] * unit(self.shard.weight[own[here]].to(x))[0]).sum(1)
        start = processes.rank() * len(features)
        return processes.total(found)[start : start + len(features)]

    def imprint(self, means: Tensor) -> None:
        point(self.shard.weight, off_axis(means)[self.classes])

    @torch.no_grad()
    def whole(self) -> WCDASHead:
        """The head of all classes, on the CPU of every process: to save, export and predict with.

        All processes have to ask for it.
        """
        options = self.options | {"engine": "auto"}
        head = WCDASHead(self.in_features, self.num_classes, **options)
        head = head.to(self.shard.weight.dtype)
        for name, mine in self.shard.named_parameters():
            head.get_parameter(name).copy_(
                mine if name in self.shared else self.of_every_class(mine)
            )
        for name, buffer in self.shard.named_buffers():
            head.get_buffer(name).copy_(buffer)
        return head

    @torch.no_grad()
    def load_whole(self, head: WCDASHead) -> None:
        """Take this process's classes of a head of all of them, however many had trained it."""
        for name, parameter in head.named_parameters():
            own = parameter if name in self.shared else parameter[self.classes]
            self.shard.get_parameter(name).copy_(own)
        for name, buffer in head.named_buffers():
            self.shard.get_buffer(name).copy_(buffer)

    def step_with(self, optimizer: torch.optim.Optimizer) -> None:
        """Let every step of an optimizer change what was drawn, and touch nothing else of the
        classes, neither by momentum nor by weight decay."""
        self.drawing.step_with(optimizer)

    @property
    def _draws(self) -> bool:
        return self.training and self.negatives < 1 and torch.is_grad_enabled()

    def _own(self, labels: Tensor) -> Tensor:
        """Labels among this process's classes, −1 where they are another's."""
        own = labels - self.classes.start
        return torch.where((own >= 0) & (own < self.shard.num_classes), own, -1)

    def _parts(
        self, x: Tensor, own: Tensor, offset: Tensor | None, with_total: bool
    ) -> plain.Parts:
        weight, w_rho, scale = self._parameters_as(x, self.drawing.drawn if self._draws else {})
        if len(weight) == 0:  # of more processes than classes, or where none was drawn
            # Their gradients are exchanged all the same.
            nothing = 0 * (x.sum(1) + weight.sum() + w_rho.sum() + scale)
            return plain.Parts(nothing - torch.inf, nothing, nothing)
        return chunked.of_classes(x, weight, w_rho, scale, own, offset, with_total, self.engine)

    def _draw(self, target: Tensor | MixedLabels, label_smoothing: float) -> None:
        dense = isinstance(target, Tensor) and target.is_floating_point()
        if dense or label_smoothing:
            given = "target holds class probabilities" if dense else "label_smoothing is above 0"
            raise ValueError(f"{given}, which every class is part of; expected negatives=1")
        labels = target if isinstance(target, Tensor) else torch.cat([target.first, target.second])
        own = self._own(processes.of_all(labels))
        parameters = self.shard.named_parameters()
        sharded = {name: p for name, p in parameters if name not in self.shared}
        self.drawing.begin(self.classes.start, own, sharded)

    def _parameters_as(self, x: Tensor, drawn: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Weight, σ⁻¹(ρ) and s, or those that are drawn of them, with gradients of the mean over
        the processes."""
        shard, mean = self.shard, processes.of_the_mean
        weight = mean(drawn.get("weight", shard.weight), shared=False)
        w_rho = mean(drawn.get("w_rho", shard.w_rho), shared="w_rho" in self.shared)
        w_rho = shard.concentration_unit * w_rho.expand(len(weight))
        scale = mean(shard.scale, shared=True)
        return weight.to(x.dtype), w_rho.to(x.dtype), scale.to(x.dtype)


def _drawn_weights(in_features: int, classes: slice, seed: int, options: dict[str, Any]) -> Tensor:
    """The weights of some classes, as a head of all of them draws them, in blocks that are the same
    whoever draws them."""
    weight = torch.empty(classes.stop - classes.start, in_features)
    for start in range(classes.start // BLOCK * BLOCK, classes.stop, BLOCK):
        torch.default_generator.manual_seed(rng.stream(seed, start))
        drawn = WCDASHead(in_features, BLOCK, **options).weight.detach()
        first, last = max(start, classes.start), min(start + BLOCK, classes.stop)
        weight[first - classes.start : last - classes.start] = drawn[first - start : last - start]
    return weight


def _start(in_features: int, num_classes: int, options: dict[str, Any]) -> dict[str, float]:
    """The scale that a head of all classes starts at, where it is not given."""
    with torch.device("meta"):
        whole = WCDASHead(in_features, num_classes, **options)
    auto = whole.scale_is_trainable and options.get("start") != "paper"
    return {"scale_init": whole.auto_scale} if auto and "scale_init" not in options else {}
