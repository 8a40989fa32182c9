"""The backbone of small images as a CUDA graph: launching its kernels costs more than running them.

The graph is that of a whole batch in training mode, forward and backward. It returns the same
tensor every time, so it serves the first call of a step; further calls take the plain way.
"""

from typing import cast

import torch
from torch import Tensor, nn

from wcdas.backbones.base import Backbone

LARGEST = 64  # pixels; above, kernels are long enough to hide their launches


class BackboneGraph:
    """A step's way through the backbone, captured when it is first taken."""

    def __init__(self, backbone: Backbone, wanted: bool) -> None:
        self.backbone, self.wanted = backbone, wanted
        self.module: nn.Module | None = None

    def serves(self, inputs: Tensor) -> bool:
        """Whether the graph takes these inputs."""
        small = inputs.dim() == 4 and inputs.shape[-1] <= LARGEST
        return self.wanted and small and inputs.is_cuda and self.backbone.training

    def __call__(self, inputs: Tensor) -> Tensor:
        if self.module is None:
            self.module = captured(self.backbone, inputs)
        return cast(Tensor, self.module(inputs))


class _Alone(nn.Module):
    """The backbone under another module, whose `forward` PyTorch may replace."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, inputs: Tensor) -> Tensor:
        return cast(Tensor, self.backbone(inputs))


def captured(backbone: Backbone, inputs: Tensor) -> nn.Module:
    """The backbone on batches shaped as `inputs`, in the precision of the autocast around it."""
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    device, precision = inputs.device.type, torch.get_autocast_dtype(inputs.device.type)
    enabled = torch.is_autocast_enabled(device)
    with torch.autocast(device, precision, enabled, cache_enabled=False):
        module = torch.cuda.make_graphed_callables(
            _Alone(backbone), (inputs.clone(),), allow_unused_input=True
        )
    # Capturing runs the backbone a few times, which moves the statistics of its batch norm.
    backbone.load_state_dict(before)
    return cast(nn.Module, module)
