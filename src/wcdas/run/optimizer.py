"""SGD with a weight decay of its own for concentrations and scale."""

import torch
from torch import nn

from wcdas.methods.classifier import Classifier
from wcdas.run.spec import Stage

CONCENTRATION = ("w_rho", "w_kappa", "w_scale")


def create_optimizer(model: Classifier, stage: Stage) -> torch.optim.SGD:
    trained: nn.Module = model.head if stage.trains == "classifier" else model
    weights: list[nn.Parameter] = []
    concentrations: list[nn.Parameter] = []
    for name, parameter in trained.named_parameters():
        if parameter.requires_grad:
            special = name.rsplit(".", 1)[-1] in CONCENTRATION
            (concentrations if special else weights).append(parameter)
    own_decay = stage.concentration_weight_decay
    groups = [
        {"params": weights, "weight_decay": stage.weight_decay},
        {
            "params": concentrations,
            "weight_decay": stage.weight_decay if own_decay < 0 else own_decay,
        },
    ]
    optimizer = torch.optim.SGD(
        [group for group in groups if group["params"]],
        lr=stage.lr,
        momentum=stage.momentum,
        nesterov=stage.nesterov,
        fused=all(parameter.is_cuda for parameter in trained.parameters()),
    )
    if stage.momentum:  # a momentum of 0 steps as none does, and the first step is like the others
        for parameter in (*weights, *concentrations):
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer
