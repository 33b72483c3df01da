"""Where the time of a decode step on a CPU goes: products, attention, small operations, Python.

`python -m engine.experiments.step_parts SPEC` with model, format, threads and tests prints JSON lines
`{"test", "threads", "format", "step_ms", "shares": {part: share}, "calls"}`. Shares come from torch's
profiler, which slows small operations down; `step_ms` is measured without it.
"""

import json
import sys
import time
from typing import Any

PARTS = {
    "products": ("qlinear", "linear", "int4pack", "int8pack", "aten::mm", "aten::addmm"),
    "attention": ("scaled_dot_product", "aten::bmm", "aten::_softmax", "aten::baddbmm"),
    "cache": ("index_copy", "index_select"),
    "choice": ("argmax", "topk", "aten::sort", "cumsum"),
}
SMALL, PYTHON = "other operations", "Python and waiting"


def part_of(operation: str) -> str:
    """The part of a step that an operation of torch belongs to."""
    return next((part for part, words in PARTS.items() if any(w in operation for w in words)), SMALL)


def shares(spent_us: dict[str, float], wall_us: float) -> dict[str, float]:
    """Each part's share of `wall_us`, from every operation's own time; the rest is Python's."""
    parts = dict.fromkeys((*PARTS, SMALL), 0.0)
    for operation, us in spent_us.items():
        parts[part_of(operation)] += us
    parts[PYTHON] = max(0.0, wall_us - sum(parts.values()))
    whole = sum(parts.values())
    return {part: us / whole for part, us in parts.items()}


def main() -> None:
    """The child's side."""
    from engine.experiments.contestant import Ours
    from engine.experiments.contestant_tests import STEPS

    spec: dict[str, Any] = json.loads(sys.argv[1])
    ours = Ours({**spec, "device": "cpu", "architecture": None, "load_format": "auto"})
    from torch.profiler import ProfilerActivity, profile

    for test in spec["tests"]:
        rows = int(test.rpartition("_")[2])
        ours.ready(rows, "shared" in test)
        ours.decode(rows)
        times = []
        for _ in range(5):
            started = time.perf_counter()
            ours.decode(rows)
            times.append(time.perf_counter() - started)
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            started = time.perf_counter()
            ours.decode(rows)
            wall_us = (time.perf_counter() - started) * 1e6
        events = seen.key_averages()
        found = {
            "test": test,
            "threads": spec["threads"],
            "format": ours.about,
            "step_ms": round(min(times) / STEPS * 1e3, 2),
            "shares": {
                part: round(share, 3)
                for part, share in shares({e.key: e.self_cpu_time_total for e in events}, wall_us).items()
            },
            "calls": round(sum(e.count for e in events) / STEPS),
        }
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
