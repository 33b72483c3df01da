"""What a step costs beside its forward pass, and how costs grow with replies and queues.

Beside it are the scheduler, the block tables as tensors, the report and its way through a pipe, and the text
of the new tokens, which in an engine is another process's work.

`python -m engine.experiments.growth SPEC` prints JSON lines `{"test", "value", "unit"}`. SPEC: model, format,
threads, tokens, queued and, for a model that lacks one, the path of a model whose `tokenizer` serves.
Scheduler, cache and runner are the real ones, in the loop's own order.
"""

import json
import pickle
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

_STEPS = 24  # medians are over this many
_PROMPT = 64


def main() -> None:
    from engine.backend import Backend, Submit
    from engine.clock import MonotonicClock
    from engine.config import BackendSpec
    from engine.devices.environment import prepare_environment

    prepare_environment()
    from engine.execution.torch_runner import make_runner
    from engine.kv.manager import KvManager
    from engine.models.prepare import prepared
    from engine.request import BackendName, Request, RequestId, SamplingParams
    from engine.scheduling.policies import make_policy
    from engine.scheduling.scheduler import Scheduler
    from engine.text import Detokenizer, TextCodec

    spec: dict[str, Any] = json.loads(sys.argv[1])
    name, clock = BackendName("bench"), MonotonicClock()
    blocks = (spec["tokens"] + _PROMPT) // 16 + 64
    backend_spec = BackendSpec(name, "cpu", "cpu", spec["threads"], spec["format"], kv_blocks=blocks)
    runner = make_runner(backend_spec, Path(spec["model"]), None, "auto", spec["tokens"] + 2 * _PROMPT)

    codec = TextCodec.load(prepared(Path(spec.get("tokenizer", spec["model"]))))
    texts: dict[RequestId, Detokenizer] = {}

    def backend(requests: int, tokens: int) -> Backend:
        scheduler = Scheduler(KvManager(blocks, "bench"), make_policy("fcfs"), 4, 512, ())
        made = Backend(name, scheduler, runner, clock)
        texts.clear()
        for n in range(requests):
            prompt = tuple((31 * n + 7 * i) % 200 + 5 for i in range(_PROMPT))
            params = SamplingParams(temperature=0.0, max_new_tokens=tokens, ignore_eos=True)
            made.handle(Submit(Request(RequestId(n), prompt, params, clock.now_s()), 0))
        return made

    def step(loop: Backend) -> tuple[float, float]:
        """One turn of the loop: (seconds of the forward pass and of choosing, seconds around them)."""
        started = clock.now_s()
        batch = loop.begin()
        decided = clock.now_s()
        runner.lay_out(batch)  # the runner does it again: here it is timed
        begun = clock.now_s()
        ids = runner.run(batch)
        ended = clock.now_s()
        report = loop.finish(batch, ids, started, ended)
        for request_id, token in pickle.loads(pickle.dumps(report)).tokens:  # as a pipe does
            if request_id not in texts:
                texts[request_id] = codec.detokenizer()
            texts[request_id].push(token)
        laid_out = begun - decided
        return ended - begun - laid_out, decided - started + laid_out + clock.now_s() - ended

    def steps(loop: Backend, count: int) -> list[tuple[float, float]]:
        return [step(loop) for _ in range(count)]

    def say(test: str, value: float, unit: str) -> None:
        sys.stdout.write(json.dumps({"test": test, "value": round(value, 4), "unit": unit}) + "\n")
        sys.stdout.flush()

    for queued in (0, spec["queued"]):
        loop = backend(4 + queued, 200)
        steps(loop, 8)
        seen = steps(loop, _STEPS)
        inside, around = (median(part) for part in zip(*seen, strict=True))
        say(f"step_rows_4_queued_{queued}", (inside + around) * 1e3, "ms")
        say(f"overhead_rows_4_queued_{queued}", around * 1e3, "ms")
        say(f"overhead_share_rows_4_queued_{queued}", around / (inside + around) * 100, "%")
    loop = backend(1, spec["tokens"])
    begun_s = time.monotonic()
    seen = steps(loop, spec["tokens"] - 1)
    early, late = seen[8 : 8 + _STEPS], seen[-_STEPS:]
    for at, part in (("first", early), ("last", late)):
        say(f"reply_{at}_tokens_step", median(a + b for a, b in part) * 1e3, "ms")
        say(f"reply_{at}_tokens_overhead", median(b for _, b in part) * 1e3, "ms")
    say(f"reply_{spec['tokens']}_tokens", time.monotonic() - begun_s, "s")
    runner.close()


if __name__ == "__main__":
    main()
