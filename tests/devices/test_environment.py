"""What is set before torch is imported: seen from inside a backend's process, at the moment of the import."""

import ast
import json
import multiprocessing
import os
import platform
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import pytest

from engine.config import BackendSpec
from engine.devices.environment import prepare_environment
from engine.request import BackendName
from engine.transport import LoadFailed, Plan, child_main

ENGINE = Path(__file__).resolve().parents[2] / "engine"
WATCHED = (
    "GOMP_SPINCOUNT",
    "OMP_WAIT_POLICY",
    "PYTORCH_MPS_HIGH_WATERMARK_RATIO",
    "PYTORCH_MPS_LOW_WATERMARK_RATIO",
)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No variable of ours is set, and none stays set."""
    for name in WATCHED:
        monkeypatch.setenv(name, "")  # remembered, so that it is undone
        monkeypatch.delenv(name)
    return monkeypatch


class _Stop(MetaPathFinder):
    """Writes the environment down when torch is first asked for, and ends the load there."""

    def __init__(self, path: str) -> None:
        self.path = path

    def find_spec(self, name: str, *_: Any) -> None:
        if name == "torch":
            Path(self.path).write_text(json.dumps(dict(os.environ)), encoding="utf-8")
            raise ImportError("far enough")


def _on_a_mac(path: str, pipe: Any, plan: Plan) -> None:
    """A backend's entry point, spawned on what says it is a Mac."""
    assert "torch" not in sys.modules
    platform.system = lambda: "Darwin"
    sys.meta_path.insert(0, _Stop(path))
    child_main(pipe, plan)


def test_a_backends_process_limits_metal_and_waits_before_torch_is_there(
    bare: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare.setenv("PYTORCH_MPS_LOW_WATERMARK_RATIO", "0.5")  # the user's own
    seen = tmp_path / "environment.json"
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    plan = Plan(BackendSpec(BackendName("gpu"), "gpu", "mps"), "salt", 64, ())
    child = context.Process(target=_on_a_mac, args=(str(seen), theirs, plan))
    child.start()
    theirs.close()
    message = ours.recv()
    child.join(20)
    assert isinstance(message, LoadFailed) and "far enough" in message.message
    environment = json.loads(seen.read_text())
    assert [environment[name] for name in ("GOMP_SPINCOUNT", *WATCHED[2:])] == ["1000", "0.8", "0.5"]
    assert not any(name in os.environ for name in WATCHED[:3])  # the window's process is left as it was


@pytest.mark.parametrize(("system", "limited"), [("Darwin", True), ("Linux", False)])
def test_metal_is_limited_on_a_mac_only(bare: pytest.MonkeyPatch, system: str, limited: bool) -> None:
    bare.setattr(platform, "system", lambda: system)
    prepare_environment()
    assert all((name in os.environ) == limited for name in WATCHED[2:])


def test_what_the_user_says_about_waiting_stays(bare: pytest.MonkeyPatch) -> None:
    bare.setenv("OMP_WAIT_POLICY", "active")
    prepare_environment()
    assert "GOMP_SPINCOUNT" not in os.environ
    bare.delenv("OMP_WAIT_POLICY")
    bare.setenv("GOMP_SPINCOUNT", "7")
    prepare_environment()
    assert os.environ["GOMP_SPINCOUNT"] == "7"


def _asks_for_torch(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").startswith(("torch", "engine.execution.torch_runner"))
    return isinstance(node, ast.Import) and any(a.name.split(".")[0] == "torch" for a in node.names)


def _prepares(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "prepare_environment"
    )


@pytest.mark.parametrize("name", ["transport", "growth", "quality", "kernels", "contestant"])
def test_every_process_of_ours_that_computes_is_prepared_first(name: str) -> None:
    (path,) = ENGINE.rglob(f"{name}.py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not any(map(_asks_for_torch, tree.body)), "torch comes with the module itself"
    bodies = [list(ast.walk(f)) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)]
    (entry,) = [body for body in bodies if any(map(_prepares, body))]
    prepared = min(n.lineno for n in entry if _prepares(n))  # type: ignore[attr-defined]
    imported = min(n.lineno for n in entry if _asks_for_torch(n))  # type: ignore[attr-defined]
    assert prepared < imported
