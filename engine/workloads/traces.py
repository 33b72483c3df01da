"""Traces from files: Mooncake-style JSON lines, plain CSV, and the user's own burst as JSON.

Only arrival times, lengths and what is shared come from a file; the text is this project's own. A reply's
length is hidden from the router as in life: every request may take as many tokens as the longest reply.
"""

import csv
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from engine.errors import ConfigError

MOST_TOKENS = 10_000_000  # of one prompt or reply in a file; anything above is a slip
MOST_SECONDS = 1e10
_BLOCKS = (512, 16)  # tokens a hash id stands for: Mooncake, Qwen-Bailian
_TIME = ("timestamp", "time", "arrival", "arrival_s", "at_s")
_INPUT = ("contexttokens", "request tokens", "input_tokens", "input_length", "prompt_tokens", "input")
_OUTPUT = ("generatedtokens", "response tokens", "output_tokens", "output_length", "output")


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request of a file. A prompt is a text, or a length with what it shares: hash ids or a prefix."""

    at_s: float
    prompt_tokens: int
    output_tokens: int
    hashes: tuple[str, ...] = ()
    text: str = ""
    prefix: str = ""
    prefix_tokens: int = 0
    max_new_tokens: int | None = None  # what the router may know; None = the longest reply of the trace
    tag: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """A file's requests in order of arrival, the first at 0 s. `notes` says in words what was changed."""

    name: str
    kind: str
    rows: tuple[TraceRow, ...]
    block_tokens: int = 0  # tokens per hash id, 0 where there are none
    warm: bool = False  # prefixes are put into every cache before the clock starts
    notes: tuple[str, ...] = ()

    @property
    def span_s(self) -> float:
        return self.rows[-1].at_s


def read_trace(path: Path, limit: int | None = None) -> Trace:
    """Read the first `limit` requests of a file. Raises `ConfigError` naming the line that is wrong."""
    head = next((line for _, line in _lines(path) if line.strip()), None)
    if head is None:
        raise ConfigError(f"{path.name} is empty: give a trace with at least one request.")
    if path.suffix.lower() == ".csv" or not head.lstrip().startswith(("{", "[")):
        return _ordered(path, "CSV", _csv_rows(path), limit)
    try:
        own = not isinstance(first := json.loads(head), dict) or "requests" in first
    except ValueError:
        own = True  # an object over several lines
    return _own(path, limit) if own else _ordered(path, "JSON lines", _json_rows(path), limit)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines; a byte that is no UTF-8 is an error of its line."""
    number = 0
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}): check the path.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path.name}, line {number}: this is no UTF-8 text: save it as UTF-8.") from error


def _csv_rows(path: Path) -> Iterator[tuple[int, TraceRow | None]]:
    numbered = iter(_lines(path))
    last = 0

    def text() -> Iterator[str]:
        nonlocal last
        for last, line in numbered:
            if "\0" in line:
                raise ConfigError(f"{path.name}, line {last}: this is no text: save it as UTF-8.")
            yield line

    reader = csv.reader(text())
    try:
        columns: list[int] = []
        for cells in reader:
            if not any(c.strip() for c in cells):
                continue
            where = f"{path.name}, line {last}"
            if not columns:
                columns = _columns([c.strip().casefold() for c in cells], where)
                continue
            if len(cells) <= max(columns):
                raise ConfigError(f"{where}: a column is missing: every line needs time, input and output.")
            at, given, made = (cells[c].strip() for c in columns)
            row = TraceRow(_time(at, where), _tokens(given, "input", where), _tokens(made, "output", where))
            yield last, row if row.prompt_tokens and row.output_tokens else None
    except csv.Error as error:
        raise ConfigError(f"{path.name}, line {last}: this is not CSV ({error}).") from error


def _columns(names: list[str], where: str) -> list[int]:
    found = []
    for what, known in (("time", _TIME), ("input tokens", _INPUT), ("output tokens", _OUTPUT)):
        place = next((names.index(k) for k in known if k in names), None)
        if place is None:
            raise ConfigError(
                f"{where}: there is no column of {what}: the first line must name one, such as {known[0]}."
            )
        found.append(place)
    return found


def _json_rows(path: Path) -> Iterator[tuple[int, TraceRow | None]]:
    for number, line in _lines(path):
        if not line.strip():
            continue
        where = f"{path.name}, line {number}"
        try:
            data = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{where}: this is not JSON: every line must be one object.") from error
        for key in ("timestamp", "input_length", "output_length"):
            if not isinstance(data, dict) or key not in data:
                raise ConfigError(f"{where}: '{key}' is missing: every line needs it.")
        hashes = data.get("hash_ids", [])
        if not isinstance(hashes, list) or not all(isinstance(h, int | str) for h in hashes):
            raise ConfigError(f"{where}: 'hash_ids' is no list of numbers: give one id a block.")
        # Qwen-Bailian's lines have a chat id and seconds; Mooncake's have milliseconds.
        at_s = _time(data["timestamp"], where) / (1 if "chat_id" in data else 1000)
        row = TraceRow(
            at_s,
            _tokens(data["input_length"], "input_length", where),
            _tokens(data["output_length"], "output_length", where),
            tuple(str(h) for h in hashes),
        )
        yield number, row if row.prompt_tokens and row.output_tokens else None


def _own(path: Path, limit: int | None) -> Trace:
    """The user's own burst: {"requests": [{"at_s": 0, "prompt": "...", "max_new_tokens": 64}, ...]}."""
    text = "".join(line for _, line in _lines(path))
    try:
        data = json.loads(text)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise ConfigError(f"{path.name}, line {line}: this is not JSON: check its commas.") from error
    items = data.get("requests") if isinstance(data, dict) else data
    if not isinstance(items, list) or not items:
        raise ConfigError(f'{path.name}, line 1: there are no requests: give {{"requests": [...]}}.')
    rows = ((i, _own_row(item, f"{path.name}, request {i}")) for i, item in enumerate(items, 1))
    trace = _ordered(path, "own burst", rows, limit)
    return replace(trace, warm=isinstance(data, dict) and bool(data.get("warm")))


def _own_row(item: Any, where: str) -> TraceRow:
    if not isinstance(item, dict):
        raise ConfigError(f'{where}: this is no object: give {{"at_s": 0, "prompt": "..."}}.')
    known = {
        "at_s", "prompt", "prompt_tokens", "max_new_tokens", "reply_tokens", "prefix", "prefix_tokens", "tag"
    }  # fmt: skip
    if unknown := sorted(set(item) - known):
        raise ConfigError(f"{where}: '{unknown[0]}' is unknown: use {', '.join(sorted(known))}.")
    text = item.get("prompt", "")
    if not isinstance(text, str) or (not text.strip() and "prompt_tokens" not in item):
        raise ConfigError(f"{where}: the prompt is empty: give 'prompt' as text, or 'prompt_tokens'.")
    least = 0 if text.strip() else 1
    budget = _tokens(item.get("max_new_tokens", 128), "max_new_tokens", where, 1)
    return TraceRow(
        _time(item.get("at_s", 0), where),
        _tokens(item.get("prompt_tokens", 0), "prompt_tokens", where, least),
        min(budget, _tokens(item.get("reply_tokens", budget), "reply_tokens", where, 1)),
        text=text,
        prefix=str(item.get("prefix", "")),
        prefix_tokens=_tokens(item.get("prefix_tokens", 256), "prefix_tokens", where),
        max_new_tokens=budget,
        tag=str(item.get("tag", "")),
    )


def _time(value: Any, where: str) -> float:
    """Seconds, from a number or a date."""
    seconds = math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value) if abs(value) < MOST_SECONDS * 1000 else math.nan
    elif isinstance(value, str):
        try:
            seconds = float(value)
        except ValueError:
            try:
                # Some traces have seven digits behind the point, one more than a date may.
                seconds = datetime.fromisoformat(value).timestamp()
            except ValueError:
                seconds = math.nan
    if not 0 <= seconds < MOST_SECONDS * 1000:
        raise ConfigError(f"{where}: the time is {value!r}: give a number of 0 or more, or a date.")
    return seconds


def _tokens(value: Any, what: str, where: str, least: int = 0) -> int:
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not least <= number <= MOST_TOKENS or number != int(number):
        raise ConfigError(
            f"{where}: {what} is {value!r}: give a whole number from {least} to {MOST_TOKENS:,}."
        )
    return int(number)


def _ordered(path: Path, kind: str, rows: Iterator[tuple[int, TraceRow | None]], limit: int | None) -> Trace:
    """The first rows in order of arrival, counted from the first."""
    kept: list[TraceRow] = []
    empty, cut = 0, False
    for _, row in rows:
        if row is None:
            empty += 1  # a failed request: nothing was asked or answered
        elif limit is not None and len(kept) >= limit:
            cut = True
            break
        else:
            kept.append(row)
    if not kept:
        raise ConfigError(f"{path.name} holds no request: give at least one below the first line.")
    kept.sort(key=lambda r: r.at_s)
    start_s = kept[0].at_s
    notes = [f"the first {limit:,} requests of the file"] if cut else []
    notes += [f"{empty:,} without input or output left out"] if empty else []
    block = 0
    if any(r.hashes for r in kept):
        per_hash = sorted(r.prompt_tokens / len(r.hashes) for r in kept if r.hashes)
        block = _BLOCKS[0] if per_hash[len(per_hash) // 2] > 4 * _BLOCKS[1] else _BLOCKS[1]
        notes.append(f"one hash id is {block} tokens")
    ordered = tuple(replace(r, at_s=round(r.at_s - start_s, 6)) for r in kept)
    return Trace(path.name, kind, ordered, block, notes=tuple(notes))
