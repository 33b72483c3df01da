"""What an experiment runs: a preset or a trace, built anew for every tokeniser and seed."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

from engine.errors import UnknownNameError
from engine.profiling.profile import Profile
from engine.request import Request, RequestId
from engine.routing.length import LengthEstimator
from engine.simulation.capacity import served_rps
from engine.simulation.simulate import CONTEXT_TOKENS, fake_tokenise
from engine.workloads.presets import PRESETS, Workload, make_workload
from engine.workloads.replayed import trace_workload
from engine.workloads.texts import Tokenise
from engine.workloads.traces import Trace

Build = Callable[[Tokenise, int], Workload]
_SEASON = range(1_000, 1_004)  # seeds whose replies an estimator has seen before the runs


@dataclass(frozen=True, slots=True)
class Source:
    """A named workload. `build(tokenise, seed)` is deterministic; `capacity_rps` scales steady arrivals."""

    name: str
    description: str
    build: Build

    def digest(self) -> str:
        """The same for the same requests, whatever they are called."""
        workload = self.build(fake_tokenise, 0)
        parts = [[r.offset_s, r.prompt, r.output_tokens] for r in workload.requests]
        text = json.dumps([parts, workload.seeding])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def seasoned(self) -> LengthEstimator:
        """An estimator that has seen the replies of other seeds, as one in use has."""
        lengths = LengthEstimator()
        for seed in _SEASON:
            requests = self.build(fake_tokenise, seed).requests
            for i, planned in enumerate(requests):
                if planned.reply_tokens is not None:
                    request = Request(RequestId(-i), planned.prompt, planned.sampling, 0.0, planned.tag)
                    lengths.observe(request, planned.reply_tokens, censored=False)
            if all(planned.reply_tokens is None for planned in requests):
                break  # every reply takes its whole budget: there is nothing to learn
        return lengths


def preset_source(name: str, capacity_rps: float | None = None) -> Source:
    """A preset. Raises `UnknownNameError`."""
    if name not in PRESETS:
        raise UnknownNameError("preset", name, list(PRESETS))

    def build(tokenise: Tokenise, seed: int) -> Workload:
        return make_workload(name, tokenise, seed, capacity_rps)

    return Source(name, PRESETS[name].one_line, build)


def trace_source(trace: Trace, context_tokens: int = CONTEXT_TOKENS) -> Source:
    """A trace; the seed draws its text anew, arrivals and lengths are the file's."""

    def build(tokenise: Tokenise, seed: int) -> Workload:
        return trace_workload(trace, tokenise, context_tokens, seed)

    description = build(fake_tokenise, 0).description
    return Source(trace.name, description, build)


def capacity_rps(profile: Profile, source: Source, place: int, slots: int) -> float:
    """Requests a second that one backend of the profile serves alone when they never run out."""
    return served_rps(profile, source.build(fake_tokenise, 0), place, slots)
