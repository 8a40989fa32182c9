"""Light fine-tuning: low-rank adapters beside frozen linear layers, through Hugging Face `peft`.

LoRA, arXiv:2106.09685: y = (W + BA)x, where W is frozen, A and B have a few rows and columns, and B
starts at zero. Fewer parameters forget less of what few images cannot teach again (LIFT,
arXiv:2309.10019). When training has ended BA is added to W, and the network is a plain one.
"""

from typing import Any

import torch
from torch import Tensor, nn

from wcdas.backbones.base import Backbone
from wcdas.backbones.timm_backbone import TimmBackbone
from wcdas.checks import check_whole, need
from wcdas.errors import InputError, explained


def add_adapters(backbone: Backbone, rank: int, image: Tensor) -> None:
    """Put an adapter beside every linear layer that an image (1, C, H, W) passes through."""
    check_whole("lora", rank)
    layers = _linear_layers(backbone, image)
    if not isinstance(backbone, TimmBackbone) or not layers:
        raise InputError(
            f"backbone.lora is {rank}, but the network has no linear layers to adapt; leave it "
            "out, or choose a transformer such as vit_small_patch16_224"
        )
    if not backbone.pretrained:
        raise InputError(
            f"backbone.lora is {rank}, but the network starts from scratch, and all but the "
            "adapters would stay as it is drawn; give it weights with backbone.weights"
        )
    with explained(f"backbone.lora is {rank}: "):
        need("peft", "peft")
    from peft import LoraConfig, inject_adapter_in_model

    # At a scale of 1, lora_alpha / rank, the rank can change without the rate.
    config = LoraConfig(r=rank, lora_alpha=rank, target_modules=layers)
    inject_adapter_in_model(config, backbone.network)
    backbone.lora = rank
    backbone.train()


def _linear_layers(backbone: Backbone, image: Tensor) -> list[str]:
    """Names in the network; layers whose weight is read without calling them have no adapter."""
    network: Any = getattr(backbone, "network", backbone)
    for module in network.modules():
        if hasattr(module, "qkv_bias_separate"):  # BEiT, EVA, Swin V2: the layer, then its bias
            module.qkv_bias_separate = True
    called = []
    hooks = [
        module.register_forward_hook(lambda *_, name=name: called.append(name))
        for name, module in network.named_modules()
        if isinstance(module, nn.Linear)
    ]
    with torch.no_grad():
        backbone.eval()(image)
    for hook in hooks:
        hook.remove()
    return sorted(set(called))


def let_learn(backbone: Backbone, on: bool) -> None:
    """Let a backbone learn or not; where there are adapters, these and the neck alone."""
    backbone.requires_grad_(on)
    for part in backbone.modules():
        if isinstance(part, TimmBackbone) and part.lora:
            for name, parameter in part.network.named_parameters():
                parameter.requires_grad_(on and "lora_" in name)


@torch.no_grad()
def merge_adapters(backbone: Backbone) -> None:
    """Add the adapters to the weights they stand beside; the network is a plain one again."""
    for part in list(backbone.modules()):
        if isinstance(part, TimmBackbone) and part.lora:
            for name, module in list(part.network.named_modules()):
                if hasattr(module, "lora_A"):
                    module.merge()
                    part.network.set_submodule(name, module.get_base_layer())
            del part.network.peft_config
            part.lora = 0
