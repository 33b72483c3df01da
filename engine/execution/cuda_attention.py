"""Triton kernel of a decode step: attention that reads the paged cache in place, rotary embedding included.

The tiles of a long context are computed side by side and merged in order by the one that ends last. As in
`cuda_kernels`, the order of the sums depends on the row alone. Imported only where triton is there.
"""

import triton
import triton.language as tl


@triton.jit
def _turned(at, mask, norm, cos, sin, eps, half, DIM: tl.constexpr, NORM: tl.constexpr):
    """Heads at the pointers `at` [heads, half], normed and rotated: their two halves in float32."""
    first = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(at + half, mask=mask, other=0.0).to(tl.float32)
    if NORM:
        squares = tl.sum(first * first, 1) + tl.sum(second * second, 1)
        factor = tl.rsqrt(squares / DIM + eps)[:, None]
        first *= factor * tl.load(norm, mask=mask, other=0.0)
        second *= factor * tl.load(norm + half, mask=mask, other=0.0)
    return first * cos - second * sin, second * cos + first * sin


@triton.jit
def attend(
    qkv,  # [rows, heads + 2 * KV_HEADS, DIM]
    cache,  # [tokens, 2 * KV_HEADS, DIM]: a token's keys, then its values
    lengths,  # [rows] at `stride`: context of each row, the new token included; 0 = no row
    tables,  # [rows, blocks] at `stride`
    cosines,  # [context, DIM]
    sines,  # [context, DIM], the first half negative
    norm,  # [heads + KV_HEADS, DIM], with NORM
    partial,  # float32 [rows, tiles, heads, DIM], the tiles' answers
    partial_max,  # float32 [rows, tiles, heads]
    partial_sum,  # float32 [rows, tiles, heads]
    arrived,  # int32 [rows, KV_HEADS], zero between launches
    out,  # [rows, heads, DIM]
    stride,
    tiles,
    scale,
    eps,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,  # query heads of a key/value head
    GROUP_TILE: tl.constexpr,
    DIM: tl.constexpr,
    HALF_TILE: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,  # cached tokens of one program, a whole number of blocks
    MERGE: tl.constexpr,  # tiles merged at a time
    NORM: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Rotate one row's queries and key, cache the new key and value, attend over one tile of the context;
    the last tile of a head to arrive merges all of them, in order."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
    row, head, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + row * stride)
    if tile * TILE >= length:
        return
    HALF: tl.constexpr = DIM // 2
    HEADS: tl.constexpr = KV_HEADS * GROUP
    dtype = cache.dtype.element_ty
    place_size: tl.constexpr = 2 * KV_HEADS * DIM
    new = length - 1  # position of the token that this step adds
    g, d = tl.arange(0, GROUP_TILE), tl.arange(0, HALF_TILE)
    d_in = d < HALF
    heads = head * GROUP + g
    of_group = (g < GROUP)[:, None] & d_in[None, :]
    cos = tl.load(cosines + new * DIM + d, mask=d_in, other=0.0)[None, :]
    sin = tl.load(sines + new * DIM + HALF + d, mask=d_in, other=0.0)[None, :]
    line = qkv + row * (HEADS + 2 * KV_HEADS) * DIM
    grid = heads[:, None] * DIM + d[None, :]

    # What earlier steps cached does not depend on the kernel before, so it is asked for first.
    table = tables + row * stride
    t = tile * TILE + tl.arange(0, TILE)
    block = tl.load(table + t // BLOCK, mask=t < length, other=0).to(tl.int64)
    old = (t < new)[:, None] & d_in[None, :]
    is_new = (t == new)[:, None]
    keys = cache + ((block * BLOCK + t % BLOCK) * place_size + head * DIM)[:, None] + d[None, :]
    values = keys + KV_HEADS * DIM
    c1 = tl.load(keys, mask=old, other=0.0)
    c2 = tl.load(keys + HALF, mask=old, other=0.0)
    u1 = tl.load(values, mask=old, other=0.0)
    u2 = tl.load(values + HALF, mask=old, other=0.0)
    if EARLY:
        tl.extra.cuda.gdc_wait()
    q1, q2 = _turned(line + grid, of_group, norm + grid, cos, sin, eps, HALF, DIM, NORM)
    q1, q2 = (q1 * scale).to(dtype), (q2 * scale).to(dtype)

    # The new key and value come from this step's product, not from the cache, whoever writes them there.
    own = (HEADS + head) * DIM + d[None, :]
    k1, k2 = _turned(line + own, d_in[None, :], norm + own, cos, sin, eps, HALF, DIM, NORM)
    k1, k2 = k1.to(dtype), k2.to(dtype)
    v_at = line + (HEADS + KV_HEADS + head) * DIM + d[None, :]
    v1 = tl.load(v_at, mask=d_in[None, :], other=0.0).to(dtype)
    v2 = tl.load(v_at + HALF, mask=d_in[None, :], other=0.0).to(dtype)
    if tile * TILE + TILE >= length:
        home = tl.load(table + new // BLOCK).to(tl.int64) * BLOCK + new % BLOCK
        key_at = cache + home * place_size + head * DIM + d[None, :]
        value_at = key_at + KV_HEADS * DIM
        tl.store(key_at, k1, mask=d_in[None, :])
        tl.store(key_at + HALF, k2, mask=d_in[None, :])
        tl.store(value_at, v1, mask=d_in[None, :])
        tl.store(value_at + HALF, v2, mask=d_in[None, :])

    c1, c2 = tl.where(is_new, k1, c1), tl.where(is_new, k2, c2)
    u1, u2 = tl.where(is_new, v1, u1), tl.where(is_new, v2, u2)
    scores = tl.dot(q1, tl.trans(c1), input_precision="ieee")
    scores = tl.dot(q2, tl.trans(c2), scores, input_precision="ieee")
    scores = tl.where((t < length)[None, :], scores, float("-inf"))
    top = tl.max(scores, 1)
    weights = tl.exp(scores - top[:, None])
    total = tl.sum(weights, 1)
    weights = weights.to(dtype)
    a1 = tl.dot(weights, u1, input_precision="ieee")
    a2 = tl.dot(weights, u2, input_precision="ieee")

    answer = out + row * HEADS * DIM + grid
    if length <= TILE:
        tl.store(answer, (a1 / total[:, None]).to(dtype), mask=of_group)
        tl.store(answer + HALF, (a2 / total[:, None]).to(dtype), mask=of_group)
        return
    slot = (row * tiles + tile) * HEADS
    tl.store(partial + slot * DIM + grid, a1, mask=of_group)
    tl.store(partial + slot * DIM + grid + HALF, a2, mask=of_group)
    tl.store(partial_max + slot + heads, top, mask=g < GROUP)
    tl.store(partial_sum + slot + heads, total, mask=g < GROUP)
    tl.debug_barrier()  # every thread's part is stored before the program counts itself in
    count = tl.cdiv(length, TILE)
    if tl.atomic_add(arrived + row * KV_HEADS + head, 1, sem="acq_rel") < count - 1:
        return
    tl.store(arrived + row * KV_HEADS + head, 0)
    top = tl.full((GROUP_TILE,), float("-inf"), tl.float32)
    total = tl.zeros((GROUP_TILE,), tl.float32)
    a1 = tl.zeros((GROUP_TILE, HALF_TILE), tl.float32)
    a2 = tl.zeros((GROUP_TILE, HALF_TILE), tl.float32)
    for start in tl.range(0, count, MERGE):
        s = start + tl.arange(0, MERGE)
        stats = ((row * tiles + s) * HEADS)[:, None] + heads[None, :]
        stats_in = (s < count)[:, None] & (g < GROUP)[None, :]
        # .cg: past the first-level cache, which does not see what other multiprocessors stored.
        tops = tl.load(partial_max + stats, mask=stats_in, other=float("-inf"), cache_modifier=".cg")
        sums = tl.load(partial_sum + stats, mask=stats_in, other=0.0, cache_modifier=".cg")
        parts = stats[:, :, None] * DIM + d[None, None, :]
        parts_in = stats_in[:, :, None] & d_in[None, None, :]
        p1 = tl.load(partial + parts, mask=parts_in, other=0.0, cache_modifier=".cg")
        p2 = tl.load(partial + parts + HALF, mask=parts_in, other=0.0, cache_modifier=".cg")
        higher = tl.maximum(top, tl.max(tops, 0))
        safe = tl.where(g < GROUP, higher, 0.0)  # padding heads have no maximum
        keep = tl.exp(tl.where(g < GROUP, top - safe, 0.0))
        share = tl.exp(tops - safe[None, :])
        a1 = a1 * keep[:, None] + tl.sum(share[:, :, None] * p1, 0)
        a2 = a2 * keep[:, None] + tl.sum(share[:, :, None] * p2, 0)
        total = total * keep + tl.sum(share * sums, 0)
        top = higher
    total = tl.where(g < GROUP, total, 1.0)
    tl.store(answer, (a1 / total[:, None]).to(dtype), mask=of_group)
    tl.store(answer + HALF, (a2 / total[:, None]).to(dtype), mask=of_group)
