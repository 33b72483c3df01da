"""What a burst would have been elsewhere: the same simulator, the same placement but for one request."""

import json
from pathlib import Path

import pytest

from engine.errors import EngineError
from engine.experiments.hindsight import MOST_FOR_REGRET, main, regret, what_if
from engine.experiments.tables import policies_of
from engine.profiling.profile import load_profile
from engine.recording import read_head, read_run
from engine.simulation.simulate import Simulation
from tests.runs import write_run


def facts(path: Path) -> tuple[list[float], list[str | None]]:
    run = read_run(path)
    assert run.result is not None
    return [r.offset_s for r in run.workload.requests], [r["backend"] for r in run.result["requests"]]


def test_every_policy_is_run_and_the_same_placement_gives_the_recorded_times(tmp_path: Path) -> None:
    path = write_run(tmp_path)
    offsets, placement = facts(path)
    total, *cases = what_if(path, offsets, placement, 8, policies=True)
    profile = load_profile("apple-m2-published")
    assert total == {"total": len(cases)}
    assert [c["policy"] for c in cases if c["case"] == "policy"] == policies_of(profile)
    assert all(c["simulated"] for c in cases)
    recorded = read_run(path).result
    same = next(c for c in cases if c["case"] == "same")
    assert recorded is not None and same["makespan_s"] == pytest.approx(recorded["makespan_s"])
    for case in cases:
        if case["case"] == "policy":
            alone = Simulation(profile, case["policy"]).run(read_run(path).workload)
            assert case["makespan_s"] == alone["makespan_s"]


def test_elsewhere_moves_that_one_request_and_no_other(tmp_path: Path) -> None:
    path = write_run(tmp_path)
    offsets, placement = facts(path)
    _total, case = what_if(path, offsets, placement, 8, policies=False)
    assert case["case"] == "elsewhere" and case["backend"] == "gpu" and placement[7] == "cpu"
    assert [r["backend"] for r in case["requests"]] == [*placement[:7], "gpu"]


def test_a_burst_that_still_runs_is_completed_from_its_preset(tmp_path: Path) -> None:
    whole, going = write_run(tmp_path), write_run(tmp_path, "run-2", ended=1)
    offsets, placement = facts(whole)
    known = [*placement[:6], None, None]
    cases = [c for c in what_if(going, offsets, known, 3, policies=True) if "case" in c]
    assert {c["case"] for c in cases} == {"policy", "elsewhere"}, "there is no whole placement to repeat"
    moved = next(c for c in cases if c["case"] == "elsewhere")
    assert [r["backend"] for r in moved["requests"]][:6] == [*placement[:2], "cpu", *placement[3:6]]
    assert len(moved["requests"]) == 8


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mixed": True}, "Typed prompts"),
        ({"ended": 3}, "cut short"),
        ({"calibrated": False}, "without step times"),
        ({"version": 99}, "version 99"),
    ],
)
def test_no_regret_without_a_reason(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    with pytest.raises(EngineError, match=words):
        regret(write_run(tmp_path, **changes))  # type: ignore[arg-type]


def test_a_burst_whose_replies_are_not_whole_is_compared_with_nothing(tmp_path: Path) -> None:
    path = write_run(tmp_path)
    *lines, last = path.read_text("utf-8").splitlines()
    data = json.loads(last)
    data["result"]["requests"][0]["finish_reason"] = "error"
    data["result"]["requests"][3]["finish_reason"] = "abort"
    path.write_text("\n".join([*lines, json.dumps(data)]) + "\n", "utf-8")
    words = "1 of 8 requests ended with error, 1 was stopped: {} needs a burst"
    with pytest.raises(EngineError, match=words.format("regret")):
        regret(path)
    offsets, placement = facts(path)
    with pytest.raises(EngineError, match=words.format("a what-if")):
        list(what_if(path, offsets, placement, 3, policies=True))


def test_more_requests_than_are_searched_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.experiments.hindsight.MOST_FOR_REGRET", 7)
    with pytest.raises(EngineError, match="8 requests are more than the 7"):
        regret(write_run(tmp_path))
    assert MOST_FOR_REGRET >= 48, "every preset is searched"


def test_the_child_prints_lines_and_ends_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.experiments.hindsight.give_way", lambda: None)  # this is no child
    assert main([json.dumps({"kind": "regret", "run": str(write_run(tmp_path))})]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == {"total": 1} and lines[1]["proven"] is True and lines[1]["tried"] == 256
    assert main([json.dumps({"kind": "regret", "run": str(tmp_path / "none.jsonl")})]) == 1
    assert "cannot be read" in json.loads(capsys.readouterr().out.splitlines()[-1])["error"]


def test_the_head_alone_can_be_read_and_says_why_not(tmp_path: Path) -> None:
    assert read_head(write_run(tmp_path, ended=0))["preset"] == "seed-warm-8"
    for text in ("", "not json\n", "[1]\n", '{"format": "other"}\n'):
        path = tmp_path / "bad.jsonl"
        path.write_text(text, "utf-8")
        with pytest.raises(EngineError, match="no Offramp run"):
            read_head(path)
