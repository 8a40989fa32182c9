"""The Triton kernels of `wcdas.heads.functional.fused`; importing this file imports Triton.

Whole tiles are worked on; vectors behind the last sample or class are 0. Logits and their
log-sum-exp are in base 2, z/ln 2 = 1/(ln 2·(a + b·u)).
"""

import triton
import triton.language as tl
from triton import knobs

UNIT = tl.constexpr(256.0)  # the length of x̂ and ŵ in float16, whose smallest numbers are 6e-8
LN2 = tl.constexpr(0.6931471805599453)
INTERPRETED = tl.constexpr(knobs.runtime.interpret)


@triton.jit
def _reciprocal(x):
    if INTERPRETED:
        y = 1.0 / x
    else:  # one instruction; Triton's own division minds subnormal numbers in four
        y = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1
        )
    return y


@triton.jit
def _exp2(x):
    if INTERPRETED:
        y = tl.exp2(x)
    else:
        y = tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1
        )
    return y


@triton.jit
def _as_bfloat16(x):
    """x rounded to bfloat16, in float32, without a conversion there and back."""
    bits = x.to(tl.int32, bitcast=True) + 0x8000
    return (bits & -0x10000).to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=["rows"])
def split(
    vectors,
    inverse_norm,
    for_cosine,
    for_gradient,
    rows,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
    EXACT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """h, and l behind it if EXACT, of UNIT·v/‖v‖ in float16 and of v/‖v‖ in bfloat16."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    here = (row < rows)[:, None] & (column < SIZE)
    inverse = tl.load(inverse_norm + row, mask=row < rows, other=0.0)
    v = tl.load(vectors + row[:, None] * SIZE + column, mask=here, other=0.0) * inverse[:, None]
    at = row[:, None] * (2 * WIDTH if EXACT else WIDTH) + column
    inside = column < WIDTH
    high = (v * UNIT).to(tl.float16)
    tl.store(for_cosine + at, high, mask=inside)
    if EXACT:
        low = (v * UNIT - high.to(tl.float32)).to(tl.float16)
        tl.store(for_cosine + at + WIDTH, low, mask=inside)
    if for_gradient is not None:
        rough = _as_bfloat16(v)
        tl.store(for_gradient + at, rough.to(tl.bfloat16), mask=inside)
        if EXACT:
            tl.store(for_gradient + at + WIDTH, (v - rough).to(tl.bfloat16), mask=inside)


@triton.jit
def _cosine(
    left,
    right,
    left_row,
    right_row,
    WIDTH: tl.constexpr,
    EXACT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """UNIT² cos θ of a tile: h·h, and before it l·h and h·l if EXACT.

    A tensor core cuts off what does not fit its sum, so the small terms come first.
    """
    product = tl.zeros((ROWS, COLUMNS), tl.float32)
    STEPS: tl.constexpr = WIDTH // DEPTH
    for step in range((3 if EXACT else 1) * STEPS):
        left_at, right_at = step * DEPTH, step * DEPTH
        if EXACT:
            term = step // STEPS
            left_at += tl.where(term == 0, WIDTH, -term * WIDTH)
            right_at += tl.where(term == 1, 0, -term * WIDTH)
        rows = left.load([left_row, left_at])
        columns = right.load([right_row, right_at])
        product = tl.dot(rows, columns.T, product)
    return product


@triton.jit
def _u(product):
    return tl.maximum(1.0 - product * (1.0 / (UNIT * UNIT)), 0.0)


@triton.jit(do_not_specialize=["start", "count"])
def negatives(
    x,
    w,
    a,
    b,
    log_prior,
    labels,
    lse,
    total,
    start,
    count,
    batch,
    WIDTH: tl.constexpr,
    EXACT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """Take a tile of samples × classes into the log-sum-exp over j ≠ y, and the sum of the logits.

    These have a row for every tile of classes, with what the chunks before have left there.
    """
    row = tl.program_id(0) * ROWS
    first = tl.program_id(1) * COLUMNS
    product = _cosine(x, w, row, first, WIDTH, EXACT, ROWS, COLUMNS, DEPTH)
    rows, columns = row + tl.arange(0, ROWS), first + tl.arange(0, COLUMNS)
    here = columns < count
    a_j = tl.load(a + columns, mask=here, other=-1e-44) * LN2  # z is −∞
    b_j = tl.load(b + columns, mask=here, other=0.0) * LN2
    z = _reciprocal(a_j[None, :] + b_j[None, :] * _u(product))
    if log_prior is not None:
        z += tl.load(log_prior + columns, mask=here, other=0.0)[None, :] / LN2
    own = tl.program_id(1) * batch + rows
    target = (tl.load(labels + rows) - start)[:, None] == columns[None, :]
    if total is not None:
        sums = tl.sum(tl.where(target | ~here[None, :], 0.0, z), 1)
        tl.store(total + own, tl.load(total + own) + sums)
    z = tl.where(target, float("-inf"), z)
    before = tl.load(lse + own)
    largest = tl.maximum(before, tl.max(z, 1))
    shift = tl.where(largest == float("-inf"), 0.0, largest)
    sum_exp = _exp2(before - shift) + tl.sum(_exp2(z - shift[:, None]), 1)
    tl.store(lse + own, shift + tl.log2(sum_exp))


@triton.jit(do_not_specialize=["start", "count"])
def slopes(
    w,
    x,
    a,
    b,
    log_prior,
    labels,
    lse,
    by_lse,
    by_total,
    delta,
    sums,
    start,
    count,
    batch,
    chunk,
    WIDTH: tl.constexpr,
    EXACT: tl.constexpr,
    EACH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """δ = ∂L/∂cos θ of a tile of classes × samples; Σd, Σdu, and Σe if EACH, over its samples.

    Half of the columns at a time: no more of u, z and e fit the registers.
    """
    HALF: tl.constexpr = COLUMNS // 2
    row = tl.program_id(1) * ROWS
    first = tl.program_id(0) * COLUMNS
    product = _cosine(w, x, row, first, WIDTH, EXACT, ROWS, COLUMNS, DEPTH)
    left, right = product.reshape(ROWS, 2, HALF).permute(0, 2, 1).split()
    rows = row + tl.arange(0, ROWS)
    here = rows < count
    a_j = tl.load(a + rows, mask=here, other=1.0) * LN2
    b_j = tl.load(b + rows, mask=here, other=0.0) * LN2
    sum_d, sum_du, sum_e = tl.zeros_like(a_j), tl.zeros_like(a_j), tl.zeros_like(a_j)
    for half in tl.static_range(2):
        column = first + half * HALF
        columns = column + tl.arange(0, HALF)
        u = _u(left if half == 0 else right)
        z = _reciprocal(a_j[:, None] + b_j[:, None] * u)
        e = z - tl.load(lse + columns)[None, :]
        if log_prior is not None:
            e += tl.load(log_prior + rows, mask=here, other=0.0)[:, None] / LN2
        # Above 0 are a target's, what rounding makes, and what is of no sample.
        e = _exp2(tl.minimum(e, 0.0)) * tl.load(by_lse + columns)[None, :]
        if by_total is not None:
            e += tl.load(by_total + columns)[None, :]
        label = tl.load(labels + columns) - start
        e = tl.where(rows[:, None] == label[None, :], 0.0, e)
        d = e * z * z
        sum_d += tl.sum(d, 1)
        sum_du += tl.sum(d * u, 1)
        if EACH:
            sum_e += tl.sum(e, 1)
        d *= (b_j * LN2)[:, None]
        high = _as_bfloat16(d) if EXACT else d
        delta.store([row, column], high.to(tl.bfloat16))
        if EXACT:
            delta.store([row, batch + column], (d - high).to(tl.bfloat16))
    own = sums + tl.program_id(0) * 3 * chunk + rows
    tl.store(own, sum_d * (LN2 * LN2))
    tl.store(own + chunk, sum_du * (LN2 * LN2))
    tl.store(own + 2 * chunk, sum_e)


@triton.jit(do_not_specialize=["count"])
def finish(
    sums,
    of_classes,
    to_weight,
    weight,
    inverse_norm,
    b,
    count,
    chunk,
    num_classes,
    TILES: tl.constexpr,
    SIZE: tl.constexpr,
    WEIGHT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Add up the sums of all tiles of samples; if WEIGHT, make ∂L/∂w of Σ_i δ_ij x̂_i in place."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    here = rows < count
    d = tl.zeros((ROWS,), tl.float32)
    du = tl.zeros((ROWS,), tl.float32)
    e = tl.zeros((ROWS,), tl.float32)
    for tile in range(TILES):
        own = sums + tile * 3 * chunk + rows
        d += tl.load(own, mask=here)
        du += tl.load(own + chunk, mask=here)
        e += tl.load(own + 2 * chunk, mask=here)
    tl.store(of_classes + rows, d, mask=here)
    tl.store(of_classes + num_classes + rows, du, mask=here)
    tl.store(of_classes + 2 * num_classes + rows, e, mask=here)
    if WEIGHT:
        inverse = tl.load(inverse_norm + rows, mask=here, other=0.0)
        radial = inverse * tl.load(b + rows, mask=here, other=0.0) * (d - du)
        for first in range(0, SIZE, COLUMNS):
            columns = first + tl.arange(0, COLUMNS)[None, :]
            at, inside = rows[:, None] * SIZE + columns, here[:, None] & (columns < SIZE)
            product = tl.load(to_weight + at, mask=inside)
            tangent = product - radial[:, None] * tl.load(weight + at, mask=inside)
            tl.store(to_weight + at, inverse[:, None] * tangent, mask=inside)
