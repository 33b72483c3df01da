"""Compare A/B: the same burst under two policies in turn, several pairs, in a thread beside the window."""

import logging
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from app.bridge import Bridge
from app.series.verdict import Verdict, verdict_of
from engine.errors import BackendError, EngineError
from engine.events import EngineFailed, Event
from engine.paths import data_dir, make_folder

log = logging.getLogger(__name__)
POLL_MS, JOIN_S = 100, 4.0
BASELINE = "forced-fastest"
UNKNOWN = "Not calibrated yet: the fastest backend alone at its best slot count is not beside it."


def best_alone(profile: str, source: Any, slots: dict[str, int]) -> Any:
    """The fastest backend alone at its best slot count, as an `Arm`; None where no calibration tells it."""
    from engine.experiments.arms import baseline_arm, fastest_place
    from engine.profiling.profile import load_profile

    try:
        known = load_profile(profile)
    except EngineError:
        return None
    names = [backend.name for backend in known.backends]
    if set(names) != set(slots):
        return None
    return baseline_arm(known, source, slots, slots[names[fastest_place(known)]])[0]


def workload_of(preset: str, profile: str, slots: dict[str, int]) -> Any:
    """The preset as a `Source`; where its arrivals are a share of capacity, of what the profile says."""
    from engine.experiments.source import preset_source
    from engine.profiling.profile import load_profile
    from engine.simulation.capacity import preset_capacity_rps

    try:
        return preset_source(preset, preset_capacity_rps(load_profile(profile), preset, slots))
    except EngineError:
        return preset_source(preset)


def same_setting(best: Any, arm: Any, slots: dict[str, int]) -> bool:
    """Whether a policy that was chosen is the baseline already, under its own name or as "fastest"."""
    return arm.policy in (best.policy, BASELINE) and best.slots_by_name == slots


def live_place(engine: Any, drain: Callable[[], list[Event]]) -> Any:
    from engine.experiments.runs import Live

    return Live(engine, drain)


def seed_of_now() -> int:
    """Another comparison draws other workloads."""
    return int(time.time()) % 1_000_000


class Comparer(QObject):
    """At most one comparison at a time. `progress` says how many runs are done, of how many."""

    progress = Signal(int, int)
    finished = Signal(object)  # a Verdict, or None where no pair was finished
    failed = Signal(str)

    def __init__(
        self,
        bridge: Bridge,
        make_place: Callable[..., Any] = live_place,
        new_seed: Callable[[], int] = seed_of_now,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._bridge, self._make_place, self._new_seed = bridge, make_place, new_seed
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._done, self._total, self._told = 0, 0, -1
        self._result: Verdict | None = None
        self._problem = ""
        self._timer = QTimer(self)
        self._timer.setInterval(POLL_MS)
        self._timer.timeout.connect(self._look)

    @property
    def running(self) -> bool:
        return self._thread is not None

    def words(self) -> str:
        """ "run 3 of 10", "" while nothing is compared."""
        return f"run {min(self._done + 1, self._total)} of {self._total}" if self.running else ""

    def start(self, preset: str, a: str, b: str, pairs: int, slots: dict[str, int], emulation: str,
              profile: str = "local") -> None:  # fmt: skip
        """`emulation` says what is emulated, "" on real backends; `profile` is what the best slots go by."""
        engine, subscription = self._bridge.for_experiments()
        if self.running or engine is None:
            return
        self._stop.clear()
        self._done, self._total, self._told, self._result, self._problem = 0, 2 * pairs, -1, None, ""

        def drain() -> list[Event]:
            if self._stop.is_set():
                raise KeyboardInterrupt  # what `run_plan` knows as the wish to stop
            events = subscription.drain()
            for event in events:
                if isinstance(event, EngineFailed):
                    raise BackendError(event.message)
            return events

        def work() -> None:
            try:
                place = self._make_place(engine, drain)
                self._result = self._run(place, preset, (a, b), pairs, slots, emulation, profile)
            except EngineError as error:
                self._problem = str(error)
            except Exception as error:
                log.exception("the comparison failed")
                self._problem = f"The comparison failed ({type(error).__name__}): see the log."

        self._thread = threading.Thread(target=work, name="compare", daemon=True)
        self._thread.start()
        self._timer.start()

    def _run(self, place: Any, preset: str, policies: tuple[str, str], pairs: int, slots: dict[str, int],
             emulation: str, profile: str) -> Verdict | None:  # fmt: skip
        from engine.experiments.arms import Arm
        from engine.experiments.compare import Plan, run_plan
        from engine.experiments.metrics import DEFAULT_SLO

        source, (a, b) = workload_of(preset, profile, slots), policies
        arms = tuple(Arm(policy, tuple(slots.items()), policy == a) for policy in policies)
        best = best_alone(profile, source, slots)
        if best is not None and all(not same_setting(best, arm, slots) for arm in arms):
            arms = (*arms, best)
        self._total = len(arms) * pairs
        plan = Plan(source, arms, pairs, self._new_seed(), slots, {"window": emulation}, DEFAULT_SLO)

        def tell(done: int, _total: int, _kept: bool) -> None:
            self._done = done

        parent = make_folder(data_dir() / "comparisons")
        folder = Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=parent))
        outcome = run_plan(plan, place, folder, tell)
        return verdict_of(outcome, (a, b), preset, emulation, "" if best else UNKNOWN)

    def _look(self) -> None:
        thread = self._thread
        if self._done != self._told:
            self._told = self._done
            self.progress.emit(self._done, self._total)
        if thread is None or thread.is_alive():
            return
        self._timer.stop()
        thread.join()
        self._thread = None
        if self._problem:
            self.failed.emit(self._problem)
        else:
            self.finished.emit(self._result)

    def stop(self) -> None:
        """End after the present step; what is whole is still told."""
        self._stop.set()

    def close(self) -> None:
        self._stop.set()
        self._timer.stop()
        if self._thread is not None:
            self._thread.join(JOIN_S)
            self._thread = None
