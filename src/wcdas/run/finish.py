"""The end of a run: temperature, metrics of the last epoch, the model's file."""

from typing import NamedTuple

from torch import Tensor

from wcdas.backbones import merge_adapters
from wcdas.evaluation import fit_temperature
from wcdas.evaluation.calibration import FEWEST
from wcdas.evaluation.metrics import metrics_of
from wcdas.evaluation.predictions import Predictions, predictions
from wcdas.heads import Head, ShardedWCDASHead
from wcdas.methods.method import plain_model
from wcdas.processes import device_name
from wcdas.run.build import TrainingRun
from wcdas.run.frozen import FrozenDataset
from wcdas.run.model_file import ModelInfo, save_model
from wcdas.run.prediction import Seen, predict

# Held-out images are of the larger classes; they cannot vouch for more confidence in the others.
LOWEST_TEMPERATURE = 1.0


class Outputs(NamedTuple):
    """A trained head, and features and calibrated predictions of its test images."""

    head: Head
    features: Tensor
    predictions: Predictions


def finish(run: TrainingRun, seen: Seen | None) -> Outputs | None:
    """Fit the temperature, measure the last epoch, write the model; only the main process gets
    the outputs.

    `seen` is what the model as it is saw of the test images, where it looked at them.
    """
    config, dataset, labels = run.config, run.dataset, run.dataset.test.labels
    if config.backbone.lora:  # which rounds
        merge_adapters(run.model.backbone)
        seen = None
    held_out = dataset.train.subset(run.held_out)
    _, held_out_logits = predict(run, held_out)
    temperature = 1.0
    if len(held_out) >= FEWEST:
        temperature = fit_temperature(held_out_logits, held_out.labels, LOWEST_TEMPERATURE)
    features, logits = seen[:2] if seen else predict(run, run.test_images)
    if seen and temperature == 1:
        found = seen.predictions
    else:
        found = predictions(logits / temperature, labels)
    if isinstance(run.model.head, ShardedWCDASHead):
        run.model.head = run.model.head.whole()
    if not run.ranks.is_main:
        return None
    counts, names = dataset.class_counts, dataset.class_names
    metrics = metrics_of(found, labels, counts, names)
    head, built = config.head_after(None)
    options = config.head_options
    options.pop("engine", None)  # a model predicts alike, whatever computed its loss
    plain = run.method.build_model is plain_model
    model, images = run.model, dataset
    mean, std = run.loading["mean"], run.loading["std"]
    if isinstance(dataset, FrozenDataset):
        model, images = dataset.whole(model, plain), dataset.images
        mean, std = dataset.mean, dataset.std
    info = ModelInfo(
        backbone=config.backbone.name,
        head=head,
        head_options=run.model.head.built_options() if built else options,
        class_names=names,
        class_counts=counts.tolist(),
        channels=images.channels,
        input_size=config.evaluated_at,
        centre=config.evaluation_crop,
        mean=mean,
        std=std,
        temperature=temperature,
        prior=config.prior,
        method=config.method,
        dataset=dataset.name,
        options=dict(config.options),
        built_by_method=not plain,
        neck=config.neck.name,
        neck_features=config.neck.features,
        frozen=config.frozen and not plain,
    )
    save_model(run.folder.model, model, info)
    facts = {
        "method": config.method,
        "dataset": dataset.name,
        "device": device_name(run.ranks.device),
        "temperature": temperature,
        "held_out": len(held_out),  # images that it was fitted on, if they were enough
    }
    run.folder.write_predictions(labels, found.predicted)
    run.folder.write_metrics(facts | metrics)
    return Outputs(run.model.head, features, found)
