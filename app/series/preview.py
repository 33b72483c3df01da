"""When the requests of a preset arrive, for the small strip in the burst menu. No Qt."""

from dataclasses import dataclass
from functools import lru_cache

from app.series.words import figure, plural, seconds
from engine.errors import EngineError
from engine.workloads.presets import make_workload

TWICE = 2.0


@dataclass(frozen=True, slots=True)
class Preview:
    """`parts` are the arrivals, 0 = the first and 1 = the last."""

    parts: tuple[float, ...]
    words: str  # "8 in 0.35 s"


def _ids(text: str) -> list[int]:
    """Nobody reads these prompts: a quick stand-in for a tokeniser, with many different ids."""
    return [256 * (i % 64) + b for i, b in enumerate(text.encode())]


@lru_cache(maxsize=64)
def preview(preset: str) -> Preview | None:
    """None for a name that is no preset. Random arrivals are drawn as seed 0 draws them."""
    try:
        offsets = [r.offset_s for r in make_workload(preset, _ids).requests]
        faster = make_workload(preset, _ids, capacity_rps=TWICE).requests[-1].offset_s
    except EngineError:
        return None
    span = offsets[-1]
    count = f"{figure(len(offsets))} {plural(len(offsets), 'request')}"
    paced = faster < span  # it comes as fast as the fastest backend serves it
    words = f"{count}, paced to the machine" if paced else f"{count} in {seconds(span)}"
    return Preview(tuple(at / span if span else 0.0 for at in offsets), words)
