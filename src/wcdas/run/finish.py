"""What a run writes down: what it is when it starts, what came out when it ends."""

import platform
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

import wcdas
from wcdas.data.dataset import Dataset
from wcdas.data.samplers import SAMPLERS
from wcdas.evaluation import evaluate, fit_temperature
from wcdas.heads import Head
from wcdas.losses import LOSSES
from wcdas.methods import find_method
from wcdas.methods.method import Method, plain_model
from wcdas.run.build import TrainingRun
from wcdas.run.model_file import ModelInfo, save_model
from wcdas.run.prediction import predict
from wcdas.run.spec import Config, Stage, as_table

# Held-out images are of the larger classes; they cannot vouch for more confidence in the others.
LOWEST_TEMPERATURE = 1.0


class Outputs(NamedTuple):
    """What a trained head makes of the test images; the logits are over the temperature."""

    head: Head
    features: Tensor
    logits: Tensor


def run_table(
    config: Config, dataset: Dataset, given: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what run.toml holds; `given` is what was set for the run, later over earlier."""
    versions = {"wcdas": wcdas.__version__, "torch": torch.__version__}
    info = {
        "fingerprint": dataset.fingerprint,
        "prior": recorded_prior(find_method(config.method), config.stages),
        "class_counts": dataset.class_counts.tolist(),
        "data": dataset.description,
        "given": [dict(layer) for layer in given],
        "versions": versions | {"python": platform.python_version()},
    }
    return as_table(config) | {"info": info}


def finish(run: TrainingRun) -> Outputs | None:
    """Fit the temperature, measure the last epoch, write the model; only the main process gets
    the outputs."""
    config, dataset = run.config, run.dataset
    held_out = dataset.train.subset(run.held_out)
    _, held_out_logits = predict(run, held_out)
    temperature = 1.0
    if len(held_out):
        temperature = fit_temperature(held_out_logits, held_out.labels, LOWEST_TEMPERATURE)
    features, logits = predict(run, dataset.test)
    logits = logits / temperature
    if not run.ranks.is_main:
        return None
    counts, names = dataset.class_counts, dataset.class_names
    metrics = evaluate(logits, dataset.test.labels, counts, names)
    head, built = config.head_after(None)
    info = ModelInfo(
        backbone=config.backbone.name,
        head=head,
        head_options=run.model.head.built_options() if built else config.head_options,
        class_names=names,
        class_counts=counts.tolist(),
        channels=dataset.channels,
        input_size=config.input_size,
        mean=run.loading["mean"],
        std=run.loading["std"],
        temperature=temperature,
        prior=recorded_prior(run.method, config.stages),
        method=config.method,
        dataset=dataset.name,
        options=dict(config.options),
        built_by_method=run.method.build_model is not plain_model,
        neck=config.neck.name,
        neck_features=config.neck.features,
    )
    save_model(run.folder.model, run.model, info)
    facts = {
        "method": config.method,
        "dataset": dataset.name,
        "temperature": temperature,
        "held_out": len(held_out),  # images that it was fitted on
    }
    run.folder.write_metrics(facts | metrics)
    return Outputs(run.model.head, features, logits)


def recorded_prior(method: Method, stages: Mapping[str, Stage]) -> str:
    """Return the prior of a run's logits: what its method says, or its last stage implies."""
    if method.prior:
        return method.prior
    return "none" if method.training_step else trained_prior(list(stages.values())[-1])


def trained_prior(stage: Stage) -> str:
    """Return "train", "uniform", or "none" where the loss of a last stage has no such reading."""
    tau = LOSSES[stage.loss].prior_strength(**stage.loss_options)
    if stage.trains == "nothing" or tau is None:
        return "none"
    tau += stage.prior
    drawn = SAMPLERS[stage.sampler].prior
    if drawn == "train" and tau == 1:
        return "uniform"
    return drawn if tau == 0 else "none"
