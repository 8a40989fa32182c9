"""The class prior under which a model's logits were trained."""

from collections.abc import Mapping

from wcdas.data.samplers import SAMPLERS
from wcdas.losses import LOSSES
from wcdas.methods.method import Method
from wcdas.run.spec import Stage


def recorded_prior(method: Method, stages: Mapping[str, Stage]) -> str:
    """Of a run: what its method says, or what follows from its last stage."""
    if method.prior:
        return method.prior
    return "none" if method.training_step else trained_prior(list(stages.values())[-1])


def trained_prior(stage: Stage) -> str:
    """Of a run's last stage: "train", "uniform", or "none" where the loss has no such reading."""
    tau = LOSSES[stage.loss].prior_strength(**stage.loss_options)
    if stage.trains == "nothing" or tau is None:
        return "none"
    tau += stage.prior
    drawn = SAMPLERS[stage.sampler].prior
    if drawn == "train" and tau == 1:
        return "uniform"
    return drawn if tau == 0 else "none"
