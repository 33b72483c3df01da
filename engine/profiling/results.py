"""From the steps that calibration ran to what is then known of a backend. Torch-free and pure."""

from collections.abc import Sequence
from dataclasses import replace

from engine.profiling.fit import Sample, fit_steps, slow_down
from engine.profiling.points import ALONE, TOGETHER
from engine.profiling.store import Measured
from engine.request import BackendName
from engine.step_report import StepReport

Told = tuple[str, StepReport]  # a step and the name of the point that it belongs to


def with_steps(known: Measured, reports: Sequence[Told]) -> Measured:
    """`known` with a step-time model fitted to these steps. Raises `ProfileError` with too few of them."""
    fit = fit_steps(_samples(reports))
    # What was known of the interference stays until it is measured anew.
    chi = known.steps.interference if known.steps is not None else 0.0
    return replace(
        known,
        steps=replace(fit.model, interference=chi),
        fit_error=fit.error,
        held_out_error=fit.held_out_error,
        spread=fit.spread,
        paired=False,
    )


def with_interference(known: Measured, name: BackendName, reports: Sequence[Told]) -> Measured:
    """`known` with chi from the steps of all backends, each alone and then together."""
    if known.steps is None:
        return known
    mine = [(what, r) for what, r in reports if r.backend == name]
    others = [r for what, r in reports if what == TOGETHER and r.backend != name]
    alone = _samples([(what, r) for what, r in mine if what == ALONE])
    beside = _samples([(what, r) for what, r in mine if what == TOGETHER and _beside(r, others)])
    chi = slow_down(known.steps, alone, beside)
    return replace(known, steps=replace(known.steps, interference=chi), paired=True)


def _samples(reports: Sequence[Told]) -> list[Sample]:
    return [
        Sample(
            r.decode_rows,
            r.context_tokens,
            r.prefill_tokens,
            r.prefill_attention,
            r.prefill_chunks,
            r.duration_s,
            what,
        )
        for what, r in reports
        if (r.decode_rows or r.prefill_tokens) and r.duration_s > 0
    ]


def _beside(report: StepReport, others: Sequence[StepReport]) -> bool:
    """Did the step run wholly while another backend computed?"""
    if not others:
        return False
    return others[0].started_s <= report.started_s and report.finished_s <= others[-1].finished_s
