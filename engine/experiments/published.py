"""The published routing experiment beside this simulator, on the profile that holds its timings."""

from engine.experiments.arms import fastest_place
from engine.experiments.metrics import serve_json
from engine.experiments.report import Section, Table
from engine.experiments.source import preset_source
from engine.experiments.svg import figure, percent
from engine.profiling.profile import Profile
from engine.simulation.oracle import Yardstick
from engine.simulation.simulate import Simulation, fake_tokenise

PROFILE = "apple-m2-published"
PRESETS = ("seed-warm-8", "seed-warm-48")
# Means of three published runs; the TTFT of request 8 is of its run 1.
_MAKESPAN_S = {("seed-warm-8", "forced-gpu"): 11.47, ("seed-warm-8", "isolated-rates"): 10.35}
_MAKESPAN_S |= {("seed-warm-48", "forced-gpu"): 68.43, ("seed-warm-48", "isolated-rates"): 60.88}
_ON_CPU = {"seed-warm-8": 1, "seed-warm-48": 6}
_SLOTS = {"cpu": 4, "gpu": 4}


def published_sections(profile: Profile) -> list[Section]:
    """The table, simulated anew without noise, for every report on that profile; none on others."""
    if profile.name != PROFILE:
        return []
    rows: list[tuple[str, ...]] = []
    one_slot = {}
    for preset in PRESETS:
        workload = preset_source(preset).build(fake_tokenise, 0)
        count = len(workload.requests)
        ttft, p95 = {}, {}
        for policy in ("forced-gpu", "isolated-rates", "total-delay"):
            result = Simulation(profile, policy, _SLOTS).run(workload, token_times=True)
            figures = serve_json(result)
            requests = result["requests"]
            assert isinstance(requests, list)
            on_cpu = sum(1 for r in requests if r["backend"] == "cpu")
            told = _MAKESPAN_S.get((preset, policy))
            rows.append(
                (
                    f"{count} requests, {policy}, 4 slots",
                    figure(told, 2),
                    figure(figures["duration"], 2),
                    percent(figures["duration"] / told - 1) if told else "n/a",
                    str(_ON_CPU[preset]) if policy == "isolated-rates" else "0" if told else "n/a",
                    str(on_cpu),
                )
            )
            ttft[policy], p95[policy] = requests[7]["ttft_s"], figures["p95_ttft_ms"]
        place = fastest_place(profile)
        alone = Yardstick(profile, workload, {"gpu": 1}).quick((place,) * count)
        one_slot[count] = alone.makespan_s
        rows.append(
            (f"{count} requests, forced-gpu, 1 slot", "n/a", figure(alone.makespan_s, 2), "n/a", "n/a", "0")
        )
        if count == 8:
            for policy, told in (("forced-gpu", 5.561), ("isolated-rates", 0.339)):
                off = percent(ttft[policy] / told - 1)
                name = f"TTFT of request 8, {policy}"
                rows.append((name, figure(told, 3), figure(ttft[policy], 3), off, "", ""))
            change = p95["isolated-rates"] / p95["forced-gpu"] - 1
            rows.append(("p95 TTFT of the 8, routed against GPU only", "+3.5 %", percent(change), "", "", ""))
    words = (
        "What it means: by the published isolated rate of 293 tok/s, this GPU serves the burst about three "
        f"times faster one request at a time ({figure(one_slot[8], 2)} s and {figure(one_slot[48], 1)} s) "
        "than four at once, so the published gain of routing is a gain over a bad setting; one slot was not "
        "measured there."
    )
    columns = ("", "published, s", "simulated, s", "off", "on CPU, published", "on CPU, simulated")
    note = (
        "Only decode on the GPU at 1 and 4 rows and on the CPU at 1 row rests on published figures; "
        "every other timing of the profile is assumed. No step-time noise here."
    )
    table = Table("published", "", columns, tuple(rows), note)
    return [Section("Beside the published experiment", words, (table,))]
