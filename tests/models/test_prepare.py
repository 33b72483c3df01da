"""Preparing runs once per file, in a child, and says in a sentence what cannot be prepared."""

from pathlib import Path

import pytest

from engine.errors import EngineError, ModelFileError, UnsupportedModelError
from engine.events import SetupStep
from engine.models import prepare
from engine.models.fetch import ensure_model
from engine.models.prepare import identity, prepared


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OFFRAMP_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_it_runs_once_and_leaves_only_the_result(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[SetupStep] = []
    model = ensure_model("smollm2-135m-instruct")
    folder = prepared(model, steps.append)
    assert {p.name for p in folder.iterdir()} == {"tokenizer.json", "chat_template.jinja", "meta.json"}
    assert [p.name for p in folder.parent.iterdir() if p.suffix != ".lock"] == [folder.name]
    assert [(s.key, s.state) for s in steps] == [("tokenizer", "running"), ("tokenizer", "done")]
    monkeypatch.setattr(prepare, "_in_child", lambda *_: pytest.fail("it ran twice"))
    assert prepared(model, steps.append) == folder
    assert len(steps) == 2


def test_a_damaged_file_is_a_sentence_and_leaves_nothing(cache: Path, tmp_path: Path) -> None:
    model = tmp_path / "broken.gguf"
    model.write_bytes(b"GGUF" + bytes(20))
    steps: list[SetupStep] = []
    with pytest.raises(ModelFileError) as caught:
        prepared(model, steps.append)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)
    assert steps[-1].state == "failed"
    assert [p.name for p in (cache / "tokenizers").iterdir() if p.suffix != ".lock"] == []


def test_an_unknown_architecture_is_told_as_such(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["OddForCausalLM"], "model_type": "odd"}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises((UnsupportedModelError, ModelFileError)):
        prepared(tmp_path)


def test_the_identity_follows_the_file(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    first = identity(model)
    assert identity(model) == first
    model.write_bytes(b"GGUF and more")
    assert identity(model) != first
    with pytest.raises(EngineError, match="no model at"):
        identity(tmp_path / "absent.gguf")
