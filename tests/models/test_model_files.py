"""Model files that cannot be used, and what is said about them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGUFWriter

from engine.errors import ModelFileError, UnknownNameError, UnsupportedModelError
from engine.models.architecture import NAMED_SHAPES, ModelShape, named_shape, shape_from_config
from engine.models.inspect import inspect_model
from engine.models.weights import DummyWeights, expected_shape, open_weights
from tests.support import tiny_model, write_gguf


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(tiny_model("llama"), path, "Q8_0")
    return path


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no model file .*gone.gguf: check the path"):
        inspect_model(tmp_path / "gone.gguf")


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.gguf"
    path.touch()
    with pytest.raises(ModelFileError, match="download it again"):
        inspect_model(path)


def test_not_a_gguf_file(tmp_path: Path) -> None:
    path = tmp_path / "page.gguf"
    path.write_text("<html>Not found</html>" * 20)
    with pytest.raises(ModelFileError, match="is not a GGUF file"):
        inspect_model(path)


@pytest.mark.parametrize("share", [0.001, 0.0025, 0.01, 0.5, 0.999])
def test_truncated_anywhere(tiny: Path, tmp_path: Path, share: float) -> None:
    raw = tiny.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(raw[: int(len(raw) * share)])
    with pytest.raises(ModelFileError, match="download it again"):
        inspect_model(path)


def test_any_damage_is_an_error_in_words(tiny: Path, tmp_path: Path) -> None:
    raw = bytearray(tiny.read_bytes())
    path = tmp_path / "damaged.gguf"
    for at in range(4, 1200, 7):
        damaged = raw.copy()
        damaged[at] ^= 0xFF
        path.write_bytes(damaged)
        try:
            inspect_model(path)
        except (ModelFileError, UnsupportedModelError) as error:
            assert str(error).endswith((".", "again."))


def test_unsupported_architecture(tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    write_gguf(tiny_model("llama"), path, architecture="gemma3")
    with pytest.raises(UnsupportedModelError, match="'gemma3' is not supported.*llama, qwen2, qwen3"):
        inspect_model(path)


def test_unsupported_tensor_type(tmp_path: Path) -> None:
    path = tmp_path / "odd.gguf"
    write_gguf(tiny_model("llama"), path, "TQ2_0")
    with pytest.raises(UnsupportedModelError, match=r"odd\.gguf cannot be used.*TQ2_0 are not supported"):
        inspect_model(path)
    with pytest.raises(UnsupportedModelError, match=r"'blk.0.attn_q.weight' has the type TQ2_0"):
        open_weights(path).tensor("layers.0.q")


def test_missing_metadata(tmp_path: Path) -> None:
    path = tmp_path / "bare.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_tensor("token_embd.weight", torch.zeros(4, 32).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelFileError, match=r"lacks the metadata 'llama\."):
        inspect_model(path)


def test_missing_tensor(tiny: Path) -> None:
    with pytest.raises(ModelFileError, match="lacks the tensor 'blk.7.attn_q.weight'"):
        open_weights(tiny).tensor("layers.7.q")


def test_folder_without_config(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"no config\.json"):
        inspect_model(tmp_path)


def test_folder_with_damaged_weights(tmp_path: Path) -> None:
    tiny_model("qwen2").save_pretrained(tmp_path)
    assert inspect_model(tmp_path).qkv_bias
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ModelFileError, match="model.safetensors is damaged"):
        open_weights(tmp_path)
    path.unlink()
    with pytest.raises(ModelFileError, match=r"no \.safetensors file"):
        open_weights(tmp_path)


def test_config_that_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelFileError, match="cannot be read"):
        inspect_model(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "mixtral"}, "'mixtral' is not supported.*llama, qwen2, qwen3"),
        ({"use_sliding_window": True}, "sliding-window"),
        ({"attention_bias": True}, "biases"),
        ({"hidden_act": "gelu"}, "'gelu' is not supported"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "'yarn' is not supported"),
    ],
)
def test_configs_that_are_refused(change: dict[str, Any], words: str) -> None:
    config = json.loads(tiny_model("qwen3").config.to_json_string())
    with pytest.raises(UnsupportedModelError, match=words):
        shape_from_config({**config, **change})


def test_sizes_that_contradict_each_other() -> None:
    with pytest.raises(ModelFileError, match="contradict"):
        ModelShape("llama", 2, 64, 5, 2, 16, 128, 100, 1e4, 1e-5, 128, True)


def test_named_shapes_count_their_parameters() -> None:
    millions = {name: named_shape(name).parameters // 1_000_000 for name in NAMED_SHAPES}
    millions.pop("tiny", None)
    assert millions == {"smollm2-135m": 134, "smollm2-360m": 361, "qwen2.5-0.5b": 493, "qwen3-0.6b": 595}
    with pytest.raises(UnknownNameError, match="no architecture named 'gpt-5'"):
        named_shape("gpt-5")


def test_dummy_weights_are_seeded_and_shaped() -> None:
    shape = named_shape("smollm2-135m")
    one, same, other = (DummyWeights(shape, seed).tensor("layers.3.q") for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert tuple(one.shape) == expected_shape(shape, "layers.3.q") == (576, 576)


def test_inspecting_needs_no_torch(tiny: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from engine.models.inspect import inspect_model;"
        f"inspect_model(Path({str(tiny)!r})); sys.exit('torch' in sys.modules)"
    )
    root = Path(__file__).resolve().parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
