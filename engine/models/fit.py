"""Will a model fit this machine? Every backend's copy of the weights and its KV pool against memory.

Torch-free and before anything is loaded or downloaded. Sizes are upper bounds within a tenth or so: which
format a CPU takes by itself is only known after its trials.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import psutil

from engine.config import BLOCK_TOKENS, BackendSpec
from engine.models.architecture import ModelShape

# Bytes a weight takes, by format; "auto" is what a CPU or GPU chooses by itself at most.
_WEIGHT_BYTES = {"float32": 4.0, "bf16": 2.0, "int8": 1.1, "int4": 0.7, "int8-dynamic": 1.1, "auto": 2.0}
_PROCESS_BYTES = 200 << 20  # torch itself, in each backend's process (measured: 184 MiB)
_ROOMY, _TIGHT = 0.6, 0.85  # of all memory; the rest belongs to the system and other programs


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of main memory, and of each accelerator that has its own, by device ("cuda:0")."""

    main: int
    devices: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Fit:
    """`verdict` is "fits", "tight", "too large" or "unknown"; `words` say what is needed of what."""

    verdict: str
    words: str
    need_bytes: int = 0


def this_memory(accelerators: Iterable[tuple[str, int]] = ()) -> Memory:
    """This machine's; `accelerators` are (device, bytes) of cards with memory of their own."""
    return Memory(psutil.virtual_memory().total, dict(accelerators))


def backend_bytes(shape: ModelShape, spec: BackendSpec) -> tuple[int, int]:
    """(weights, KV pool) of one backend. An emulated one holds neither."""
    if spec.emulated:
        return 0, 0
    weight = _WEIGHT_BYTES[spec.format]
    cache = 2 if spec.device != "cpu" and spec.format != "float32" else 4
    embedding = shape.vocab * shape.hidden * (4 if spec.format == "float32" else 2)
    linear = shape.linear_parameters * weight
    # A float32 head is the embedding itself; packed ones are a copy.
    shared = embedding if spec.format == "float32" and shape.tied_embedding else 0
    return round(linear + embedding - shared), spec.kv_blocks * BLOCK_TOKENS * shape.kv_elements * cache


def fit(shape: ModelShape, specs: Sequence[BackendSpec], context_tokens: int, memory: Memory) -> Fit:
    """Judge `shape` on the backends that would run, at the context that would be loaded."""
    need: dict[str, int] = {}
    for spec in specs:
        place = spec.device if spec.device in memory.devices else ""
        weights, cache = backend_bytes(shape, spec)
        need[place] = need.get(place, 0) + weights + cache
        if not spec.emulated:
            need[""] = need.get("", 0) + _PROCESS_BYTES
    worst = max(need, key=lambda place: need[place] / _room(memory, place))
    share = need[worst] / _room(memory, worst)
    verdict = "fits" if share <= _ROOMY else "tight" if share <= _TIGHT else "too large"
    where = f" on {worst}" if worst else ""
    copies = sum(not s.emulated for s in specs)
    what = "one copy and its KV pool" if copies == 1 else f"{copies} copies and their KV pools"
    words = f"{size_words(need[worst])} of {size_words(_room(memory, worst))}{where} for {what}"
    context = min(context_tokens, shape.max_context)
    pool = min((s.kv_blocks for s in specs), default=0) * BLOCK_TOKENS
    if context > pool:
        words += f"; the KV pool holds {pool:,} of the {context:,} tokens of context"
        verdict = "tight" if verdict == "fits" else verdict
    return Fit(verdict, words, need[worst])


def _room(memory: Memory, place: str) -> int:
    return max(1, memory.devices[place] if place else memory.main)


def size_words(size_bytes: float) -> str:
    """ "1.9 GB" from one gigabyte on, else "98 MB"."""
    return f"{size_bytes / 1e9:,.1f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:,.0f} MB"
