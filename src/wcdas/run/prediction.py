"""Logits and features of a whole split."""

from collections.abc import Callable

import torch
from torch import Tensor

from wcdas.data.loader import EvalLoader
from wcdas.methods.classifier import Classifier


@torch.no_grad()
def predict_split(
    model: Classifier, loader: EvalLoader, join: Callable[[Tensor], Tensor] = lambda rows: rows
) -> tuple[Tensor, Tensor]:
    """(features, logits) of every image in file order, float32 on the CPU.

    Of several processes that read parts of a split, `join` gathers the rows.
    """
    was_training = model.training
    model.eval()
    device = model.head.weight.device
    indices = [torch.zeros(0, dtype=torch.int64, device=device)]  # a process may have no image
    features = [torch.zeros(0, model.head.in_features, device=device)]
    logits = [torch.zeros(0, model.head.num_classes, device=device)]
    for batch in loader:
        x = model.features(batch.inputs)
        indices.append(batch.indices)
        features.append(x.float())
        logits.append(model.head(x).float())
    model.train(was_training)
    order = join(torch.cat(indices)).cpu().argsort()
    parts = (join(torch.cat(p)).cpu()[order] for p in (features, logits))
    first, second = parts
    return first, second
