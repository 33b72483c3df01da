"""Comparisons: what is refused, and one small comparison from end to end."""

from pathlib import Path

import pytest

from engine.cli import main
from engine.commands.bench import thread_counts, wanted_tests
from engine.errors import BackendError, ConfigError
from engine.experiments.backend_bench import (
    DEVICE_TESTS,
    ROOFLINE,
    TESTS,
    Side,
    answerable,
    check_build,
    compare,
)
from engine.experiments.children import json_lines
from engine.experiments.contestant_tests import CONTEXT, ROWS, SHARED, burst_prompts, prompts
from tests.support import embedded_model_path, tiny_model


def test_a_build_for_another_processor_is_refused() -> None:
    check_build("AVX2 = 1 | AVX512 = 1 | ", {"avx2", "avx512f"})
    check_build("AVX2 = 1 | ", {"avx2", "sse3"})
    with pytest.raises(ConfigError, match="without AVX512, AMX_INT8, which .*GGML_NATIVE"):
        check_build("AVX2 = 1 | AVX512 = 0 | ", {"avx2", "avx512f", "amx_int8"})


def test_thread_counts_and_tests() -> None:
    assert thread_counts("1,3,1") == [1, 3] and thread_counts("all")[0] >= 1
    assert wanted_tests("all") == TESTS and wanted_tests("prefill_512") == ("prefill_512",)
    for text in ("0", "two", ""):
        with pytest.raises(ConfigError, match="numbers from 1 to 256"):
            thread_counts(text)
    with pytest.raises(ConfigError, match="no test 'decode'"):
        wanted_tests("decode")


@pytest.mark.parametrize(
    "words", ["backends --rounds 0", "quality --formats int3", "backends --threads x", "growth --tokens 3"]
)
def test_bad_options_end_with_two(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words.split()]) == 2
    assert "offramp: " in capsys.readouterr().err


def test_prompts_share_what_they_should() -> None:
    own, shared = prompts(500, False), prompts(500, True)
    assert len(own) == ROWS and all(len(p) == CONTEXT and max(p) < 500 for p in own)
    assert len({tuple(p[:16]) for p in own}) == ROWS and len({tuple(p[:SHARED]) for p in shared}) == 1
    assert len({tuple(p) for p in shared}) == ROWS


def test_a_comparison_from_end_to_end(tmp_path: Path) -> None:
    tiny_model("llama", max_position_embeddings=1024).save_pretrained(tmp_path)
    spec = {
        "device": "cpu",
        "threads": 1,
        "format": "float32",
        "model": str(tmp_path),
        "architecture": None,
        "load_format": "auto",
    }
    said: list[str] = []
    tests = ("prefill_512", "decode_512_rows_4")
    rows = compare(spec, "transformers bf16", tests, 1, said.append)
    assert [(r.threads, r.test, r.peer) for r in rows] == [(1, t, "transformers bf16") for t in tests]
    assert all(r.ours_tok_s > 0 and r.peer_tok_s > 0 and r.ratio > 0 for r in rows)
    assert said[1] == "ours: float32, 1 threads"


def test_growth_runs_the_real_loop(tmp_path: Path) -> None:
    tiny_model("llama", max_position_embeddings=1024).save_pretrained(tmp_path)
    spec = {"model": str(tmp_path), "format": "float32", "threads": 1, "tokens": 100, "queued": 8}
    spec["tokenizer"] = str(embedded_model_path())
    found = {row["test"]: row["value"] for row in json_lines("engine.experiments.growth", spec)}
    assert all(value > 0 for value in found.values())
    assert {"overhead_share_rows_4_queued_8", "reply_last_tokens_step", "reply_100_tokens"} <= set(found)


def test_a_side_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="ours ended during the comparison .*KeyError"):
        Side({"kind": "ours"})
    with pytest.raises(BackendError, match="measurement failed"):
        list(json_lines("engine.experiments.quality", {"model": str(tmp_path), "formats": [], "threads": 1}))


DUMMY = {
    "device": "cpu",
    "threads": 1,
    "format": "float32",
    "model": None,
    "architecture": "tiny",
    "load_format": "dummy",
    "rows": 16,
    "slots": 16,
    "burst_blocks": 200,
}


def test_random_weights_against_the_roofline_and_a_burst() -> None:
    rows = compare(DUMMY, ROOFLINE, answerable(ROOFLINE, DEVICE_TESTS[:2]), 1, lambda _: None)
    assert [(r.test, r.peer) for r in rows] == [("decode_512_rows_1", ROOFLINE)]
    assert 0 < rows[0].ratio < 1  # nobody reads faster than a copy
    with Side({**DUMMY, "kind": "ours"}) as side:
        for test in ("decode_512_shared_rows_8", "burst_12_64_8", "decode_512_rows_16"):
            assert side.measure(test) > 0


def test_a_burst_computes_every_prompt_anew() -> None:
    turns = [burst_prompts(49152, 48, 512, turn) for turn in range(3)]
    firsts = {tuple(text[:16]) for texts in turns for text in texts}
    assert len(firsts) == 3 * 48
    assert all(len(text) == 512 and min(text) >= 0 and max(text) < 49152 for texts in turns for text in texts)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--device gpu", "use cpu, cuda or cuda:0"),
        ("--device cuda", "--against transformers"),
        ("--load-format dummy --against transformers", "go together"),
        ("--architecture tiny --against transformers", "go together"),
        ("--load-format dummy --architecture gpt --against transformers", "no architecture named 'gpt'"),
        ("--load-format dummy --architecture tiny", "needs a real model"),
        ("--device cuda --against transformers --tests decode_512_shared_rows_4", "There is no test"),
    ],
)
def test_bad_devices_and_architectures(words: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "backends", *words.split()]) == 2
    assert told in capsys.readouterr().err
