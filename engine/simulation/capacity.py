"""What a backend serves a second: the measure of every arrival rate that is given as a share of capacity."""

import random
from collections.abc import Mapping
from dataclasses import replace

from engine.profiling.profile import Profile
from engine.simulation.oracle import Yardstick
from engine.simulation.simulate import fake_tokenise
from engine.workloads.presets import CAPACITY_PRESET, PRESETS, Workload, make_workload

_SATURATED = 32  # requests at once, to learn how many a backend serves a second


def served_rps(profile: Profile, workload: Workload, place: int, slots: int) -> float:
    """Requests a second that one backend of the profile serves alone when they never run out."""
    some = list(workload.requests)
    random.Random(0).shuffle(some)
    at_once = tuple(replace(r, offset_s=0.0) for r in some[:_SATURATED])
    busy = Workload("saturated", 0, at_once, workload.seeding, "")
    name = profile.backends[place].name
    outcome = Yardstick(profile, busy, {name: slots}).quick((place,) * len(at_once))
    return len(at_once) / outcome.makespan_s


def preset_capacity_rps(
    profile: Profile, preset: str, slots: Mapping[str, int] | None = None
) -> float | None:
    """What the fastest backend serves alone of the requests of `preset`, at `slots` or the profile's own.

    None for presets whose arrivals do not depend on it. All that do have the same kind of requests, so
    they are measured on the same ones: 0.5 and 1.0 of capacity are shares of one number.
    """
    if not PRESETS[preset].paced:
        return None
    places = range(len(profile.backends))
    place = min(places, key=lambda i: profile.backends[i].rates.isolated_s)
    fastest = profile.backends[place]
    wanted = (slots or {}).get(fastest.name, fastest.slots)
    return served_rps(profile, make_workload(CAPACITY_PRESET, fake_tokenise), place, wanted)
