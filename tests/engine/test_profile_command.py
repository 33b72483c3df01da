"""`offramp profile`: its tables, its bar, and what Ctrl+C leaves."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from engine.cli import main
from engine.commands.calibrating import CalibrationBar, CalibrationSteps
from engine.commands.common import Progress
from engine.commands.profile import _show
from engine.events import BackendInfo, SetupStep
from engine.profiling.profile import parse_profile
from engine.request import BackendName
from tests.engine.watched import Watched, profile_json


def step(key: str, state: str, done: float, total: float = 10.0) -> SetupStep:
    return SetupStep(f"calibrate:{key}", f"Calibrate {key}", "step times", state, done, total)


def seen(*events: SetupStep) -> CalibrationSteps:
    steps = CalibrationSteps()
    for event in events:
        steps.see(event)
    return steps


def test_stages_count_from_the_beginning_and_ended_ones_as_whole() -> None:
    steps = seen(
        step("a", "waiting", 0), step("b", "waiting", 0, 30), SetupStep("probe", "Probe", "", "running")
    )
    assert steps.points == (0, 40) and steps.open and not steps.failed and steps.title == "Calibrate"
    steps.see(step("a", "running", 4))
    assert steps.points == (4, 40) and steps.title == "Calibrate a: step times"
    steps.see(step("a", "failed", 4))
    assert steps.points == (10, 40) and steps.failed and steps.open
    steps.see(step("b", "done", 30, 30))
    assert steps.points == (40, 40) and not steps.open
    assert not seen().open and seen().points == (0, 0)


def bar_output(terminal: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120)
    steps = seen(step("a", "running", 5), step("b", "waiting", 0))
    with CalibrationBar(console, steps) as bar:
        bar.update()
        bar._bar.refresh()
    return out.getvalue()


def test_a_terminal_gets_a_bar_with_what_runs_and_the_time_left() -> None:
    shown = bar_output(terminal=True)
    assert "Calibrate a: step times" in shown and "5/20" in shown and "-:--:--" in shown


def test_a_pipe_gets_no_bar() -> None:
    assert bar_output(terminal=False).strip() == ""


def test_lines_tell_the_beginning_and_the_end_of_a_stage_once(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    for event in (
        step("a", "waiting", 0),
        step("a", "running", 0),
        step("a", "running", 5),
        step("a", "done", 10),
    ):
        progress.show(event)
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines == ["Calibrate a ... step times", "Calibrate a done step times"]


def fitted() -> dict[str, Any]:
    data = profile_json()
    for i, backend in enumerate(data["backends"]):
        backend["step"] |= {"prefill_table_s": {"8": 0.01, "512": 0.1}, "start_s": 1e-6}
        backend["fit"] = {"fit_error": 0.03 + i / 100, "held_out_error": 0.05, "spread": 0.02}
    return {**data, "version": 2}


def test_the_table_has_the_fit_and_the_held_out_error_of_each_backend(
    capsys: pytest.CaptureFixture[str],
) -> None:
    profile = parse_profile(fitted(), "fitted")
    infos = [
        BackendInfo(BackendName(b.name), b.name, b.kind, i, "x", "x", False, 4, 1, 1, 1, "int8", 1.0, 1.0)
        for i, b in enumerate(profile.backends)
    ]
    _show(profile, infos, None)
    out = capsys.readouterr().out
    assert "held out" in out and "spread of equal steps" in out
    rows = [line.split() for line in out.splitlines() if line.startswith(("cpu", "gpu"))]
    assert ["cpu", "3.0%", "5.0%", "2.0%"] in rows and ["gpu", "4.0%", "5.0%", "2.0%"] in rows
    assert "8: 10.00, 512: 100.00" in out


def test_a_given_profile_has_nothing_fitted_to_show(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "fast.json"
    path.write_text(json.dumps(profile_json()), "utf-8")
    assert main(["profile", "--emulate", str(path), "--again"]) == 0  # nothing to measure: nobody waits
    out = capsys.readouterr().out
    assert "EMULATED" in out and "held out" not in out and "a token" in out
    assert main(["profile", "--emulate", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == 2


def test_ctrl_c_says_what_is_kept_and_ends_the_engine(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fast.json"
    path.write_text(json.dumps(profile_json()), "utf-8")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("engine.commands.common.Watch.until_calibrated", interrupted)
    assert main(["profile", "--emulate", str(path)]) == 130
    shown = capsys.readouterr()
    assert "what was measured is kept" in shown.err and shown.out == ""


def test_the_facade_can_stop_a_calibration(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    try:
        watched.engine.wait_ready(10)
        watched.engine.stop_calibration()  # an emulated backend has none: nothing happens
        done = watched.done(watched.chat())
        assert done.output_tokens == 8
    finally:
        watched.engine.close()
