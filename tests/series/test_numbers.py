"""How figures read, percentiles, and the columns of the table against numbers worked out by hand."""

import pytest
from scenes import CPU, LABELS, REQUEST_8, arrive, board, burst, candidate, done, receipt, step

from app.series.percentiles import percentile
from app.series.rows import COLUMNS, delimited, e2e_s, error_percent, itl_p95_s, queue_s, summary, ttft_s
from app.series.words import apart, duration, figure, percent, plural, seconds, spelled
from engine.events import RequestRouted
from engine.request import FinishReason, RequestId

FIGURES = {c.key: c for c in COLUMNS}


def test_figures_read_as_designed():
    assert figure(1000) == "1,000"
    assert figure(None) == "n/a"
    assert figure(0, 2) == "0.00"
    assert figure(-9.8, 1) == "−9.8"
    assert figure(-0.001, 1) == "0.0"
    assert figure(3.2, 1, signed=True) == "+3.2"
    assert figure(0.001, 1, signed=True) == "0.0"
    assert seconds(3.4444, 3) == "3.444 s"
    assert percent(9.466) == "9.5 %"
    assert (duration(0.0467), duration(0.9994), duration(8.0824)) == ("46.7 ms", "999.4 ms", "8.08 s")
    assert (spelled(7), spelled(0), spelled(48)) == ("seven", "no", "48")
    assert (plural(1, "request"), plural(0, "request")) == ("request", "requests")


def test_two_different_figures_never_read_alike():
    assert apart(3.44, 3.12) == 1
    assert apart(3.04, 3.03) == 2
    assert apart(3.0, 3.0) == 1


def test_percentiles_are_nearest_rank():
    eight = [0.03, 0.04, 0.07, 0.08, 1.0, 2.0, 3.0, 0.34]
    assert percentile(eight, 95) == 3.0  # of eight the maximum
    assert percentile(eight, 50) == 0.08
    assert percentile(list(range(1, 101)), 95) == 95
    assert percentile([], 50) is None


def test_peak_is_never_below_the_mean():
    values = [0.2, 0.2, 0.21]
    assert percentile(values, 95) >= sum(values) / len(values) >= percentile(values, 1)


def running(*events):
    return board(burst(1), arrive(1, 0.35), RequestRouted(REQUEST_8_AS_1), *events).requests[RequestId(1)]


REQUEST_8_AS_1 = receipt(CPU, *REQUEST_8.candidates, request_id=1)


def test_a_waiting_request_counts_on_and_knows_nothing_else():
    row = running()
    texts = {key: column.figure(row, 2.95) for key, column in FIGURES.items()}
    assert texts["queue"].text == "2.60…" and texts["queue"].growing
    assert texts["e2e"].text == "2.60…"
    assert texts["ttft"].text == texts["itl"].text == texts["error"].text == "n/a"
    assert texts["cached"].text == "496"  # believed; the true match comes with its admission
    assert texts["predicted"].text == "3.12"
    assert texts["out"].text == "0"  # a real zero


def test_n_tokens_have_n_minus_1_gaps():
    row = running(step(CPU, 0.35, 0.69, 1, admit=(1,)))
    assert itl_p95_s(row) is None
    assert FIGURES["queue"].figure(row, 9.0).text == "0.00"
    for i in range(3):
        row.token_times_s.append(row.token_times_s[-1] + (0.02 if i < 2 else 0.05))
    assert len(row.token_times_s) == 4
    assert itl_p95_s(row) == pytest.approx(0.05)
    assert ttft_s(row) == pytest.approx(0.34)


def test_error_is_known_only_at_a_good_end():
    assert error_percent(running()) is None
    finished = running(done(1, 0.35, 3.57))
    assert FIGURES["e2e"].figure(finished, 99.0).text == "3.22"
    assert FIGURES["error"].figure(finished, 99.0).text == "+3.3"
    stopped = running(done(1, 0.35, 3.57, FinishReason.ABORT))
    assert FIGURES["error"].figure(stopped, 99.0).text == "n/a"
    assert FIGURES["state"].figure(stopped, 99.0).text == "stopped"


def test_what_ended_without_times_is_unknown_not_growing():
    row = running()
    row.state, row.reason = row.state.FINISHED, FinishReason.ERROR
    assert queue_s(row, 5.0) is None and e2e_s(row, 5.0) is None
    assert not FIGURES["e2e"].figure(row, 5.0).growing


def test_uncalibrated_has_no_prediction():
    unknown = candidate(CPU, score=0.0, score_s=None, prefill_rate=None, decode_rate=None)
    routed = RequestRouted(receipt(CPU, unknown, policy="least-requests", unit="requests"))
    row = board(arrive(1), routed).requests[RequestId(1)]
    assert FIGURES["predicted"].figure(row, 1.0).text == "n/a"


def test_summary_and_delimited():
    shown = board(burst(2), arrive(1), arrive(2), step(CPU, 0, 1, 1, admit=(1,)), done(1, 0, 2)).run_rows()
    assert summary(shown) == "0 decoding, 1 queued, 1 finished"
    lines = delimited(shown, 5.0, LABELS).splitlines()
    assert lines[0].startswith('#,State,Backend,"In, tok"')
    assert lines[1].startswith("1,finished,CPU,516,496,128,0.00,0.10")
    assert lines[2] == "2,queued,,516,,0,5.00,,,5.00,,"
    assert delimited(shown, 5.0, LABELS, "\t").splitlines()[1].split("\t")[2] == "CPU"


def test_a_label_cannot_become_a_formula():
    shown = board(burst(1), arrive(1), RequestRouted(REQUEST_8_AS_1)).run_rows()
    assert "'=cmd" in delimited(shown, 1.0, {"cpu": "=cmd"})
