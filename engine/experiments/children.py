"""Modules of ours that compute, run as child processes: what asks them never imports torch."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.errors import BackendError


def command_of(module: str, spec: Mapping[str, Any]) -> list[str]:
    """How to start `module` with `spec` as its one argument."""
    return [sys.executable, "-W", "ignore", "-m", module, json.dumps(spec)]


def environment() -> dict[str, str]:
    """Ours, with this package to be found wherever the child starts."""
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def json_lines(module: str, spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What the module prints, line by line. Raises `BackendError` with its last words if it fails."""
    with subprocess.Popen(
        command_of(module, spec), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as child:
        assert child.stdout is not None and child.stderr is not None
        try:
            for line in child.stdout:
                yield json.loads(line)
            told = child.stderr.read().strip().splitlines()
        except BaseException:
            child.kill()
            raise
    if child.returncode != 0:
        last = told[-1] if told else f"it ended with code {child.returncode}"
        raise BackendError(f"The measurement failed: {last[:300]}")
