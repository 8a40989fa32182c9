"""Test features laid out in the plane."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

MOST = 2_000
ITERATIONS = 400
FEWEST = 5
SCALE = 1_000


def feature_map(features: Tensor, labels: Tensor, predicted: Tensor) -> dict[str, Any] | None:
    """t-SNE of the directions of at most 2,000 test features: rows (x, y, true, predicted)."""
    if len(labels) < FEWEST or not features.isfinite().all():
        return None
    # Slow to import.
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    chosen = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))[:MOST]
    x = F.normalize(features[chosen].float(), dim=1).numpy()
    perplexity = min(30.0, (len(chosen) - 1) / 3)
    # Its threads wait for each other at every step, which takes long where the cores are shared.
    with threadpool_limits(1):
        places = TSNE(
            init="pca" if x.shape[1] > 1 else "random",
            perplexity=perplexity,
            max_iter=ITERATIONS,
            random_state=0,
        ).fit_transform(x)
    low = places.min(0)
    spread = max(float((places - low).max()), 1e-12)
    at = torch.from_numpy((places - low) / spread * SCALE).round().long()
    rows = torch.cat([at, labels[chosen, None], predicted[chosen, None]], dim=1)
    return {"rows": rows.tolist(), "of": len(labels)}
