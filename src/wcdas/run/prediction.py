"""Features and logits of whole splits."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from wcdas.data.dataset import Split
from wcdas.data.loader import Batch, EvalLoader
from wcdas.evaluation.predictions import Predictions
from wcdas.evaluation.scores import Scores, as_scores, is_kept, logits_of
from wcdas.methods.classifier import Classifier
from wcdas.processes import gather, share_buffers
from wcdas.run.build import TrainingRun
from wcdas.run.inference import images_at_a_time, in_threads

Between = Callable[[], object]

DIVERGED = (
    "the network's outputs became NaN or infinite on images that it is not trained on; "
    "start a new one with a lower rate, --set lr=…"
)


class Seen(NamedTuple):
    """The test images as the model sees them: features, logits, and what these say."""

    features: Tensor
    logits: Scores
    predictions: Predictions


def predict_split(
    model: Classifier,
    loader: EvalLoader,
    join: Callable[[Tensor], Tensor] = lambda rows: rows,
    between: Between = lambda: None,
) -> tuple[Tensor, Scores]:
    """Return (features, logits) of every image in file order, float32 on the CPU.

    Of several processes that read parts of a split, `join` gathers the rows, and all of them call
    `between` after the same batches.
    """
    head = model.head
    keeps = is_kept(head, len(loader.labels))
    was_training = model.training
    model.eval()
    device = next(head.parameters()).device
    indices = [torch.zeros(0, dtype=torch.int64, device=device)]  # a process may have no image
    features = [torch.zeros(0, head.in_features, device=device)]
    logits = [torch.zeros(0, head.num_classes if keeps else 0, device=device)]

    @torch.no_grad()
    def look(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        x = model.features(batch.inputs)
        return batch.indices, x.float(), head(x).float() if keeps else x[:, :0]

    for number, rows in enumerate(in_threads(look, loader, device), 1):
        for kept, new in zip((indices, features, logits), rows, strict=True):
            kept.append(new)
        if number <= loader.batches_of_all:
            between()
    order = join(torch.cat(indices)).cpu().argsort()
    x, z = (join(torch.cat(rows)).cpu()[order] for rows in (features, logits))
    model.train(was_training)
    return x, as_scores(z) if keeps else logits_of(head, x)


def predict(
    run: TrainingRun, split: Split, between: Between = lambda: None
) -> tuple[Tensor, Scores]:
    """Return (features, logits) of a split by a run's model as it is; all processes call `between`
    after the same images, in computing very many logits too."""
    if len(split) == 0:
        head = run.model.head
        return torch.zeros(0, head.in_features), as_scores(torch.zeros(0, head.num_classes))
    share_buffers(run.model)
    size = run.config.evaluated_at
    batch_size = images_at_a_time(size, run.ranks.device)
    loader = EvalLoader(split, batch_size=batch_size, **{**run.loading, "size": size})
    try:
        features, logits = predict_split(run.model, loader, gather, between)
    except ValueError as error:  # on a CPU heads look at the values
        if "NaN" not in str(error):
            raise
        raise run.failure(DIVERGED) from None
    finally:
        loader.close()
    if not logits.inputs.isfinite().all():
        raise run.failure(DIVERGED)
    return features, replace(logits, between=between)


def training_features(run: TrainingRun, indices: Tensor, between: Between) -> tuple[Tensor, Tensor]:
    """Return features and labels of training images as they are, without augmentation."""
    split = run.dataset.train.subset(indices)
    return predict(run, split, between)[0], split.labels
