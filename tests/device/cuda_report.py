"""What the CUDA backend does on this machine: `python -m tests.device.cuda_report [--json PATH] [--quick]`.

Speeds use random weights of published shapes. pytest does not collect this file: it needs a GPU to itself.
"""

import argparse
import json
import pickle
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from engine.backend import Backend
from engine.clock import MonotonicClock
from engine.execution.torch_runner import TorchRunner
from engine.kv.manager import KvManager
from engine.models.architecture import ModelShape, named_shape
from engine.request import GREEDY, BackendName, Request, RequestId, SamplingParams
from engine.scheduling.batch import Batch
from engine.scheduling.policies import make_policy
from engine.scheduling.scheduler import Scheduler
from tests.device.measure import (
    decode_batch,
    open_dummy,
    prefill_batch,
    row,
    step_s,
    synchronised_logits,
    traced,
)
from tests.support import Stream, generate

PLAIN = SamplingParams(temperature=0.8, top_p=1.0, seed=1)
FILTERED = SamplingParams(
    temperature=0.1, top_p=0.95, seed=1
)  # random weights are flat: 0.1 is as peaked as text
Report = dict[str, Any]


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def speeds(architecture: str) -> Report:
    """Decode, prefill, growth with the context, launches a step, overhead outside the step."""
    begin = time.perf_counter()
    runner = open_dummy(named_shape(architecture), "bf16")
    assert runner._graphs is not None
    found: Report = {
        "load_s": time.perf_counter() - begin,
        "graphs": len(runner._graphs._graphs),
        "decoder": runner._graphs.decoder_name,
    }
    say(f"\n{architecture}, bf16, {runner.device_name}: {found}")
    found["bitwise_among"] = company(runner)
    say(f"  a row's logits are bitwise the same among n rows: {found['bitwise_among']}")
    cases = [(n, 512, GREEDY) for n in (1, 2, 4, 8, 16, 32)]
    cases += [(1, 128, GREEDY), (1, 4000, GREEDY), (4, 128, GREEDY), (4, 4000, GREEDY), (8, 4000, GREEDY)]
    cases += [(n, 512, s) for n in (1, 4, 32) for s in (PLAIN, FILTERED)]
    found["decode"] = []
    for rows, context, sampling in cases:
        seconds = step_s(runner, decode_batch(runner, rows, context, sampling))
        kind = "greedy" if sampling is GREEDY else "plain" if sampling is PLAIN else "filtered"
        found["decode"].append(
            {
                "rows": rows,
                "context": context,
                "sampling": kind,
                "step_ms": seconds * 1e3,
                "tok_s": rows / seconds,
            }
        )
        say(
            f"  decode {rows:2} rows, context {context:4}, {kind:8} {seconds * 1e3:7.3f} ms"
            f" {rows / seconds:9.0f} tok/s"
        )
    found["prefill"] = []
    for tokens, start in ((512, 0), (512, 512), (512, 3072), (128, 0), (32, 0)):
        seconds = step_s(runner, prefill_batch(runner, tokens, start), 30)
        found["prefill"].append(
            {"tokens": tokens, "start": start, "step_ms": seconds * 1e3, "tok_s": tokens / seconds}
        )
        say(f"  prefill {tokens} behind {start:4} {seconds * 1e3:7.3f} ms {tokens / seconds:9.0f} tok/s")
    steps = {f"decode {n}": decode_batch(runner, n, 512) for n in (1, 4, 32)}
    steps["prefill 512"] = prefill_batch(runner, 512)
    for name, batch in steps.items():
        trace = traced(runner, batch)
        found[f"trace {name}"] = {"calls": trace.calls, "kernels": trace.kernels, "busy_us": trace.busy_us}
        say(f"  trace of {name}: {trace.calls}, device busy {trace.busy_us:.0f} us")
        for kernel, (count, us) in sorted(trace.kernels.items(), key=lambda k: -k[1][0] * k[1][1])[:10]:
            say(f"    {count:6.1f} x {us:8.2f} us = {count * us:8.1f}  {kernel}")
    for rows in (4, 32):
        found[f"overhead_{rows}_ms"] = overhead_ms(runner, rows)
        say(f"  outside the step at {rows} rows: {found[f'overhead_{rows}_ms']:.3f} ms")
    found["memory_gb"] = torch.cuda.max_memory_allocated() / 1e9
    runner.close()
    return found


def overhead_ms(runner: TorchRunner, rows: int, steps: int = 60) -> float:
    """Median milliseconds of a step outside `run`: deciding, booking, and pickling its report."""
    scheduler = Scheduler(KvManager(2048, "report"), make_policy("fcfs"), rows, 512, ())
    backend = Backend(BackendName("gpu"), scheduler, runner, MonotonicClock())
    sampling = SamplingParams(temperature=0.0, top_p=1.0, max_new_tokens=600, ignore_eos=True)
    for n in range(rows):
        prompt = tuple(n * 100 + i % 90 + 3 for i in range(256))
        scheduler.add(Request(RequestId(1000 + n), prompt, sampling, 0.0), 0)
    times = []
    while len(times) < steps:
        begin = time.perf_counter()
        batch = backend.begin()
        begun = time.perf_counter()
        ids = runner.run(batch)
        ran = time.perf_counter()
        pickle.dumps(backend.finish(batch, ids, begin, ran))
        if batch.decode_rows == rows:
            times.append(time.perf_counter() - ran + begun - begin)
    return statistics.median(times) * 1e3


def same_texts(name: str, shape: ModelShape, count: int = 24) -> Report:
    """Greedy ids in float32 on CUDA against our CPU path, and the logits' relative error in both formats."""
    reference: tuple[list[list[int]], torch.Tensor] | None = None
    found: Report = {}
    for device, form in (("cpu", "float32"), ("cuda:0", "float32"), ("cuda:0", "bf16")):
        runner = open_dummy(shape, form, device, slots=4, blocks=256, threads=8, context=512)
        texts = generate(runner, prompts(shape), count, chunk=64)
        streams = prompts(shape)
        for stream, text in zip(streams, reference[0] if reference else texts, strict=True):
            stream.tokens += text[:-1]  # the same tokens everywhere, so that logits can be compared
        generate(runner, streams, 1)
        batch = Batch([stream.row() for stream in streams])
        for line, text in zip(batch.rows, reference[0] if reference else texts, strict=True):
            line.tokens = [text[-1]]
        logits = runner.logits(batch) if device == "cpu" else synchronised_logits(runner, batch)
        if reference is None:
            reference = texts, logits
        else:
            error = float((logits - reference[1]).norm() / reference[1].norm())
            found[form] = {"same_ids": texts == reference[0], "relative_error": error}
        runner.close()
    say(f"  {name}: CUDA against the CPU's float32: {found}")
    return found


def prompts(shape: ModelShape) -> list[Stream]:
    lengths = (5, 130, 300)
    return [
        Stream(n, row(n, 0, k, shape.vocab).tokens, [n + 3 * i for i in range(30)])
        for n, k in enumerate(lengths)
    ]


def company(runner: TorchRunner) -> dict[int, bool]:
    """Whether a row's logits are bitwise the same alone and among n rows of other lengths."""
    rows = [row(n, 300 + 20 * n - 1, 1, runner.shape.vocab) for n in range(32)]
    with torch.inference_mode():
        for index in range(runner.shape.layers):
            runner._storage.layer(index).normal_()
    alone = synchronised_logits(runner, Batch(rows[:1]))[0].clone()
    return {
        n: torch.equal(synchronised_logits(runner, Batch(rows[:n]))[0], alone)
        for n in (1, 2, 3, 4, 8, 16, 32)
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--parts", default="exact,qwen2.5-0.5b,smollm2-135m", help="what to measure")
    options = parser.parse_args()
    parts = options.parts.split(",")
    report: Report = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(0),
        "exact": {},
        "speed": {},
    }
    small = {"layers": 3, "vocab": 4096}
    shapes = {
        "tiny": named_shape("tiny"),
        "qwen2 of 3 layers": replace(named_shape("qwen2.5-0.5b"), **small),
        "qwen3 of 3 layers": replace(named_shape("qwen3-0.6b"), **small),
        "smollm2-135m": named_shape("smollm2-135m"),
    }
    for name, shape in shapes.items() if "exact" in parts else ():
        report["exact"][name] = same_texts(name, shape)
    for architecture in [part for part in parts if part != "exact"]:
        report["speed"][architecture] = speeds(architecture)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1, default=str), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
