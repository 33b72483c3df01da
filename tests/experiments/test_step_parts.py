"""`offramp bench steps`: what belongs where, and a whole run on a tiny model."""

import json
from pathlib import Path

import pytest

from engine.cli import main
from engine.commands.bench_steps import tests_of as names_of
from engine.errors import ConfigError
from engine.experiments.step_parts import PARTS, PYTHON, SMALL, part_of, shares
from tests.support import tiny_model, write_gguf


@pytest.mark.parametrize(
    ("operation", "part"),
    [
        ("onednn::qlinear_pointwise", "products"),
        ("aten::_weight_int4pack_mm_for_cpu", "products"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("aten::index_copy_", "cache"),
        ("aten::argmax", "choice"),
        ("aten::mul_", SMALL),
    ],
)
def test_operations_belong_to_parts(operation: str, part: str) -> None:
    assert part_of(operation) == part


def test_shares_sum_to_one_and_the_rest_is_python() -> None:
    found = shares({"aten::mm": 30.0, "aten::mul": 10.0, "aten::add": 20.0}, 100.0)
    assert found["products"] == 0.3 and found[SMALL] == 0.3 and found[PYTHON] == 0.4
    assert sum(found.values()) == pytest.approx(1.0)
    assert shares({"aten::mm": 80.0, "aten::mul": 80.0}, 100.0)[PYTHON] == 0.0  # several threads count twice


def test_rows_by_name() -> None:
    assert names_of("1, shared-8") == ["decode_512_rows_1", "decode_512_shared_rows_8"]
    for wrong in ("", "9", "0", "alone-2", "shared-", "1,,2"):
        with pytest.raises(ConfigError, match="is unclear"):
            names_of(wrong)


def test_a_run_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(tiny_model("llama", max_position_embeddings=1024), path)
    command = ["bench", "steps", "--model", str(path), "--format", "bf16", "--rows", "2", "--json"]
    assert main(command) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["test"] == "decode_512_rows_2" and row["format"] == "bf16" and row["step_ms"] > 0
    assert set(row["shares"]) == {*PARTS, SMALL, PYTHON} and row["shares"]["products"] > 0
    assert sum(row["shares"].values()) == pytest.approx(1.0, abs=0.01) and row["calls"] > 50
