"""Models on a hub that is a server of this test: headers by ranges, refusals before any download."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from engine.config import BackendOptions
from engine.errors import ConfigError, FetchError, UnsupportedModelError
from engine.models import hub
from engine.models.catalog import DEFAULT_MODEL, HubSource
from engine.models.fetch import ensure_model
from engine.models.hub import entry_of, look_up, parse_reference, target_of
from engine.shelf import Judge, shelf
from tests.support import tiny_model, write_gguf


class Hub(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.sent = 0
        self.ranges = True


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        body = self.server.files.get(self.path)
        if body is None:
            self.send_error(404)
            return
        asked = self.headers.get("Range")
        if asked and self.server.ranges:
            first, last = (int(n) for n in asked.removeprefix("bytes=").split("-"))
            part = body[first : last + 1]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{first + len(part) - 1}/{len(body)}")
        else:
            part = body
            self.send_response(200)
        self.server.sent += len(part)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    site = Hub()
    thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{site.server_port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("OFFRAMP_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("OFFRAMP_MODELS_DIR", raising=False)
    monkeypatch.setattr(hub, "_FIRST_BYTES", 512)
    yield site
    site.shutdown()
    site.server_close()
    thread.join()


def gguf(tmp_path: Path, kind: str = "Q5_0", architecture: str | None = None) -> bytes:
    path = tmp_path / "made.gguf"
    write_gguf(tiny_model("llama"), path, kind, architecture)
    return path.read_bytes()


PATH = "/owner/repo/resolve/main/m.gguf"


@pytest.mark.parametrize("ranges", [True, False])
def test_a_header_is_read_piece_by_piece_and_no_weights(site: Hub, tmp_path: Path, ranges: bool) -> None:
    site.ranges = ranges
    body = site.files[PATH] = gguf(tmp_path)
    model = look_up(HubSource("owner/repo", "m.gguf"))
    assert model.found.family == "llama" and set(model.found.tensor_types) == {"Q5_0", "F32"}
    assert model.found.size_bytes == len(body) and not model.found.problem
    if ranges:
        assert site.sent < len(body) / 4
    entry = entry_of(model)
    assert (entry.name, entry.size_bytes) == ("hf:owner/repo/m.gguf", len(body))


@pytest.mark.parametrize(
    ("kind", "architecture", "words"),
    [("TQ2_0", None, "type TQ2_0"), ("F32", "gemma3", "'gemma3' is not supported")],
)
def test_what_cannot_run_is_refused_before_its_download(
    site: Hub, tmp_path: Path, kind: str, architecture: str | None, words: str
) -> None:
    body = site.files[PATH] = gguf(tmp_path, kind, architecture)
    with pytest.raises(UnsupportedModelError, match=words):
        ensure_model("hf:owner/repo/m.gguf")
    assert site.sent < len(body) / 4 and not (tmp_path / "data").exists()


def test_a_folder_is_judged_by_its_config(site: Hub) -> None:
    config = {"model_type": "mixtral", "torch_dtype": "bfloat16"}
    site.files["/owner/repo/resolve/main/config.json"] = json.dumps(config).encode()
    found = look_up(HubSource("owner/repo")).found
    assert found.family == "mixtral" and "not supported" in found.problem
    assert found.tensor_types == ("bfloat16",)


def test_absent_files_and_silent_hubs_are_sentences(site: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FetchError, match="shows no m.gguf in owner/repo"):
        look_up(HubSource("owner/repo", "m.gguf"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(FetchError, match="cannot be reached"):
        look_up(HubSource("owner/repo", "m.gguf"))


@pytest.mark.parametrize(
    ("text", "repo", "file"),
    [
        ("owner/repo/sub/m.gguf", "owner/repo", "sub/m.gguf"),
        ("hf:owner/repo", "owner/repo", None),
        ("https://huggingface.co/owner/repo/blob/main/m.gguf?download=true", "owner/repo", "m.gguf"),
        ("https://huggingface.co/owner/repo", "owner/repo", None),
    ],
)
def test_references_and_addresses_are_understood(text: str, repo: str, file: str | None) -> None:
    assert parse_reference(text) == HubSource(repo, file)


@pytest.mark.parametrize("text", ["", "repo", "owner/repo/readme.md", "owner/../../x.gguf", "a b/c"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_reference(text)


def test_a_fetched_file_lies_in_a_folder_of_its_own(site: Hub, tmp_path: Path) -> None:
    target = target_of(HubSource("owner/repo", "sub/m.gguf"))
    assert target == tmp_path / "data" / "models" / "owner--repo--sub--m.gguf" / "m.gguf"
    target.parent.mkdir(parents=True)
    target.write_bytes(b"GGUF")
    assert ensure_model("hf:owner/repo/sub/m.gguf") == target


def test_the_shelf_judges_the_catalogue_and_inspects_what_others_keep(tmp_path: Path) -> None:
    theirs = tmp_path / ".lmstudio" / "models" / "a" / "b" / "odd.gguf"
    theirs.parent.mkdir(parents=True)
    write_gguf(tiny_model("llama"), theirs, "TQ2_0")
    rows = {row.name: row for row in shelf(Judge(BackendOptions("cpu,cpu"), 4096), tmp_path)}
    assert rows[DEFAULT_MODEL].fit.verdict in ("fits", "tight", "too large")
    assert rows[str(theirs)].refused and "TQ2_0" in rows[str(theirs)].fit.words
    assert rows[str(theirs)].owner == "LM Studio"
