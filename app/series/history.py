"""The runs of this and of earlier sessions, read from their files. No Qt.

A list needs the first and the end of the last line of each file; only what is opened is read as a whole.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.series.board import BackendView, Board, RequestRow, RunView
from app.series.outcome import RunSummary, with_token_times
from engine.errors import EngineError, ModelFileError
from engine.events import BackendInfo, BackendState, BurstDone, BurstStarted, ModelLoaded
from engine.profiling.profile import load_profile, published_profiles
from engine.receipt import Candidate, Receipt
from engine.recording import EARLY, read_head, runs_dir
from engine.request import BackendName, FinishReason, RequestId, RequestState
from engine.weights import parse_weights

MOST = 500  # files listed, the newest ones
TAIL, NEAR = 65_536, 8_192  # bytes read at a time from the end; in which a result's first keys are
CUT_SHORT = "It still runs, or it was stopped: there is no result."
_REQUEST = b'{"request"'
_ENDED_EARLY = re.compile(rb'"finish_reason":\s*"(?:' + "|".join(EARLY).encode() + rb')"')
_MAKESPAN = re.compile(rb'"makespan_s":\s*([0-9.eE+-]+)')


@dataclass(frozen=True, slots=True)
class PastRun:
    """One file. `problem` says why it cannot be opened; the other figures are then what is known."""

    path: Path
    date: str = ""  # "2026-12-01 12:00"
    preset: str = ""
    policy: str = ""
    model: str = ""
    emulated: bool = False
    makespan_s: float | None = None
    unfinished: int = 0  # requests that did not end by themselves: its makespan is then no other run's
    problem: str = ""

    def sentence(self) -> str:
        """The run in words, for screen readers and the filter."""
        took = "" if self.makespan_s is None else f", {self.makespan_s:.2f} s"
        kind = (", emulated" if self.emulated else "") + self.early()
        known = f"{self.date}, {self.preset}, {self.policy}{took}{kind}" if self.preset else self.path.name
        return f"{known}. {self.problem}".rstrip(". ") + "."

    def early(self) -> str:
        return f", {self.unfinished:,} ended early" if self.unfinished else ""


_known: dict[Path, tuple[tuple[float, int], PastRun]] = {}


def past_runs(folder: Path | None = None) -> list[PastRun]:
    """The newest first. A file that cannot be read is in the list, with a sentence."""
    place = runs_dir() if folder is None else folder
    try:
        paths = sorted(place.glob("*.jsonl"), key=lambda p: p.name, reverse=True)[:MOST]
    except OSError:
        return []
    return [_peeked(path) for path in paths]


def _peeked(path: Path) -> PastRun:
    try:
        stat = path.stat()
    except OSError as error:
        return PastRun(path, problem=f"It cannot be read ({error.strerror}).")
    stamp = (stat.st_mtime, stat.st_size)
    known = _known.get(path)
    if known is None or known[0] != stamp:
        known = _known[path] = (stamp, _peek(path))
    return known[1]


def _peek(path: Path) -> PastRun:
    try:
        head = read_head(path)
        date = str(head["date"])[:16].replace("T", " ")
        emulated = bool(head.get("emulated"))
        run = (path, date, str(head["preset"]), str(head["policy"]), str(head.get("model", "")), emulated)
        last = _last_line(path)
    except EngineError as error:
        # The path stands beside it already.
        words = str(error).replace(f"{path} ", "It ")
        return PastRun(path, problem=words)
    except (OSError, KeyError, TypeError) as error:
        return PastRun(path, problem=f"It is damaged ({type(error).__name__}): delete it.")
    found = _MAKESPAN.search(last[:NEAR]) if last.startswith(b'{"result"') else None
    if found is None:
        return PastRun(*run, problem=CUT_SHORT)
    return PastRun(*run, makespan_s=float(found.group(1)), unfinished=len(_ENDED_EARLY.findall(last)))


def _last_line(path: Path) -> bytes:
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        text = b""
        while end > 0 and b"\n" not in text.rstrip(b"\n"):
            start = max(0, end - TAIL)
            file.seek(start)
            text = file.read(end - start) + text
            end = start
    return text.rstrip(b"\n").rpartition(b"\n")[2]


def delete_run(path: Path) -> None:
    """Raises `ModelFileError` where it cannot be deleted; a file that has gone already is fine."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise ModelFileError(f"{path.name} was not deleted: {error.strerror}.") from error
    _known.pop(path, None)


def open_run(path: Path) -> RunSummary:
    """A whole run's result. Raises `ModelFileError` where there is none that can be shown."""
    head = read_head(path)
    try:
        data = json.loads(_last_line(path))
        result = dict(data["result"])
        result = with_token_times(result, _token_times(path)) | {"run_file": str(path)}
        summary = RunSummary(result, _emulation(head, result))
        board_of(summary)  # what the table needs is there, too
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFileError(f"{path.name} has no result that can be shown: it was cut short.") from error
    return summary


def _token_times(path: Path) -> dict[int, list[float]]:
    """By the request's number; runs of earlier versions hold none."""
    out: dict[int, list[float]] = {}
    with path.open("rb") as file:
        for line in file:
            if line.startswith(_REQUEST):
                data = json.loads(line)
                if times := data.get("token_times_s"):
                    out[int(data["request"])] = [float(t) for t in times]
    return out


def _emulation(head: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    if not head.get("emulated"):
        return ""
    name = str(result.get("profile") or "")
    try:
        return load_profile(name).title if name in published_profiles() else name or "emulated"
    except EngineError:
        return name


# A board of its own for the table of a past run


def board_of(run: RunSummary) -> Board:
    """A board that holds this one run, as if it had just ended. Times count from the burst's start."""
    board, result = Board(), run.result
    backends = list(result.get("backends") or ())
    fastest = sorted(backends, key=lambda b: -((b.get("rates") or {}).get("decode") or 0.0))
    for data in backends:
        info = _info(data, fastest.index(data), run.emulation)
        board.backends[info.name] = BackendView(info, BackendState.READY)
    for data in result["requests"]:
        row = _row(data, run)
        board.requests[row.request_id] = row
    offsets = tuple(r.arrival_s for r in board.requests.values())
    started = BurstStarted(run.run_id, run.preset, run.policy, len(offsets), 0.0, offsets)
    board.run = RunView(started, BurstDone(run.run_id, False, dict(result)))
    board.model = ModelLoaded("", "", 0, bool(run.emulation), run.emulation)
    board.ready = True
    return board


def _info(data: Mapping[str, Any], rank: int, emulation: str) -> BackendInfo:
    name, rates = BackendName(str(data["name"])), data.get("rates") or {}
    return BackendInfo(
        name, name.replace("-", " ").upper(), str(data.get("kind", "cpu")), rank, "",
        str(data.get("device", "")), bool(emulation), int(data.get("slots", 0)), 0, 0,
        int(data.get("threads", 0)), str(data.get("format", "")), rates.get("prefill"), rates.get("decode"),
    )  # fmt: skip


def _row(data: Mapping[str, Any], run: RunSummary) -> RequestRow:
    number, arrival = int(data["id"]), float(data.get("arrival_s") or 0.0)

    def after(key: str) -> float | None:
        value = data.get(key)
        return None if value is None else arrival + float(value)

    reason = data.get("finish_reason")
    end = after("e2e_s")
    return RequestRow(
        RequestId(number), number, run.run_id, int(data.get("prompt_tokens", 0)),
        int(data.get("output_tokens", 0)), arrival, RequestState.FINISHED, str(data["backend"]) or None,
        _receipt(number, data.get("receipt"), after("routed_s") or arrival),
        data.get("predicted_last_arrival_s"), data.get("cached_tokens"), -1,
        after("queue_s"), after("ttft_s"), end,
        [arrival + float(t) for t in data.get("token_times_s") or ()], int(data.get("output_tokens", 0)),
        FinishReason(reason) if reason else None,
    )  # fmt: skip


def _receipt(number: int, data: Mapping[str, Any] | None, arrival_s: float) -> Receipt | None:
    if data is None:
        return None
    names = Candidate.__dataclass_fields__
    candidates = tuple(Candidate(**{k: v for k, v in c.items() if k in names}) for c in data["candidates"])
    return Receipt(
        RequestId(number), str(data["policy"]), str(data["unit"]), BackendName(str(data["chosen"])),
        str(data["reason"]), arrival_s, candidates, data.get("moved_from"),
        parse_weights(str(data["weights"])) if data.get("weights") else None,
    )  # fmt: skip
