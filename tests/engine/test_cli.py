"""The command line, in this process: JSON alone on stdout, mistakes in one sentence and exit code 2."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine import __version__
from engine.cli import SUBCOMMANDS, main
from engine.workloads.presets import PRESETS
from tests.engine.watched import profile_json

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def fast(tmp_path: Path) -> str:
    """A profile file of backends with steps of a millisecond."""
    path = tmp_path / "fast.json"
    path.write_text(json.dumps(profile_json()), "utf-8")
    return str(path)


def leaves(argv: list[str]) -> int:
    """The exit code, also where argparse leaves by itself."""
    try:
        return main(argv)
    except SystemExit as error:
        assert isinstance(error.code, int)
        return error.code


def refused(argv: list[str], capsys: Capture) -> str:
    """Exit code 2, nothing on stdout, one sentence on stderr; returns it."""
    assert leaves(argv) == 2
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err
    return err


# --- simulate ---


def test_json_is_alone_on_stdout(capsys: Capture) -> None:
    named = ["--profile", "apple-m2-published", "--preset", "seed-warm-8", "--policy", "isolated-rates"]
    assert main(["simulate", *named, "--json"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert err == "" and out.lstrip().startswith("{")
    assert result["emulated"] is True and len(result["requests"]) == 8
    assert result["makespan_s"] == pytest.approx(10.15, abs=0.006)


def test_a_table_for_people_says_that_it_is_simulated(capsys: Capture) -> None:
    assert main(["simulate"]) == 0  # under the default policy
    out, _ = capsys.readouterr()
    assert "SIMULATED" in out and "Makespan 8.90 s" in out and "2 on cpu" in out
    assert len([line for line in out.splitlines() if "length" in line]) == 8


def test_slots_and_scheduling_reach_the_simulation(capsys: Capture) -> None:
    arguments = ["simulate", "--slots", "gpu=1", "--policy", "forced-gpu", "--json"]
    assert main([*arguments, "--scheduling", "round-robin"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["makespan_s"] == pytest.approx(3.53, abs=0.01)
    assert result["slots"] == {"cpu": 4, "gpu": 1}


def test_the_same_seed_the_same_bytes(capsys: Capture) -> None:
    outs = []
    for seed in ("7", "7", "8"):
        assert main(["simulate", "--preset", "labels-and-stories", "--seed", seed, "--json"]) == 0
        outs.append(capsys.readouterr().out)
    assert outs[0] == outs[1] != outs[2]


def test_a_profile_by_path(capsys: Capture, fast: str) -> None:
    assert main(["simulate", "--profile", fast, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["profile"] == "fast"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["simulate", "--preset", "warm-9"], "'warm-9'"),
        (["simulate", "--policy", "best"], "'best'"),
        (["simulate", "--policy", "forced-tpu"], "'forced-tpu'"),
        (["simulate", "--profile", "apple-m9"], "'apple-m9'"),
        (["simulate", "--profile", "/nowhere/none.json"], "cannot be read"),
        (["simulate", "--slots", "many"], "--slots many"),
        (["simulate", "--slots", "0"], "--slots 0"),
        (["simulate", "--slots", "-3"], "--slots"),
        (["simulate", "--slots", "gpu=1000"], "--slots gpu=1000"),
        (["simulate", "--slots", "tpu=2"], "'tpu'"),
        (["simulate", "--slots", ""], "--slots"),
        (["simulate", "--slots", "\u00b2"], "--slots"),
        (["simulate", "--scheduling", "lifo"], "lifo"),
        (["burst", "--preset", "warm-9"], "'warm-9'"),
        (["burst", "--virtual"], "--emulate"),
        (["burst", "--emulate", "apple-m9"], "'apple-m9'"),
        (["burst", "--emulate", "apple-m2-published", "--policy", "best"], "'best'"),
        (["burst", "--emulate", "apple-m2-published", "--slots", "tpu=1"], "'tpu'"),
        (["burst", "--emulate", "apple-m2-published", "--token-budget", "1"], "token budget"),
        (["burst", "--backends", "tpu"], "'tpu'"),
        (["burst", "--backends", ""], "--backends"),
        (["burst", "--backends", "cpu,,cpu"], "--backends"),
        (["burst", "--threads", "0"], "--threads 0"),
        (["burst", "--context", "8"], "--context 8"),
        (["generate", "", "--emulate", "apple-m2-published"], "empty"),
        (["generate", "hello", "--temperature", "-1"], "temperature"),
        (["generate", "hello", "--top-p", "7"], "top_p"),
        (["generate", "hello", "--max-new-tokens", "0"], "max_new_tokens"),
        (["generate", "hello", "--stop", ""], "stop string"),
        (["generate", "hello", "--emulate", "apple-m2-published", "--backend", "tpu"], "'tpu'"),
    ],
)
def test_a_mistake_is_one_sentence(argv: list[str], words: str, capsys: Capture) -> None:
    err = refused(argv, capsys)
    assert words in err
    if not err.startswith("usage:"):
        lines = [line for line in err.strip().splitlines() if line.startswith("offramp: ")]
        assert len(lines) == 1 and lines[0].endswith(".")


@pytest.mark.parametrize(
    "argv",
    [["dance"], ["simulate", "--seed", "x"], ["simulate", "--what"], ["generate", "a", "--top-k", "x"]],
)
def test_mistakes_that_argparse_finds(argv: list[str], capsys: Capture) -> None:
    assert "error:" in refused(argv, capsys)


# --- the rest ---


def test_version(capsys: Capture) -> None:
    assert leaves(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"offramp {__version__}"


@pytest.mark.parametrize("argv", [["--help"], [], ["--help-window"], *([c, "--help"] for c in SUBCOMMANDS)])
def test_help(argv: list[str], capsys: Capture) -> None:
    assert leaves(argv) == 0
    out, err = capsys.readouterr()
    assert out.startswith("usage: offramp") and err == ""


def test_help_names_every_preset(capsys: Capture) -> None:
    leaves(["simulate", "--help"])
    out = " ".join(capsys.readouterr().out.split())
    assert all(name in out.replace("- ", "-") for name in PRESETS)


def test_a_burst_on_emulated_backends(capsys: Capture, fast: str) -> None:
    assert main(["burst", "--emulate", fast, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (result["emulated"], result["simulated"], len(result["requests"])) == (True, False, 8)
    assert all(r["finish_reason"] == "length" for r in result["requests"])


def test_a_virtual_burst_is_the_simulation(capsys: Capture) -> None:
    assert main(["burst", "--emulate", "apple-m2-published", "--virtual", "--json"]) == 0
    virtual = capsys.readouterr().out
    assert main(["simulate", "--slots", "4", "--json"]) == 0
    assert virtual == capsys.readouterr().out


def test_generate_says_who_answered(capsys: Capture, fast: str) -> None:
    assert main(["generate", "hello there", "--emulate", fast, "--max-new-tokens", "5"]) == 0
    out, err = capsys.readouterr()
    assert len(out.split()) == 5
    assert "EMULATED" in err and "GPU" in err and "finish reason length" in " ".join(err.split())


def test_generate_as_json(capsys: Capture, fast: str) -> None:
    argv = ["generate", "hello", "--emulate", fast, "--max-new-tokens", "5", "--json", "--backend", "cpu"]
    assert main(argv) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["backend"], data["output_tokens"], data["finish_reason"]) == ("cpu", 5, "length")
    assert len(data["text"].split()) == 5


def test_generate_reads_stdin(capsys: Capture, fast: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("one two three"))
    assert main(["generate", "--emulate", fast, "--max-new-tokens", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["prompt_tokens"] == 4


def test_a_prompt_that_is_too_long_is_a_users_mistake(capsys: Capture, fast: str) -> None:
    assert leaves(["generate", "word " * 100, "--emulate", fast, "--context", "64"]) == 2
    out, err = capsys.readouterr()
    words = " ".join(err.split())
    assert out == "" and "101" in words and "64" in words and "Traceback" not in err


def test_rates_of_emulated_backends(capsys: Capture, fast: str) -> None:
    assert main(["profile", "--emulate", fast, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["backends"]
    assert {r["name"]: round(r["rates"]["decode"]) for r in rows} == {"cpu": 500, "gpu": 1000}
