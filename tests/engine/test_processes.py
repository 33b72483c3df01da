"""Backends in real child processes: death, restart, orphans, closing. Random weights of a tiny model."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from engine.config import BackendOptions, EngineConfig
from engine.engine import Engine
from engine.events import (
    BackendState,
    BackendStatus,
    BurstDone,
    Event,
    RequestDone,
    RequestRouted,
    StepDone,
    TextOut,
)
from engine.hub import Subscription
from engine.request import FinishReason, SamplingParams

TINY = EngineConfig(
    load_format="dummy",
    architecture="tiny",
    policy="forced-cpu-1",
    calibrate=False,
    options=BackendOptions(
        wanted="cpu,cpu", format="float32", threads=1, slots="1"
    ),  # one slot: a queue forms
)


class Watched:
    """An engine, all its events so far, and a way to wait for one."""

    def __init__(self, config: EngineConfig = TINY) -> None:
        self.engine = Engine(config)
        self._subscription: Subscription = self.engine.subscribe()
        self.events: list[Event] = []
        self.engine.start()

    def wait(self, wanted: Callable[[Event], bool], timeout_s: float = 60.0) -> Event:
        deadline, seen = time.monotonic() + timeout_s, 0
        while time.monotonic() < deadline:
            self.events += self._subscription.drain()
            for event in self.events[seen:]:
                seen += 1
                if wanted(event):
                    return event
            time.sleep(0.01)
        raise AssertionError(f"no such event in {timeout_s} s; the last: {self.events[-3:]}")

    def pid(self, name: str) -> int:
        for child in multiprocessing.active_children():
            if child.name == f"offramp {name}":
                assert child.pid is not None
                return child.pid
        raise AssertionError(f"no process for {name}")


@pytest.fixture
def watched() -> Iterator[Watched]:
    it = Watched()
    it.engine.wait_ready(90)
    yield it
    it.engine.close()
    assert not multiprocessing.active_children()


def test_a_reply_comes_from_each_process(watched: Watched) -> None:
    for name in ("cpu-1", "cpu-2"):
        sampling = SamplingParams(temperature=0.0, max_new_tokens=5, ignore_eos=True)
        request_id = watched.engine.submit_chat([{"role": "user", "content": "a b c"}], sampling, name)
        done = watched.wait(lambda e, i=request_id: isinstance(e, RequestDone) and e.request_id == i)
        assert isinstance(done, RequestDone)
        assert (done.backend, done.reason, done.output_tokens) == (name, FinishReason.LENGTH, 5)
    texts = [
        "".join(e.text for e in watched.events if isinstance(e, TextOut) and e.request_id == i)
        for i in (1, 2)
    ]
    assert texts[0] == texts[1] != ""


def test_killed_backend_ends_started_requests_and_moves_waiting_ones(watched: Watched) -> None:
    run_id = watched.engine.run_burst("seed-warm-48")
    watched.wait(
        lambda e: isinstance(e, StepDone) and e.report.decode_rows and len(e.report.load.requests) > 4
    )
    os.kill(watched.pid("cpu-1"), signal.SIGKILL)
    began = time.monotonic()
    status = watched.wait(lambda e: isinstance(e, BackendStatus) and e.state is BackendState.STOPPED)
    assert time.monotonic() - began < 2
    assert isinstance(status, BackendStatus) and "killed by signal 9" in status.message
    done = watched.wait(lambda e: isinstance(e, BurstDone) and e.run_id == run_id)
    assert isinstance(done, BurstDone) and not done.aborted
    requests = done.result["requests"]
    assert isinstance(requests, list) and len(requests) == 48
    failed = [r for r in requests if r["finish_reason"] == "error"]
    moved = [r for r in requests if r["receipt"]["moved_from"] == "cpu-1"]
    assert len(failed) == 1, "only the request in the slot is lost"
    assert moved and all(r["backend"] == "cpu-2" and r["finish_reason"] == "length" for r in moved)
    rest = [r for r in requests if r not in failed]
    assert all(r["output_tokens"] == 128 for r in rest)
    # It can be restarted and serves again.
    watched.engine.restart_backend("cpu-1")
    mark = len(watched.events)
    watched.wait(
        lambda e: (
            isinstance(e, BackendStatus) and e.state is BackendState.READY and e in watched.events[mark:]
        )
    )
    request_id = watched.engine.submit_chat(
        [{"role": "user", "content": "again"}], SamplingParams(max_new_tokens=3, ignore_eos=True), "cpu-1"
    )
    routed = watched.wait(lambda e: isinstance(e, RequestRouted) and e.receipt.request_id == request_id)
    assert isinstance(routed, RequestRouted) and routed.receipt.chosen == "cpu-1"
    watched.wait(lambda e: isinstance(e, RequestDone) and e.request_id == request_id)


@pytest.mark.parametrize("after_s", [0.0, 0.4, 1.5])
def test_closing_while_backends_load_takes_less_than_three_seconds(after_s: float) -> None:
    it = Watched()
    time.sleep(after_s)
    began = time.monotonic()
    it.engine.close()
    assert time.monotonic() - began < 3
    assert not multiprocessing.active_children()


def test_closing_during_a_burst(watched: Watched) -> None:
    watched.engine.run_burst("seed-warm-48")
    watched.wait(lambda e: isinstance(e, StepDone) and e.report.decode_rows > 0)
    began = time.monotonic()
    watched.engine.close()
    assert time.monotonic() - began < 3


_PARENT = """
import sys, time, multiprocessing
from engine.engine import Engine
from tests.engine.test_processes import TINY
if __name__ == "__main__":
    engine = Engine(TINY)
    engine.start()
    if sys.argv[1] == "ready":
        engine.wait_ready(90)
    while len(multiprocessing.active_children()) < 2:
        time.sleep(0.01)
    print("up", flush=True)
    time.sleep(100)
"""


@pytest.mark.parametrize("phase", ["loading", "ready"])
@pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9 on Windows")
def test_no_backend_outlives_a_killed_parent(phase: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    script = tmp_path_factory.mktemp("parent") / "parent.py"
    script.write_text(_PARENT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen(
        [sys.executable, str(script), phase], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        children = psutil.Process(parent.pid).children(recursive=True)
        assert len(children) >= 2
        parent.kill()
        parent.wait()
        # A child that is importing torch notices when it first speaks; a loaded one at once.
        _, alive = psutil.wait_procs(children, timeout=20 if phase == "loading" else 3)
        assert not alive
    finally:
        parent.kill()
        parent.wait()
        if parent.stdout is not None:
            parent.stdout.close()
