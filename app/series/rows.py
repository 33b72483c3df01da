"""What the request table says about one request, as numbers and as text. No Qt."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from app.series.board import RequestRow
from app.series.percentiles import percentile
from app.series.words import GROWING, NA, figure
from engine.request import FinishReason, RequestState

Value = float | str | None


@dataclass(frozen=True, slots=True)
class Figure:
    """One cell: `value` to sort by (None = unknown), `text` to show, `growing` while it still counts."""

    value: Value
    text: str
    growing: bool = False

    @property
    def known(self) -> bool:
        return self.value is not None


def queue_s(row: RequestRow, now_s: float) -> float | None:
    """Seconds waited, or waiting; None if it ended without ever being admitted."""
    if row.admitted_s is not None:
        return row.admitted_s - row.arrival_s
    return None if row.state is RequestState.FINISHED else max(0.0, now_s - row.arrival_s)


def ttft_s(row: RequestRow) -> float | None:
    return None if row.first_token_s is None else row.first_token_s - row.arrival_s


def itl_p95_s(row: RequestRow) -> float | None:
    """95th percentile of the gaps between tokens: n tokens have n - 1 of them."""
    times = row.token_times_s
    return percentile([b - a for a, b in zip(times, times[1:], strict=False)], 95)


def e2e_s(row: RequestRow, now_s: float) -> float | None:
    if row.finished_s is not None:
        return row.finished_s - row.arrival_s
    return None if row.state is RequestState.FINISHED else max(0.0, now_s - row.arrival_s)


def predicted_s(row: RequestRow) -> float | None:
    """E2E as foreseen at the moment of routing: the forecast, else the price at isolated rates."""
    return row.receipt.predicted_s if row.receipt else None


def renewed_s(row: RequestRow) -> float | None:
    """E2E as foreseen when somebody last arrived, where step times are known; else as at the routing."""
    return row.foreseen_s if row.foreseen_s is not None else predicted_s(row)


PRICED = "Predicted is the price at isolated rates, no forecast: it knows of no batching and no company."
FORECAST = "E2E as it was foreseen when the last request arrived."


def priced_only(row: RequestRow) -> bool:
    """`predicted_s` is a price at isolated rates, which knows of no batching, and no forecast."""
    if row.foreseen_s is not None:
        return False
    candidate = row.receipt.candidate(row.receipt.chosen) if row.receipt else None
    return candidate is not None and candidate.e2e_s is None and candidate.score_s is not None


def error_percent(row: RequestRow, renewed: bool = False) -> float | None:
    """Actual over predicted - 1, at the routing or at the last arrival; only for a request that ran to its
    own end."""
    predicted = renewed_s(row) if renewed else predicted_s(row)
    if not predicted or row.finished_s is None or row.reason in (FinishReason.ABORT, FinishReason.ERROR):
        return None
    return ((row.finished_s - row.arrival_s) / predicted - 1) * 100


def state_word(row: RequestRow) -> str:
    """`finished`, or why not: a stopped or failed request must not look like a good one."""
    if row.reason is FinishReason.ABORT:
        return "stopped"
    return "error" if row.reason is FinishReason.ERROR else row.state.value


@dataclass(frozen=True, slots=True)
class Column:
    """A table column. `read(row, now_s)` is the value; `grows(row)` whether it still counts."""

    key: str
    title: str  # with the unit, because the cells carry none
    read: Callable[[RequestRow, float], Value]
    decimals: int | None = 0  # None = text
    grows: Callable[[RequestRow], bool] = lambda row: False
    signed: bool = False

    def figure(self, row: RequestRow, now_s: float) -> Figure:
        value = self.read(row, now_s)
        if value is None or self.decimals is None:
            return Figure(value, NA if value is None else str(value))
        text = figure(float(value), self.decimals, self.signed)
        growing = self.grows(row)
        return Figure(value, text + GROWING if growing else text, growing)


def _unfinished(row: RequestRow) -> bool:
    return row.state is not RequestState.FINISHED


def _ms(value_s: float | None) -> float | None:
    return None if value_s is None else value_s * 1000


COLUMNS: tuple[Column, ...] = (
    Column("number", "#", lambda r, now: r.number),
    Column("state", "State", lambda r, now: state_word(r), None),
    Column("backend", "Backend", lambda r, now: r.backend, None),
    Column("in", "In, tok", lambda r, now: r.prompt_tokens),
    Column("cached", "Cached, tok", lambda r, now: cached_tokens(r)),
    Column("out", "Out, tok", lambda r, now: r.output_tokens),
    Column("queue", "Queue, s", queue_s, 2, lambda r: _unfinished(r) and r.admitted_s is None),
    Column("ttft", "TTFT, s", lambda r, now: ttft_s(r), 2),
    Column("itl", "ITL p95, ms", lambda r, now: _ms(itl_p95_s(r)), 1),
    Column("e2e", "E2E, s", e2e_s, 2, _unfinished),
    Column("predicted", "Predicted, s", lambda r, now: renewed_s(r), 2),
    Column("error", "Error, %", lambda r, now: error_percent(r, renewed=True), 1, signed=True),
)


def cached_tokens(row: RequestRow) -> int | None:
    """The true match once admitted; until then what the router believed of the chosen backend."""
    if row.cached_tokens is not None or row.receipt is None:
        return row.cached_tokens
    candidate = row.receipt.candidate(row.receipt.chosen)
    return candidate.cached_tokens if candidate else None


def summary(rows: Iterable[RequestRow]) -> str:
    """`5 decoding, 3 queued, 0 finished`; prefill only while something is in it."""
    counts = dict.fromkeys(RequestState, 0)
    for row in rows:
        counts[row.state] += 1
    order = (RequestState.PREFILL, RequestState.DECODING, RequestState.QUEUED, RequestState.FINISHED)
    return ", ".join(
        f"{figure(counts[s])} {s.value}" for s in order if counts[s] or s is not RequestState.PREFILL
    )


def delimited(
    rows: Iterable[RequestRow], now_s: float, labels: Mapping[str, str], delimiter: str = ","
) -> str:
    """The table as CSV or TSV. Plain numbers for spreadsheets; an unknown value is an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerow(c.title for c in COLUMNS)
    for row in rows:
        writer.writerow(_plain(c, row, now_s, labels) for c in COLUMNS)
    return out.getvalue()


def _plain(column: Column, row: RequestRow, now_s: float, labels: Mapping[str, str]) -> str:
    value = column.read(row, now_s)
    if value is None:
        return ""
    if column.decimals is None:
        text = labels.get(str(value), str(value))
        return "'" + text if text[:1] in "=+-@" else text  # a spreadsheet must not run a label
    return f"{float(value):.{column.decimals}f}"
