"""One side of a speed comparison: ours, llama.cpp or transformers on the same weights, in its own process.

`python -m engine.experiments.contestant '{"kind": ...}'` answers each test's name on stdin with one JSON
line, `{"tok_s": ...}`; apart, one side's idle threads do not spin in the other's time. Decode tests run
`STEPS` greedy steps from a context of 512 tokens, all rows together.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from engine.experiments.contestant_tests import (
    CONTEXT,
    ROWS,
    SHARED,
    STEPS,
    burst_prompts,
    parse_burst,
    prompts,
)
from engine.experiments.peers import LlamaCpp, Roofline, Transformers


class Contestant(Protocol):
    about: str  # format or build, one line

    def prefill(self) -> None:
        """Compute `CONTEXT` tokens of an empty context and choose one more."""
        ...

    def ready(self, rows: int, shared: bool) -> None:
        """Have `rows` contexts of `CONTEXT` tokens computed; not timed."""
        ...

    def decode(self, rows: int) -> None:
        """`STEPS` steps of one token a row."""
        ...

    def burst(self, requests: int, prompt: int, count: int, turn: int) -> float:
        """New tokens a second of requests that come all at once; each turn has prompts of its own."""
        ...


class Ours:
    """The runner of a backend, without its scheduler."""

    def __init__(self, spec: dict[str, Any]) -> None:
        from engine.config import BackendOptions, BackendSpec
        from engine.devices.environment import prepare_environment

        prepare_environment()
        from engine.execution.torch_runner import make_runner
        from engine.request import BackendName

        self._rows = spec.get("rows", ROWS)
        self._span = (CONTEXT + STEPS) // 16 + 1  # blocks a row
        self._blocks = max(2 * self._rows * self._span, spec.get("burst_blocks", 0))
        backend = BackendSpec(
            BackendName("bench"),
            "cpu" if spec["device"] == "cpu" else "gpu",
            spec["device"],
            threads=spec["threads"],
            format=spec["format"],
            slots=spec.get("slots", self._rows),
            kv_blocks=self._blocks,
        )
        self._budget = BackendOptions().budget_of(spec["device"])
        path = None if spec["model"] is None else Path(spec["model"])
        self._runner = make_runner(backend, path, spec["architecture"], spec["load_format"], 2 * CONTEXT)
        self.about = self._runner.format
        self._prompts = {s: prompts(self._runner.shape.vocab, s, self._rows) for s in (False, True)}
        self._tables: dict[bool, list[list[int]]] = {}
        self._shared = False

    def _row(self, number: int, tokens: list[int], computed: int, blocks: list[int]) -> Any:
        from engine.request import GREEDY, RequestId
        from engine.scheduling.batch import BatchRow

        todo = tokens[computed:]
        return BatchRow(
            RequestId(number), 0, todo, computed, blocks, True, len(todo) == 1, GREEDY, tokens, CONTEXT
        )

    def _run(self, rows: list[Any]) -> list[int]:
        from engine.scheduling.batch import Batch

        return self._runner.run(Batch(rows))

    def prefill(self) -> None:
        self._run([self._row(99, self._prompts[False][0], 0, list(range(self._span)))])

    def ready(self, rows: int, shared: bool) -> None:
        self._shared = shared
        if shared in self._tables:
            return
        offset = self._rows * self._span * shared
        starts = [offset + r * self._span for r in range(self._rows)]
        tables = [list(range(start, start + self._span)) for start in starts]
        if shared:
            tables = [tables[0][: SHARED // 16] + table[SHARED // 16 :] for table in tables]
        for number, (tokens, table) in enumerate(zip(self._prompts[shared], tables, strict=True)):
            self._run([self._row(number, tokens, SHARED if shared and number else 0, table)])
        self._tables[shared] = tables

    def decode(self, rows: int) -> None:
        texts = [[*tokens, 7] for tokens in self._prompts[self._shared][:rows]]
        tables = self._tables[self._shared]
        for _ in range(STEPS):
            batch = [self._row(n, text, len(text) - 1, tables[n]) for n, text in enumerate(texts)]
            for text, token in zip(texts, self._run(batch), strict=True):
                text.append(token)

    def burst(self, requests: int, prompt: int, count: int, turn: int) -> float:
        """Through the backend's own loop: admission, cache, chunks and reports are in the time."""
        from engine.backend import Backend, Submit
        from engine.clock import MonotonicClock
        from engine.kv.manager import KvManager
        from engine.request import BackendName, Request, RequestId, SamplingParams
        from engine.scheduling.policies import make_policy
        from engine.scheduling.scheduler import Scheduler

        self._tables.clear()  # the burst takes their blocks
        clock, name = MonotonicClock(), BackendName("bench")
        scheduler = Scheduler(
            KvManager(self._blocks, "bench"), make_policy("fcfs"), requests, self._budget, ()
        )
        loop = Backend(name, scheduler, self._runner, clock)
        sampling = SamplingParams(temperature=0.0, max_new_tokens=count, ignore_eos=True)
        texts = burst_prompts(self._runner.shape.vocab, requests, prompt, turn)
        started = time.perf_counter()
        for number, text in enumerate(texts):
            loop.handle(Submit(Request(RequestId(number), tuple(text), sampling, clock.now_s()), 0))
        tokens = 0
        while not scheduler.idle:
            begun_s = clock.now_s()
            batch = loop.begin()
            tokens += len(loop.finish(batch, self._runner.run(batch), begun_s, clock.now_s()).tokens)
        return tokens / (time.perf_counter() - started)


def measure(side: Contestant | Roofline, test: str, turn: int) -> float:
    """Tokens a second of all rows together, in one run of a test."""
    if isinstance(side, Roofline):
        return side.rate(int(test.rpartition("_")[2]))
    if test.startswith("burst"):
        return side.burst(*parse_burst(test), turn)
    if test == "prefill_512":
        started = time.perf_counter()
        side.prefill()
        return CONTEXT / (time.perf_counter() - started)
    rows = int(test.rpartition("_")[2])
    side.ready(rows, "shared" in test)
    started = time.perf_counter()
    side.decode(rows)
    spent = time.perf_counter() - started
    if isinstance(side, Transformers):  # its prompts are computed within: take their time away
        started = time.perf_counter()
        side._generate(rows, 1)
        spent -= time.perf_counter() - started
    return rows * STEPS / spent


def main() -> None:
    spec = json.loads(sys.argv[1])
    kinds: dict[str, Any] = {
        "ours": Ours,
        "llama-cpp": LlamaCpp,
        "transformers": Transformers,
        "roofline": Roofline,
    }
    side: Contestant | Roofline = kinds[spec["kind"]](spec)
    answers = sys.stdout
    sys.stdout = sys.stderr  # libraries may print
    answers.write(json.dumps({"about": side.about}) + "\n")
    answers.flush()
    for turn, line in enumerate(sys.stdin):
        answers.write(json.dumps({"tok_s": measure(side, line.strip(), turn)}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
