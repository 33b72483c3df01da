"""One step laid out in tensors: what every layer's attention then only has to read.

A step mixes rows of one new token with rows of many. `plan_step` decides from the batch alone how each kind
is read from the paged cache, which differs by device.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from engine.config import BLOCK_TOKENS
from engine.kv.storage import KVStorage, Window
from engine.scheduling.batch import Batch, BatchRow

# Sharing a prefix takes about eight operations a layer more; reading it again must cost more than that.
SHARED_BLOCKS = 4


@dataclass(frozen=True, slots=True)
class Span:
    """A row with several new tokens: positions in the step, where its context lies, who sees what."""

    begin: int  # first token of the row within the step
    length: int
    window: Window
    mask: torch.Tensor | None  # bool [length, context], True = visible; None = plain causal from 0


@dataclass(frozen=True, slots=True)
class Padded:
    """The same where every new shape is kept for good (Metal): counts of tokens and blocks are rounded up.

    A padding token is the last one once more, so that both write the same answer to the same place.
    """

    rows: torch.Tensor  # int64 [tokens], places within the step
    blocks: torch.Tensor  # int64 [1, blocks]
    mask: torch.Tensor  # bool [1, kv_heads, heads / kv_heads * tokens, blocks * 16], nothing broadcast


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with one new token, as a padded block table, for devices where a launch costs more than a copy."""

    rows: torch.Tensor  # int64 [rows], the rows' tokens within the step
    blocks: torch.Tensor  # int64 [rows, blocks]
    mask: torch.Tensor  # bool [rows, 1, 1, blocks * 16]; in full on Metal, which got broadcast ones wrong


@dataclass(frozen=True, slots=True)
class Group:
    """Rows with one new token whose block tables begin alike: the common part is read once for all."""

    rows: torch.Tensor  # int64 [rows], the rows' tokens within the step
    shared: Window
    blocks: torch.Tensor  # int64 [rows, blocks], what each row has of its own
    mask: torch.Tensor  # storage type [rows, 1, 1, blocks * 16]: 0 where visible, -inf elsewhere


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step in tensors. `tokens` counts the padding in, which only some devices have."""

    ids: torch.Tensor  # int64 [tokens]
    positions: torch.Tensor  # int64 [tokens]
    places: torch.Tensor  # int64 [tokens], where the storage keeps each
    singles: list[tuple[int, Window]]  # (token within the step, context) of rows with one new token
    table: Table | None  # in their place, where rows are padded
    spans: list[Span]
    sampled: torch.Tensor  # int64 [sampling rows], their last tokens
    groups: list[Group] = field(default_factory=list)  # in place of singles that share a prefix
    padded: list[Padded] = field(default_factory=list)  # in place of spans


def place(row: BatchRow, position: int) -> int:
    """Storage token of a position of a row."""
    return row.blocks[position // BLOCK_TOKENS] * BLOCK_TOKENS + position % BLOCK_TOKENS


def plan_step(batch: Batch, storage: KVStorage, bucket: Callable[[int], int] | None) -> StepPlan:
    """Lay a batch out. With a `bucket`, rows of one token become a padded table, and the counts of tokens,
    rows and blocks are rounded up by it; without, each such row reads its own part of the cache."""
    strict = bucket is not None and storage.device.type != "cuda"  # CUDA minds neither shapes nor strides
    ids: list[int] = []
    positions: list[int] = []
    places: list[int] = []
    sampled: list[int] = []
    singles: list[tuple[int, BatchRow]] = []
    spans: list[Span] = []
    padded: list[Padded] = []
    for row in batch.rows:
        if row.length == 1:
            singles.append((len(ids), row))
        elif strict and bucket:
            padded.append(_padded(len(ids), row, storage, bucket))
        else:
            spans.append(_span(len(ids), row, storage))
        ids += row.tokens
        positions += range(row.start, row.context)
        places += (place(row, p) for p in range(row.start, row.context))
        if row.samples:
            sampled.append(len(ids) - 1)
    padding = bucket(len(ids)) - len(ids) if bucket else 0
    ids += [0] * padding
    positions += [0] * padding
    places += [storage.scratch_token] * padding
    table = _table(singles, storage, bucket, strict) if bucket and singles else None
    groups: list[Group] = []
    if not bucket and len(singles) > 1:
        singles, groups = _share(singles, storage)
    # One transfer for all of them: each costs a synchronisation on some devices.
    ids_t, positions_t, places_t = torch.tensor([ids, positions, places]).to(storage.device).unbind(0)
    return StepPlan(
        ids_t,
        positions_t,
        places_t,
        [] if bucket else [(at, storage.window(row.blocks, row.context)) for at, row in singles],
        table,
        spans,
        torch.tensor(sampled, dtype=torch.int64).to(storage.device),
        groups,
        padded,
    )


Singles = list[tuple[int, BatchRow]]


def _share(singles: Singles, storage: KVStorage) -> tuple[Singles, list[Group]]:
    """Split rows of one token into those that read their own cache and groups with a prefix in common."""
    by_first: dict[int, Singles] = {}
    for single in singles:
        by_first.setdefault(single[1].blocks[0], []).append(single)
    alone: Singles = []
    groups: list[Group] = []
    for members in by_first.values():
        # The block that a row writes to is its own, so a common block is full.
        tables = [row.blocks[: (row.context - 1) // BLOCK_TOKENS] for _, row in members]
        common = _common(tables) if len(members) > 1 else 0
        if common < SHARED_BLOCKS:
            alone += members
        else:
            groups.append(_group(members, common, storage))
    return alone, groups


def _common(tables: list[list[int]]) -> int:
    """Blocks that all tables begin with."""
    count = 0
    for column in zip(*tables, strict=False):
        if any(block != column[0] for block in column):
            break
        count += 1
    return count


def _group(members: Singles, common: int, storage: KVStorage) -> Group:
    shared = common * BLOCK_TOKENS
    own = [row.blocks[common : -(-row.context // BLOCK_TOKENS)] for _, row in members]
    width = max(map(len, own))
    blocks = torch.tensor([b + b[:1] * (width - len(b)) for b in own])
    lengths = torch.tensor([row.context - shared for _, row in members])
    hidden = torch.arange(width * BLOCK_TOKENS)[None, :] >= lengths[:, None]
    mask = torch.zeros(hidden.shape, dtype=storage.dtype).masked_fill_(hidden, float("-inf"))
    window = storage.window(members[0][1].blocks, shared)
    return Group(torch.tensor([at for at, _ in members]), window, blocks, mask[:, None, None, :])


def _span(begin: int, row: BatchRow, storage: KVStorage) -> Span:
    window = storage.window(row.blocks, row.context)
    if row.start == 0:
        return Span(begin, row.length, window, None)
    # is_causal aligns the triangle top left: wrong behind a cached prefix, so a mask says who sees what.
    mask = torch.ones(row.length, row.context, dtype=torch.bool, device=storage.device).tril_(row.start)
    return Span(begin, row.length, window, mask)


def _padded(begin: int, row: BatchRow, storage: KVStorage, bucket: Callable[[int], int]) -> Padded:
    used = row.blocks[: -(-row.context // BLOCK_TOKENS)]
    blocks = used + used[:1] * (bucket(len(used)) - len(used))
    tokens = torch.arange(bucket(row.length)).clamp_(max=row.length - 1)
    visible = torch.arange(len(blocks) * BLOCK_TOKENS)[None, :] <= row.start + tokens[:, None]
    shape, device = storage.shape, storage.device
    mask = visible.repeat(shape.kv_heads, shape.group, 1).unsqueeze(0)
    return Padded((begin + tokens).to(device), torch.tensor([blocks]).to(device), mask.to(device))


def _table(
    singles: list[tuple[int, BatchRow]], storage: KVStorage, bucket: Callable[[int], int], strict: bool
) -> Table:
    width = bucket(max(-(-row.context // BLOCK_TOKENS) for _, row in singles))
    # A padding row is the first row once more, so that both write the same answer to the same place.
    padded = singles + [singles[0]] * (bucket(len(singles)) - len(singles))
    blocks: list[list[int]] = []
    for _, row in padded:
        used = row.blocks[: -(-row.context // BLOCK_TOKENS)]
        blocks.append(used + used[:1] * (width - len(used)))  # padding columns are masked, but must be finite
    steps = torch.arange(width * BLOCK_TOKENS)
    mask = (steps[None, :] < torch.tensor([row.context for _, row in padded])[:, None])[:, None, None, :]
    if strict:
        mask = mask.repeat(1, storage.shape.kv_heads, storage.shape.group, 1)
    rows = [at for at, _ in padded]
    device = storage.device
    return Table(torch.tensor(rows).to(device), torch.tensor(blocks).to(device), mask.to(device))
