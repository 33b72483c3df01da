"""The facade: submit, cancel, bursts, subscribe, close. Any thread may call it; one thread does the work.

That thread prepares the model, starts the backends and then runs `Core`. What it learns leaves as events.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from multiprocessing import Pipe

from engine.burst import Burst
from engine.clock import MonotonicClock
from engine.config import BackendSpec, EngineConfig
from engine.core import Core
from engine.deaths import restart_backend
from engine.errors import BackendError, EngineError, PromptError, UnknownNameError
from engine.events import (
    BackendInfo,
    BackendState,
    BackendStatus,
    EngineFailed,
    EngineReady,
    Notice,
    RequestDone,
)
from engine.hub import EventHub, Subscription
from engine.limits import reload_reason, usual_slots, wanted_limits
from engine.preparation import Preparation
from engine.profiling.profile import Profile
from engine.request import BackendName, FinishReason, RequestId, RequestState, RequestTimings, SamplingParams
from engine.routing.policies import policy_names
from engine.text import Message
from engine.weights import PolicyWeights
from engine.workloads.presets import PRESETS, Workload
from engine.workloads.texts import Tokenise

log = logging.getLogger(__name__)


class _Closing(Exception):
    """Raised inside the worker when `close` comes during set-up."""


class Engine:
    """One model on several backends. Create, subscribe, `start`, use, `close`."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self._clock = MonotonicClock()
        self._hub = EventHub()
        self._ids = count(1)
        self._inbox: deque[Callable[[Core], None]] = deque()
        self._wake, self._waker = Pipe(duplex=False)
        self._closing = threading.Event()
        self._names: list[str] = []
        self._specs: dict[BackendSpec, int] = {}  # with the slots of each where none are asked for
        self._thread = threading.Thread(target=self._main, name="offramp engine")
        self.ready = threading.Event()  # every backend has loaded or failed; set as well when all is lost
        self.failure: EngineError | None = None
        self._early: dict[RequestId, None] = {}  # prompts that no core has taken yet

    # --- any thread -----------------------------------------------------------------------------------

    def subscribe(self, capacity: int = 65_536) -> Subscription:
        return self._hub.subscribe(capacity)

    def start(self) -> None:
        """Begin to load; returns at once. `EngineReady` or `EngineFailed` follows."""
        self._thread.start()

    def submit_chat(
        self, messages: Sequence[Message], sampling: SamplingParams, backend: str | None = None
    ) -> RequestId:
        """A conversation that ends with the user's turn. The reply comes as `TextOut` and `RequestDone`.

        Raises `PromptError` or `SamplingError`; a prompt that is too long ends with `error` instead, since
        only the engine's thread can count its tokens.
        """
        sampling.validate()
        if not messages or not messages[-1]["content"].strip():
            raise PromptError("The prompt is empty: write something to answer.")
        if backend is not None and self._names and backend not in self._names:
            raise UnknownNameError("backend", backend, self._names)
        if self._closing.is_set():
            raise self.failure or BackendError("The engine has ended: load the model again.")
        request_id = RequestId(next(self._ids))
        only = BackendName(backend) if backend else None
        self._early[request_id] = None

        def work(core: Core) -> None:
            self._early.pop(request_id, None)
            core.typed.chat(request_id, tuple(messages), sampling, only)

        self._post(work)
        return request_id

    def cancel(self, request_id: RequestId) -> None:
        self._post(lambda core: core.cancel(request_id))

    def cancel_all(self) -> None:
        """Stop the burst and every request; where there is neither, the calibration."""
        self._post(stop_all)

    def run_burst(
        self,
        preset: str,
        policy: str | None = None,
        seed: int = 0,
        build: Callable[[Tokenise], Workload] | None = None,
        slots: Mapping[str, int] | None = None,
        token_times: bool = False,
    ) -> str:
        """Start a burst as soon as it is quiet; returns its run id. Raises `UnknownNameError`.

        `build` makes the workload in place of a preset and `preset` is then only its name; `slots` holds
        for this burst alone; `token_times` puts the time of every token into the result.
        """
        if build is None and preset not in PRESETS:
            raise UnknownNameError("preset", preset, list(PRESETS))
        self._check_policy(policy)
        burst = Burst(preset, seed, build=build, slots=slots, token_times=token_times)
        self._post(lambda core: core.bursts.start(burst, policy))
        return burst.run_id

    def set_policy(self, policy: str) -> None:
        self._check_policy(policy)
        self._post(lambda core: core.router.set_policy(policy))

    def set_weights(self, weights: PolicyWeights) -> None:
        """What `total-delay` weighs from the next decision on. Raises `ConfigError`."""
        weights.validate()
        self._post(lambda core: core.bursts.weigh(weights))

    def set_limits(self, slots: str, token_budget: int | None) -> None:
        """Slots and tokens a step from now on, as `--slots` and `--token-budget` say them.

        Raises `ReloadError` where they take a reload, `ConfigError` where they make no sense.
        """
        wanted = wanted_limits(self._specs, slots, token_budget)
        self._post(lambda core: core.limits.change(wanted, slots == "auto"))

    def reload_reason(self, slots: str, token_budget: int | None) -> str:
        """Why `set_limits` would not do; "" where it would. Raises `ConfigError` for nonsense."""
        return reload_reason(self._specs, slots, token_budget)

    def policies(self) -> list[str]:
        """Names of the policies; the forced ones are complete once the backends are known."""
        return policy_names(self._names)

    def restart_backend(self, name: str) -> None:
        """Start a stopped or stalled backend anew. Raises `UnknownNameError`."""
        if name not in self._names:
            raise UnknownNameError("backend", name, self._names)
        self._post(lambda core: restart_backend(core, BackendName(name)))

    def recalibrate(self) -> None:
        """Measure every running backend again as soon as it is quiet."""
        self._post(lambda core: core.recalibrate())

    def stop_calibration(self) -> None:
        """Measure no further: what was measured is kept, and the rest stays as it was known before."""
        self._post(lambda core: core.calibrator.stop())

    def wait_ready(self, timeout_s: float | None = None) -> None:
        """Wait until requests can run. Raises the `EngineError` that prevented it."""
        if not self.ready.wait(timeout_s):
            raise BackendError(f"The engine was not ready after {timeout_s:.0f} s: look into the log.")
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """End everything within about three seconds: requests, backends, the thread."""
        self._closing.set()
        self._post(lambda core: None)
        if self._thread.is_alive():
            self._thread.join()

    def _post(self, work: Callable[[Core], None]) -> None:
        self._inbox.append(work)
        try:
            self._waker.send_bytes(b"!")
        except OSError:
            log.debug("work posted after close")

    def _check_policy(self, policy: str | None) -> None:
        if policy is not None and self._names and policy not in self.policies():
            raise UnknownNameError("policy", policy, self.policies())

    # --- the engine's thread --------------------------------------------------------------------------

    def _main(self) -> None:
        core: Core | None = None
        try:
            core = self._set_up()
            core.start()
            self._loop(core)
        except _Closing:
            pass
        except EngineError as error:
            self._fail(error)
        except Exception as error:
            log.exception("the engine's thread failed")
            self._fail(BackendError(f"The engine failed ({type(error).__name__}: {error}): see the log."))
        finally:
            if core is not None:
                core.close()
            self._closing.set()
            self.ready.set()
            self._wake.close()
            self._waker.close()

    def _loop(self, core: Core) -> None:
        while not self._closing.is_set():
            core.turn(self._wake)
            while self._wake.poll(0):
                self._wake.recv_bytes()
            while self._inbox:
                work = self._inbox.popleft()
                try:
                    work(core)
                except EngineError as error:
                    self._hub.publish(Notice("error", str(error)))
            core.advance()
            if not self.ready.is_set() and not core.loading:
                if not core.router.alive():
                    raise BackendError(" ".join(u.message for u in core.supervisor.units.values()))
                self.ready.set()
                self._hub.publish(EngineReady())

    def _fail(self, error: EngineError) -> None:
        self.failure = error
        self._closing.set()
        self._hub.publish(EngineFailed(str(error)))
        now_s = self._clock.now_s()
        for request_id in list(self._early):
            timings = RequestTimings(now_s, finished_s=now_s)
            self._hub.publish(
                RequestDone(
                    request_id, BackendName(""), FinishReason.ERROR, 0, 0, 0, timings, message=str(error)
                )
            )

    def _leave_if_closing(self) -> None:
        if self._closing.is_set():
            raise _Closing

    def _set_up(self) -> Core:
        made = Preparation(self.config, self._hub.publish, self._leave_if_closing, self._announce).run()
        return Core(
            made.config, made.codec, made.vocabulary, made.units, self._clock, self._hub.publish, self._ids
        )

    def _announce(
        self, specs: Sequence[BackendSpec], infos: Sequence[BackendInfo], profile: Profile | None
    ) -> None:
        """Tell the backends at once, so that the window can draw them before they load."""
        self._names = [s.name for s in specs]
        self._specs = usual_slots(specs, profile)
        for info in infos:
            self._hub.publish(BackendStatus(info, BackendState.WAITING))
        # A policy that does not exist is refused before anything is loaded.
        if self.config.policy not in self.policies():
            raise UnknownNameError("policy", self.config.policy, self.policies())


def stop_all(core: Core) -> None:
    """What runs for the user ends; only when nothing does, it is the calibration that they want to stop."""
    unfinished = (e.number for e in core.ledger.entries.values() if e.state is not RequestState.FINISHED)
    if core.bursts.burst is None and not core.loading and not any(unfinished):
        core.calibrator.stop()
    core.cancel_all()
