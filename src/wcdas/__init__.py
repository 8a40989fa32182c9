"""Image classification on long-tailed data."""

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

__version__ = "0.1.0"

__all__ = [
    "AMSoftmaxHead",
    "ArcFaceHead",
    "BalancedSoftmaxLoss",
    "CenterLoss",
    "ClassBalancedLoss",
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
    "SphereFaceHead",
    "TauNormHead",
    "TvMFHead",
    "WCDASHead",
    "WNDASHead",
    "circular",
    "create_head",
    "create_loss",
    "list_heads",
    "list_losses",
]
