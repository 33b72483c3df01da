"""`offramp doctor` and `offramp profile --formats`: what they say, and when something is wrong."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.cli import main
from engine.commands import doctor
from engine.devices import probe
from engine.errors import BackendError
from engine.experiments import children
from tests.support import tiny_model, write_gguf


def kernels(**formats: str) -> dict[str, Any]:
    facts = {"torch": "2", "simd": "AVX2", "vnni": False, "amx": False, "int8_bits": 7, "kv_cache": "float32"}
    return {**facts, "formats": formats}


def test_a_report_from_end_to_end(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code == (1 if report["troubles"] else 0)
    assert report["packages"]["torch"] and report["cores"] >= 1 and report["memory_bytes"] > 0
    assert set(report["kernels"]["formats"]) == {"float32", "bf16", "int8", "int4", "int8-dynamic"}
    assert report["kernels"]["formats"]["float32"].startswith("right")
    (plan,) = (said for what, said in report["threads"].items() if "each kind of step" in what)
    assert plan.startswith("1 row ") and ", prompts " in plan


def test_wrong_answers_and_failing_devices_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = [kernels(bf16="WRONG, off by 80%", float32="right, off by 0.00%")]
    plan = [{"threads": 2, "plan": "1 row 1, prompts 2"}]
    monkeypatch.setattr(
        children, "json_lines", lambda _, spec: iter(plan if spec["what"] == "threads" else answers)
    )
    bad = probe.Accelerator("mps", "M9 GPU", 1 << 33, ok=False, reason="its attention differs")
    monkeypatch.setattr(probe, "probe_accelerators", lambda _: [bad])
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "TROUBLE format bf16: WRONG" in said and "TROUBLE mps is not used: its attention differs" in said
    assert "for each kind of step: 1 row 1, prompts 2" in said
    assert "7 bits" in said and "mps: M9 GPU, 8.0 GiB" in said


def test_a_crash_of_the_check_is_part_of_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> Any:
        raise BackendError("The measurement failed: it ended with code -4")

    monkeypatch.setattr(children, "json_lines", crash)
    report = doctor.examine()
    ended = "The measurement failed: it ended with code -4"
    assert report["troubles"] == [f"kernels: {ended}", f"threads: {ended}"]
    assert doctor.lines(report)[-2].startswith("TROUBLE kernels")


def test_the_table_of_formats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OFFRAMP_CACHE_DIR", str(tmp_path))
    write_gguf(tiny_model("llama"), tmp_path / "tiny.gguf", "Q4_1")
    command = ["profile", "--formats", "--model", str(tmp_path / "tiny.gguf"), "--threads", "1"]
    measure, asked = children.json_lines, list[dict[str, Any]]()

    def once(module: str, spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The second call asks for the same, in other words: it need not be measured again."""
        if spec not in asked:
            asked.append(spec)
            found.extend(measure(module, spec))
        return iter(found)

    found: list[dict[str, Any]] = []
    monkeypatch.setattr(children, "json_lines", once)
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "qkv 512x256" in said and "chosen: " in said and "int4" in said
    assert main([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["chosen"] in {t["format"] for t in report["trials"]}
    assert {t["rows"] for t in report["trials"]} == {1, 4, 8, 256}
    assert len(asked) == 1
