"""The WCDAS loss with its gradient in closed form, chunk by chunk of the classes.

Autograd would keep eight matrices of batch × classes; this keeps one, or none where even that is
large: then the backward pass computes it again. First derivatives only.

The reciprocal of a logit is linear in u = 1 − cos θ,

    1/z = a + b·u,   a = 2πq/(s(1 + ρ)),   b = 4πρ/(sq(1 + ρ)),

so that with e = ∂L/∂z and d = e·z² for every sample and class all else follows from d:

    ∂L/∂cos θ = bd,   ∂L/∂w_ρ = Σ (2ρad − (1 + ρ²)bdu)/(1 + ρ),   ∂L/∂s = Σ (ad + bdu)/s.

The negatives go through matrix products; the target column is apart, in exact form. The loops over
the classes are PyTorch's operations, or the kernels of `wcdas.heads.functional.fused`.
"""

import math
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from wcdas.heads.functional import fused
from wcdas.heads.functional.arithmetic import inverse, matmul, unit
from wcdas.heads.functional.plain import Parts, target_u

Engine = Literal["chunked", "fused", "fused-fast"]
CHUNK = 2**22  # elements of batch × classes worked on at once
CPU_CHUNK = 2**20  # on a CPU, whose caches hold that much
KEPT = 2**26  # elements of batch × classes kept for the backward pass, at most


def wcdas_losses(
    features: Tensor,
    weight: Tensor,
    w_rho: Tensor,
    scale: Tensor,
    labels: Tensor,
    label_smoothing: float = 0.0,
    log_prior: Tensor | None = None,
    engine: Engine = "chunked",
) -> Tensor:
    """The same as `wcdas.heads.functional.plain.wcdas_losses`, with first derivatives only."""
    smooth = label_smoothing > 0
    parts = of_classes(features, weight, w_rho, scale, labels, log_prior, smooth, engine)
    return parts.losses(len(weight), label_smoothing)


def of_classes(
    features: Tensor,
    weight: Tensor,
    w_rho: Tensor,
    scale: Tensor,
    labels: Tensor,
    log_prior: Tensor | None,
    with_total: bool,
    engine: Engine = "chunked",
) -> Parts:
    """The parts of some classes; a label of −1 is a class that is not among them, its target 0.

    The total is 0 where it is not asked for. The engine "fused-fast" takes no ρ for larger than
    `fused.LARGEST_RHO`.
    """
    if engine != "chunked":
        fused.check(engine, features)
    if engine == "fused-fast":
        w_rho = w_rho.clamp(max=math.log(fused.LARGEST_RHO / (1 - fused.LARGEST_RHO)))
    parts = _Parts.apply(features, weight, w_rho, scale, labels, log_prior, with_total, engine)
    return Parts(*parts[:3])


class _OneByOne(torch.autograd.Function):
    """`vmap` calls it for one after another, since it writes into tensors of its own."""

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
        calls = []
        for i in range(info.batch_size):
            own = zip(inputs, in_dims, strict=True)
            calls.append(cls.apply(*(t if dim is None else t.select(dim, i) for t, dim in own)))
        outputs = zip(*calls, strict=True)
        joined = [None if each[0] is None else torch.stack(each) for each in outputs]
        return tuple(joined), tuple(None if t is None else 0 for t in joined)


class _Parts(_OneByOne):
    @staticmethod
    def forward(
        features: Tensor,
        weight: Tensor,
        w_rho: Tensor,
        scale: Tensor,
        labels: Tensor,
        log_prior: Tensor | None,
        with_total: bool,
        engine: Engine,
    ) -> tuple[Tensor, ...]:
        x, x_norm = unit(features)
        w_norm = torch.linalg.vector_norm(weight, dim=1)
        w_y = weight[labels] * inverse(w_norm[labels]).unsqueeze(1)
        u_y = target_u(x, x_norm, w_y, w_norm[labels])
        a, b = _line(w_rho, scale)
        z_y = 1 / (a[labels] + b[labels] * u_y)
        if log_prior is not None:
            z_y = z_y + log_prior[labels]
        z_y = torch.where(labels < 0, 0, z_y)
        del x, w_y  # the loops take memory of their own
        given = features, weight, w_norm, a, b, labels, log_prior
        if engine == "chunked":
            lse, total, kept = _negatives(*given, z_y if with_total else None)
        else:
            kept, total = fused.negatives(*given, with_total, engine == "fused")
            lse, total = fused.LN2 * kept, total + z_y if with_total else total
        return lse, z_y, total, u_y, w_norm, kept

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        lse, _, _, *others = output
        ctx.mark_non_differentiable(*others)
        ctx.engine = inputs[-1]
        ctx.save_for_backward(*inputs[:-2], lse, *others)
        if not torch.compiler.is_compiling():  # then there is no such switch, and no need of it
            ctx.set_materialize_grads(False)  # no matrix of zeros for what is kept

    @staticmethod
    def backward(ctx: Any, *by: Tensor | None) -> tuple[Tensor | None, ...]:
        of_features, *of_classes, _, of_log_prior, _, _ = ctx.needs_input_grad
        asked = of_features, any(of_classes), of_log_prior
        *gradients, to_log_prior = _Gradients.apply(ctx.engine, *asked, *by[:3], *ctx.saved_tensors)
        return *gradients, None, to_log_prior, None, None


class _Gradients(_OneByOne):
    """The backward pass as a function of its own, which refuses to be differentiated again."""

    @staticmethod
    def forward(
        engine: Engine,
        of_features: bool,
        of_classes: bool,
        of_log_prior: bool,
        by_lse: Tensor | None,
        by_target: Tensor | None,
        by_total: Tensor | None,
        features: Tensor,
        weight: Tensor,
        w_rho: Tensor,
        scale: Tensor,
        labels: Tensor,
        log_prior: Tensor | None,
        lse: Tensor,
        u_y: Tensor,
        w_norm: Tensor,
        kept: Tensor,
    ) -> tuple[Tensor | None, ...]:
        by_lse, by_target = (
            torch.zeros_like(lse) if by is None else by for by in (by_lse, by_target)
        )
        asked = of_features, of_classes, of_log_prior
        a, b = _line(w_rho, scale)
        given = features, weight, w_norm, a, b, labels, log_prior
        if engine == "chunked":
            to_x, to_weight, sums = _slopes(*given, lse, by_lse, by_total, *asked, kept)
        else:
            fast = engine == "fused-fast"
            to_x, to_weight, sums = fused.slopes(*given, kept, by_lse, by_total, *asked, not fast)
        sum_d, sum_du, sum_e = sums.unbind()

        x, x_norm = unit(features)
        e_y = by_target if by_total is None else by_target + by_total
        e_y = torch.where(labels < 0, 0, e_y)
        d_y = e_y / (a[labels] + b[labels] * u_y).square()
        own = labels % len(weight)  # where there is none, zeros are added to the last class
        sum_e.index_add_(0, own, e_y)
        sum_d.index_add_(0, own, d_y)
        sum_du.index_add_(0, own, d_y * u_y)
        inverse_norm_y, u_y = inverse(w_norm[labels]).unsqueeze(1), u_y.unsqueeze(1)
        w_y, bd_y = weight[labels] * inverse_norm_y, (b[labels] * d_y).unsqueeze(1)
        if of_features:
            to_x = to_x - (to_x * x).sum(1, keepdim=True) * x + bd_y * ((w_y - x) + u_y * x)
        if of_classes:
            to_weight.index_add_(0, own, bd_y * ((x - w_y) + u_y * w_y) * inverse_norm_y)
        rho, ad, bdu = w_rho.sigmoid(), a * sum_d, b * sum_du
        return (
            to_x * inverse(x_norm).unsqueeze(1) if of_features else None,
            to_weight if of_classes else None,
            (2 * rho * ad - (1 + rho.square()) * bdu) / (1 + rho) if of_classes else None,
            (ad + bdu).sum() / scale if of_classes else None,
            sum_e if of_log_prior else None,
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


def _negatives(
    features: Tensor,
    weight: Tensor,
    w_norm: Tensor,
    a: Tensor,
    b: Tensor,
    labels: Tensor,
    log_prior: Tensor | None,
    total: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """lse_{j≠y} z_j of every sample, Σ_{j≠y} z_j on top of the total, and u where it is kept."""
    x, _ = unit(features)
    batch, num_classes = len(labels), len(weight)
    lse = x.new_full((batch,), -torch.inf)
    kept = x.new_empty(num_classes if batch * num_classes <= KEPT else 0, batch)
    for classes in _chunks(x, num_classes):
        u = _one_minus_cosine(weight[classes], w_norm[classes], x)
        if len(kept):
            kept[classes] = u
        z = torch.addcmul(a[classes, None], b[classes, None], u).reciprocal_()
        if log_prior is not None:
            z += log_prior[classes, None]
        if total is not None:
            total = total + _set_target(z, labels, classes, 0.0).sum(0)
        negatives = _set_target(z, labels, classes, -torch.inf)
        lse = torch.logaddexp(lse, negatives.logsumexp(0))
    return lse, torch.zeros_like(lse) if total is None else total, kept


def _slopes(
    features: Tensor,
    weight: Tensor,
    w_norm: Tensor,
    a: Tensor,
    b: Tensor,
    labels: Tensor,
    log_prior: Tensor | None,
    lse: Tensor,
    by_lse: Tensor,
    by_total: Tensor | None,
    of_features: bool,
    of_classes: bool,
    of_log_prior: bool,
    kept: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Of the negatives: Σ_j bd ŵ_j of every sample, ∂L/∂w of every class, and Σd, Σdu and Σe."""
    x, _ = unit(features)
    inverse_norm = inverse(w_norm)
    to_x, to_weight = torch.zeros_like(x), torch.empty_like(weight)
    sums = w_norm.new_empty(3, len(weight))
    sum_d, sum_du, sum_e = sums
    for classes in _chunks(x, len(weight)):
        w, b_over_norm = weight[classes], b[classes] * inverse_norm[classes]
        u = kept[classes] if len(kept) else _one_minus_cosine(w, w_norm[classes], x)
        z = torch.addcmul(a[classes, None], b[classes, None], u).reciprocal_()
        e = z - lse
        if log_prior is not None:
            e += log_prior[classes, None]
        e.exp_().mul_(by_lse)
        if by_total is not None:
            e += by_total
        _set_target(e, labels, classes, 0.0)
        if of_log_prior:
            sum_e[classes] = e.sum(1)
        d = e.mul_(z).mul_(z)
        if of_classes:
            sum_d[classes] = d.sum(1)
            sum_du[classes] = (d * u).sum(1)
        d *= b_over_norm.unsqueeze(1)
        if of_features:
            to_x += matmul(d.mT, w)
        if of_classes:
            radial = b_over_norm * inverse_norm[classes] * (sum_d[classes] - sum_du[classes])
            to_weight[classes] = matmul(d, x).addcmul_(radial.unsqueeze(1), w, value=-1)
    return to_x, to_weight, sums


def _chunks(x: Tensor, num_classes: int) -> Iterator[slice]:
    width = max(1, (CPU_CHUNK if x.is_cpu else CHUNK) // max(1, len(x)))
    for start in range(0, num_classes, width):
        yield slice(start, min(start + width, num_classes))


def _line(w_rho: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """a and b of every class."""
    rho, q = w_rho.sigmoid(), (-w_rho).sigmoid()
    over = 2 * math.pi / (scale * (1 + rho))
    return over * q, over * 2 * rho / q


def _one_minus_cosine(weight: Tensor, w_norm: Tensor, x: Tensor) -> Tensor:
    return matmul(weight, x.mT).mul_(-inverse(w_norm).unsqueeze(1)).add_(1).clamp_min_(0)


def _set_target(matrix: Tensor, labels: Tensor, classes: slice, value: float) -> Tensor:
    """Replace the target's entry, in the columns that have it among these classes."""
    row = (labels - classes.start).clamp(0, len(matrix) - 1).unsqueeze(0)
    here = (labels >= classes.start) & (labels < classes.stop)
    return matrix.scatter_(0, row, torch.where(here, value, matrix.gather(0, row)))
