"""A model on Hugging Face that is not in the catalogue: looked at over the network before any download.

Of a GGUF file only the header is read, by HTTP ranges; of a folder only its config.json.
"""

import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from engine.errors import ConfigError, FetchError, UnsupportedModelError
from engine.models.catalog import HubSource, ModelEntry
from engine.models.download import make_opener, reason_of
from engine.models.inspect import Inspection, from_bytes, from_config
from engine.paths import models_dir

PREFIX = "hf:"
_FIRST_BYTES, _MOST_BYTES = 1 << 20, 64 << 20  # a header is mostly its vocabulary: 1 to 12 MB
_REFERENCE = re.compile(r"[\w.-]+/[\w.-]+(/[\w./-]+)?")
_PAGE = re.compile(r"^https?://[^/]+/([\w.-]+/[\w.-]+)(?:/(?:blob|resolve)/[^/]+/(.+?))?/?(?:\?.*)?$")


@dataclass(frozen=True, slots=True)
class HubModel:
    """A reference and what stands there."""

    source: HubSource
    found: Inspection


def is_hub_name(name: str) -> bool:
    return name.startswith(PREFIX)


def parse_reference(text: str) -> HubSource:
    """hf:owner/repo/file.gguf, hf:owner/repo or the address of its page. Raises `ConfigError`."""
    text = text.strip()
    if page := _PAGE.match(text):
        text = "/".join(filter(None, page.groups()))
    text = text.removeprefix(PREFIX)
    if not _REFERENCE.fullmatch(text) or ".." in text:
        raise ConfigError(
            f"'{text}' names no model on Hugging Face: write owner/repository/file.gguf, or owner/repository "
            "for a folder of safetensors."
        )
    owner, repo, *rest = text.split("/")
    file = "/".join(rest) or None
    if file is not None and not file.lower().endswith(".gguf"):
        raise ConfigError(f"{file} is no GGUF file: choose one that ends in .gguf.")
    return HubSource(f"{owner}/{repo}", file)


def name_of(source: HubSource) -> str:
    return PREFIX + "/".join(filter(None, (source.repo, source.file)))


def look_up(source: HubSource) -> HubModel:
    """Read the header there. Raises `FetchError` where it cannot be reached."""
    if source.file is None:
        body, size = _get(source.repo, "config.json", 0)
        try:
            config = json.loads(body)
        except ValueError as error:
            raise FetchError(
                f"The config.json of {source.repo} cannot be read: choose another model."
            ) from error
        return HubModel(source, from_config(config if isinstance(config, dict) else {}, 0))
    data, wanted = b"", _FIRST_BYTES
    while True:
        more, size = _get(source.repo, source.file, len(data), wanted - 1)
        data += more
        found = from_bytes(data, source.file, size)
        if found is not None:
            return HubModel(source, found)
        if not more or len(data) >= _MOST_BYTES:
            raise FetchError(f"The header of {source.file} is longer than any we know: choose another file.")
        wanted = 2 * wanted


def target_of(source: HubSource) -> Path:
    """Where it lies once it is fetched."""
    folder = models_dir() / name_of(source).removeprefix(PREFIX).replace("/", "--")
    return folder / source.file.rsplit("/", 1)[-1] if source.file else folder


def entry_of(model: HubModel) -> ModelEntry:
    """As a catalogue entry, so that it is fetched like one. Raises `UnsupportedModelError`."""
    source, found = model.source, model.found
    if found.problem or found.shape is None:
        raise UnsupportedModelError(f"{name_of(source)} cannot be used. {found.problem}")
    return ModelEntry(
        name=name_of(source),
        title=source.file or source.repo,
        architecture=found.family,
        parameters=f"{found.parameters / 1e6:,.0f}M",
        licence="see its page",
        size_bytes=found.size_bytes,
        context_tokens=found.shape.max_context,
        source=source,
        base_repo=source.repo,
        tensors=found.tensor_types,
    )


def _get(repo: str, file: str, first: int, last: int | None = None) -> tuple[bytes, int]:
    """Bytes `first` to `last` of a file, and the size of all of it."""
    base = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    url = f"{base}/{repo}/resolve/main/{urllib.parse.quote(file)}"
    request = urllib.request.Request(url, headers={"User-Agent": "offramp", "Accept-Encoding": "identity"})
    if last is not None:
        request.add_header("Range", f"bytes={first}-{last}")
    if token := os.environ.get("HF_TOKEN"):
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with make_opener({}).open(request, timeout=20) as response:
            told = response.headers.get("Content-Range", "").rpartition("/")[2]
            whole = int(told) if told.isdecimal() else int(response.headers.get("Content-Length") or 0)
            if response.status == 206 or last is None:
                return response.read(), whole
            response.read(first)  # it ignores ranges and sends everything
            return response.read(last - first + 1), whole
    except urllib.error.HTTPError as error:
        if error.code in (401, 403, 404):
            raise FetchError(
                f"Hugging Face shows no {file} in {repo}: check the name, or accept its terms there and set "
                "HF_TOKEN."
            ) from error
        raise FetchError(f"Hugging Face refused {repo} ({error.code} {error.reason}): try later.") from error
    except (OSError, HTTPException, ValueError) as error:
        raise FetchError(
            f"Hugging Face cannot be reached for {repo} ({reason_of(error)}): check the network."
        ) from error
