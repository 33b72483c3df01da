"""Everything that leaves the engine: frozen dataclasses of numbers and strings.

The `Event` union is what the engine's subscribers (the window, the command line) drain. Times are seconds on
the engine's monotonic clock.
"""

from dataclasses import dataclass
from enum import StrEnum

from engine.receipt import Receipt
from engine.request import BackendName, FinishReason, RequestId, RequestTimings
from engine.step_report import StepReport


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
    """The engine cannot go on. `message` says why and what to do; `asked`: somebody wanted it to end."""

    message: str
    asked: bool = False


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
