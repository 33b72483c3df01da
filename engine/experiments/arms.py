"""The settings that an experiment compares: a policy with slots, and the baseline that counts."""

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine import __version__
from engine.config import BackendOptions
from engine.errors import ConfigError
from engine.experiments.source import Source
from engine.paths import cache_dir, make_folder
from engine.profiling.profile import Profile, profile_json
from engine.routing.policies import check_policy
from engine.simulation.oracle import Yardstick
from engine.simulation.simulate import fake_tokenise

MOST_SLOTS = 32
LADDER = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 28, 32)
NEAR = 1.01  # makespans this close are alike, and mean E2E decides


@dataclass(frozen=True, slots=True)
class Arm:
    """One setting: a policy, and the slots of every backend."""

    policy: str
    slots: tuple[tuple[str, int], ...]
    baseline: bool = False

    @property
    def slots_by_name(self) -> dict[str, int]:
        return dict(self.slots)

    def key(self, usual: Mapping[str, int]) -> str:
        """A short name, unique among arms: the policy, and the slots where they are not the usual ones."""
        other = ",".join(f"{n}={s}" for n, s in self.slots if usual.get(n) != s and self.uses(n))
        return f"{self.policy}@{other}" if other else self.policy

    def label(self, usual: Mapping[str, int]) -> str:
        """For people: "forced-gpu, gpu 1 slot"."""
        words = [f"{n} {s} slot{'' if s == 1 else 's'}" for n, s in self.slots if usual.get(n) != s]
        words = [w for w in words if self.uses(w.split()[0])]
        return ", ".join((self.policy, *words))

    def uses(self, backend: str) -> bool:
        return not self.policy.startswith("forced-") or self.policy == f"forced-{backend}"


@dataclass(frozen=True, slots=True)
class Solo:
    """One backend alone: what a slot count gives on a workload, on the simulator."""

    slots: int
    makespan_s: float
    mean_e2e_s: float


def fastest_place(profile: Profile) -> int:
    """Place of the backend that is fastest in isolation."""
    return min(range(len(profile.backends)), key=lambda i: profile.backends[i].rates.isolated_s)


def solos(profile: Profile, source: Source, place: int, most: int, seed: int = 0) -> list[Solo]:
    """One backend alone at every slot count of the ladder up to `most`."""
    workload = source.build(fake_tokenise, seed)
    name = profile.backends[place].name
    out = []
    for slots in (n for n in LADDER if n <= most):
        outcome = Yardstick(profile, workload, {name: slots}).quick((place,) * len(workload.requests))
        out.append(Solo(slots, outcome.makespan_s, outcome.mean_e2e_s))
    return out


def best_of(found: Sequence[Solo]) -> Solo:
    """The least makespan; among those within 1 % of it, the least mean E2E; then the fewest slots."""
    least = min(s.makespan_s for s in found)
    near = [s for s in found if s.makespan_s <= least * NEAR]
    return min(near, key=lambda s: (round(s.mean_e2e_s, 6), s.slots))


def priced_slots(profile: Profile, place: int) -> int:
    """Most slots whose step time the profile knows, or those it is set to: nothing else is extrapolated."""
    backend = profile.backends[place]
    return min(MOST_SLOTS, max(backend.slots, backend.steps.decode_s[-1][0]))


def baseline_arm(
    profile: Profile, source: Source, slots: Mapping[str, int], most: int | None = None
) -> tuple[Arm, list[Solo]]:
    """The fastest backend alone at its best slot count, and the sweep that found it (kept in the cache)."""
    place = fastest_place(profile)
    limit = min(most or MOST_SLOTS, priced_slots(profile, place))
    identity = json.dumps([__version__, profile_json(profile), source.digest(), limit], sort_keys=True)
    digest = hashlib.blake2b(identity.encode(), digest_size=10).hexdigest()
    path = cache_dir() / "experiments" / f"baseline-{digest}.json"
    try:
        found = [Solo(int(n), float(m), float(e)) for n, m, e in json.loads(path.read_text("utf-8"))]
    except (OSError, ValueError, TypeError):
        found = solos(profile, source, place, limit)
        with contextlib.suppress(OSError):  # a full disk costs the sweep once more, not the run
            make_folder(path.parent)
            part = path.with_suffix(f".{os.getpid()}.part")
            part.write_text(json.dumps([[s.slots, s.makespan_s, s.mean_e2e_s] for s in found]), "utf-8")
            os.replace(part, path)
    name = profile.backends[place].name
    best = {**slots, name: best_of(found).slots}
    return Arm(f"forced-{name}", tuple(best.items()), baseline=True), found


def best_slots(profile: Profile, source: Source) -> dict[str, int]:
    """The profile's slots, but for the fastest backend those with which it serves the workload best alone."""
    usual = {b.name: b.slots for b in profile.backends}
    return baseline_arm(profile, source, usual)[0].slots_by_name


def best_words(base: Arm, tried: Sequence[Solo], usual: Mapping[str, int]) -> str:
    """What the sweep of `baseline_arm` found, beside the usual slots, as a sentence."""
    name, best = base.policy.removeprefix("forced-"), best_of(tried)
    plain = next((s for s in tried if s.slots == usual[name] != best.slots), None)
    beside = f", with {plain.slots} it takes {plain.makespan_s:.2f} s" if plain is not None else ""
    return (
        f"Best slots of {name}, the fastest alone: {best.slots}, makespan {best.makespan_s:.2f} s{beside} "
        f"(simulated with {tried[0].slots} to {tried[-1].slots})."
    )


def parse_arms(
    text: str, names: Sequence[str], usual: Mapping[str, int], best: Mapping[str, int]
) -> list[Arm]:
    """ "isolated-rates,total-delay@gpu=1,forced-gpu@best" as arms. Raises `ConfigError`.

    Behind an @ stand the slots: a number for all, NAME=N with / between several, or best.
    """
    arms: list[Arm] = []
    for part in (p.strip() for p in text.split(",")):
        policy, at, wanted = part.partition("@")
        check_policy(policy, names)
        slots = dict(usual)
        if wanted == "best":
            slots = dict(best)
        elif at:
            options = BackendOptions(slots=wanted.replace("/", ","))
            options.check_slot_names(list(names))
            slots = {n: options.slots_of(n, usual[n]) for n in names}
        arm = Arm(policy, tuple(slots.items()))
        if arm not in arms:
            arms.append(arm)
    if not arms:
        raise ConfigError("--policies is empty: name at least one, such as total-delay.")
    return arms
