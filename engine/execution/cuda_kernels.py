"""Triton kernels of a decode step: matrix products with their neighbours fused in.

A step at few rows is a chain of short kernels that each wait for the one before, so what counts is how few
there are. Every sum here runs in an order that depends on the row alone, never on the number of rows or on
the longest context. (The library's products, for more rows, promise no such thing.)

With EARLY a kernel may start while the one before ends (programmatic dependent launch, compute capability
9.0): it then waits for the other's results itself.

Imported only where a CUDA device and triton are there.
"""

import triton
import triton.language as tl


@triton.jit
def few_rows(
    x,  # [rows, K]
    weight,  # [N, K], or [2 N, K] with GATED: gates, then ups
    bias,  # [N], with BIAS
    norm,  # [K], with NORM: x is normed first
    out,  # [rows, N]
    eps,
    N: tl.constexpr,
    K: tl.constexpr,
    NORM: tl.constexpr,
    BIAS: tl.constexpr,
    GATED: tl.constexpr,  # out = silu(gate) * up
    ADD: tl.constexpr,  # out += the product, instead of out = the product
    ROWS: tl.constexpr,
    N_TILE: tl.constexpr,
    K_TILE: tl.constexpr,
    EARLY: tl.constexpr,
):
    """A few rows of x @ weight.T without matrix units: every weight goes straight to its thread, once.

    All loads are asked for before anything is added up, the weights' before the kernel before has ended.
    """
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    n = tl.program_id(0) * N_TILE + tl.arange(0, N_TILE)
    n_in = n < N
    lines = weight + n.to(tl.int64)[:, None] * K
    weights, ups = (), ()
    for start in tl.static_range(0, K, K_TILE):
        at = start + tl.arange(0, K_TILE)
        inside = n_in[:, None] & (at < K)[None, :]
        weights = weights + (tl.load(lines + at[None, :], mask=inside, other=0.0),)
        if GATED:
            ups = ups + (tl.load(lines + N * K + at[None, :], mask=inside, other=0.0),)
    if EARLY:
        tl.extra.cuda.gdc_wait()
    norms, parts = (), ()
    for start in tl.static_range(0, K, K_TILE):
        at = start + tl.arange(0, K_TILE)
        if NORM:
            norms = norms + (tl.load(norm + at, mask=at < K, other=0.0),)
        for row in tl.static_range(ROWS):
            parts = parts + (tl.load(x + row * K + at, mask=at < K, other=0.0),)
    for row in tl.static_range(ROWS):
        product = tl.zeros((N_TILE,), tl.float32)
        second = tl.zeros((N_TILE,), tl.float32)
        squares = tl.zeros((K_TILE,), tl.float32)
        for tile in tl.static_range((K + K_TILE - 1) // K_TILE):
            part = parts[tile * ROWS + row].to(tl.float32)
            if NORM:
                squares += part * part
                part *= norms[tile].to(tl.float32)
            product += tl.sum(weights[tile].to(tl.float32) * part[None, :], 1)
            if GATED:
                second += tl.sum(ups[tile].to(tl.float32) * part[None, :], 1)
        if NORM:
            # The norm's factor is one number a row: it may as well come after the product.
            factor = tl.rsqrt(tl.sum(squares, 0) / K + eps)
            product *= factor
            second *= factor
        if BIAS:
            product += tl.load(bias + n, mask=n_in, other=0.0).to(tl.float32)
        if GATED:
            product = product / (1.0 + tl.exp(-product)) * second
        to = out + row * N + n
        if ADD:
            product += tl.load(to, mask=n_in, other=0.0)
        tl.store(to, product.to(out.dtype.element_ty), mask=n_in)


@triton.jit
def normed(
    x,  # float32 [rows, K]
    y,  # [rows, K], added to x first, with ADD
    norm,  # [K]
    out,  # [rows, K]
    eps,
    K: tl.constexpr,
    ADD: tl.constexpr,
    K_TILE: tl.constexpr,
):
    """Root-mean-square norm of a row, for products that are not fused with it."""
    k = tl.arange(0, K_TILE)
    inside = k < K
    at = tl.program_id(0) * K + k
    line = tl.load(x + at, mask=inside, other=0.0)
    if ADD:
        line += tl.load(y + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(x + at, line, mask=inside)
    factor = tl.rsqrt(tl.sum(line * line, 0) / K + eps)
    weight = tl.load(norm + k, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, (line * factor * weight).to(out.dtype.element_ty), mask=inside)


@triton.jit
def gated(
    both,  # [rows, 2 N]: gates, then ups
    out,  # [rows, N]
    N: tl.constexpr,
    N_TILE: tl.constexpr,
):
    """silu(gate) * up, for a product that is not fused with it."""
    n = tl.program_id(1) * N_TILE + tl.arange(0, N_TILE)
    row = tl.program_id(0)
    gate = tl.load(both + row * 2 * N + n, mask=n < N, other=0.0).to(tl.float32)
    up = tl.load(both + row * 2 * N + N + n, mask=n < N, other=0.0).to(tl.float32)
    tl.store(out + row * N + n, (gate / (1.0 + tl.exp(-gate)) * up).to(out.dtype.element_ty), mask=n < N)
