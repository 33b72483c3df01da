"""`offramp doctor`: one report on this machine, worth pasting into an issue."""

import argparse
import json
import platform
import sys
from importlib import metadata
from typing import Any

import psutil

from engine import __version__
from engine.errors import BackendError, EngineError

_PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "PySide6-Essentials", "llama-cpp-python")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "doctor", help="check kernels, formats, memory and threads", description=__doc__
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--again", action="store_true", help="check the accelerators anew")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 if a kernel or an accelerator gives wrong answers."""
    report = examine(args.again)
    if args.json:
        sys.stdout.write(json.dumps(report, indent=1) + "\n")
    else:
        sys.stdout.write("\n".join(lines(report)) + "\n")
    return 1 if report["troubles"] else 0


def examine(again: bool = False) -> dict[str, Any]:
    """Everything that the report says, as plain data."""
    from engine.devices.cpu import cpu_threads, physical_cores, processor_name
    from engine.devices.probe import probe_accelerators
    from engine.experiments.children import json_lines

    memory = psutil.virtual_memory()
    troubles: list[str] = []
    try:
        kernels = next(json_lines("engine.experiments.kernels", {"what": "check", "threads": 1}))
        troubles += [f"format {n}: {said}" for n, said in kernels["formats"].items() if "WRONG" in said]
    except (BackendError, StopIteration) as error:
        kernels = {"formats": {}}
        troubles.append(f"kernels: {error or 'the check said nothing'}")
    cores = physical_cores()
    try:
        plan = next(json_lines("engine.experiments.kernels", {"what": "threads", "threads": cores}))["plan"]
    except (BackendError, StopIteration) as error:
        plan = "unknown"
        troubles.append(f"threads: {error or 'the trial said nothing'}")
    accelerators = []
    for found in probe_accelerators(again):
        accelerators.append({"device": found.device, "name": found.name, "memory": found.memory_bytes})
        accelerators[-1]["check"] = "right" if found.ok else found.reason
        if not found.ok:
            troubles.append(f"{found.device} is not used: {found.reason}")
    return {
        "offramp": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "processor": processor_name(),
        "cores": cores,
        "memory_bytes": memory.total,
        "free_bytes": memory.available,
        "threads": {
            "one CPU backend beside a GPU": cpu_threads(1),
            "two CPU backends": cpu_threads(2),
            "rule": "all CPU backends together take cores - 1; fewer at run time if steps become uneven",
            f"tried on all {cores} for each kind of step": plan,
        },
        "kernels": kernels,
        "formats_chosen": _chosen(),
        "accelerators": accelerators,
        "troubles": troubles,
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _chosen() -> list[str]:
    """The formats that earlier trials on this machine chose, if any; "bf16?" in a busy moment."""
    from engine.paths import cache_dir

    try:
        known = json.loads((cache_dir() / "formats.json").read_text(encoding="utf-8"))
        return sorted(set(map(str, known.values())))
    except (OSError, ValueError, AttributeError, EngineError):
        return []


def lines(report: dict[str, Any]) -> list[str]:
    """The report for people."""
    gib = 2.0**30
    kernels = report["kernels"]
    out = [
        f"offramp {report['offramp']}, Python {report['python']}, {report['system']}",
        "packages: " + ", ".join(f"{n} {v}" for n, v in report["packages"].items()),
        f"processor: {report['processor']}, {report['cores']} cores",
        f"memory: {report['memory_bytes'] / gib:.1f} GiB, {report['free_bytes'] / gib:.1f} GiB free",
    ]
    if "torch" in kernels:
        amx, vnni = ("yes" if kernels[key] else "no" for key in ("amx", "vnni"))
        out.append(
            f"kernels: {kernels['simd']}, VNNI {vnni}, AMX {amx}, dynamic int8 with {kernels['int8_bits']} "
            f"bits, KV cache in {kernels['kv_cache']}"
        )
    out += [f"format {name}: {said}" for name, said in kernels["formats"].items()]
    out.append("chosen by trial: " + (", ".join(report["formats_chosen"]) or "nothing yet"))
    out += [f"threads, {what}: {plan}" for what, plan in report["threads"].items()]
    for found in report["accelerators"]:
        out.append(f"{found['device']}: {found['name']}, {found['memory'] / gib:.1f} GiB, {found['check']}")
    if not report["accelerators"]:
        out.append("accelerators: none that torch can use")
    out += [f"TROUBLE {trouble}" for trouble in report["troubles"]] or ["no trouble found"]
    return out
