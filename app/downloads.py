"""Downloads that the user started: each a child process behind a thread, paused by ending it.

What has arrived stays on disk, so resuming is starting again.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal

from engine.errors import EngineError
from engine.events import SetupStep
from engine.models.apart import fetch_apart

POLL_MS, JOIN_S = 100, 2.0
Fetch = Callable[[str, Callable[[SetupStep], None], Callable[[], None]], Path]


class _Paused(Exception):
    """Raised inside the thread when the user pauses, or the window closes."""


@dataclass(slots=True)
class Download:
    """`state` is "running", "paused", "done" or "failed"; `step` is the last progress."""

    name: str
    state: str = "running"
    step: SetupStep | None = None
    error: str = ""
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None

    def check(self) -> None:
        if self.stop.is_set():
            raise _Paused

    def run(self, fetch: Fetch) -> None:
        try:
            fetch(self.name, self._take, self.check)
            self.state = "done"
        except _Paused:
            self.state = "paused"
        except EngineError as error:
            self.error, self.state = str(error), "failed"

    def _take(self, step: SetupStep) -> None:
        self.check()
        self.step = step


class Downloads(QObject):
    """By model name. `changed` comes ten times a second while something runs, `finished` once a download."""

    changed = Signal()
    finished = Signal(str)

    def __init__(self, fetch: Fetch = fetch_apart, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._fetch = fetch
        self.by_name: dict[str, Download] = {}
        self._timer = QTimer(self)
        self._timer.setInterval(POLL_MS)
        self._timer.timeout.connect(self._look)

    def start(self, name: str) -> None:
        """Begin or resume."""
        known = self.by_name.get(name)
        if known is not None and known.state == "running":
            return
        download = self.by_name[name] = Download(name)
        download.thread = threading.Thread(
            target=download.run, args=(self._fetch,), name="download", daemon=True
        )
        download.thread.start()
        self._timer.start()
        self.changed.emit()

    def pause(self, name: str) -> None:
        if name in self.by_name:
            self.by_name[name].stop.set()

    def running(self, name: str) -> bool:
        return name in self.by_name and self.by_name[name].thread is not None

    def forget(self, name: str) -> None:
        """Its model was deleted."""
        if not self.running(name):
            self.by_name.pop(name, None)

    def _look(self) -> None:
        ended = [d for d in self.by_name.values() if d.thread is not None and not d.thread.is_alive()]
        for download in ended:
            download.thread = None
        if not any(d.thread is not None for d in self.by_name.values()):
            self._timer.stop()
        self.changed.emit()
        for download in ended:
            self.finished.emit(download.name)

    def close(self) -> None:
        """Pause everything; what has arrived stays."""
        self._timer.stop()
        threads = [d.thread for d in self.by_name.values() if d.thread is not None]
        for download in self.by_name.values():
            download.stop.set()
        for thread in threads:
            thread.join(JOIN_S)
