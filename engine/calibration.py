"""Isolated calibration: 512 tokens in and 128 out, alone on one backend, through the real engine.

One backend at a time, never beside user work, and under a lock for the whole machine: two windows that
measured at once would measure each other.
"""

import random
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from engine.backend import Cancel, DropUnowned
from engine.events import BackendState, SetupStep
from engine.ledger import Entry
from engine.paths import cache_dir, make_folder
from engine.profiling.profile import Rates
from engine.profiling.store import RatesKey, save_rates
from engine.request import BackendName, RequestId, SamplingParams
from engine.supervisor import Unit

if TYPE_CHECKING:
    from engine.core import Core

PROMPT_TOKENS, NEW_TOKENS = 512, 128
_WARM_UP = (64, 8)  # kernels choose their paths and pages are touched before anything is timed
_REST_S = 0.5  # quiet after user work before a measurement begins
_DETAIL = "512 tokens in, 128 out, alone"


def rates_key(unit: Unit) -> RatesKey:
    """Under which the rates of a loaded backend are kept."""
    info = unit.info
    return RatesKey(unit.plan.salt, info.format, info.device_name, info.threads, info.slots)


def rates_of(entry: Entry) -> Rates | None:
    """Rates from a finished measurement; None when it was cut short."""
    times = entry.token_times_s
    if entry.admitted_s is None or len(times) < NEW_TOKENS or times[-1] <= times[0]:
        return None
    prefill_s = max(1e-9, times[0] - entry.admitted_s)
    return Rates(PROMPT_TOKENS / prefill_s, (NEW_TOKENS - 1) / (times[-1] - times[0]))


class Calibrator:
    """Backends still to measure. User work pauses it, and what was being measured begins again later."""

    def __init__(self, core: "Core", vocabulary: int) -> None:
        self._core = core
        self._vocabulary = vocabulary
        self._waiting: list[BackendName] = []
        self._request_id: RequestId | None = None  # running now
        self._warm = False
        self._rest_until_s = 0.0
        self._draws = random.Random(core.config.seed)
        self._lock: FileLock | None = None

    @property
    def current(self) -> BackendName | None:
        return self._waiting[0] if self._waiting else None

    def add(self, name: BackendName) -> None:
        if name not in self._waiting:
            self._waiting.append(name)

    def drop(self, name: BackendName) -> None:
        """The backend died."""
        if name == self.current:
            self._next()
        elif name in self._waiting:
            self._waiting.remove(name)

    def rest(self) -> None:
        """User work ended just now."""
        self._rest_until_s = self._core.clock.now_s() + _REST_S

    def advance(self, busy: bool) -> None:
        """Begin the next measurement when it is quiet."""
        name = self.current
        resting = self._core.clock.now_s() < self._rest_until_s
        if name is None or busy or resting or self._request_id is not None or not self._locked():
            return
        supervisor = self._core.supervisor
        if supervisor.units[name].state is BackendState.READY:
            supervisor.set_state(name, BackendState.CALIBRATING, _DETAIL)
            self._tell(name, _DETAIL, "running")
        tokens, new = (PROMPT_TOKENS, NEW_TOKENS) if self._warm else _WARM_UP
        # Random tokens, so that nothing is restored.
        prompt = tuple(self._draws.randrange(self._vocabulary) for _ in range(tokens))
        sampling = SamplingParams(temperature=0.0, top_p=1.0, max_new_tokens=new, ignore_eos=True)
        self._request_id = self._core.internal(name, prompt, sampling)

    def ended(self, entry: Entry) -> None:
        """An internal request ended; was it ours?"""
        if entry.request.id != self._request_id:
            return
        self._request_id = None
        if not self._warm:
            self._warm = True
            return
        rates, name = rates_of(entry), self.current
        if rates is None or name is None:
            return  # measured again
        supervisor = self._core.supervisor
        save_rates(rates_key(supervisor.units[name]), rates)
        supervisor.send(name, DropUnowned())
        supervisor.set_state(name, BackendState.READY)
        self._core.set_rates(name, rates)
        self._tell(name, f"{rates.prefill:,.0f} tok/s in, {rates.decode:,.0f} out", "done")
        self._next()

    def pause(self) -> None:
        """User work comes first."""
        name, request_id = self.current, self._request_id
        if name is None or request_id is None:
            return
        self._request_id, self._warm = None, False
        self._core.supervisor.send(name, Cancel(request_id))
        del self._core.ledger.entries[request_id]
        self._core.router.forget(name, request_id)
        self._core.supervisor.set_state(name, BackendState.READY)
        self._release()

    def close(self) -> None:
        self._release()

    def _next(self) -> None:
        self._waiting.pop(0)
        self._warm, self._request_id = False, None
        if not self._waiting:
            self._release()

    def _locked(self) -> bool:
        if self._lock is None:
            lock = FileLock(make_folder(cache_dir()) / "calibration.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                return False  # another Offramp measures; the loop asks again
            self._lock = lock
        return True

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _tell(self, name: BackendName, detail: str, state: str) -> None:
        label = self._core.supervisor.units[name].info.label
        self._core.publish(SetupStep(f"calibrate:{name}", f"Calibrate the {label} backend", detail, state))
