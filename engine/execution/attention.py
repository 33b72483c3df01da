"""Attention of one step over the paged cache: mixed rows of one new token or of many.

`StepPlan` is worked out once a step from the batch; every layer then only multiplies. Queries come in
already scaled (the rotary tables carry the factor), so nothing here divides by sqrt(head_dim).
"""

import torch
import torch.nn.functional as F

from engine.execution.step_plan import Group, Padded, Span, StepPlan, Table
from engine.kv.storage import KVStorage, Window

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


def attend(layer: int, queries: torch.Tensor, plan: StepPlan, storage: KVStorage) -> torch.Tensor:
    """Attention of every token of the step. `queries` [tokens, heads, head_dim] in the storage's type.

    Returns the same shape, contiguous. The step's own keys and values are already in the storage.
    """
    kv_heads = storage.shape.kv_heads
    if len(plan.singles) == queries.shape[0] == 1:  # nothing to put together
        return _attend_single(layer, queries[0], plan.singles[0][1], storage)[None]
    out = torch.empty(queries.shape, dtype=queries.dtype, device=queries.device)
    # Heads that share a key/value head become rows of one product: [tokens, kv_heads, group, head_dim].
    grouped = queries.view(queries.shape[0], kv_heads, -1, queries.shape[2])
    grouped_out = out.view_as(grouped)
    for at, window in plan.singles:
        out[at] = _attend_single(layer, queries[at], window, storage)
    for group in plan.groups:
        _attend_group(layer, grouped, grouped_out, group, storage)
    if plan.table is not None:
        _attend_table(layer, grouped, grouped_out, plan.table, storage)
    for span in plan.spans:
        keys, values = storage.read(layer, span.window)
        _attend_span(grouped, grouped_out, span, keys, values)
    for padded in plan.padded:
        _attend_padded(layer, grouped, grouped_out, padded, storage)
    return out


def _attend_single(layer: int, query: torch.Tensor, window: Window, storage: KVStorage) -> torch.Tensor:
    """One token of one row; `query` [heads, head_dim] and the result alike."""
    if window.blocks is None:
        keys, values = storage.view(layer, window.first, window.length)
    else:
        keys, values = (part[None] for part in storage.read(layer, window))
    if keys.dtype == torch.bfloat16:  # only kept so where the fused kernel is fast, see `adapter.kv_dtype`
        one = query.view(1, -1, 1, query.shape[1])
        answer = F.scaled_dot_product_attention(one, keys, values, scale=1.0, enable_gqa=True)
        return answer.view_as(query)
    # Two products beat the fused kernel at one query on most processors.
    grouped = query.view(keys.shape[1], -1, query.shape[1])
    weights = torch.softmax(torch.bmm(grouped, keys[0].transpose(1, 2)), -1)
    return torch.bmm(weights, values[0]).view_as(query)


def _attend_group(
    layer: int, grouped: torch.Tensor, out: torch.Tensor, group: Group, storage: KVStorage
) -> None:
    """Attention over the common part for all rows at once, and over each row's own part, merged by their
    sums of exponentials (Juravsky et al. 2024, Hydragen)."""
    queries = grouped.index_select(0, group.rows)  # [rows, kv_heads, group, head_dim]
    rows, kv_heads, heads, dim = queries.shape
    together = queries.transpose(0, 1).reshape(1, kv_heads, rows * heads, dim)
    keys, values = (part[None] for part in storage.read(layer, group.shared))
    common, common_sum = _flash(together, keys, values, scale=1.0)
    common = common.reshape(kv_heads, rows, heads, dim).transpose(0, 1)
    common_sum = common_sum.reshape(kv_heads, rows, heads).transpose(0, 1)
    keys, values = storage.read_table(layer, group.blocks)
    mask = group.mask.expand(rows, 1, heads, -1)
    own, own_sum = _flash(queries, keys, values, scale=1.0, attn_mask=mask)
    share = torch.sigmoid(own_sum.reshape(rows, kv_heads, heads) - common_sum)[..., None].to(own.dtype)
    out.index_copy_(0, group.rows, torch.lerp(common, own, share))


def _attend_table(
    layer: int, grouped: torch.Tensor, out: torch.Tensor, table: Table, storage: KVStorage
) -> None:
    keys, values = storage.read_table(layer, table.blocks)
    queries = grouped.index_select(0, table.rows)  # [rows, kv_heads, group, head_dim]
    answer = F.scaled_dot_product_attention(queries, keys, values, attn_mask=table.mask, scale=1.0)
    out.index_copy_(0, table.rows, answer)


def _attend_span(
    grouped: torch.Tensor, out: torch.Tensor, span: Span, keys: torch.Tensor, values: torch.Tensor
) -> None:
    queries = grouped.narrow(0, span.begin, span.length).permute(1, 2, 0, 3)  # [kv_heads, group, len, dim]
    group = queries.shape[1]
    # Each key/value head serves its group through a stride of zero: nothing is repeated in memory.
    keys = keys[:, None].expand(-1, group, -1, -1)
    values = values[:, None].expand(-1, group, -1, -1)
    answer = F.scaled_dot_product_attention(
        queries, keys, values, attn_mask=span.mask, is_causal=span.mask is None, scale=1.0
    )
    out.narrow(0, span.begin, span.length).copy_(answer.permute(2, 0, 1, 3))


def _attend_padded(
    layer: int, grouped: torch.Tensor, out: torch.Tensor, padded: Padded, storage: KVStorage
) -> None:
    """Every operand contiguous [1, kv_heads, rows, dim]: strided and broadcast ones have given wrong results
    on Metal (pytorch#181133, #184180)."""
    keys, values = storage.read_table(layer, padded.blocks)
    queries = grouped.index_select(0, padded.rows).permute(1, 2, 0, 3).contiguous()
    kv_heads, heads, tokens, dim = queries.shape
    answer = F.scaled_dot_product_attention(
        queries.view(1, kv_heads, heads * tokens, dim), keys, values, attn_mask=padded.mask, scale=1.0
    )
    answer = answer.view(kv_heads, heads, tokens, dim).permute(2, 0, 1, 3).contiguous()
    out.index_copy_(0, padded.rows, answer)
