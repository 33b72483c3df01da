"""Ours against a peer on the same weights, in alternating runs: prefill and decode, tokens a second.

Each side is a child process that waits while the other computes (`contestant`). One round is one run of
each side; which begins changes from round to round. Rates are medians over the rounds, a ratio is the median
of the rounds' own ratios, so that a disturbance which lasts longer than a round hits both sides.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any

from engine.errors import BackendError, ConfigError
from engine.experiments.children import command_of, environment
from engine.experiments.contestant_tests import parse_burst
from engine.paths import cache_dir, make_folder

TESTS = (
    "prefill_512",
    "decode_512_rows_1",
    "decode_512_rows_4",
    "decode_512_rows_8",
    "decode_512_shared_rows_4",
    "decode_512_shared_rows_8",
)
BURST = "burst_48_512_128"
DEVICE_TESTS = (
    "prefill_512",
    "decode_512_rows_1",
    "decode_512_rows_4",
    "decode_512_rows_8",
    "decode_512_rows_32",
    BURST,
)
ROOFLINE = "bandwidth roofline"
PEERS = {"llama-cpp": ("llama-cpp Q8_0", "llama-cpp Q4_0"), "transformers": ("transformers bf16",)}
# Features that llama.cpp must have been built with where the processor has them: cpuinfo flag -> its name.
_NEEDED = {"avx2": "AVX2", "avx512f": "AVX512", "amx_int8": "AMX_INT8", "asimd": "NEON"}


@dataclass(frozen=True, slots=True)
class Row:
    """One test of one pair. Rates in tokens a second, all rows together."""

    threads: int
    test: str
    ours_tok_s: float
    peer: str
    peer_tok_s: float
    ratio: float


class Side:
    """A contestant's process. Its first answer says what it is."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._name = spec["kind"]
        self._child = subprocess.Popen(
            command_of("engine.experiments.contestant", spec),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        try:
            self.about = str(self._answer()["about"])
        except BaseException:
            self._child.kill()
            raise

    def measure(self, test: str) -> float:
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(test + "\n")
            self._child.stdin.flush()
        except OSError:
            pass  # the missing answer tells why
        return float(self._answer()["tok_s"])

    def _answer(self) -> dict[str, Any]:
        assert self._child.stdout is not None and self._child.stderr is not None
        line = self._child.stdout.readline()
        if not line:
            told = self._child.stderr.read().strip().splitlines()
            code = self._child.wait()
            last = told[-1] if told else f"signal {-code}" if code < 0 else f"exit code {code}"
            # GCC 12 drops stores that the matrix units read later: the product then dies of signal 4.
            hint = (
                ", built by a compiler that breaks its AMX code? Try CXXFLAGS=-fno-tree-dse"
                if code == -4
                else ""
            )
            raise BackendError(f"{self._name} ended during the comparison ({last[:300]}{hint}).")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> "Side":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.kill() if kind else self._child.communicate()
        self._child.wait()


def requantised(model: Path, kind: str) -> Path:
    """The model in llama.cpp's `kind`, written once by llama.cpp itself, in a child process."""
    stamp = model.stat()
    path = cache_dir() / "bench" / f"{model.stem}-{stamp.st_size:x}-{kind}.gguf"
    if path.exists():
        return path
    make_folder(path.parent)
    partial = path.with_suffix(".partial")
    script = (
        "import sys, llama_cpp as api\n"
        "params = api.llama_model_quantize_default_params()\n"
        "params.ftype = getattr(api, 'LLAMA_FTYPE_MOSTLY_' + sys.argv[3])\n"
        "params.allow_requantize = True\n"
        "sys.exit(api.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), params))\n"
    )
    command = [sys.executable, "-c", script, str(model), str(partial), kind]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise BackendError(f"llama.cpp could not write {kind}: {done.stderr.strip()[-300:]}")
    partial.replace(path)
    return path


def check_build(system_info: str, flags: set[str]) -> None:
    """Refuse a llama.cpp built for another processor: it would lose by its compiler's settings alone."""
    missing = [name for flag, name in _NEEDED.items() if flag in flags and f"{name} = 1" not in system_info]
    if missing:
        raise ConfigError(
            f"This llama.cpp was built without {', '.join(missing)}, which the processor has: build it again "
            'with CMAKE_ARGS="-DGGML_NATIVE=ON" pip install --force-reinstall --no-binary llama-cpp-python '
            f"llama-cpp-python. It says of itself: {system_info.strip()}"
        )


def cpu_flags() -> set[str]:
    """What Linux says the processor can do; empty elsewhere."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return set()
    lines = (x for x in text.splitlines() if x.startswith(("flags", "Features")))
    return set(next(lines, "").partition(":")[2].split())


def open_peer(peer: str, spec: dict[str, Any]) -> Side:
    """The peer's process on our model. Raises `ConfigError` where it is missing or built for less."""
    kind, _, form = peer.partition(" ")
    if kind == "transformers" or peer == ROOFLINE:
        return Side({**spec, "kind": "roofline" if peer == ROOFLINE else kind})
    if spec["model"] is None or not str(spec["model"]).endswith(".gguf"):
        raise ConfigError("llama.cpp needs a GGUF file: name one with --model.")
    side = Side({**spec, "kind": kind, "model": str(requantised(Path(spec["model"]), form))})
    try:
        check_build(side.about, cpu_flags())
    except ConfigError:
        side.__exit__(ConfigError, None, None)
        raise
    return side


def peers_of(against: str, device: str) -> tuple[str, ...]:
    """Whom to compare with; on an accelerator also with what its memory allows."""
    return PEERS[against] if device == "cpu" else (*PEERS[against], ROOFLINE)


def answerable(peer: str, tests: tuple[str, ...]) -> tuple[str, ...]:
    """Those of `tests` that the peer can answer."""
    if peer == ROOFLINE:
        return tuple(t for t in tests if t.startswith("decode"))
    return tests if peer.startswith("llama-cpp") else tuple(t for t in tests if "shared" not in t)


def device_sizes() -> dict[str, int]:
    """What an accelerator's backend needs for `DEVICE_TESTS`: rows, slots and blocks."""
    requests, prompt, count = parse_burst(BURST)
    return {"rows": 32, "slots": requests, "burst_blocks": requests * (-(-(prompt + count) // 16) + 1)}


def compare(
    spec: dict[str, Any], peer: str, tests: tuple[str, ...], rounds: int, say: Callable[[str], None]
) -> list[Row]:
    """Run every test of one pair. `spec`: device, threads, format, model, architecture, load_format."""
    with ExitStack() as stack:
        theirs = stack.enter_context(open_peer(peer, spec))
        say(f"{peer}: {theirs.about}")
        ours = stack.enter_context(Side({**spec, "kind": "ours"}))
        say(f"ours: {ours.about}, {spec['threads']} threads")
        rows = []
        for test in tests:
            for side in (ours, theirs):
                side.measure(test)  # fills caches of kernels and contexts
            pairs = []
            for number in range(rounds):
                order = (ours, theirs) if number % 2 else (theirs, ours)
                rates = {id(side): side.measure(test) for side in order}
                pairs.append((rates[id(ours)], rates[id(theirs)]))
            row = Row(
                spec["threads"],
                test,
                round(median(a for a, _ in pairs), 1),
                peer,
                round(median(b for _, b in pairs), 1),
                round(median(a / b for a, b in pairs), 2),
            )
            say(json.dumps(asdict(row)))
            rows.append(row)
        return rows
