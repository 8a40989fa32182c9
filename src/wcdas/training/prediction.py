"""Logits and features of a whole split."""

import torch
from torch import Tensor

from wcdas.data.loader import EvalLoader
from wcdas.training.distributed import Ranks, gather
from wcdas.training.model import Classifier


@torch.no_grad()
def predict_split(model: Classifier, loader: EvalLoader, ranks: Ranks) -> tuple[Tensor, Tensor]:
    """(features, logits) of every image in file order, float32 on the CPU."""
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
    order = gather(torch.cat(indices), ranks.world).cpu().argsort()
    parts = (gather(torch.cat(p), ranks.world).cpu()[order] for p in (features, logits))
    first, second = parts
    return first, second
