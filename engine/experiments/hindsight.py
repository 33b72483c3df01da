"""In hindsight: what a recorded burst would have been under each policy and elsewhere, and its regret.

A child process of low priority for the window: `python -m engine.experiments.hindsight JSON` reads
`{"kind": "what-if", "run": PATH, ...}` or `{"kind": "regret", "run": PATH}` and prints a JSON object a line;
the last one is `{"error": "a sentence"}` where it could not go on.
"""

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from engine.errors import ConfigError, EngineError
from engine.experiments.regret import explain, moved_at_s
from engine.experiments.tables import policies_of
from engine.profiling.profile import Profile, parse_profile
from engine.recording import Run, calibrated, read_head, read_run, recorded_weights, refuse_early
from engine.simulation.simulate import Simulation, fake_tokenise
from engine.workloads.presets import PRESETS, Workload, make_workload

MOST_FOR_REGRET = 64  # requests: the search for the best placement of more takes minutes
Line = dict[str, Any]


def what_if(
    run: Path,
    offsets_s: Sequence[float],
    placement: Sequence[str | None],
    request: int | None,
    *,
    policies: bool,
) -> Iterator[Line]:
    """The burst again on its own calibration, simulated: first `{"total": n}`, then a case a line.

    `offsets_s` are the arrivals of the whole burst in seconds, `placement` where each request went (None =
    not arrived). `policies` asks for a case of every policy; `request` (its number, from 1) for that one
    on each other backend, the rest as they were. Raises `EngineError`.
    """
    profile, workload, result = _burst(run, offsets_s)
    names = [b.name for b in profile.backends]
    unknown = sorted({p for p in placement if p is not None} - set(names))
    if unknown:
        raise ConfigError(
            f"The calibration of this run knows no backend '{unknown[0]}': it cannot be replayed."
        )
    asked = policies_of(profile) if policies else []
    elsewhere: list[str] = []
    if request is not None and placement[request - 1] is not None:
        elsewhere = [n for n in names if n != placement[request - 1]]
    whole = all(p is not None for p in placement)
    yield {"total": len(asked) + len(elsewhere) + (whole and policies)}
    # Those that have not arrived go where the policy would send them.
    known = [names.index(p) if p is not None else None for p in placement]
    weights = recorded_weights(read_head(run))
    if elsewhere and not whole:
        policy = str(read_head(run)["policy"])
        routed = Simulation(profile, policy, weights=weights).run(workload)["requests"]
        assert isinstance(routed, list)
        filled = [names.index(r["backend"]) if p is None else p for p, r in zip(known, routed, strict=True)]
    else:
        filled = [p or 0 for p in known]
    # Who left a queue for another backend came there late; while the burst runs that is not on record.
    given_s = moved_at_s(result) or {} if result is not None else {}
    if whole and policies:
        same = Simulation(profile, names_policy(names)).run(workload, filled, given_s=given_s)
        yield _case({"case": "same"}, same)
    for name in elsewhere:
        places = [names.index(name) if i + 1 == request else p for i, p in enumerate(filled)]
        others_s = {number: at_s for number, at_s in given_s.items() if number != request}
        head: Line = {"case": "elsewhere", "backend": name, "request": request}
        yield _case(head, Simulation(profile, names_policy(names)).run(workload, places, given_s=others_s))
    for policy in asked:
        simulation = Simulation(profile, policy, weights=weights)
        yield _case({"case": "policy", "policy": policy}, simulation.run(workload))


def names_policy(names: Sequence[str]) -> str:
    """A policy that costs nothing, for where a placement overrules it."""
    return f"forced-{names[0]}"


def regret(run: Path) -> Line:
    """`explain` of a whole recorded burst. Raises `EngineError` where there is none to give."""
    recorded = read_run(run)
    if recorded.result is None:
        raise ConfigError("The burst was cut short: only a whole one has a best placement.")
    if recorded.result.get("mixed"):
        raise ConfigError("Typed prompts or changed settings came in between: its times are not its own.")
    count = len(recorded.workload.requests)
    if count > MOST_FOR_REGRET:
        raise ConfigError(f"{count} requests are more than the {MOST_FOR_REGRET} that are searched.")
    return explain(
        calibrated(recorded, run),
        recorded.workload,
        str(recorded.head["policy"]),
        recorded.result,
        recorded_weights(recorded.head),
    )


def _burst(run: Path, offsets_s: Sequence[float]) -> tuple[Profile, Workload, dict[str, Any] | None]:
    """The recorded requests, and the result of a whole burst; where some requests have not ended yet, the
    preset's with the burst's own arrivals."""
    recorded: Run | None = None
    with contextlib.suppress(EngineError):  # nothing has ended yet
        recorded = read_run(run)
    if recorded is not None and len(recorded.workload.requests) == len(offsets_s):
        refuse_early(recorded.result, "a what-if")
        return calibrated(recorded, run), recorded.workload, recorded.result
    head = read_head(run)
    if head["preset"] not in PRESETS:
        raise ConfigError("Only the bursts of a preset can be replayed before they have ended.")
    workload = make_workload(str(head["preset"]), fake_tokenise, int(head["seed"]))
    if len(workload.requests) != len(offsets_s):
        raise ConfigError("The preset has changed since this run: it cannot be replayed.")
    requests = tuple(replace(r, offset_s=at) for r, at in zip(workload.requests, offsets_s, strict=True))
    profile = calibrated(Run(head, workload, _profile(head, run), (), None), run)
    return profile, replace(workload, requests=requests), None


def _profile(head: Mapping[str, Any], run: Path) -> Profile | None:
    return None if head.get("profile") is None else parse_profile(head["profile"], str(run))


def _case(head: Line, result: Mapping[str, Any]) -> Line:
    requests = result["requests"]
    ends = [r["e2e_s"] for r in requests]
    return {
        **head,
        "simulated": True,
        "makespan_s": result["makespan_s"],
        "mean_e2e_s": sum(ends) / len(ends),
        "requests": [{k: r[k] for k in ("id", "backend", "ttft_s", "e2e_s")} for r in requests],
    }


def _lines(spec: Mapping[str, Any]) -> Iterator[Line]:
    run = Path(spec["run"])
    if spec["kind"] == "regret":
        yield {"total": 1}
        yield regret(run)
        return
    yield from what_if(
        run, spec["offsets_s"], spec["placement"], spec.get("request"), policies=bool(spec.get("policies"))
    )


def give_way() -> None:
    """The lowest priority: whatever else runs on this machine comes first."""
    with contextlib.suppress(OSError, psutil.Error):
        psutil.Process().nice(psutil.IDLE_PRIORITY_CLASS if sys.platform == "win32" else 19)


def main(argv: Sequence[str] | None = None) -> int:
    spec = json.loads((argv or sys.argv[1:])[0])
    give_way()
    try:
        for line in _lines(spec):
            sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
            sys.stdout.flush()
    except EngineError as error:
        sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
