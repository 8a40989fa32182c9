"""A trained model as one module without anything of training, for exporters to trace."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from wcdas.deploy.model import Model
from wcdas.heads import WNDASHead
from wcdas.heads.angular import AngularHead


class ExportableModel(nn.Module):
    """Preprocessed images → logits over the temperature, and probabilities, for a class mix."""

    temperature: Tensor
    shift: Tensor

    def __init__(self, model: Model, prior: str | None = None) -> None:
        super().__init__()
        self.classifier = with_fixed_concentrations(deepcopy(model.classifier)).eval()
        self.requires_grad_(False)
        self.register_buffer("temperature", torch.tensor(model.info.temperature))
        zeros = torch.zeros(1, len(model.class_names))
        self.register_buffer("shift", model.calibrated(zeros, prior))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.classifier(images) / self.temperature + self.shift
        return logits, logits.softmax(1)


class FixedWNDASHead(AngularHead):
    """A trained WNDAS head whose κ are numbers: the Bessel functions that give them are not among
    the operators of ONNX."""

    kappa: Tensor
    log_normaliser: Tensor

    def __init__(self, head: WNDASHead) -> None:
        super().__init__(head.in_features, head.num_classes, scale=float(head.scale))
        self.weight = head.weight
        kappa = head.kappa.detach()
        self.register_buffer("kappa", kappa.float())
        self.register_buffer("log_normaliser", head.log_normaliser(kappa).float())

    def similarity(self, cosine: Tensor, labels: Tensor | None) -> Tensor:
        return (-self.kappa * (1 - cosine).clamp_min(0) - self.log_normaliser).exp()


def with_fixed_concentrations(module: nn.Module) -> nn.Module:
    for name, child in module.named_children():
        if isinstance(child, WNDASHead):
            setattr(module, name, FixedWNDASHead(child))
        else:
            with_fixed_concentrations(child)
    return module
