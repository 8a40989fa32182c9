"""The WCDAS logits and loss by autograd, so that derivatives of every order exist.

Notation of the paper: ρ = σ(w_ρ) and q = 1 − ρ = σ(−w_ρ), u = 1 − cos θ ≥ 0. The wrapped Cauchy
density is written as a ratio of sums of non-negative terms, which floating point cannot cancel:

    f(ρ, θ) = (1 − ρ²) / (2π(1 + ρ² − 2ρ cos θ)) = q(1 + ρ) / (2π(q² + 2ρu)).
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from wcdas.heads.functional.arithmetic import matmul, unit


def density(u: Tensor, w_rho: Tensor) -> Tensor:
    """f(ρ, θ)."""
    rho, q = w_rho.sigmoid(), (-w_rho).sigmoid()
    return q * (1 + rho) / (2 * math.pi) / (q.square() + 2 * rho * u)


def target_u(x: Tensor, x_norm: Tensor, w_y: Tensor, w_y_norm: Tensor) -> Tensor:
    """1 − cos θ_y = ½‖x̂ − ŵ_y‖², exact for small angles; 1 where one of the vectors is zero."""
    degenerate = (x_norm == 0) | (w_y_norm == 0)
    return (0.5 * (x - w_y).square().sum(-1)).masked_fill(degenerate, 1)


class Parts(NamedTuple):
    """The parts of the loss of every sample, each (batch,)."""

    negatives: Tensor  # lse_{j≠y} z_j
    target: Tensor  # z_y
    total: Tensor  # Σ_j z_j, for label smoothing

    def losses(self, num_classes: int, label_smoothing: float) -> Tensor:
        """softplus(lse_{j≠y} z_j − z_y), and with label smoothing ε

        (1 − ε)·softplus(lse_{j≠y} z_j − z_y) + ε·(log Σ_j exp z_j − mean_j z_j).
        """
        losses = -logsigmoid(self.target - self.negatives)
        if label_smoothing:
            lse = torch.logaddexp(self.negatives, self.target)
            smooth = lse - self.total / num_classes
            losses = (1 - label_smoothing) * losses + label_smoothing * smooth
        return losses


def wcdas_losses(
    features: Tensor,
    weight: Tensor,
    w_rho: Tensor,
    scale: Tensor,
    labels: Tensor,
    label_smoothing: float = 0.0,
    log_prior: Tensor | None = None,
) -> Tensor:
    """The loss of every sample, the target column apart."""
    x, x_norm = unit(features)
    w, w_norm = unit(weight)
    column = labels.unsqueeze(1)
    u = (1 - matmul(x, w.mT)).clamp_min(0)
    z = scale * density(u, w_rho)
    u_y = target_u(x, x_norm, w[labels], w_norm[labels])
    z_y = scale * density(u_y, w_rho[labels])
    if log_prior is not None:
        z, z_y = z + log_prior, z_y + log_prior[labels]
    z = z.scatter(1, column, z_y.unsqueeze(1))
    if z.shape[1] == 1:
        return z_y * 0
    negatives = z.scatter(1, column, -torch.inf).logsumexp(1)
    return Parts(negatives, z_y, z.sum(1)).losses(z.shape[1], label_smoothing)
