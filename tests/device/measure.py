"""Timed steps of a real runner on a device, without a scheduler."""

import json
import statistics
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.config import BackendSpec
from engine.execution.torch_runner import TorchRunner
from engine.models.architecture import ModelShape
from engine.models.weights import DummyWeights
from engine.request import GREEDY, BackendName, RequestId, SamplingParams
from engine.scheduling.batch import Batch, BatchRow


def open_dummy(
    shape: ModelShape,
    format: str,
    device: str = "cuda:0",
    slots: int = 32,
    blocks: int = 2048,
    threads: int = 1,
    context: int = 4096,
) -> TorchRunner:
    kind = "cpu" if device == "cpu" else "gpu"
    spec = BackendSpec(BackendName(kind), kind, device, threads, format, slots, blocks)
    return TorchRunner(spec, DummyWeights(shape, 1), context)


def row(number: int, start: int, length: int, vocab: int, sampling: SamplingParams = GREEDY) -> BatchRow:
    """A row behind `start` cached tokens, in scattered blocks that no other number below 32 uses."""
    total = start + length
    tokens = [(number * 131 + i * 17) % (vocab - 3) + 3 for i in range(total)]
    count = -(-total // 16)
    blocks = (
        [number + 32 * i for i in range(count)] if total <= 1024 else [number * 256 + i for i in range(count)]
    )
    return BatchRow(
        RequestId(number), number, tokens[start:], start, blocks, True, length == 1, sampling, tokens, total
    )


def decode_batch(runner: TorchRunner, rows: int, context: int, sampling: SamplingParams = GREEDY) -> Batch:
    return Batch([row(n, context - 1, 1, runner.shape.vocab, sampling) for n in range(rows)])


def prefill_batch(runner: TorchRunner, tokens: int, start: int = 0) -> Batch:
    return Batch([row(0, start, tokens, runner.shape.vocab)])


def step_s(runner: TorchRunner, batch: Batch, repeats: int = 60) -> float:
    """Median seconds of one whole step, ids on the host included."""
    for _ in range(5):
        runner.run(batch)
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        runner.run(batch)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


@dataclass(frozen=True)
class Trace:
    """What a profiler saw of some equal steps, per step."""

    calls: dict[str, float]  # launches and copies asked for by the host
    kernels: dict[str, tuple[float, float]]  # name and grid: launches, microseconds each
    busy_us: float


def traced(runner: TorchRunner, batch: Batch, steps: int = 10) -> Trace:
    """Profile `steps` equal steps."""
    from torch.profiler import ProfilerActivity, profile

    runner.run(batch)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(steps):
            runner.run(batch)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    calls: dict[str, float] = defaultdict(float)
    kernels: dict[str, list[float]] = defaultdict(list)
    for event in events:
        kind, name = event.get("cat"), str(event.get("name"))
        if kind in ("cuda_runtime", "cuda_driver") and (
            "Launch" in name or "Memcpy" in name or "Sync" in name
        ):
            calls[name] += 1 / steps
        elif kind in ("kernel", "gpu_memcpy"):
            grid = event["args"].get("grid", "")
            kernels[f"{name[:60]} {grid}"].append(float(event["dur"]))
    table = {name: (len(us) / steps, statistics.mean(us)) for name, us in kernels.items()}
    return Trace(dict(calls), table, sum(n * us for n, us in table.values()))


def synchronised_logits(runner: TorchRunner, batch: Batch) -> torch.Tensor:
    """Logits [rows, vocab] of decode rows as the recorded step computed them, float32 on the host."""
    runner.run(batch)
    graphs = runner._graphs
    assert graphs is not None and graphs._last is not None
    return graphs._last.logits[: len(batch.rows)].float().cpu()
