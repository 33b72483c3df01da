"""A stand-in for the engine facade: the same calls, no thread, no model, and one scene known by heart.

`golden_scene` is the burst `seed-warm-8` on the emulated Apple M2 at 2.80 s: the GPU decodes requests 1
to 4 and 5 to 7 wait for it, while the CPU decodes request 8, whose scores crossed (3.118 against 3.444 s).
"""

from collections.abc import Iterator
from itertools import count

from engine.config import BackendSpec
from engine.events import (
    BackendInfo,
    BackendState,
    BackendStatus,
    BurstStarted,
    EngineReady,
    Event,
    ModelLoaded,
    RequestArrived,
    RequestDone,
    RequestRouted,
    SetupStep,
    StepDone,
    TextOut,
)
from engine.hub import EventHub, Subscription
from engine.limits import reload_reason
from engine.receipt import Candidate, Receipt
from engine.request import BackendName, FinishReason, RequestId, RequestTimings, SamplingParams
from engine.step_report import Admission, BackendLoad, BlockChange, BlockState, RequestLoad, StepReport
from engine.weights import PolicyWeights

NOW_S = 2.80  # of the scene, after the burst began
PROMPT, CACHED, OUT, BLOCK = 516, 496, 128, 16
POOL, SHARED = 384, 31
CPU, GPU = BackendName("cpu"), BackendName("gpu")
# As real backends: they take less than they were started with, and no more. The values are usual slots.
SPECS = {BackendSpec(CPU, "cpu", "cpu"): 4, BackendSpec(GPU, "gpu", "cuda:0", token_budget=2048): 4}
FIRST_ID = 100  # chats take the ids below
GPU_ACTIVE_DECODE = (0, 125, 248, 372, 506, 502, 496, 488)  # tokens still to decode, seen by each arrival


def backend_infos(emulated: bool = True) -> list[BackendInfo]:
    shared = {"emulated": emulated, "slots": 4, "kv_blocks": POOL, "block_bytes": 368_640, "format": "Q4_1"}
    device = "emulated" if emulated else "cpu"
    cpu_rates = {"prefill_rate": 73.0, "decode_rate": 45.0}
    gpu_rates = {"prefill_rate": 2551.0, "decode_rate": 293.0}
    return [
        BackendInfo(CPU, "CPU", "cpu", 1, device, "Apple M2 CPU", threads=7, **cpu_rates, **shared),
        BackendInfo(GPU, "GPU", "gpu", 0, device, "Apple M2 GPU", threads=1, **gpu_rates, **shared),
    ]


def setup_events() -> list[Event]:
    """Everything until the engine is ready."""
    infos = backend_infos()
    return [
        SetupStep("load:cpu", "Start the CPU backend", "emulated", "done"),
        SetupStep("load:gpu", "Start the GPU backend", "emulated", "done"),
        ModelLoaded("SmolLM2-135M-Instruct, Q4_1", "Q4_1", 4096, True, "Apple M2, published timings"),
        *(BackendStatus(info, BackendState.READY) for info in infos),
        EngineReady(),
    ]


def golden_receipts(start_s: float) -> list[Receipt]:
    """One per request: the GPU's score climbs from 0.445 to 3.444 s, the idle CPU stays at 3.118 s."""
    out = []
    for index, active_decode in enumerate(GPU_ACTIVE_DECODE):
        active, queued = min(index, 4), max(0, index - 4)
        gpu = _candidate(GPU, active, queued, active_decode, 2551.0, 293.0)
        cpu = _candidate(CPU, 0, 0, 0, 73.0, 45.0)
        to_cpu = cpu.score < gpu.score
        reason = (
            f"Waiting for the GPU would cost {gpu.score:.1f} s, the CPU needs {cpu.score:.1f} s."
            if to_cpu
            else f"The GPU is clear in {gpu.score:.1f} s, the CPU would need {cpu.score:.1f} s."
        )
        out.append(
            Receipt(
                RequestId(FIRST_ID + index),
                "isolated-rates",
                "s",
                CPU if to_cpu else GPU,
                reason,
                start_s + index * 0.05,
                (gpu, cpu),
            )
        )
    return out


def _candidate(
    name: BackendName, active: int, queued: int, decode: int, prefill_rate: float, decode_rate: float
) -> Candidate:
    own = PROMPT - CACHED
    score = own * (1 + queued) / prefill_rate + (OUT * (1 + queued) + decode) / decode_rate
    return Candidate(
        name, score, score, active, queued, CACHED,
        own, OUT, 0, decode, own * queued, OUT * queued, prefill_rate, decode_rate,
    )  # fmt: skip


def golden_scene(start_s: float = 1_000.0) -> list[Event]:
    """The whole scene in order of time; the engine's setup comes first. Read it at start_s + NOW_S."""
    offsets_s = tuple(i * 0.05 for i in range(8))
    timed: list[tuple[float, Event]] = [
        (0.0, BurstStarted("run-1", "seed-warm-8", "isolated-rates", 8, start_s, offsets_s))
    ]
    for index, receipt in enumerate(golden_receipts(start_s)):
        at_s = index * 0.05
        timed.append(
            (at_s, RequestArrived(receipt.request_id, index + 1, "run-1", PROMPT, OUT, start_s + at_s))
        )
        timed.append((at_s, RequestRouted(receipt)))
    for report in (*_gpu_steps(start_s), *_cpu_steps(start_s)):
        timed.append((report.finished_s - start_s, StepDone(report)))
    timed.sort(key=lambda pair: pair[0])
    return [*setup_events(), *(event for _, event in timed)]


def _gpu_steps(start_s: float) -> Iterator[StepReport]:
    """Requests 1 to 4 join one by one, then four rows share steps of 46.4 ms: 65, 59, 57 and 56 tokens."""
    plan = [(0.03 + 0.007 * i, 1) for i in range(6)] + [(0.09, 2), (0.13, 2), (0.17, 3), (0.23, 4)]
    plan += [(0.23 + 0.0464 * (i + 1), 4) for i in range(55)]
    yield from _steps(GPU, start_s, plan, [0, 1, 2, 3], [4, 5, 6], [0.0, 0.05, 0.11, 0.17], 112)


def _cpu_steps(start_s: float) -> Iterator[StepReport]:
    plan = [(0.69 + 0.02265 * i, 1) for i in range(94)]
    yield from _steps(CPU, start_s, plan, [7], [], [0.35], 46)


def _steps(
    name: BackendName,
    start_s: float,
    plan: list[tuple[float, int]],
    order: list[int],
    waiting: list[int],
    admitted_s: list[float],
    cached_blocks: int,
) -> Iterator[StepReport]:
    """Steps of one backend: (end, rows) in `plan`, requests by index in the order of their slots."""
    made = [0] * len(order)
    free = iter(range(SHARED + cached_blocks + 6, POOL))
    kept = [(i, SHARED + 2 + i + (3 if i > 40 else 0)) for i in range(cached_blocks)]
    blocks = [BlockChange(block, BlockState.CACHED, (), depth) for depth, block in kept]
    previous = admitted_s[0]
    for sequence, (end_s, rows) in enumerate(plan):
        admissions, prefill = [], 0
        for row in range(rows):
            request_id = RequestId(FIRST_ID + order[row])
            if made[row] == 0:
                admissions.append(Admission(request_id, row, CACHED, start_s + admitted_s[row]))
                prefill += PROMPT - CACHED
                owners = tuple(RequestId(FIRST_ID + i) for i in order[: row + 1])
                state = BlockState.SHARED if row else BlockState.ACTIVE
                blocks += [BlockChange(b, state, owners, b) for b in range(SHARED)]
            before = 0 if made[row] == 0 else -(-(PROMPT + made[row]) // BLOCK) - SHARED
            made[row] += 1
            after = -(-(PROMPT + made[row]) // BLOCK) - SHARED
            blocks += [
                BlockChange(next(free), BlockState.ACTIVE, (request_id,), SHARED + d)
                for d in range(before, after)
            ]
        loads = tuple(
            RequestLoad(RequestId(FIRST_ID + i), slot, PROMPT, CACHED, 0, made[slot], OUT - made[slot])
            for slot, i in enumerate(order[:rows])
        ) + tuple(
            RequestLoad(RequestId(FIRST_ID + i), -1, PROMPT, CACHED, PROMPT - CACHED, 0, OUT)
            for i in waiting
            if i * 0.05 <= end_s
        )
        begin = max(previous, end_s - 0.0464) if name == GPU else max(previous, end_s - 0.02265)
        yield StepReport(
            name,
            sequence,
            start_s + begin,
            start_s + end_s,
            rows - len(admissions),
            sum(PROMPT + m for m in made[:rows]),
            prefill,
            tokens=tuple((RequestId(FIRST_ID + i), 7) for i in order[:rows]),
            admitted=tuple(admissions),
            load=BackendLoad(loads, POOL - 60, POOL),
            blocks=tuple(blocks),
        )
        blocks, previous = [], end_s


class FakeEngine:
    """The facade's calls. Nothing happens by itself: tests publish what they want to see."""

    def __init__(self, config: object = None) -> None:
        self.config = config
        self.hub = EventHub()
        self.calls: list[tuple[object, ...]] = []
        self.built: list = []  # of bursts that are no presets
        self.closed = False
        self._ids = count(1)

    def subscribe(self, capacity: int = 65_536) -> Subscription:
        return self.hub.subscribe(capacity)

    def publish(self, *events: Event) -> None:
        for event in events:
            self.hub.publish(event)

    def start(self) -> None:
        self.calls.append(("start",))

    def submit_chat(
        self, messages: list[dict[str, str]], sampling: SamplingParams, backend: str | None = None
    ) -> RequestId:
        sampling.validate()
        request_id = RequestId(next(self._ids))
        self.calls.append(("submit_chat", messages, sampling, backend))
        self.publish(RequestArrived(request_id, request_id, None, 24, sampling.max_new_tokens, 990.0))
        return request_id

    def answer(
        self, request_id: RequestId, text: str, backend: BackendName = GPU, ttft_s: float = 0.05,
        rate: float = 287.0, done: bool = True,
    ) -> None:  # fmt: skip
        """Route a typed prompt to `backend` and let it say `text`, a token a word."""
        score = _candidate(backend, 0, 0, 0, 2551.0, 293.0)
        self.publish(
            RequestRouted(
                Receipt(request_id, "isolated-rates", "s", backend, "It is idle.", 990.0, (score,))
            ),
            *(TextOut(request_id, word) for word in text.split(" ")[:1]),
            *(TextOut(request_id, f" {word}") for word in text.split(" ")[1:]),
        )
        if done:
            tokens = len(text.split(" "))
            times = tuple(990.0 + ttft_s + i / rate for i in range(tokens))
            timings = RequestTimings(990.0, 990.0, times[0], times[-1], times)
            self.publish(RequestDone(request_id, backend, FinishReason.STOP, 24, 0, tokens, timings))

    def cancel(self, request_id: RequestId) -> None:
        self.calls.append(("cancel", request_id))
        timings = RequestTimings(990.0, finished_s=991.0)
        self.publish(RequestDone(request_id, GPU, FinishReason.ABORT, 24, 0, 0, timings))

    def cancel_all(self) -> None:
        self.calls.append(("cancel_all",))

    def run_burst(self, preset: str, policy: str | None = None, build=None) -> str:
        self.calls.append(("run_burst", preset, policy))
        if build is not None:
            self.built.append(build)
        self.publish(*golden_scene()[len(setup_events()) :])
        return "run-1"

    def set_policy(self, name: str) -> None:
        self.calls.append(("set_policy", name))

    def set_weights(self, weights: PolicyWeights) -> None:
        self.calls.append(("set_weights", weights))

    def set_limits(self, slots: str, token_budget: int | None) -> None:
        self.calls.append(("set_limits", slots, token_budget))

    def reload_reason(self, slots: str, token_budget: int | None) -> str:
        return reload_reason(SPECS, slots, token_budget)

    def restart_backend(self, name: str) -> None:
        self.calls.append(("restart_backend", name))

    def policies(self) -> list[str]:
        return ["isolated-rates", "least-requests", "total-delay"]

    def close(self) -> None:
        self.closed = True
