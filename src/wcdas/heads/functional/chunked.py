"""The WCDAS loss with its gradient in closed form, chunk by chunk of the classes.

Autograd would keep eight matrices of batch × classes; this keeps one, or none where even that is
large: then the backward pass computes it again. First derivatives only.

With e = ∂L/∂z, D = q² + 2ρu and d = e·z/D for every sample and class, all else follows from d:

    ∂L/∂cos θ = 2ρd,   ∂L/∂w_ρ = 2ρ/(1 + ρ) Σ d(q² − u(1 + ρ²)),   ∂L/∂s = Σ d·D/s.

The negatives go through matrix products; the target column is apart, in exact form.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from wcdas.heads.functional.arithmetic import matmul, unit
from wcdas.heads.functional.plain import Parts, target_u

CHUNK = 2**22  # elements of batch × classes worked on at once
KEPT = 2**26  # elements of batch × classes kept for the backward pass, at most


def wcdas_losses(
    features: Tensor,
    weight: Tensor,
    w_rho: Tensor,
    scale: Tensor,
    labels: Tensor,
    label_smoothing: float = 0.0,
    log_prior: Tensor | None = None,
) -> Tensor:
    """The same as `wcdas.heads.functional.plain.wcdas_losses`, with first derivatives only."""
    parts = of_classes(features, weight, w_rho, scale, labels, log_prior)
    return parts.losses(len(weight), label_smoothing)


def of_classes(
    features: Tensor,
    weight: Tensor,
    w_rho: Tensor,
    scale: Tensor,
    labels: Tensor,
    log_prior: Tensor | None,
) -> Parts:
    """The parts of some classes; a label of −1 is a class that is not among them, its target 0."""
    parts = _Parts.apply(features, weight, w_rho, scale, labels, log_prior)
    return Parts(*parts[:3])


class _Density:
    """The terms of s·f(ρ, θ) and its derivatives, for some classes."""

    def __init__(self, w_rho: Tensor, scale: Tensor) -> None:
        self.rho, self.q, self.scale = w_rho.sigmoid(), (-w_rho).sigmoid(), scale
        self.numerator = scale * self.q * (1 + self.rho) / (2 * math.pi)

    def denominator(self, u: Tensor) -> Tensor:
        return self.q.square() + 2 * self.rho * u

    def gradients(self, d: Tensor, du: Tensor) -> tuple[Tensor, Tensor]:
        """∂L/∂w_ρ and each class's part of ∂L/∂s from d and d·u, summed over the batch."""
        rho, q_squared = self.rho, self.q.square()
        grad_w_rho = 2 * rho / (1 + rho) * (q_squared * d - (1 + rho.square()) * du)
        return grad_w_rho, (q_squared * d + 2 * rho * du) / self.scale


class _Parts(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        features: Tensor,
        weight: Tensor,
        w_rho: Tensor,
        scale: Tensor,
        labels: Tensor,
        log_prior: Tensor | None,
    ) -> tuple[Tensor, ...]:
        x, x_norm = unit(features)
        w_norm = torch.linalg.vector_norm(weight, dim=1)
        w_y = weight[labels] * _inverse(w_norm[labels]).unsqueeze(1)
        u_y = target_u(x, x_norm, w_y, w_norm[labels])
        of_target = _Density(w_rho[labels], scale)
        z_y = of_target.numerator / of_target.denominator(u_y)
        if log_prior is not None:
            z_y = z_y + log_prior[labels]
        z_y = torch.where(labels < 0, 0, z_y)

        batch, num_classes = len(labels), len(weight)
        lse, total, kept = torch.full_like(z_y, -torch.inf), z_y, []
        for classes in _chunks(batch, num_classes):
            u = _one_minus_cosine(x, weight[classes], w_norm[classes])
            density = _Density(w_rho[classes], scale)
            z = density.numerator / density.denominator(u)
            if log_prior is not None:
                z = z + log_prior[classes]
            total = total + _replace_target(z, labels, classes, 0.0).sum(1)
            negatives = _replace_target(z, labels, classes, -torch.inf)
            lse = torch.logaddexp(lse, negatives.logsumexp(1))
            if batch * num_classes <= KEPT:
                kept.append(u)
        return lse, z_y, total, u_y, w_norm, *kept

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        lse, _, _, *others = output
        ctx.mark_non_differentiable(*others)
        ctx.save_for_backward(*inputs, lse, *others)

    @staticmethod
    def backward(
        ctx: Any, by_lse: Tensor, by_target: Tensor, by_total: Tensor, *_: Tensor
    ) -> tuple[Tensor | None, ...]:
        gradients = _Gradients.apply(by_lse, by_target, by_total, *ctx.saved_tensors)
        to_features, to_weight, to_w_rho, to_scale, to_log_prior = gradients
        return to_features, to_weight, to_w_rho, to_scale, None, to_log_prior


class _Gradients(torch.autograd.Function):
    """The backward pass as a function of its own, which refuses to be differentiated again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        by_lse: Tensor,
        by_target: Tensor,
        by_total: Tensor,
        features: Tensor,
        weight: Tensor,
        w_rho: Tensor,
        scale: Tensor,
        labels: Tensor,
        log_prior: Tensor | None,
        lse: Tensor,
        u_y: Tensor,
        w_norm: Tensor,
        *kept: Tensor,
    ) -> tuple[Tensor | None, ...]:
        x, x_norm = unit(features)
        batch, num_classes = len(labels), len(weight)

        to_x = torch.zeros_like(x)
        to_weight, to_w_rho, to_scale, to_log_prior = [], [], [], []
        for i, classes in enumerate(_chunks(batch, num_classes)):
            w, inverse_norm = weight[classes], _inverse(w_norm[classes])
            u = kept[i] if kept else _one_minus_cosine(x, w, w_norm[classes])
            density = _Density(w_rho[classes], scale)
            D = density.denominator(u)
            z = density.numerator / D
            p = z if log_prior is None else z + log_prior[classes]
            p = (p - lse.unsqueeze(1)).exp()
            e = p * by_lse.unsqueeze(1) + by_total.unsqueeze(1)
            e = _replace_target(e, labels, classes, 0.0)
            d = e * z / D
            sum_d, sum_du = d.sum(0), (d * u).sum(0)
            grad_w_rho, grad_scale = density.gradients(sum_d, sum_du)
            to_w_rho.append(grad_w_rho)
            to_scale.append(grad_scale)
            if log_prior is not None:
                to_log_prior.append(e.sum(0))
            d = d * (2 * density.rho * inverse_norm)
            to_x = to_x + matmul(d, w)
            radial = 2 * density.rho * inverse_norm.square() * (sum_d - sum_du)
            to_weight.append(matmul(d.mT, x) - radial.unsqueeze(1) * w)
        to_x = to_x - (to_x * x).sum(1, keepdim=True) * x

        target = _Density(w_rho[labels], scale)
        inverse_norm_y = _inverse(w_norm[labels]).unsqueeze(1)
        w_y = weight[labels] * inverse_norm_y
        D_y = target.denominator(u_y)
        e_y = torch.where(labels < 0, 0, by_target + by_total)
        d_y = e_y * target.numerator / D_y / D_y
        grad_w_rho, grad_scale = target.gradients(d_y, d_y * u_y)
        d_y, u_y = (2 * target.rho * d_y).unsqueeze(1), u_y.unsqueeze(1)
        to_x = to_x + d_y * ((w_y - x) + u_y * x)
        to_w_y = d_y * ((x - w_y) + u_y * w_y) * inverse_norm_y
        own = labels % num_classes  # where there is none, zeros are added to the last class
        return (
            to_x * _inverse(x_norm).unsqueeze(1),
            _joined(to_weight).index_add_(0, own, to_w_y),
            _joined(to_w_rho).index_add_(0, own, grad_w_rho),
            _joined(to_scale).sum() + grad_scale.sum(),
            None if log_prior is None else _joined(to_log_prior).index_add_(0, own, e_y),
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise NotImplementedError(
            "WCDASHead.loss has first derivatives only from 2,000 classes on; for second ones use "
            "torch.nn.functional.cross_entropy(head(features), labels)"
        )


def _chunks(batch: int, num_classes: int) -> Iterator[slice]:
    width = max(1, CHUNK // max(1, batch))
    for start in range(0, num_classes, width):
        yield slice(start, min(start + width, num_classes))


def _one_minus_cosine(x: Tensor, weight: Tensor, w_norm: Tensor) -> Tensor:
    return (1 - matmul(x, weight.mT) * _inverse(w_norm)).clamp_min(0)


def _replace_target(matrix: Tensor, labels: Tensor, classes: slice, value: float) -> Tensor:
    """The columns of some classes, with the target's entry replaced in the rows that have it."""
    column = (labels - classes.start).clamp(0, matrix.shape[1] - 1).unsqueeze(1)
    here = ((labels >= classes.start) & (labels < classes.stop)).unsqueeze(1)
    return matrix.scatter(1, column, torch.where(here, value, matrix.gather(1, column)))


def _inverse(norm: Tensor) -> Tensor:
    """1 / ‖v‖, and 0 for a zero vector."""
    return torch.where(norm == 0, 0, 1 / norm)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
