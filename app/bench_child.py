"""One scenario of `offramp bench window`, in a process of its own: `python -m app.bench_child SPEC_JSON`.

The real window with a real engine. A burst runs with the window shown, or on the same engine while the
window is hidden and the main thread only waits for the result: that is "without". Prints one JSON object.
"""

import gc
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
from PySide6.QtCore import QEventLoop, QTimer
from PySide6.QtWidgets import QApplication, QWidget

from app.application import SWITCH_INTERVAL_S, start_engine
from app.bridge import Bridge
from app.main_window import MainWindow
from app.preferences import Preferences
from app.probes import Heartbeat, PaintCounter, spread
from app.series.board import Board
from app.session import Session
from app.settings import Settings
from app.theme import ThemeHolder, font
from engine.cli import window_parser
from engine.errors import BackendError
from engine.events import BurstDone, EngineFailed, Notice
from engine.workloads.presets import Workload, make_workload
from engine.workloads.texts import Tokenise

READY_S, BURST_S = 1_800.0, 900.0
POLL_MS, REST_S = 20, 0.5
DRAG_STEPS, DRAG_MS = 150, 16  # moments that a time cursor passes, and how long it stays at each
WARM_UP = 8  # requests of the first burst, which does not count


@dataclass(frozen=True, slots=True)
class Spec:
    """What to run. `order` holds "with" and "without" in their order; `requests` cuts the preset short."""

    options: tuple[str, ...]
    preset: str
    policy: str
    order: tuple[str, ...]
    requests: int | None = None


class Bench:
    """A window on scratch settings, and bursts on its engine."""

    def __init__(self, spec: Spec, folder: Path) -> None:
        self.spec = spec
        args = window_parser().parse_args([*spec.options, "--policy", spec.policy])
        board, settings = Board(), Settings(folder / "window.ini")
        settings.set_tour_seen()
        bridge = Bridge(board)
        session = Session(bridge, args, Preferences(folder / "settings.json"))
        self.window = MainWindow(
            board, ThemeHolder("dark"), bridge, settings, session, chats=folder / "chats.sqlite"
        )
        self.window.resize(1920, 1080)
        self.window.painted.connect(lambda: start_engine(self.window, args))
        self.window.show()
        self._wait(lambda: board.ready or board.failure is not None, READY_S, "The engine was not ready")
        if board.failure is not None:
            raise BackendError(board.failure)
        self._engine, self._events = bridge.for_experiments()
        self.heart = Heartbeat(self.window)
        self.paints = PaintCounter(self.panels(), self.window)
        self.rss_mb: list[float] = []

    def panels(self) -> dict[str, QWidget]:
        window = self.window
        out: dict[str, QWidget] = {"toolbar": window.toolbar, "prompt": window.prompt}
        out |= {f"backend {name}": panel for name, panel in window.backends.panels.items()}
        return out | {
            "routing": window.routing,
            "ttft": window.ttft,
            "throughput": window.throughput,
            "requests": window.requests,
        }

    def with_window(self, requests: int | None, counts: bool = True) -> float:
        """Output tokens per second of a burst that the window shows; gaps and repaints are collected."""
        window, board = self.window, self.window.board
        self._show()
        run_id = self._start(requests)

        def begun() -> bool:
            run = board.run
            return self._lost() or (run is not None and run.started.run_id == run_id)

        self._wait(begun, READY_S, "The burst did not begin")
        if counts:
            self.paints.begin()
            self.heart.start()
        self._wait(
            lambda: self._lost() or (board.run is not None and board.run.done is not None),
            BURST_S,
            "The burst did not end",
        )
        self.heart.stop()
        self.paints.end()
        window.card.close_card()
        return self._throughput(run_id)

    def without_window(self, requests: int | None) -> float:
        """The same while the event loop stands still: no timer fires, nothing is drained or painted."""
        self.window.hide()
        QApplication.processEvents()
        return self._throughput(self._start(requests))

    def drag(self) -> dict[str, float]:
        """Heartbeat gaps while the time cursor is dragged over the last burst, from its start to its end."""
        window, board = self.window, self.window.board
        self._show()
        first_s, last_s = board.throughput.origin_s, board.frames.last_s()
        if first_s is None or last_s is None:
            return spread([])
        step_s = (last_s - first_s) / DRAG_STEPS
        places = [first_s + step_s * number for number in range(DRAG_STEPS)]
        heart, timer = Heartbeat(window), QTimer()

        def move() -> None:
            if places:
                window.time_cursor.go_to(places.pop(0))

        timer.setInterval(DRAG_MS)
        timer.timeout.connect(move)
        timer.start()
        heart.start()
        self._wait(lambda: not places, BURST_S, "The time cursor did not come to the end")
        heart.stop()
        timer.stop()
        window.time_cursor.go_live()
        return spread(heart.gaps_ms)

    def close(self) -> None:
        self.window.close()

    def _show(self) -> None:
        """The window as it is after everything that came while nobody looked."""
        self.window.bridge.drain()
        self.window.card.close_card()
        self.window.show()
        QApplication.processEvents()

    def _start(self, requests: int | None) -> str:
        self._events.drain()
        spec = self.spec

        def build(tokenise: Tokenise) -> Workload:
            workload = make_workload(spec.preset, tokenise)
            return replace(workload, requests=workload.requests[:requests])

        run_id: str = self._engine.run_burst(spec.preset, spec.policy, build=build)
        return run_id

    def _lost(self) -> bool:
        return self.window.board.failure is not None

    def _throughput(self, run_id: str) -> float:
        """Wait without Qt for the burst's result, and read it."""
        end_s = time.monotonic() + BURST_S
        refused = ""
        while time.monotonic() < end_s:
            for event in self._events.drain():
                if isinstance(event, EngineFailed):
                    raise BackendError(event.message)
                if isinstance(event, Notice) and event.level == "error":
                    refused = event.message
                if isinstance(event, BurstDone) and event.run_id == run_id:
                    rate = event.result.get("output_throughput")
                    if event.aborted or not isinstance(rate, float):
                        raise BackendError(refused or "The burst was stopped.")
                    return rate
            time.sleep(POLL_MS / 1000)
        raise BackendError(f"The burst did not end within {BURST_S:.0f} s.")

    def _wait(self, done: Any, most_s: float, words: str) -> None:
        """Run the event loop until `done()`."""
        loop, timer, end_s = QEventLoop(), QTimer(), time.monotonic() + most_s

        def look() -> None:
            if done() or time.monotonic() > end_s:
                loop.quit()

        timer.setInterval(POLL_MS)
        timer.timeout.connect(look)
        timer.start()
        loop.exec()
        timer.stop()
        if not done():
            raise BackendError(f"{words} within {most_s:.0f} s.")


def measure(spec: Spec, folder: Path) -> dict[str, Any]:
    """Warm up, run `spec.order`, and put the figures together."""
    bench = Bench(spec, folder)
    try:
        bench.with_window(min(WARM_UP, spec.requests or WARM_UP), counts=False)
        rates: dict[str, list[float]] = {"with": [], "without": []}
        process, began = psutil.Process(), os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        for number, side in enumerate(spec.order, 1):
            time.sleep(REST_S)
            run = bench.with_window if side == "with" else bench.without_window
            rates[side].append(round(run(spec.requests), 2))
            if side == "with":
                gc.collect()
                bench.rss_mb.append(round(process.memory_info().rss / 1e6, 1))
            sys.stderr.write(f"run {number} of {len(spec.order)}, {side}: {rates[side][-1]:.1f} tok/s\n")
            sys.stderr.flush()
        drag = bench.drag()
        seconds = sum(bench.heart.gaps_ms) / 1000
        own = sum(bench.heart.own_ms) / max(1e-9, sum(bench.heart.gaps_ms))
        return {
            "heartbeat_ms": spread(bench.heart.gaps_ms),
            "own_time_ms": {**spread(bench.heart.own_ms), "share": round(own, 3)},
            "drag_ms": drag,
            "worst_gaps": bench.heart.worst(),
            "redraws_per_s": {k: round(n / seconds, 1) for k, n in bench.paints.most().items()},
            "tok_s": rates,
            "rss_mb": bench.rss_mb,
            "seconds": round(seconds, 1),
            "load_average": began,
        }
    finally:
        bench.close()


def main(argv: list[str]) -> int:
    data = json.loads(argv[0])
    spec = Spec(
        tuple(data["options"]), data["preset"], data["policy"], tuple(data["order"]), data["requests"]
    )
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    app = QApplication(["offramp"])
    app.setFont(font("label"))
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = measure(spec, Path(folder))
        except BackendError as error:
            sys.stderr.write(f"offramp: {error}\n")
            return 1
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
