"""The class prior under which a model's logits were trained."""

from collections.abc import Mapping

from wcdas.methods.method import Method
from wcdas.run.spec import Stage


def recorded_prior(method: Method, stages: Mapping[str, Stage]) -> str:
    """Of a run: what its method says, or what follows from its last stage."""
    if method.prior:
        return method.prior
    return "none" if method.training_step else trained_prior(list(stages.values())[-1])


def trained_prior(stage: Stage) -> str:
    """Of a run's last stage: "train", "uniform", or "none" where the loss has no such reading."""
    if stage.trains == "nothing":
        return "none"
    if stage.sampler in ("class-balanced", "class-aware"):
        return "uniform" if stage.loss == "cross-entropy" and not stage.prior else "none"
    if stage.sampler != "instance-balanced":
        return "none"
    tau = stage.loss_options.get("tau", 1.0) if stage.loss == "logit-adjustment" else stage.prior
    if stage.loss == "balanced-softmax":
        tau = 1.0
    elif stage.loss not in ("cross-entropy", "logit-adjustment"):
        return "none"
    return {0.0: "train", 1.0: "uniform"}.get(tau, "none")
