"""Kinds of image operations, with parameters for every image; neutral ones change nothing.

On a GPU each kind is worked out for all images, so that no shape depends on what was drawn and
nothing waits for the device. A CPU works on the images that change, and on no other.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from wcdas.data import operations

PIXELS = 1 << 20  # worked on at a time by a CPU, whose larger buffers are slow to come by


class Constant:
    """A tensor that is copied once to every device where it is asked for."""

    def __init__(self, value: Tensor) -> None:
        self.value = value
        self.copies = {value.device: value}

    def on(self, device: torch.device) -> Tensor:
        if device not in self.copies:
            self.copies[device] = self.value.to(device)
        return self.copies[device]


class Kind(NamedTuple):
    """A function of the images and of parameters (B, n), and the parameters that change nothing."""

    function: Callable[[Tensor, Tensor], Tensor]
    neutral: Tensor


KINDS = {
    name: Kind(function, torch.tensor(neutral, dtype=torch.float32))
    for name, function, neutral in (
        ("affine", operations.transform, (1, 0, 0, 0, 1, 0)),
        ("blend", operations.blend, (1, 0, 0)),
        ("hue", operations.hue, (0,)),
        ("sharpness", operations.sharpness, (0,)),
        ("posterize", operations.posterize, (255,)),
        ("solarize", operations.solarize, (256,)),
        ("autocontrast", operations.autocontrast, (0,)),
        ("equalize", operations.equalize, (0,)),
    )
}


def apply_changes(images: Tensor, changes: Mapping[str, Tensor]) -> Tensor:
    """Apply kinds of operations in turn, each with its parameters (B, n)."""
    if images.is_cuda:
        for name, parameters in changes.items():
            images = KINDS[name].function(images, parameters)
        return images
    images = images.clone()
    for name, parameters in changes.items():
        function, neutral = KINDS[name]
        at = (parameters != neutral).any(dim=1).nonzero()[:, 0]
        for part in at.split(max(1, PIXELS // images[0].numel())) if len(at) else ():
            images.index_copy_(0, part, function(images.index_select(0, part), parameters[part]))
    return images
