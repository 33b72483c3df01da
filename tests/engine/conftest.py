"""Engines for the tests: fast emulated backends, closed whatever the test does."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.by_hand import House
from tests.engine.watched import Watched

Make = Callable[..., Watched]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Engines that are closed, and whose threads are gone, whatever the test does."""
    made: list[Watched] = []

    def build(ready: bool = True, **more: Any) -> Watched:
        made.append(Watched(tmp_path, **more))
        if ready:
            made[-1].engine.wait_ready(10)
        return made[-1]

    yield build
    for it in made:
        it.engine.close()
    left = [t.name for t in threading.enumerate() if t.name.startswith("offramp")]
    assert not left, f"threads left: {left}"


@pytest.fixture
def house_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., House]]:
    """Cores whose backends are moved by hand, closed whatever the test does."""
    made: list[House] = []

    def build(**more: Any) -> House:
        made.append(House(monkeypatch, **more))
        return made[-1]

    yield build
    for house in made:
        house.core.calibrator.close()
        house.core.supervisor.close(0.0)
