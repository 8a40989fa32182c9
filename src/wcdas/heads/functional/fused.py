"""The loops over classes of `wcdas.heads.functional.chunked` as kernels for a GPU.

No logit reaches memory. Of a chunk of classes, ŵ is laid out in half precision; forward, a kernel
multiplies tiles of it with tiles of x̂ and takes what comes out into a running log-sum-exp;
backward, another does the same again and writes δ = ∂L/∂cos θ in bfloat16, of which PyTorch's
products make ∂L/∂x and, in place, ∂L/∂w. Sums are in float32.

A vector is split in halves, v = h + l with h = half(v) and l = half(v − h). Exactly, a product is
l·h + h·l + h·h; fast, it is h·h. The halves of cos θ are of float16, which keeps more digits of
what is at most 1 than bfloat16; those of δ, which may be of any size, and its factors, are of
bfloat16.
"""

import math
import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wcdas.errors import InputError
from wcdas.heads.functional.arithmetic import inverse

LN2 = math.log(2)
CAPABILITY = (8, 0)  # of the first GPUs with bfloat16
LARGEST_RHO = 0.92  # that half precision is good for
FACTORS = 2**23  # elements of ŵ that are laid out at a time, at most
LOGITS = 2**26  # elements of samples × classes that a chunk has forward, at most
SLOPES = 2**24  # the same backward, where they are in memory
FINISHED = 16  # classes that a program makes the gradient of


class Tile(NamedTuple):
    """What a program works on, and with.

    Args:
        rows: of the result; of samples forward, of classes backward.
        columns: of the result.
        depth: of a step of the product.
        warps: of a program.
        stages: of loads on their way.
        registers: of a thread at most, to have two programs on a multiprocessor.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    registers: int | None = None


# By whether they are exact, whose products are three times as long.
FORWARD = {False: Tile(128, 128, 64, 4, 3), True: Tile(128, 256, 64, 8, 3)}
BACKWARD = {False: Tile(128, 128, 64, 8, 3, 128), True: Tile(256, 128, 64, 8, 3)}


def check(engine: str, features: Tensor) -> None:
    """Refuse features that the kernels do not take."""
    if torch.compiler.is_compiling():
        return
    check_device(engine, features.device)
    if features.dtype != torch.float32:
        raise InputError(
            f"engine {engine!r} computes in float32, but features are {features.dtype}; "
            "set engine='auto'"
        )


def check_device(engine: str, device: torch.device) -> None:
    """Refuse a device that the kernels do not run on."""
    if find_spec("triton") is None:
        why = "Triton is not installed"
    elif os.environ.get("TRITON_INTERPRET") == "1":
        return
    elif device.type != "cuda" or torch.version.hip is not None:
        why = f"the device is {device.type!r}"
    elif (found := torch.cuda.get_device_capability(device)) < CAPABILITY:
        why = "that of the device is {}.{}".format(*found)
    else:
        return
    raise InputError(
        f"engine {engine!r} needs Triton and an NVIDIA GPU of compute capability 8.0 or later, but "
        f"{why}; set engine='auto'"
    )


class _Units:
    """Vectors of length 1 as factors, the half l of each behind its half h where it is exact.

    Args:
        rows: how many there are, with those that make a whole tile.
        size: of a vector.
        like: a tensor of their device.
        tile: whose depth makes a vector longer.
        exact: whether there are two halves.
        gradients: whether they are factors of ∂L/∂x and ∂L/∂w, too.
    """

    def __init__(
        self, rows: int, size: int, like: Tensor, tile: Tile, exact: bool, gradients: bool
    ) -> None:
        self.size, self.width = size, _whole(size, tile.depth)
        self.exact, self.depth = exact, tile.depth
        shape = rows, (1 + exact) * self.width
        self.of_cosine = like.new_empty(shape, dtype=torch.float16)
        self.of_gradients = like.new_empty(shape, dtype=torch.bfloat16) if gradients else None

    def lay_out(self, vectors: Tensor, inverse_norm: Tensor) -> None:
        from wcdas.heads.functional import fused_kernels

        fused_kernels.split[-(-len(self.of_cosine) // 16), -(-self.width // 128)](
            vectors,
            inverse_norm,
            self.of_cosine,
            self.of_gradients,
            len(vectors),
            SIZE=self.size,
            WIDTH=self.width,
            EXACT=self.exact,
            ROWS=16,
            COLUMNS=128,
        )

    def tiles(self, rows: int) -> Any:
        """What a kernel multiplies."""
        return _tiles(self.of_cosine, rows, self.depth)

    def parts(self, count: int) -> list[Tensor]:
        """The halves of the first `count` vectors."""
        assert self.of_gradients is not None
        halves = self.of_gradients[:count].split(self.width, dim=1)
        return [half[:, : self.size] for half in halves]


@torch.library.custom_op("wcdas::fused_negatives", mutates_args=())
def negatives(
    features: Tensor,
    weight: Tensor,
    w_norm: Tensor,
    a: Tensor,
    b: Tensor,
    labels: Tensor,
    log_prior: Tensor | None,
    with_total: bool,
    exact: bool,
) -> tuple[Tensor, Tensor]:
    """lse_{j≠y} z_j of every sample in base 2, and Σ_{j≠y} z_j, or 0 where nobody asked for it."""
    from wcdas.heads.functional import fused_kernels

    tile = FORWARD[exact]
    features, weight, a, b = (t.contiguous() for t in (features, weight, a, b))
    log_prior = None if log_prior is None else log_prior.contiguous()
    num_classes, size = weight.shape
    batch = _whole(len(features), tile.rows)
    chunk = _chunk(LOGITS // batch, size, num_classes, tile.columns)
    with torch.cuda.device_of(features):
        x = _Units(batch, size, features, tile, exact, gradients=False)
        w = _Units(chunk, size, features, tile, exact, gradients=False)
        x.lay_out(features, inverse(torch.linalg.vector_norm(features, dim=1)))
        own, inverse_norm = _behind(labels, batch, -1, torch.int32), inverse(w_norm)
        lse = features.new_full((chunk // tile.columns, batch), -torch.inf)
        total = torch.zeros_like(lse) if with_total else None
        of_x, of_w = x.tiles(tile.rows), w.tiles(tile.columns)
        options = _options(tile, features.device)
        for start in range(0, num_classes, chunk):
            classes = slice(start, min(start + chunk, num_classes))
            w.lay_out(weight[classes], inverse_norm[classes])
            count = classes.stop - start
            fused_kernels.negatives[batch // tile.rows, -(-count // tile.columns)](
                of_x,
                of_w,
                a[classes],
                b[classes],
                None if log_prior is None else log_prior[classes],
                own,
                lse,
                total,
                start,
                count,
                batch,
                WIDTH=x.width,
                EXACT=exact,
                **options,
            )
    largest = lse.amax(0)
    rest = lse - largest.clamp_min(torch.finfo(lse.dtype).min)  # −∞, if all are
    lse = (largest + rest.exp2().sum(0).log2())[: len(features)]
    return lse, torch.zeros_like(lse) if total is None else LN2 * total.sum(0)[: len(features)]


@negatives.register_fake
def _(features: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return features.new_empty(len(features)), features.new_empty(len(features))


@torch.library.custom_op("wcdas::fused_slopes", mutates_args=())
def slopes(
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
    exact: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Of the negatives: Σ_j δ_ij ŵ_j of every sample, ∂L/∂w of every class, and Σd, Σdu and Σe."""
    from wcdas.heads.functional import fused_kernels

    tile = BACKWARD[exact]
    features, weight, a, b = (t.contiguous() for t in (features, weight, a, b))
    log_prior = None if log_prior is None else log_prior.contiguous()
    num_classes, size = weight.shape
    batch = _whole(len(features), tile.columns)
    chunk = _chunk(SLOPES // batch, size, num_classes, tile.rows)
    to_x = torch.zeros_like(features) if of_features else features.new_empty(0)
    to_weight = torch.empty_like(weight) if of_classes else features.new_empty(0)
    sums = features.new_zeros(3, num_classes)
    with torch.cuda.device_of(features):
        x = _Units(batch, size, features, tile, exact, gradients=True)
        w = _Units(chunk, size, features, tile, exact, gradients=True)
        x.lay_out(features, inverse(torch.linalg.vector_norm(features, dim=1)))
        own, inverse_norm = _behind(labels, batch, -1, torch.int32), inverse(w_norm)
        lse, by_lse = _behind(lse, batch, 0), _behind(by_lse, batch, 0)
        by_total = None if by_total is None else _behind(by_total, batch, 0)
        delta = features.new_empty(chunk, (1 + exact) * batch, dtype=torch.bfloat16)
        partial = features.new_empty(batch // tile.columns, 3, chunk)
        of_w, of_x = w.tiles(tile.rows), x.tiles(tile.columns)
        of_delta = _tiles(delta, tile.rows, tile.columns // 2)
        options = _options(tile, features.device)
        for start in range(0, num_classes, chunk):
            classes = slice(start, min(start + chunk, num_classes))
            count = classes.stop - start
            w.lay_out(weight[classes], inverse_norm[classes])
            fused_kernels.slopes[batch // tile.columns, -(-count // tile.rows)](
                of_w,
                of_x,
                a[classes],
                b[classes],
                None if log_prior is None else log_prior[classes],
                own,
                lse,
                by_lse,
                by_total,
                of_delta,
                partial,
                start,
                count,
                batch,
                chunk,
                WIDTH=x.width,
                EXACT=exact,
                EACH=of_log_prior,
                **options,
            )
            parts = [part[:count, : len(features)] for part in delta.split(batch, dim=1)]
            if of_features:
                _add_products(to_x, [part.mT for part in parts], w.parts(count), 1)
            if of_classes:
                _add_products(to_weight[classes], parts, x.parts(len(features)), 0)
            if of_classes or of_log_prior:
                fused_kernels.finish[(-(-count // FINISHED),)](
                    partial,
                    sums[:, classes],
                    to_weight[classes] if of_classes else to_weight,
                    weight[classes],
                    inverse_norm[classes],
                    b[classes],
                    count,
                    chunk,
                    num_classes,
                    TILES=len(partial),
                    SIZE=size,
                    WEIGHT=of_classes,
                    ROWS=FINISHED,
                    COLUMNS=128,
                )
    return to_x, to_weight, sums


@slopes.register_fake
def _(features: Tensor, weight: Tensor, *others: object) -> tuple[Tensor, Tensor, Tensor]:
    of_features, of_classes = others[8], others[9]
    return (
        torch.empty_like(features) if of_features else features.new_empty(0),
        torch.empty_like(weight) if of_classes else features.new_empty(0),
        features.new_empty(3, len(weight)),
    )


def _whole(count: int, tile: int) -> int:
    """A number that tiles make, one at least."""
    return max(1, -(-count // tile)) * tile


def _chunk(most: int, size: int, num_classes: int, tile: int) -> int:
    """Classes of a chunk, as many as tiles make."""
    most = min(most, FACTORS // size, num_classes + tile - 1)
    return max(1, most // tile) * tile


def _behind(numbers: Tensor, count: int, rest: float, dtype: torch.dtype | None = None) -> Tensor:
    """A vector of `count` numbers: those given, and `rest` behind them."""
    whole = numbers.new_full((count,), rest, dtype=dtype)
    whole[: len(numbers)] = numbers
    return whole


def _tiles(matrix: Tensor, rows: int, columns: int) -> Any:
    """A matrix that kernels read and write in tiles."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor.from_tensor(matrix, [rows, columns])


def _options(tile: Tile, device: torch.device) -> dict[str, int | None]:
    """How a kernel works on a tile, with as many stages as there is shared memory for."""
    stages = tile.stages
    if device.type == "cuda":
        properties: Any = torch.cuda.get_device_properties(device)
        stage = 2 * (tile.rows + tile.columns) * tile.depth
        stages = min(stages, (properties.shared_memory_per_block_optin - 1024) // stage)
    return {
        "ROWS": tile.rows,
        "COLUMNS": tile.columns,
        "DEPTH": tile.depth,
        "num_warps": tile.warps,
        "num_stages": stages,
        "maxnreg": tile.registers,
    }


def _add_products(out: Tensor, left: Sequence[Tensor], right: Sequence[Tensor], beta: int) -> None:
    """Make `out` β times what it was and the products of halves, the smallest first."""
    terms = [(left[0], right[0])]
    if len(left) == 2:
        terms = [(left[1], right[0]), (left[0], right[1]), *terms]
    for a, b in terms:
        if out.is_cuda:
            whole, dtype = out[None], torch.float32
            torch.baddbmm(whole, a[None], b[None], beta=beta, out_dtype=dtype, out=whole)
        else:  # where no product of bfloat16 is one of float32
            torch.addmm(out, a.float(), b.float(), beta=beta, out=out)
        beta = 1
