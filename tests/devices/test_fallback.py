"""An accelerator that fails its check: the engine goes on with CPUs, says why, and remembers it."""

import json
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from engine.choose import choose_backends
from engine.config import BackendOptions
from engine.devices import probe
from engine.errors import BackendError
from engine.events import SetupStep

LISTED = [{"device": "mps", "name": "Apple M2 GPU", "memory_bytes": 8 << 30}]
FAILURES = {
    "crash": ((-6, "", "loading\nfailed assertion `buffer'"), "crashed with exit code -6: failed assertion"),
    "mismatch": ((0, json.dumps([{"reason": "its attention differs"}]), ""), "its attention differs"),
    "timeout": (subprocess.TimeoutExpired("python", 90), "did not answer within 90 seconds"),
}


class Machine:
    """A Mac whose system build, torch and device check are what a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
        self.check: Any = None
        self.checks = 0
        self.build, self.torch = "Darwin Kernel Version 24.1.0", "2.14.1"
        monkeypatch.setenv("OFFRAMP_CACHE_DIR", str(cache))
        monkeypatch.setattr(probe, "_may_have_accelerator", lambda: True)
        monkeypatch.setattr(platform, "version", lambda: self.build)
        real = metadata.version
        monkeypatch.setattr(metadata, "version", lambda name: self.torch if name == "torch" else real(name))
        self._run = subprocess.run
        monkeypatch.setattr(subprocess, "run", self.run)

    def run(self, command: list[str], **rest: Any) -> Any:
        if "engine.devices.probe" not in command:
            return self._run(command, **rest)
        answer = (0, json.dumps(LISTED), "")
        if command[3] == "check":
            self.checks += 1
            answer = self.check
        if isinstance(answer, BaseException):
            raise answer
        return subprocess.CompletedProcess(command, *answer)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path)


def start(wanted: str = "auto") -> tuple[list[str], str, list[SetupStep]]:
    """Devices that a start chooses, its note, and what it tells meanwhile."""
    told: list[SetupStep] = []
    specs, note = choose_backends(BackendOptions(wanted=wanted), told.append)
    return [spec.device for spec in specs], note, told


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failing_check_gives_cpus_and_its_reason(machine: Machine, kind: str) -> None:
    machine.check, words = FAILURES[kind]
    devices, note, told = start()
    assert devices == ["cpu", "cpu"] and words in note
    assert any(words in step.detail for step in told)
    with pytest.raises(BackendError, match="mps cannot be used") as error:  # asked for by name: no silent CPU
        start("cpu,mps")
    assert words in str(error.value)


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failure_is_kept_for_this_system_and_this_torch(machine: Machine, kind: str) -> None:
    machine.check, words = FAILURES[kind]
    for _ in range(3):
        assert words in start()[1]
    assert machine.checks == 1
    machine.check = (0, json.dumps([{"reason": ""}]), "")
    machine.torch = "2.15.0"
    assert start()[0] == ["cpu", "mps"] and machine.checks == 2
    machine.torch, machine.build = "2.14.1", "Darwin Kernel Version 24.2.0"
    assert start()[0] == ["cpu", "mps"] and machine.checks == 3
    machine.build = "Darwin Kernel Version 24.1.0"
    devices, note, _ = start()
    assert (
        devices == ["cpu", "cpu"] and words in note and machine.checks == 3
    )  # what was known of the old pair


def test_a_good_device_is_used_beside_the_cpu(machine: Machine) -> None:
    machine.check = (0, json.dumps([{"reason": ""}]), "")
    devices, note, _ = start()
    assert devices == ["cpu", "mps"] and not note
    assert start("mps")[0] == ["mps"]
