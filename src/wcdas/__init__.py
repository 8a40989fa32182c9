"""Image classification on long-tailed data."""

from typing import TYPE_CHECKING, Any

from wcdas import circular
from wcdas.heads import (
    AMSoftmaxHead,
    ArcFaceHead,
    CosineHead,
    Head,
    LinearHead,
    LSoftmaxHead,
    LWSHead,
    SphereFaceHead,
    TauNormHead,
    TvMFHead,
    WCDASHead,
    WNDASHead,
    create_head,
    list_heads,
)
from wcdas.losses import (
    BalancedSoftmaxLoss,
    CenterLoss,
    ClassBalancedLoss,
    CrossEntropyLoss,
    EqualizationLoss,
    FocalLoss,
    LDAMLoss,
    LogitAdjustmentLoss,
    create_loss,
    list_losses,
)
from wcdas.targets import MixedLabels

if TYPE_CHECKING:
    from wcdas.api import Run, train
    from wcdas.backbones import create_backbone, list_backbones
    from wcdas.data import list_datasets, open_dataset
    from wcdas.deploy import Correction, Model, embed, evaluate_run, load
    from wcdas.methods import list_methods

__version__ = "0.1.0"

# Imported when first asked for, so that `from wcdas import WCDASHead` stays quick.
_LATER = {
    "Run": "api",
    "train": "api",
    "create_backbone": "backbones",
    "list_backbones": "backbones",
    "list_datasets": "data",
    "open_dataset": "data",
    "Correction": "deploy",
    "Model": "deploy",
    "embed": "deploy",
    "evaluate_run": "deploy",
    "load": "deploy",
    "list_methods": "methods",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'wcdas' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"wcdas.{_LATER[name]}"), name)


__all__ = [
    "AMSoftmaxHead",
    "ArcFaceHead",
    "BalancedSoftmaxLoss",
    "CenterLoss",
    "ClassBalancedLoss",
    "Correction",
    "CosineHead",
    "CrossEntropyLoss",
    "EqualizationLoss",
    "FocalLoss",
    "Head",
    "LDAMLoss",
    "LSoftmaxHead",
    "LWSHead",
    "LinearHead",
    "LogitAdjustmentLoss",
    "MixedLabels",
    "Model",
    "Run",
    "SphereFaceHead",
    "TauNormHead",
    "TvMFHead",
    "WCDASHead",
    "WNDASHead",
    "circular",
    "create_backbone",
    "create_head",
    "create_loss",
    "embed",
    "evaluate_run",
    "list_backbones",
    "list_datasets",
    "list_heads",
    "list_losses",
    "list_methods",
    "load",
    "open_dataset",
    "train",
]
