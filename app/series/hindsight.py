"""What might have been: a burst simulated elsewhere, and its regret, as figures and words. No Qt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.series.board import Board, RequestRow
from app.series.decision import article
from app.series.words import figure, percent, plural, seconds
from engine.request import RequestState

SIMULATED = "SIMULATED"
CALIBRATION = "on the burst's own calibration"
TYPED = "Only the requests of a burst can be replayed."


@dataclass(frozen=True, slots=True)
class Case:
    """One simulated course of the burst. `requests`: number -> (backend, TTFT s, E2E s)."""

    kind: str  # "same", "elsewhere", "policy"
    name: str  # the policy, or the backend of "elsewhere"
    makespan_s: float
    mean_e2e_s: float
    requests: Mapping[int, tuple[str, float | None, float | None]]
    moved: int | None = None  # the request that is elsewhere


def case_of(line: Mapping[str, Any]) -> Case:
    """From a line of the child."""
    rows = {int(r["id"]): (str(r["backend"]), r["ttft_s"], r["e2e_s"]) for r in line["requests"]}
    kind = str(line["case"])
    name = str(line.get("policy") or line.get("backend") or "")
    return Case(kind, name, line["makespan_s"], line["mean_e2e_s"], rows, line.get("request"))


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What is known of one burst: its cases so far, how many are to come, or why there are none."""

    cases: tuple[Case, ...] = ()
    running: bool = False
    done: int = 0
    total: int = 0
    problem: str = ""

    def with_line(self, line: Mapping[str, Any]) -> "WhatIf":
        if "error" in line:
            return replace(self, running=False, problem=str(line["error"]))
        if "total" in line:
            return replace(self, total=int(line["total"]))
        case = case_of(line)
        kept = tuple(c for c in self.cases if (c.kind, c.name, c.moved) != (case.kind, case.name, case.moved))
        return replace(self, cases=(*kept, case), done=self.done + 1)

    def policies(self) -> bool:
        """Every policy is there already."""
        return any(c.kind == "policy" for c in self.cases)

    def elsewhere(self, number: int) -> list[Case]:
        return [c for c in self.cases if c.kind == "elsewhere" and c.moved == number]

    def progress(self) -> str:
        if not self.running:
            return ""
        return f"Simulating {min(self.done + 1, self.total)} of {self.total}…" if self.total else "Starting…"


@dataclass(frozen=True, slots=True)
class WhatIfLine:
    """One row of the table: where the request would have gone and what that would have meant."""

    name: str
    backend: str | None
    ttft_s: float | None
    e2e_s: float | None
    makespan_s: float | None
    simulated: bool = True
    ran: bool = False  # the policy under which it ran


def what_if_lines(
    row: RequestRow, rows: Sequence[RequestRow], found: WhatIf, labels: Mapping[str, str], start_s: float
) -> list[WhatIfLine]:
    """As it ran, the same simulated, elsewhere, then every policy; what is not known yet is absent."""
    over = bool(rows) and all(r.state is RequestState.FINISHED for r in rows)
    ends = [r.finished_s for r in rows if r.finished_s is not None]
    e2e = None if row.finished_s is None else row.finished_s - row.arrival_s
    ttft = None if row.first_token_s is None else row.first_token_s - row.arrival_s
    makespan = max(ends) - start_s if over and ends else None
    out = [WhatIfLine("As it ran", row.backend, ttft, e2e, makespan, simulated=False)]
    policy = row.receipt.policy if row.receipt else ""
    for kind in ("same", "elsewhere", "policy"):
        for case in found.cases:
            if case.kind != kind or (kind == "elsewhere" and case.moved != row.number):
                continue
            if row.number not in case.requests:
                continue
            where, first, end = case.requests[row.number]
            name = {
                "same": "The same placement",
                "elsewhere": f"This one on {article(labels.get(case.name, case.name))}",
            }.get(kind, case.name)
            out.append(
                WhatIfLine(name, where, first, end, case.makespan_s, ran=kind == "policy" and name == policy)
            )
    return out


def what_if_markdown(lines: Sequence[WhatIfLine], labels: Mapping[str, str]) -> str:
    """The table for a receipt's copy; "" where nothing was simulated."""
    if len(lines) < 2:
        return ""
    out = [f"What if ({SIMULATED} {CALIBRATION}, but for the first row)", ""]
    out += ["| | backend | TTFT, s | E2E, s | burst, s |", "|---|---|---:|---:|---:|"]
    for line in lines:
        label = labels.get(line.backend or "", line.backend or "n/a")
        cells = (figure(v, 2) for v in (line.ttft_s, line.e2e_s, line.makespan_s))
        out.append(f"| {line.name} | {label} | " + " | ".join(cells) + " |")
    return "\n".join(out) + "\n"


def spec_of(board: Board, row: RequestRow, run_file: str, found: WhatIf) -> dict[str, object]:
    """What the child is asked for: this request elsewhere, and every policy where that is not known yet."""
    run = board.run
    assert run is not None and run.started.run_id == row.run_id
    placed: list[str | None] = [None] * run.started.count
    for other in board.run_rows():
        if 0 < other.number <= len(placed):
            placed[other.number - 1] = other.backend
    return {
        "kind": "what-if",
        "run": run_file,
        "offsets_s": list(run.started.offsets_s),
        "placement": placed,
        "request": row.number,
        "policies": not found.policies(),
    }


# Regret


@dataclass(frozen=True, slots=True)
class RegretLine:
    name: str
    makespan_s: float | None
    mean_e2e_s: float | None


@dataclass(frozen=True, slots=True)
class Regret:
    """How far a run was from the best placement known, and what cost it. Shares are fractions of the best."""

    lines: tuple[RegretLine, ...]  # as it ran, best, lower bound
    total: tuple[float | None, float | None]  # of makespan, of mean E2E
    split: tuple[tuple[str, float | None, float | None], ...]
    proven: bool
    tried: int

    def best_words(self) -> str:
        count = f"{figure(self.tried)} {plural(self.tried, 'placement')} tried"
        return f"all {count}" if self.proven else f"{count}, a better one may exist"


PARTS = (
    ("model_error", "steps were not as calibrated"),
    ("placed_otherwise", "live it chose otherwise"),
    ("length_error", "reply lengths were guessed"),
    ("greedy_choice", "each arrival was placed for itself"),
    ("unproven_gap", "unproven: best above the bound"),
)


def regret_of(data: Mapping[str, Any]) -> Regret:
    """From the child's line."""
    split = data["regret"]
    ran = data["measured"] or data["policy_simulated"]
    name = "As it ran" if data["measured"] else "The policy, simulated"
    lines = (
        RegretLine(name, ran["makespan_s"], ran["mean_e2e_s"]),
        RegretLine("Best placement known", data["best"]["makespan_s"], data["best"]["mean_e2e_s"]),
        RegretLine("Lower bound", data["lower_bound"]["makespan_s"], None),
    )
    goals = ("makespan", "mean_e2e")
    parts = tuple((words, *(split[goal][key] for goal in goals)) for key, words in PARTS)
    totals = (split["makespan"]["total"], split["mean_e2e"]["total"])
    return Regret(lines, totals, parts, bool(data["proven"]), int(data["tried"]))


@dataclass(frozen=True, slots=True)
class RegretState:
    """`regret`, or why there is none (yet): `words` is "computing…", "waits…" or a reason."""

    words: str = ""
    regret: Regret | None = None
    failed: bool = False


def share(value: float | None) -> str:
    return percent(None if value is None else 100 * value, 1, signed=True)


def regret_markdown(state: RegretState | None) -> list[str]:
    if state is None or (state.regret is None and not state.words):
        return []
    found = state.regret
    if found is None:
        return [f"Regret: n/a. {state.words}" if state.failed else f"Regret: {state.words}"]
    out = [
        f"Regret, {SIMULATED} {CALIBRATION} ({found.best_words()})",
        "",
        "| | makespan | mean E2E |",
        "|---|---:|---:|",
    ]
    for line in found.lines:
        out.append(f"| {line.name} | {seconds(line.makespan_s)} | {seconds(line.mean_e2e_s)} |")
    out.append(f"| Regret | {share(found.total[0])} | {share(found.total[1])} |")
    *costs, unproven = found.split  # the last one is no part of the sum
    out += [f"| of it: {name} | {share(m)} | {share(e)} |" for name, m, e in costs]
    out.append(f"| {unproven[0]} | {share(unproven[1])} | {share(unproven[2])} |")
    return out
