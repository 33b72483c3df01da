"""What every backend was doing, report by report, bounded: the record behind the time cursor. No Qt.

Every report leaves a frame: its time, its load and the KV blocks that changed. A moment is the last whole
picture of the blocks before it and the changes since, so it costs at most some hundred dictionary writes.
Where there are too many frames, neighbours are merged: the whole burst stays, at half the resolution.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.request import BackendName
from engine.step_report import BlockChange, BlockState, StepReport

MOST_FRAMES = 4_096  # of a backend
WHOLE_EVERY = 256  # frames between two whole pictures of the blocks
CLEARED_S = 0.001  # after its last report a backend that stopped holds nothing any more

Blocks = dict[int, BlockChange]


@dataclass(frozen=True, slots=True)
class Frame:
    """One report, or several merged ones: the state after the last of them."""

    report: StepReport
    changes: tuple[BlockChange, ...]
    evicted: tuple[tuple[int, float], ...]  # block, when

    @property
    def time_s(self) -> float:
        return self.report.finished_s


@dataclass(slots=True)
class Track:
    """The frames of one backend, oldest first."""

    frames: list[Frame] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    wholes: list[Blocks] = field(default_factory=list)  # what was there before frame i * WHOLE_EVERY

    def add(self, report: StepReport, changes: tuple[BlockChange, ...], blocks: Blocks) -> None:
        """`blocks` is the picture after this report."""
        evicted = tuple((c.block, report.finished_s) for c in changes if c.evicted)
        self.frames.append(Frame(report, changes, evicted))
        self.times_s.append(report.finished_s)
        if len(self.frames) % WHOLE_EVERY == 0:
            self.wholes.append(dict(blocks))
        if len(self.frames) >= MOST_FRAMES:
            pairs = zip(self.frames[::2], self.frames[1::2], strict=True)
            self.frames = [_merged(a, b) for a, b in pairs]
            self.times_s = [f.time_s for f in self.frames]
            self.wholes = self.wholes[::2]

    def count(self, time_s: float) -> int:
        """How many frames had happened by then."""
        return bisect_right(self.times_s, time_s)

    def blocks(self, count: int) -> Blocks:
        """The blocks that were not free after `count` frames."""
        whole = min(count // WHOLE_EVERY, len(self.wholes) - 1)
        found = dict(self.wholes[whole])
        for frame in self.frames[whole * WHOLE_EVERY : count]:
            for change in frame.changes:
                if change.state is BlockState.FREE:
                    found.pop(change.block, None)
                else:
                    found[change.block] = change
        return found


def _merged(first: Frame, second: Frame) -> Frame:
    last = {c.block: c for c in (*first.changes, *second.changes)}
    return Frame(second.report, tuple(last.values()), first.evicted + second.evicted)


class Frames:
    """All tracks since the burst on the screen began."""

    def __init__(self) -> None:
        self.tracks: dict[str, Track] = {}

    def restart(self, blocks: Mapping[str, Blocks]) -> None:
        """A burst begins with these caches; what was before it is not asked for any more."""
        self.tracks = {name: Track(wholes=[dict(held)]) for name, held in blocks.items()}

    def add(self, report: StepReport, before: Blocks, after: Blocks) -> None:
        """`before` is read only where this is the backend's first report."""
        track = self.tracks.get(report.backend)
        if track is None:
            track = self.tracks[report.backend] = Track(wholes=[dict(before)])
        track.add(report, report.blocks, after)

    def cleared(self, backend: BackendName, held: Blocks) -> None:
        """The backend stopped or begins anew: nothing runs on it and its cache is empty."""
        track = self.tracks.get(backend)
        if track is None or not track.times_s:
            return
        at_s = track.times_s[-1] + CLEARED_S
        freed = tuple(BlockChange(block, BlockState.FREE) for block in held)
        track.add(StepReport(backend, 0, at_s, at_s), freed, {})

    def last_s(self) -> float | None:
        """When the last report came; None without one."""
        return max((t.times_s[-1] for t in self.tracks.values() if t.times_s), default=None)
