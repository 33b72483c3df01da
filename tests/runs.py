"""Run files as a burst leaves them, made on the simulator: whole, cut short, mixed, of another version."""

import json
from pathlib import Path
from typing import Any

from engine.profiling.profile import load_profile
from engine.recording import FORMAT, VERSION, head_json, prompt_blocks
from engine.simulation.simulate import Simulation, fake_tokenise
from engine.workloads.presets import make_workload


def write_run(
    folder: Path,
    run_id: str = "run-1",
    preset: str = "seed-warm-8",
    policy: str = "isolated-rates",
    *,
    ended: int | None = None,
    stamp: str = "20261201-120000",
    calibrated: bool = True,
    version: int = VERSION,
    emulated: bool = True,
    token_times: bool = True,
    **changes: object,
) -> Path:
    """`ended` requests have ended; None = all of them, and the result is there. `changes` go into it.

    Without `token_times` it is as earlier versions wrote it.
    """
    profile = load_profile("apple-m2-published")
    workload = make_workload(preset, fake_tokenise)
    result = dict(Simulation(profile, policy).run(workload, token_times=True))
    head = head_json(run_id, workload, policy, "smollm2", emulated, profile if calibrated else None)
    head["date"] = f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]}T{stamp[9:11]}:{stamp[11:13]}:{stamp[13:15]}"
    lines: list[dict[str, Any]] = [{"format": FORMAT, "version": version, "offramp": "0.1.0", **head}]
    rows = result["requests"]
    assert isinstance(rows, list)
    times_s = [row.pop("token_times_s") for row in rows]
    for row, planned, times in list(zip(rows, workload.requests, times_s, strict=True))[:ended]:
        lines.append(
            {
                "request": row["id"],
                "offset_s": planned.offset_s,
                "tag": planned.tag,
                "prompt_tokens": len(planned.prompt),
                "blocks": prompt_blocks(planned.prompt),
                "max_new_tokens": planned.sampling.max_new_tokens,
                "ignore_eos": planned.sampling.ignore_eos,
                "output_tokens": row["output_tokens"],
                "backend": row["backend"],
                "finish_reason": row["finish_reason"],
                **({"token_times_s": times} if token_times else {}),
            }
        )
    if ended is None:
        told = {"emulated": emulated, "simulated": False, "mixed": False, "run_id": run_id, "profile": None}
        lines.append({"result": {**result, **told, **changes}})
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stamp}-{preset}-{run_id[:8]}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path
