"""Meta-Weight-Net: a small network learns how much a sample counts from its loss.

Every step tries the weights out: one SGD step of the whole network on the weighted batch, and the
loss of the stepped network on a class-balanced batch of held-out images tells which way the weights
should go. The weighting network takes a step of SGD on that, and the real step follows with its new
weights.

Shu et al., "Meta-Weight-Net: Learning an Explicit Mapping For Sample Weighting", 2019
(arXiv:1902.07379), equations 3 to 6, after the authors' code for class imbalance,
`meta-weight-net-class-imbalance.py` of xjtushujun/Meta-weight-net_class-imbalance: weights divided
by their sum over the batch, SGD on the weighting network with rate 0.00001, momentum 0.9 after
Nesterov and weight decay 0.0005, ten meta images of every class. (Their code for noisy labels,
`MW-Net.py` of xjtushujun/meta-weight-net, has Adam with rate 0.001 and weight decay 0.0001.)

Their meta images are clean ones beside the long tail, which has none to spare: here they are taken
out of the training images, ten of every class, but at most a fifth of it. A class with fewer than
20 images keeps them all, and these are its meta images too. The loss is cross-entropy on the head's
logits, whatever the stage names, since it is differentiated twice.
"""

from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from wcdas import processes
from wcdas.errors import InputError
from wcdas.groups import FEW
from wcdas.heads import Head
from wcdas.methods.classifier import Classifier
from wcdas.methods.method import Method, Parts, StepBatch, StepState, one_stage
from wcdas.targets import MixedLabels, loss_of

MOMENTUM = 0.9


class WeightNet(nn.Module):
    """Loss → weight, an MLP 1 → 100 → 1 with a sigmoid, and the momentum of SGD on it.

    Its parameters ask for no gradient, so that the optimizer of the classifier leaves them alone.
    """

    velocity: Tensor

    def __init__(self, hidden: int, lr: float, weight_decay: float) -> None:
        super().__init__()
        self.lr, self.weight_decay = lr, weight_decay
        self.mlp = nn.Sequential(
            nn.Linear(1, hidden), nn.ReLU(), nn.Linear(hidden, 1), nn.Sigmoid()
        ).requires_grad_(False)
        size = sum(parameter.numel() for parameter in self.mlp.parameters())
        self.register_buffer("velocity", torch.zeros(size))

    def forward(self, losses: Tensor) -> Tensor:
        """The weights of a batch, which sum to the number of processes: each makes its step of its
        own samples, and the mean of the steps counts."""
        v = self.mlp(losses.detach().unsqueeze(1)).squeeze(1)
        return v / processes.mean(v.sum()).clamp_min(torch.finfo(v.dtype).tiny)

    def gradient(self, losses: Tensor, change: Tensor) -> list[Tensor]:
        """The gradient of Σ_i v_i c_i / Σ_i v_i by the MLP's parameters, c the `change`."""
        theta = {name: p.detach().requires_grad_() for name, p in self.mlp.named_parameters()}
        v = functional_call(self.mlp, theta, (losses.detach().unsqueeze(1),)).squeeze(1)
        fixed = v.detach()
        sums = processes.mean(torch.stack([fixed.sum(), (fixed * change).sum()]))
        total = sums[0].clamp_min(torch.finfo(v.dtype).tiny)
        value = ((change - sums[1] / total) * v).sum() / total
        slopes = torch.autograd.grad(value, list(theta.values()))
        return [processes.mean(slope) for slope in slopes]

    @torch.no_grad()
    def step(self, slopes: list[Tensor]) -> None:
        """One step of SGD with Nesterov's momentum."""
        parameters = list(self.mlp.parameters())
        theta = torch.cat([p.flatten() for p in parameters])
        slope = torch.cat([g.flatten() for g in slopes]) + self.weight_decay * theta
        self.velocity.mul_(MOMENTUM).add_(slope)
        theta -= self.lr * (slope + MOMENTUM * self.velocity)
        parts = theta.split([p.numel() for p in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.copy_(part.view_as(parameter))


def build_model(parts: Parts) -> Classifier:
    options, length = parts.options, parts.backbone.num_features
    if options["hidden"] < 1 or options["net_lr"] <= 0 or options["net_weight_decay"] < 0:
        raise InputError(
            f"the options of the weighting network are {dict(options)}; expected hidden of at "
            "least 1, net_lr above 0 and net_weight_decay of at least 0"
        )
    net = WeightNet(options["hidden"], options["net_lr"], options["net_weight_decay"])
    return Classifier(parts.backbone, parts.new_head(length), net)


def training_step(model: Classifier, batch: StepBatch, state: StepState) -> Tensor:
    if batch.second is None:
        raise InputError(
            "the stage has no second_sampler, but the weights are learned on a second batch; "
            "set it to 'class-balanced'"
        )
    net = cast(WeightNet, model.auxiliary)
    with sdpa_kernel(SDPBackend.MATH):  # the others have first derivatives only
        losses = sample_losses(model.head, state.features(batch.inputs), batch.target)
    net.step(meta_gradient(model, net, losses, batch.second, state.features, state.lr))
    return (net(losses) * losses).sum()


def sample_losses(head: Head, features: Tensor, target: Tensor | MixedLabels) -> Tensor:
    """The cross-entropy of every sample."""
    return loss_of(target, lambda y: F.cross_entropy(head(features, y), y, reduction="none"))


def meta_gradient(
    model: Classifier,
    net: WeightNet,
    losses: Tensor,
    meta: tuple[Tensor, Tensor],
    features: Callable[[Tensor], Tensor],
    lr: Tensor,
) -> list[Tensor]:
    """d L_meta(ŵ(Θ)) / dΘ, ŵ(Θ) = w − lr · d/dw Σ_i V(L_i; Θ) L_i.

    w are the parameters of `model`, left as they are, and Θ those of `net`, V. `losses` are the
    L_i, with the graph to w; `meta` are inputs and labels of the meta batch.
    """
    module = _MetaLoss(model, features)
    w = {name: p for name, p in module.named_parameters() if p.requires_grad}
    weights = net(losses).requires_grad_()
    inner = (weights * losses).sum()
    slopes = torch.autograd.grad(inner, list(w.values()), create_graph=True)
    stepped: dict[str, Tensor] = {
        name: (value.detach() - lr * processes.mean(slope.detach())).requires_grad_()
        for (name, value), slope in zip(w.items(), slopes, strict=True)
    }
    # The pass with stepped parameters must not leave its statistics in the batch norm.
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    outer = functional_call(module, (stepped, buffers), meta)
    to_stepped = torch.autograd.grad(outer, list(stepped.values()))
    # By a sample's weight: (dL/dŵ) · (dŵ/dweight), and ŵ = w − lr · slopes.
    steps = [-lr * processes.mean(slope) for slope in to_stepped]
    (change,) = torch.autograd.grad(slopes, [weights], steps)
    return net.gradient(losses, change)


class _MetaLoss(nn.Module):
    """The loss on the meta batch as a module's forward, for `functional_call`."""

    def __init__(self, model: Classifier, features: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.backbone, self.head = model.backbone, model.head
        self.features = features

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        return sample_losses(self.head, self.features(inputs), labels).mean()


META_WEIGHT_NET = Method(
    summary="a network learns the weight of a sample from its loss, by trying steps out",
    paper="Shu et al., 2019 (arXiv:1902.07379)",
    defaults=one_stage({"name": "linear"}, {"second_sampler": "class-balanced"})
    | {"selection": {"holdout": 0.2, "smallest": FEW, "most": 10}},
    options={"hidden": 100, "net_lr": 0.00001, "net_weight_decay": 0.0005},
    meta_images=True,
    prior="none",
    own_loss=("representation",),
    build_model=build_model,
    training_step=training_step,
)
