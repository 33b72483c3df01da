"""Everything that leaves a backend or the engine: frozen dataclasses of numbers and strings.

`StepReport` is what a backend sends, one a step. The `Event` union is what the engine's subscribers
(the window, the command line) drain. Times are seconds on the engine's monotonic clock.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from engine.receipt import Receipt
from engine.request import BackendName, FinishReason, RequestId, RequestTimings


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


class BackendState(StrEnum):
    WAITING = "waiting"  # nothing started yet (no model on disk)
    LOADING = "loading"
    CALIBRATING = "calibrating"
    READY = "ready"
    STALLED = "stalled"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """What is fixed about a backend once it runs, for the screen and for results."""

    name: BackendName
    label: str  # "CPU", "GPU", "CPU 1"
    kind: str  # "cpu" or "gpu"
    rank: int  # 0 = fastest calibrated: blue circle; 1 = amber square; 2 = grey triangle; 3 = diamond
    device: str  # "cpu", "cuda:0", "mps", "emulated"
    device_name: str  # "Apple M2 GPU", "Xeon, 1 of 2 cores"
    emulated: bool
    slots: int
    kv_blocks: int
    block_bytes: int
    threads: int
    format: str
    prefill_rate: float | None = None  # tok/s, isolated; None = not calibrated
    decode_rate: float | None = None
    priced: bool = False  # its step-time model is known: batched policies can price it
    paired: bool = False  # measured beside the other backends as well
    step_error: float | None = None  # of that model on held-out steps; None where it is given, not fitted


@dataclass(frozen=True, slots=True)
class SetupStep:
    """One line of "Getting ready". `key` is stable, a later event with the same key replaces it."""

    key: str  # "download", "verify", "tokenizer", "probe", "load:cpu-1", "calibrate:cpu-1"
    title: str
    detail: str = ""
    state: str = "running"  # "waiting", "running", "done", "failed"
    done: float | None = None  # with `total`: progress; bytes for a download
    total: float | None = None


@dataclass(frozen=True, slots=True)
class BackendStatus:
    """A backend changed state. `message` says in words what happened and what became of its requests."""

    info: BackendInfo
    state: BackendState
    message: str = ""


@dataclass(frozen=True, slots=True)
class ModelLoaded:
    """The model that the backends run. `name` reads "Placeholder text" while emulated."""

    name: str
    format: str
    context_tokens: int
    emulated: bool
    emulation: str = ""  # "Apple M2, published timings"


@dataclass(frozen=True, slots=True)
class RequestArrived:
    request_id: RequestId
    number: int  # 1, 2, 3, ... within a burst; within the session for chat requests
    run_id: str | None  # None for a typed prompt
    prompt_tokens: int
    max_new_tokens: int
    arrival_s: float


@dataclass(frozen=True, slots=True)
class RequestRouted:
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Forecasts renewed because a request arrived: E2E in seconds of every outstanding request."""

    e2e_s: tuple[tuple[RequestId, float], ...]


@dataclass(frozen=True, slots=True)
class StepDone:
    report: StepReport


@dataclass(frozen=True, slots=True)
class PriceNews:
    """How good the prices are lately, at most twice a second."""

    backend: BackendName
    factor: float  # real over predicted step time
    error: float  # how far windows of steps stray from that, as a fraction
    length_error: float | None  # mean relative error of the length estimates; None before there are some


@dataclass(frozen=True, slots=True)
class TextOut:
    """Text that became certain (whole characters, no possible stop string) since the last event."""

    request_id: RequestId
    text: str


@dataclass(frozen=True, slots=True)
class RequestDone:
    request_id: RequestId
    backend: BackendName
    reason: FinishReason
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    timings: RequestTimings
    wasted_tokens: int = 0
    message: str = ""  # for `error` and `context`: what happened, in words


@dataclass(frozen=True, slots=True)
class BurstStarted:
    run_id: str
    preset: str
    policy: str
    count: int
    start_s: float
    offsets_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BurstDone:
    """A burst ended. `result` is the JSON object that `offramp burst --json` prints."""

    run_id: str
    aborted: bool
    result: dict[str, object]


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence for the user. level: "info", "warning" or "error"."""

    level: str
    message: str


@dataclass(frozen=True, slots=True)
class EngineReady:
    pass


@dataclass(frozen=True, slots=True)
class EngineFailed:
    """The engine cannot go on. `message` says why and what to do."""

    message: str


Event = (
    SetupStep
    | BackendStatus
    | ModelLoaded
    | RequestArrived
    | RequestRouted
    | Foreseen
    | StepDone
    | PriceNews
    | TextOut
    | RequestDone
    | BurstStarted
    | BurstDone
    | Notice
    | EngineReady
    | EngineFailed
)


class Subscription:
    """A bounded ring between the engine's thread and one reader. Appending never blocks."""

    def __init__(self, capacity: int) -> None:
        self._ring: deque[Event] = deque(maxlen=capacity)
        self.pushed = 0
        self.drained = 0

    def push(self, event: Event) -> None:
        self._ring.append(event)
        self.pushed += 1

    def drain(self, most: int = 1_000_000) -> list[Event]:
        """Take up to `most` events, oldest first. Safe from another thread than the pusher's."""
        out: list[Event] = []
        try:
            while len(out) < most:
                out.append(self._ring.popleft())
        except IndexError:
            pass
        self.drained += len(out)
        return out

    @property
    def dropped(self) -> int:
        """Events that the ring had to give up because nobody drained it."""
        return max(0, self.pushed - self.drained - len(self._ring))


class EventHub:
    """Hands every event to every subscription."""

    def __init__(self) -> None:
        self._subscriptions: tuple[Subscription, ...] = ()

    def subscribe(self, capacity: int = 65_536) -> Subscription:
        subscription = Subscription(capacity)
        self._subscriptions = (*self._subscriptions, subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions = tuple(s for s in self._subscriptions if s is not subscription)

    def publish(self, event: Event) -> None:
        for subscription in self._subscriptions:
            subscription.push(event)
