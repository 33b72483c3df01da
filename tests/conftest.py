"""For every test: an offscreen screen, settings of its own, reproducible random tests, and no leaks."""

import gc
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from engine.paths import models_dir

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
# The user's settings, logs, chats, runs and measurements stay out of it. Downloaded models are shared.
_OWN = Path(tempfile.mkdtemp(prefix="offramp-tests-"))
os.environ["OFFRAMP_MODELS_DIR"] = str(models_dir())
os.environ["OFFRAMP_DATA_DIR"] = str(_OWN / "data")
os.environ["OFFRAMP_CACHE_DIR"] = str(_OWN / "cache")
if os.name == "posix":
    # Converted tokenizers are the same for all processes of a run: whoever comes first makes them.
    _TOKENIZERS = Path(os.environ.setdefault("OFFRAMP_TESTS_TOKENIZERS", str(_OWN / "tokenizers")))
    _TOKENIZERS.mkdir(exist_ok=True)
    (_OWN / "cache").mkdir()
    (_OWN / "cache" / "tokenizers").symlink_to(_TOKENIZERS)
os.environ["OFFRAMP_CONFIG_DIR"] = str(_OWN / "config")
os.environ["OFFRAMP_LOG_DIR"] = str(_OWN / "log")

settings.register_profile(
    "offramp",
    derandomize=True,
    deadline=None,
    max_examples=50,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("offramp")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The window's tests come last: many and short, so that two processes end at about the same time."""
    items.sort(key=lambda item: "app" in item.path.parts[-2:])


def pytest_collection_finish() -> None:
    """What imports have made stays: searching it for garbage all the time took a fifth of the tests' time."""
    gc.collect()
    gc.freeze()


_GRACE_S = 2.0  # what stops by itself may take this long


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """Fail the test that leaves a thread, a child process or a running timer behind, and name it."""
    threads, children, timers = set(threading.enumerate()), set(_children()), _timers()
    yield
    leaks = {
        "thread": lambda: [t for t in threading.enumerate() if t not in threads and not t.daemon],
        "process": lambda: [p for p in _children() if p not in children],
        "timer": lambda: _new(_timers(), timers),
    }
    found = [f"{kind} {leak!r}" for kind, look in leaks.items() for leak in _after_grace(look)]
    if found:
        pytest.fail("left behind: " + ", ".join(found), pytrace=False)


def _after_grace(look: Callable[[], list[object]]) -> list[object]:
    end_s = time.monotonic() + _GRACE_S
    while (found := look()) and time.monotonic() < end_s:
        gc.collect()
        time.sleep(0.02)
    return found


def _children() -> list[multiprocessing.process.BaseProcess]:
    return multiprocessing.active_children()


def _timers() -> dict[int, str]:
    """Active QTimers inside top-level widgets, by address; {} where Qt was never started."""
    widgets = sys.modules.get("PySide6.QtWidgets")
    if widgets is None or widgets.QApplication.instance() is None:
        return {}
    from PySide6.QtCore import QCoreApplication, QEvent, QTimer
    from shiboken6 import getCppPointer

    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)  # widgets closed by the test
    found = {}
    for window in widgets.QApplication.topLevelWidgets():
        for timer in window.findChildren(QTimer):
            if timer.isActive():
                name = timer.objectName() or type(timer.parent()).__name__
                found[getCppPointer(timer)[0]] = f"{name} in {type(window).__name__}"
    return found


def _new(now: dict[int, str], before: dict[int, str]) -> list[object]:
    return [name for address, name in now.items() if address not in before]
