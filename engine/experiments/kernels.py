"""What torch can do on this processor: the table of format trials, and which kernels give right answers.

`python -m engine.experiments.kernels SPEC` with `{"what": "trials", "model": ...}` prints one JSON line a
product and one with the choice; with `{"what": "check"}` one line of facts; with `{"what": "threads"}` the
threads of each kind of step. It computes, so it is a child.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any


def _say(found: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def _trials(spec: dict[str, Any]) -> None:
    from engine.execution import bakeoff
    from engine.models.weights import open_weights

    weights = open_weights(Path(spec["model"]))
    for trial in bakeoff.trials(weights.shape, bakeoff.candidates_for(weights)):
        _say(asdict(trial))
    _say({"chosen": bakeoff.fastest_format(weights, spec["threads"])})
    weights.close()


def _check() -> None:
    import torch

    from engine.devices import adapter
    from engine.execution import bakeoff, int8
    from engine.execution.linear import LINEAR_FORMATS
    from engine.models.architecture import named_shape

    shape = named_shape("smollm2-135m")
    formats = {}
    for name, form in LINEAR_FORMATS.items():
        if form.rotated and not int8.available():
            formats[name] = "torch has no int8 product here"
            continue
        try:
            worst = max(t.error for t in bakeoff.trials(shape, [name], rows=(1, 8), repeats=1))
        except Exception as error:  # whatever a kernel may do is what the report is for
            formats[name] = f"{type(error).__name__}: {str(error)[:120]}"
            continue
        formats[name] = f"right, off by {worst:.2%}" if worst < 0.2 else f"WRONG, off by {worst:.0%}"
    _say(
        {
            "torch": torch.__version__,
            "simd": torch.backends.cpu.get_cpu_capability(),
            "vnni": torch.cpu._is_vnni_supported(),
            "amx": torch.cpu._is_amx_tile_supported(),
            "int8_bits": 8 if int8.levels() == 127 else 7,
            "kv_cache": str(adapter.kv_dtype(torch.device("cpu"), torch.bfloat16)).removeprefix("torch."),
            "formats": formats,
        }
    )


def _threads(count: int) -> None:
    """The thread plan of the embedded model's shapes with `count` threads, from random weights."""
    from engine.config import BackendSpec
    from engine.execution.thread_plan import describe
    from engine.execution.torch_runner import make_runner
    from engine.request import BackendName

    spec = BackendSpec(BackendName("doctor"), "cpu", "cpu", count, "bf16", slots=8, kv_blocks=64)
    runner = make_runner(spec, None, "smollm2-135m", "dummy", 512)
    _say({"threads": count, "plan": describe(runner.thread_plan)})
    runner.close()


def main() -> None:
    from engine.devices.environment import prepare_environment

    prepare_environment()
    import torch

    spec: dict[str, Any] = json.loads(sys.argv[1])
    torch.set_num_threads(spec["threads"])
    if spec["what"] == "trials":
        _trials(spec)
    elif spec["what"] == "threads":
        _threads(spec["threads"])
    else:
        _check()


if __name__ == "__main__":
    main()
