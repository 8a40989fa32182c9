"""Image classification on long-tailed data."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wcdas import circular
    from wcdas.api import Run, check_data, sweep, train
    from wcdas.backbones import create_backbone, create_neck, list_backbones, list_necks
    from wcdas.data import list_datasets, open_dataset
    from wcdas.deploy import (
        Answer,
        Correction,
        Guess,
        Model,
        embed,
        evaluate_run,
        export,
        load,
        predict_files,
        serve,
    )
    from wcdas.errors import InputError, WorkError
    from wcdas.heads import (
        AMSoftmaxHead,
        ArcFaceHead,
        CosineHead,
        GaussianAffinityHead,
        Head,
        LinearHead,
        LSoftmaxHead,
        LWSHead,
        ShardedWCDASHead,
        SphereFaceHead,
        TauNormHead,
        TvMFHead,
        WCDASHead,
        WNDASHead,
        create_head,
        list_heads,
    )
    from wcdas.losses import (
        AffinityLoss,
        BalancedSoftmaxLoss,
        CenterLoss,
        ClassBalancedLoss,
        CrossEntropyLoss,
        EqualizationLoss,
        EquilibriumLoss,
        FocalLoss,
        LDAMLoss,
        LogitAdjustmentLoss,
        create_loss,
        list_losses,
    )
    from wcdas.methods import METHODS, Method, list_methods
    from wcdas.report import write_report
    from wcdas.sweeps import Sweep
    from wcdas.targets import MixedLabels
    from wcdas.training.callbacks import Callback

__version__ = "0.1.0"

# Where a name comes from when it is first asked for: `import wcdas` and `wcdas --help` stay quick.
_PLACES = {
    "api": ("Run", "check_data", "sweep", "train"),
    "backbones": ("create_backbone", "create_neck", "list_backbones", "list_necks"),
    "data": ("list_datasets", "open_dataset"),
    "errors": ("InputError", "WorkError"),
    "deploy": (
        "Answer",
        "Correction",
        "Guess",
        "Model",
        "embed",
        "evaluate_run",
        "export",
        "load",
        "predict_files",
        "serve",
    ),
    "heads": (
        "AMSoftmaxHead",
        "ArcFaceHead",
        "CosineHead",
        "GaussianAffinityHead",
        "Head",
        "LSoftmaxHead",
        "LWSHead",
        "LinearHead",
        "ShardedWCDASHead",
        "SphereFaceHead",
        "TauNormHead",
        "TvMFHead",
        "WCDASHead",
        "WNDASHead",
        "create_head",
        "list_heads",
    ),
    "losses": (
        "AffinityLoss",
        "BalancedSoftmaxLoss",
        "CenterLoss",
        "ClassBalancedLoss",
        "CrossEntropyLoss",
        "EqualizationLoss",
        "EquilibriumLoss",
        "FocalLoss",
        "LDAMLoss",
        "LogitAdjustmentLoss",
        "create_loss",
        "list_losses",
    ),
    "methods": ("METHODS", "Method", "list_methods"),
    "report": ("write_report",),
    "sweeps": ("Sweep",),
    "targets": ("MixedLabels",),
    "training.callbacks": ("Callback",),
}
_MODULES = ("circular", "heads", "losses")


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"wcdas.{name}")
    for module, names in _PLACES.items():
        if name in names:
            value = getattr(import_module(f"wcdas.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'wcdas' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "METHODS",
    "AMSoftmaxHead",
    "AffinityLoss",
    "Answer",
    "ArcFaceHead",
    "BalancedSoftmaxLoss",
    "Callback",
    "CenterLoss",
    "ClassBalancedLoss",
    "Correction",
    "CosineHead",
    "CrossEntropyLoss",
    "EqualizationLoss",
    "EquilibriumLoss",
    "FocalLoss",
    "GaussianAffinityHead",
    "Guess",
    "Head",
    "InputError",
    "LDAMLoss",
    "LSoftmaxHead",
    "LWSHead",
    "LinearHead",
    "LogitAdjustmentLoss",
    "Method",
    "MixedLabels",
    "Model",
    "Run",
    "ShardedWCDASHead",
    "SphereFaceHead",
    "Sweep",
    "TauNormHead",
    "TvMFHead",
    "WCDASHead",
    "WNDASHead",
    "WorkError",
    "check_data",
    "circular",
    "create_backbone",
    "create_head",
    "create_loss",
    "create_neck",
    "embed",
    "evaluate_run",
    "export",
    "list_backbones",
    "list_datasets",
    "list_heads",
    "list_losses",
    "list_methods",
    "list_necks",
    "load",
    "open_dataset",
    "predict_files",
    "serve",
    "sweep",
    "train",
    "write_report",
]
