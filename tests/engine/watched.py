"""An engine of emulated backends whose steps take milliseconds, watched by a test."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from engine.config import BackendOptions, EngineConfig
from engine.engine import Engine
from engine.events import BurstDone, Event, RequestArrived, RequestDone, RequestRouted, TextOut
from engine.request import RequestId, SamplingParams

E = TypeVar("E", bound=Event)
DECODE_S = 0.001


def profile_json(
    decode_s: float = DECODE_S, slots: int = 4, kv_blocks: int = 384, prefill: float = 400_000.0
) -> dict[str, Any]:
    """Two backends; the gpu is twice as fast as the cpu."""
    return {
        "format": "offramp-profile",
        "version": 1,
        "name": "fast",
        "title": "A test's own",
        "source": "none",
        "backends": [
            {
                "name": name,
                "kind": name,
                "device_name": f"Emulated {name}",
                "slots": slots,
                "kv_blocks": kv_blocks,
                "block_bytes": 1024,
                "rates": {"prefill": prefill / times, "decode": 1 / (decode_s * times)},
                "step": {
                    "decode_s": {"1": decode_s * times},
                    "context_s": 0,
                    "prefill_s": times / prefill,
                    "attention_s": 0,
                    "mixed_s": 0,
                    "chunk_s": 0,
                    "interference": 0,
                },
            }
            for name, times in (("cpu", 2), ("gpu", 1))
        ],
    }


class Watched:
    """An engine, its subscription and every event so far."""

    def __init__(
        self,
        folder: Path,
        *,
        policy: str = "isolated-rates",
        options: BackendOptions | None = None,
        context_tokens: int = 4096,
        start: bool = True,
        **profile: Any,
    ) -> None:
        path = folder / "fast.json"
        path.write_text(json.dumps(profile_json(**profile)), "utf-8")
        config = EngineConfig(
            policy=policy,
            options=options or BackendOptions(),
            context_tokens=context_tokens,
            emulate=str(path),
        )
        self.engine = Engine(config)
        self._subscription = self.engine.subscribe()
        self.events: list[Event] = []
        if start:
            self.engine.start()

    def chat(
        self, text: str = "hello there", new: int = 8, backend: str | None = None, **more: Any
    ) -> RequestId:
        sampling = SamplingParams(max_new_tokens=new, **more)
        return self.engine.submit_chat([{"role": "user", "content": text}], sampling, backend)

    def drain(self) -> None:
        self.events += self._subscription.drain()

    def wait(self, wanted: Callable[[Event], bool], timeout_s: float = 10.0) -> Event:
        deadline, seen = time.monotonic() + timeout_s, 0
        while time.monotonic() < deadline:
            self.drain()
            for event in self.events[seen:]:
                seen += 1
                if wanted(event):
                    return event
            time.sleep(0.002)
        raise AssertionError(f"no such event in {timeout_s} s; the last: {self.events[-3:]}")

    def of(self, kind: type[E], request_id: int | None = None) -> list[E]:
        """All events of a kind so far, of one request."""
        self.drain()
        found = [e for e in self.events if isinstance(e, kind)]
        return found if request_id is None else [e for e in found if id_of(e) == request_id]

    def done(self, request_id: int, timeout_s: float = 10.0) -> RequestDone:
        event = self.wait(lambda e: isinstance(e, RequestDone) and e.request_id == request_id, timeout_s)
        assert isinstance(event, RequestDone)
        return event

    def burst_done(self, run_id: str, timeout_s: float = 20.0) -> BurstDone:
        event = self.wait(lambda e: isinstance(e, BurstDone) and e.run_id == run_id, timeout_s)
        assert isinstance(event, BurstDone)
        return event

    def text(self, request_id: int) -> str:
        return "".join(e.text for e in self.of(TextOut, request_id))

    def settle(self, ids: Sequence[int] = (), seconds: float = 0.1) -> None:
        """Wait for what may still come, then check that every request ended once and in order."""
        time.sleep(seconds)
        self.drain()
        for request_id in ids or [e.request_id for e in self.of(RequestArrived)]:
            check_life([e for e in self.events if id_of(e) == request_id])


def id_of(event: Event) -> int | None:
    if isinstance(event, RequestRouted):
        return event.receipt.request_id
    return getattr(event, "request_id", None)


def check_life(events: Sequence[Event]) -> None:
    """Arrived, then routed (unless refused), then text, then done, and nothing after it."""
    order = [RequestArrived, RequestRouted, TextOut, RequestDone]
    kinds = [order.index(type(e)) for e in events if type(e) in order]
    assert kinds == sorted(kinds), f"out of order: {[type(e).__name__ for e in events]}"
    assert kinds.count(0) == 1 and kinds.count(3) == 1, f"{[type(e).__name__ for e in events]}"
