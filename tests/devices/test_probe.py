"""The device check: what it believes of its child process, and that the caller stays without torch."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.devices import probe
from engine.devices.probe import Accelerator, probe_accelerators

ROOT = Path(__file__).resolve().parents[2]
LISTED = [{"device": "mps", "name": "Apple M2 GPU", "memory_bytes": 8 << 30}]


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """Answers of the child processes by their first argument, on a machine that may have a device."""
    answers: dict[str, Any] = {"list": (0, json.dumps(LISTED), ""), "asked": []}
    monkeypatch.setenv("OFFRAMP_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(probe, "_may_have_accelerator", lambda: True)

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        what = command[3]
        answers["asked"].append(what)
        answer = answers[what]
        if isinstance(answer, BaseException):
            raise answer
        return subprocess.CompletedProcess(command, *answer)

    monkeypatch.setattr(subprocess, "run", run)
    return answers


def only(found: list[Accelerator]) -> Accelerator:
    (one,) = found
    return one


def test_a_good_device_is_cached(children: dict[str, Any]) -> None:
    children["check"] = (0, "a warning first\n" + json.dumps([{"reason": ""}]), "")
    want = Accelerator("mps", "Apple M2 GPU", 8 << 30, ok=True)
    assert only(probe_accelerators()) == want == only(probe_accelerators())
    assert children["asked"] == ["list", "check"]
    probe_accelerators(refresh=True)
    assert children["asked"] == ["list", "check"] * 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((0, json.dumps([{"reason": "its attention differs"}]), ""), "its attention differs"),
        ((-6, "", "loading\nfailed assertion"), "crashed with exit code -6: failed assertion"),
        ((1, "", "Traceback\nRuntimeError: no kernel"), "failed with exit code 1: RuntimeError: no kernel"),
        ((0, "hello", ""), "gave no answer"),
        (subprocess.TimeoutExpired("python", 90), "did not answer within 90 seconds"),
        (OSError("no such program"), "could not be started"),
    ],
)
def test_a_bad_device_has_a_reason(children: dict[str, Any], answer: Any, words: str) -> None:
    children["check"] = answer
    found = only(probe_accelerators())
    assert not found.ok and words in found.reason


def test_a_failed_list_means_no_device(children: dict[str, Any]) -> None:
    children["list"] = (-11, "", "")
    assert probe_accelerators() == []


def test_a_damaged_cache_is_made_again(children: dict[str, Any], tmp_path: Path) -> None:
    children["check"] = (0, json.dumps([{"reason": ""}]), "")
    probe_accelerators()
    (cached,) = tmp_path.glob("accelerators-*.json")
    cached.write_text("[{]")
    assert only(probe_accelerators()).ok
    assert children["asked"] == ["list", "check"] * 2


def test_the_check_itself_passes_on_the_cpu() -> None:
    command = [sys.executable, "-m", "engine.devices.probe", "check", "cpu"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [{"reason": ""}]


def test_the_caller_stays_without_torch() -> None:
    code = (
        "import sys; from engine.devices.probe import probe_accelerators; from engine.devices import cpu;"
        "probe_accelerators(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
