"""What a backend sends, one `StepReport` a step: frozen dataclasses of numbers, for they cross a process.

Times are seconds on the engine's monotonic clock.
"""

from dataclasses import dataclass, field
from enum import IntEnum

from engine.request import BackendName, FinishReason, RequestId


class BlockState(IntEnum):
    FREE = 0  # holds nothing reusable
    CACHED = 1  # no owner, reusable by prefix
    ACTIVE = 2  # one owner
    SHARED = 3  # two or more owners


@dataclass(frozen=True, slots=True)
class BlockChange:
    """One KV block whose state or owners changed during a step."""

    block: int
    state: BlockState
    owners: tuple[RequestId, ...] = ()
    depth: int = -1  # index in its prefix chain, 0 = first 16 tokens; -1 = unknown or free
    evicted: bool = False  # it was cached and has just been taken for something else


@dataclass(frozen=True, slots=True)
class RequestLoad:
    """One unfinished request on a backend, after a step."""

    request_id: RequestId
    slot: int  # -1 while queued
    prompt_tokens: int
    cached_tokens: int  # restored from the prefix cache (estimate while queued)
    prefill_remaining: int
    generated: int
    decode_remaining: int  # max_new_tokens - generated
    stale_estimate: bool = False  # the queued estimate no longer holds: blocks were evicted

    @property
    def active(self) -> bool:
        return self.slot >= 0


@dataclass(frozen=True, slots=True)
class BackendLoad:
    """What the router knows of a backend: all its unfinished requests and its free room."""

    requests: tuple[RequestLoad, ...] = ()
    free_blocks: int = 0  # free or cached without owner, less what active requests have reserved
    total_blocks: int = 0


@dataclass(frozen=True, slots=True)
class Admission:
    request_id: RequestId
    slot: int
    cached_tokens: int
    time_s: float


@dataclass(frozen=True, slots=True)
class Ending:
    request_id: RequestId
    reason: FinishReason


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step of one backend (or, with no rows, a change of state while idle)."""

    backend: BackendName
    sequence: int  # 0, 1, 2, ... without gaps; restarts at 0 with the backend
    started_s: float
    finished_s: float
    decode_rows: int = 0  # n
    context_tokens: int = 0  # K
    prefill_tokens: int = 0  # P
    prefill_chunks: int = 0
    prefill_attention: float = 0.0  # C
    overhead_s: float = 0.0  # scheduling and bookkeeping around the forward pass
    tokens: tuple[tuple[RequestId, int], ...] = ()
    admitted: tuple[Admission, ...] = ()
    cache_hits: tuple[tuple[RequestId, int], ...] = ()  # tokens adopted after admission, total so far
    ended: tuple[Ending, ...] = ()
    withdrawn: tuple[RequestId, ...] = ()  # given up before they began, as asked: they go elsewhere
    load: BackendLoad = field(default_factory=BackendLoad)
    blocks: tuple[BlockChange, ...] = ()
    hashes_added: tuple[bytes, ...] = ()
    hashes_removed: tuple[bytes, ...] = ()
    other_busy: bool | None = None  # did another backend compute as it began? None = not known
    threads: int = 0  # that computed it; 0 = not told

    @property
    def duration_s(self) -> float:
        return self.finished_s - self.started_s
