"""Attention against a plain float64 reference, in each way of laying out a step."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from engine.config import BLOCK_TOKENS
from engine.devices.mps import bucket as metal
from engine.execution.attention import attend
from engine.execution.step_plan import place, plan_step
from engine.kv.storage import KVStorage
from engine.models.architecture import ModelShape
from engine.scheduling.batch import Batch
from tests.support import Stream, scattered

LAYERS, DIM = 2, 16
LAYOUTS = {"cpu": None, "metal": metal}


def shape(heads: int, kv_heads: int) -> ModelShape:
    return ModelShape("llama", LAYERS, heads * DIM, heads, kv_heads, DIM, 64, 128, 1e4, 1e-5, 512, True)


def streams() -> list[Stream]:
    """Decode rows at block edges, a prefix shared by three, a whole prompt, a chunk, a chunk behind a hit."""
    common = [20, 21, 22, 23]
    sharing = [(70 + 9 * n, [*common, 30 + 3 * n, 31 + 3 * n]) for n in range(3)]
    return [
        Stream(1, [5] * 1, [0]),
        Stream(2, [5] * 16, [1], computed=15),
        Stream(3, [5] * 17, [2, 3], computed=16),
        *(Stream(4, [5] * tokens, blocks, computed=tokens - 1) for tokens, blocks in sharing),
        Stream(7, [5] * 33, [50, 51, 52]),
        Stream(8, [5] * 75, [55, 58, 57, 56, 59], computed=48),
        Stream(9, [5] * 40, scattered(3, offset=90), computed=7),
    ]


def reference(queries: torch.Tensor, cache: list[torch.Tensor], layer: int, batch: Batch) -> torch.Tensor:
    """One query, one head at a time. `queries` [tokens, heads, dim], scaled already."""
    out, at = [], 0
    kv_heads = cache[layer].shape[1] // 2
    for row in batch.rows:
        places = [place(row, p) for p in range(row.context)]
        known = cache[layer][places].double()
        for position in range(row.start, row.context):
            for head in range(queries.shape[1]):
                kv = head * kv_heads // queries.shape[1]
                keys, values = known[: position + 1, kv], known[: position + 1, kv_heads + kv]
                weights = torch.softmax(keys @ queries[at, head].double(), 0)
                out.append(weights @ values)
            at += 1
    return torch.stack(out).view(at, queries.shape[1], -1)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (5, 1)])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_layout_against_float64(heads: int, kv_heads: int, layout: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(heads)
    storage = KVStorage(shape(heads, kv_heads), 200, dtype, torch.device("cpu"))
    for layer in range(LAYERS):
        storage.layer(layer).copy_(torch.randn(storage.layer(layer).shape, generator=generator))
    batch = Batch([s.row() for s in streams()])
    plan = plan_step(batch, storage, LAYOUTS[layout])
    if layout == "metal":
        assert plan.table is not None and len(plan.padded) == 3 and not plan.spans and not plan.groups
    else:
        assert len(plan.groups) == 1 and len(plan.spans) == 3 and not plan.padded
    count = sum(row.length for row in batch.rows)
    queries = torch.randn(plan.ids.shape[0], heads, DIM, generator=generator).to(dtype)
    cache = [storage.layer(n).clone() for n in range(LAYERS)]
    for layer in range(LAYERS):
        got = attend(layer, queries, plan, storage)[:count]
        want = reference(queries[:count], cache, layer, batch)
        tolerance = 1e-5 if dtype == torch.float32 else 0.03
        torch.testing.assert_close(got.double(), want, atol=tolerance, rtol=tolerance)
        assert got.is_contiguous() and got.dtype == dtype


def test_metal_gets_contiguous_operands_and_whole_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Permuted or broadcast operands have given wrong answers there: none may reach the kernel."""
    seen: list[tuple[tuple[torch.Tensor, ...], torch.Tensor, dict[str, Any]]] = []
    library: Callable[..., torch.Tensor] = F.scaled_dot_product_attention

    def watched(*operands: torch.Tensor, attn_mask: torch.Tensor, **rest: Any) -> torch.Tensor:
        seen.append((operands, attn_mask, rest))
        return library(*operands, attn_mask=attn_mask, **rest)

    monkeypatch.setattr(F, "scaled_dot_product_attention", watched)
    storage = KVStorage(shape(6, 2), 200, torch.bfloat16, torch.device("cpu"))
    plan = plan_step(Batch([s.row() for s in streams()]), storage, metal)
    attend(0, torch.zeros(plan.ids.shape[0], 6, DIM, dtype=torch.bfloat16), plan, storage)
    assert len(seen) == 4  # the table, and each longer row
    for (queries, keys, values), mask, rest in seen:
        for operand in (queries, keys, values, mask):
            assert operand.dim() == 4 and operand.is_contiguous()
        assert mask.dtype in (torch.bool, queries.dtype) and not rest.get("is_causal")
        assert mask.shape == (*queries.shape[:3], keys.shape[2])
        assert keys.shape[:2] == queries.shape[:2] and keys.shape[2] % BLOCK_TOKENS == 0
