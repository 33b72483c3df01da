"""Runs are recorded, read back, replayed; nothing readable is in them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine.choose import emulated_specs
from engine.cli import main
from engine.config import BackendOptions
from engine.errors import ModelFileError
from engine.kv.prefix import restorable_blocks
from engine.profiling.profile import Profile, load_profile, parse_profile, profile_json
from engine.recording import find_run, prompt_blocks, read_run, runs_dir
from engine.simulation.simulate import Simulation, fake_tokenise
from engine.workloads.presets import make_workload
from tests.engine.conftest import Make


@pytest.fixture
def recorded(make: Make) -> Path:
    it = make(policy="isolated-rates")
    done = it.burst_done(it.engine.run_burst("seed-warm-8"))
    return Path(str(done.result["run_file"]))


def test_a_run_comes_back_as_it_was(recorded: Path) -> None:
    run = read_run(recorded)
    assert run.head["preset"] == "seed-warm-8" and run.head["policy"] == "isolated-rates"
    assert run.result is not None and len(run.workload.requests) == 8 and run.steps
    assert [len(r.prompt) for r in run.workload.requests] == [516] * 8
    assert all(r.output_tokens == 128 for r in run.workload.requests)
    assert run.profile is not None and {b.name for b in run.profile.backends} == {"cpu", "gpu"}
    tokens = sum(s["n"] for s in run.steps)
    assert tokens == 8 * 127, "every decode row of every step is there"


def test_when_each_token_came_is_in_the_file(recorded: Path) -> None:
    lines = [json.loads(line) for line in recorded.read_text("utf-8").splitlines()]
    rows = {r["id"]: r for r in lines[-1]["result"]["requests"]}
    requests = [line for line in lines if "request" in line]
    assert len(requests) == 8
    for line in requests:
        times, row = line["token_times_s"], rows[line["request"]]
        assert len(times) == 128 and times == sorted(times)
        assert times[0] == pytest.approx(row["ttft_s"], abs=1e-4)
        assert times[-1] == pytest.approx(row["e2e_s"], abs=1e-4)


def test_a_replay_shares_prefixes_as_the_run_did(recorded: Path) -> None:
    prompts = [r.prompt for r in read_run(recorded).workload.requests]
    assert all(p[:496] == prompts[0][:496] for p in prompts)
    assert len({p[496:512] for p in prompts}) == 8
    assert read_run(recorded).workload.seeding[0][:496] == prompts[0][:496]


def test_no_token_of_a_prompt_is_in_the_file(recorded: Path) -> None:
    line = json.loads(recorded.read_text("utf-8").splitlines()[-2])
    assert set(line) >= {"request", "blocks"} and "prompt" not in line
    assert all(len(b) == 12 for b in line["blocks"])


def test_replay_and_regret_on_the_command_line(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(recorded), "--policy", "forced-gpu", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["simulated"] is True and result["requests_per_backend"]["gpu"] == 8
    assert main(["regret", "last", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["proven"] is True and data["regret"]["makespan"]["total"] >= -0.02


def test_a_run_that_was_cut_short_is_readable(recorded: Path, tmp_path: Path) -> None:
    lines = recorded.read_text("utf-8").splitlines()
    at = next(i for i, line in enumerate(lines) if '"request":' in line)
    short = tmp_path / "short.jsonl"
    short.write_text("\n".join(lines[: at + 1]) + '\n{"step":"gp', "utf-8")
    run = read_run(short)
    assert run.result is None and len(run.workload.requests) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no finished request"),
        ("[]\n", "line 1"),
        ('{"format": "else"}\n', "no Offramp run"),
        ('{"format": "offramp-run", "version": 99}\n', "version 99"),
        ('{"format": "offramp-run", "version": 1, "preset": "x"}\nnonsense\n{}\n', "line 2"),
    ],
)
def test_what_is_no_run_is_refused_in_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text, "utf-8")
    with pytest.raises(ModelFileError, match=says):
        read_run(path)


def test_a_run_that_is_not_there() -> None:
    with pytest.raises(ModelFileError, match="no run"):
        find_run("does-not-exist")
    assert str(runs_dir()).endswith("runs")


def test_block_hashes_are_equal_as_far_as_two_prompts_are() -> None:
    a, b = (r.prompt for r in make_workload("seed-warm-8", fake_tokenise).requests[:2])
    same = [x == y for x, y in zip(prompt_blocks(a), prompt_blocks(b), strict=True)]
    assert same == [True] * 31 + [False] and restorable_blocks(516) == 32


def test_a_replay_takes_as_many_tokens_a_step_as_the_run_did(make: Make) -> None:
    it = make(policy="isolated-rates", options=BackendOptions(token_budget=64))
    done = it.burst_done(it.engine.run_burst("seed-warm-8"))
    run = read_run(Path(str(done.result["run_file"])))
    assert run.profile is not None and {b.token_budget for b in run.profile.backends} == {64}
    text = json.dumps(profile_json(run.profile))
    assert parse_profile(json.loads(text), "again").backends == run.profile.backends


def test_the_simulator_takes_as_many_tokens_a_step_as_the_profile_says() -> None:
    apple, cold = load_profile("apple-m2-published"), make_workload("cold-12", fake_tokenise, 0)
    narrow = replace(apple, backends=tuple(replace(b, token_budget=64) for b in apple.backends))
    by_profile = Simulation(narrow, "forced-gpu").run(cold)["requests"]
    assert by_profile == Simulation(apple, "forced-gpu", token_budget=64).run(cold)["requests"]
    assert by_profile != Simulation(apple, "forced-gpu").run(cold)["requests"]
    assert emulated_budgets(narrow, None) == [64, 64] and emulated_budgets(narrow, 128) == [128, 128]


def emulated_budgets(profile: Profile, asked: int | None) -> list[int]:
    """Of backends that are emulated after `profile`."""
    specs = emulated_specs(profile, BackendOptions(token_budget=asked))
    return [spec.token_budget for spec in specs]
