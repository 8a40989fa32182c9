"""Logits and features of whole splits."""

from collections.abc import Callable

import torch
from torch import Tensor

from wcdas.data.dataset import Split
from wcdas.data.loader import Batch, EvalLoader
from wcdas.heads import ShardedWCDASHead
from wcdas.methods.classifier import Classifier
from wcdas.processes import gather, share_buffers
from wcdas.run.build import TrainingRun
from wcdas.run.inference import images_at_a_time, in_threads

Between = Callable[[], object]

ROWS = 1024  # whose logits processes compute together, each those of its classes

DIVERGED = (
    "the network's outputs became NaN or infinite on images that it is not trained on; "
    "start a new one with a lower rate, --set lr=…"
)


def predict_split(
    model: Classifier,
    loader: EvalLoader,
    join: Callable[[Tensor], Tensor] = lambda rows: rows,
    between: Between = lambda: None,
) -> tuple[Tensor, Tensor]:
    """Return (features, logits) of every image in file order, float32 on the CPU.

    Of several processes that read parts of a split, `join` gathers the rows, and all of them call
    `between` after the same batches.
    """
    head = model.head
    sharded = isinstance(head, ShardedWCDASHead)
    was_training = model.training
    model.eval()
    device = head.weight.device
    indices = [torch.zeros(0, dtype=torch.int64, device=device)]  # a process may have no image
    features = [torch.zeros(0, head.in_features, device=device)]
    logits = [torch.zeros(0, 0 if sharded else head.num_classes, device=device)]

    @torch.no_grad()
    def look(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        x = model.features(batch.inputs)
        return batch.indices, x.float(), x[:, :0] if sharded else head(x).float()

    for number, rows in enumerate(in_threads(look, loader, device), 1):
        for kept, new in zip((indices, features, logits), rows, strict=True):
            kept.append(new)
        if number <= loader.batches_of_all:
            between()
    order = join(torch.cat(indices)).cpu().argsort()
    x, z = (join(torch.cat(rows)).cpu()[order] for rows in (features, logits))
    if isinstance(head, ShardedWCDASHead):
        with torch.no_grad():
            parts = [head.logits_of_all(part.to(device)).cpu() for part in x.split(ROWS)]
        z = torch.cat([torch.zeros(0, head.num_classes), *parts])
    model.train(was_training)
    return x, z


def predict(
    run: TrainingRun, split: Split, between: Between = lambda: None
) -> tuple[Tensor, Tensor]:
    """Return (features, logits) of a split by a run's model as it is."""
    if len(split) == 0:
        head = run.model.head
        return torch.zeros(0, head.in_features), torch.zeros(0, head.num_classes)
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
    if not logits.isfinite().all():
        raise run.failure(DIVERGED)
    return features, logits


def training_features(run: TrainingRun, indices: Tensor, between: Between) -> tuple[Tensor, Tensor]:
    """Return features and labels of training images as they are, without augmentation."""
    split = run.dataset.train.subset(indices)
    return predict(run, split, between)[0], split.labels
