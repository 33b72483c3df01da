"""The window's picture of the engine: events go in, rows and backend views come out. No Qt.

Only `Board.apply` writes; panels read. `apply` returns which topics changed, so that a panel
repaints only when something it shows has moved.
"""

from collections import deque
from dataclasses import dataclass, field

from app.series.frames import Frames
from app.series.throughput import Throughput
from engine.events import (
    BackendInfo,
    BackendState,
    BackendStatus,
    BurstDone,
    BurstStarted,
    EngineFailed,
    EngineReady,
    Event,
    Foreseen,
    ModelLoaded,
    Notice,
    PriceNews,
    RequestArrived,
    RequestDone,
    RequestRouted,
    SetupStep,
    StepDone,
    TextOut,
)
from engine.receipt import Receipt
from engine.request import FinishReason, RequestId, RequestState
from engine.step_report import BackendLoad, BlockChange, BlockState, StepReport

KEPT_REQUESTS = 2_000
KEPT_STEPS = 4_000


@dataclass(slots=True)
class RequestRow:
    """One request as the table, the charts and the signatures show it."""

    request_id: RequestId
    number: int
    run_id: str | None
    prompt_tokens: int
    max_new_tokens: int
    arrival_s: float
    state: RequestState = RequestState.QUEUED
    backend: str | None = None
    receipt: Receipt | None = None
    foreseen_s: float | None = None  # E2E as forecast at the last arrival; None without step-time models
    cached_tokens: int | None = None  # true match; None until admitted
    slot: int = -1
    admitted_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    token_times_s: list[float] = field(default_factory=list)
    output_tokens: int = 0
    reason: FinishReason | None = None
    message: str = ""


@dataclass(slots=True)
class BackendView:
    """One backend: what is fixed, its last load, its KV blocks and its recent steps."""

    info: BackendInfo
    state: BackendState
    message: str = ""
    load: BackendLoad = field(default_factory=BackendLoad)
    blocks: dict[int, BlockChange] = field(default_factory=dict)  # blocks that are not free
    evicted: dict[int, float] = field(default_factory=dict)  # block -> time of eviction
    changed_blocks: set[int] = field(default_factory=set)  # since the KV map last cleared it
    steps: deque[StepReport] = field(default_factory=lambda: deque(maxlen=KEPT_STEPS))
    last_step: StepReport | None = None  # with rows; None before the first
    price: PriceNews | None = None  # how well its steps are predicted; None without a step-time model

    def counts(self) -> dict[BlockState, int]:
        """Blocks per state; free is what is left of the pool."""
        out = dict.fromkeys(BlockState, 0)
        for change in self.blocks.values():
            out[change.state] += 1
        out[BlockState.FREE] = self.info.kv_blocks - sum(out.values())
        return out


@dataclass(slots=True)
class RunView:
    """The burst on the screen: the running one, else the last."""

    started: BurstStarted
    done: BurstDone | None = None


class Board:
    """Everything the panels read. Times are engine seconds (time.monotonic)."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Another engine begins: nothing of the old one is true any more, its request ids included."""
        self.model: ModelLoaded | None = None
        self.setup: dict[str, SetupStep] = {}
        self.ready = False
        self.failure: str | None = None
        self.asked = False  # what `failure` says was wished for: nothing is wrong
        self.backends: dict[str, BackendView] = {}
        self.requests: dict[RequestId, RequestRow] = {}  # in order of arrival
        self.texts: dict[RequestId, list[str]] = {}  # chat requests only; the prompt panel takes them
        self.run: RunView | None = None
        self.notices: deque[Notice] = deque(maxlen=100)
        self.last_receipt: Receipt | None = None
        self.throughput = Throughput()
        self.frames = Frames()

    def run_rows(self) -> list[RequestRow]:
        """Requests of the burst on the screen, or every typed request where there was no burst."""
        run_id = self.run.started.run_id if self.run else None
        return [r for r in self.requests.values() if r.run_id == run_id]

    def shown_rows(self) -> list[RequestRow]:
        """What charts and table show: the burst while it runs; afterwards whatever came last, the
        burst or the typed prompts. A prompt typed during a burst must not push the burst away."""
        newest = next(reversed(self.requests.values()), None)
        if newest is None or newest.run_id is not None or (self.run and self.run.done is None):
            return self.run_rows()
        return [r for r in self.requests.values() if r.run_id is None]

    def labels(self) -> dict[str, str]:
        """Name of a backend -> the word on the screen."""
        return {name: view.info.label for name, view in self.backends.items()}

    def ranks(self) -> dict[str, int]:
        """Name of a backend -> its rank, which is its shape and colour."""
        return {name: view.info.rank for name, view in self.backends.items()}

    def busy(self) -> tuple[str, ...]:
        """Backends with unfinished requests."""
        return tuple(name for name, view in self.backends.items() if view.load.requests)

    def ranked(self) -> list[BackendView]:
        """Slowest first, as the window places them from left to right."""
        return sorted(self.backends.values(), key=lambda b: -b.info.rank)

    def apply(self, events: list[Event]) -> set[str]:
        """Take events in order. Returns changed topics out of
        {"setup", "model", "backends", "requests", "routing", "text", "run", "notices"}."""
        topics: set[str] = set()
        for event in events:
            self._apply_one(event, topics)
        return topics

    def _apply_one(self, event: Event, topics: set[str]) -> None:
        match event:
            case StepDone(report):
                self._step(report)
                topics |= {"backends", "requests"}
            case PriceNews(backend):
                if (view := self.backends.get(backend)) is not None:
                    view.price = event
                    topics.add("backends")
            case TextOut(request_id, text):
                row = self.requests.get(request_id)
                if row is not None and row.run_id is None:
                    self.texts.setdefault(request_id, []).append(text)
                    topics.add("text")
            case RequestArrived():
                self.requests[event.request_id] = RequestRow(
                    event.request_id,
                    event.number,
                    event.run_id,
                    event.prompt_tokens,
                    event.max_new_tokens,
                    event.arrival_s,
                )
                if self.throughput.origin_s is None:
                    self.throughput.restart(event.arrival_s)
                while len(self.requests) > KEPT_REQUESTS:
                    del self.requests[next(iter(self.requests))]
                topics.add("requests")
            case Foreseen(ends):
                for request_id, e2e_s in ends:
                    if (row := self.requests.get(request_id)) is not None:
                        row.foreseen_s = e2e_s
                topics.add("requests")
            case RequestRouted(receipt):
                self.last_receipt = receipt
                row = self.requests.get(receipt.request_id)
                if row is not None:
                    row.receipt, row.backend = receipt, receipt.chosen
                topics |= {"routing", "requests"}
            case RequestDone():
                self._done(event)
                topics |= {"requests", "text"}
            case BackendStatus(info, state, message):
                view = self.backends.get(info.name)
                if view is None:
                    self.backends[info.name] = BackendView(info, state, message)
                else:
                    view.info, view.state, view.message = info, state, message
                    if state in (BackendState.STOPPED, BackendState.LOADING):
                        view.load = BackendLoad()
                        self.frames.cleared(info.name, view.blocks)
                        view.changed_blocks |= set(view.blocks)
                        view.blocks.clear()
                topics.add("backends")
            case BurstStarted():
                self.run = RunView(event)
                self.throughput.restart(event.start_s)
                self.frames.restart({name: view.blocks for name, view in self.backends.items()})
                topics |= {"run", "requests", "routing"}
            case BurstDone():
                if self.run is not None and self.run.started.run_id == event.run_id:
                    self.run.done = event
                topics.add("run")
            case ModelLoaded():
                self.model = event
                topics.add("model")
            case SetupStep():
                self.setup[event.key] = event
                topics.add("setup")
            case Notice():
                self.notices.append(event)
                topics.add("notices")
            case EngineReady():
                self.ready = True
                topics |= {"setup", "model"}
            case EngineFailed(message, asked):
                self.failure, self.asked = message, asked
                topics |= {"setup", "notices"}

    def _step(self, report: StepReport) -> None:
        view = self.backends.get(report.backend)
        if view is None:
            return
        view.load = report.load
        if report.decode_rows or report.prefill_tokens:
            view.last_step = report
            view.steps.append(report)
        before = view.blocks if report.backend in self.frames.tracks else dict(view.blocks)
        for change in report.blocks:
            view.changed_blocks.add(change.block)
            if change.evicted:
                view.evicted[change.block] = report.finished_s
            if change.state is BlockState.FREE:
                view.blocks.pop(change.block, None)
            else:
                view.blocks[change.block] = change
        self.frames.add(report, before, view.blocks)
        for admission in report.admitted:
            row = self.requests.get(admission.request_id)
            if row is not None:
                row.admitted_s, row.slot = admission.time_s, admission.slot
                row.cached_tokens, row.state = admission.cached_tokens, RequestState.PREFILL
        for request_id, cached in report.cache_hits:
            row = self.requests.get(request_id)
            if row is not None:
                row.cached_tokens = cached
        for request_id, _token in report.tokens:
            row = self.requests.get(request_id)
            if row is None or row.state is RequestState.FINISHED:
                continue
            since_s = row.token_times_s[-1] if row.token_times_s else row.admitted_s
            self.throughput.add(
                report.backend, report.started_s if since_s is None else since_s, report.finished_s
            )
            if row.first_token_s is None:
                row.first_token_s = report.finished_s
            row.state = RequestState.DECODING
            row.token_times_s.append(report.finished_s)
            row.output_tokens += 1
        self.throughput.step(report.backend, report.finished_s)

    def _done(self, event: RequestDone) -> None:
        row = self.requests.get(event.request_id)
        if row is None:
            return
        row.state, row.reason, row.message = RequestState.FINISHED, event.reason, event.message
        row.backend = event.backend or row.backend
        row.cached_tokens, row.output_tokens = event.cached_tokens, event.output_tokens
        row.finished_s, row.slot = event.timings.finished_s, -1
        row.first_token_s, row.admitted_s = event.timings.first_token_s, event.timings.admitted_s
        if event.timings.token_times_s:
            row.token_times_s = list(event.timings.token_times_s)
