"""The record of the past: bounded, thinned evenly, right at every moment."""

from app.series.frames import CLEARED_S, MOST_FRAMES, WHOLE_EVERY, Frames
from engine.request import BackendName
from engine.step_report import BlockChange, BlockState, StepReport

GPU = BackendName("gpu")


def report(index: int, *changes: BlockChange) -> StepReport:
    return StepReport(GPU, index, float(index), index + 1.0, 1, blocks=changes)


def active(block: int, evicted: bool = False) -> BlockChange:
    return BlockChange(block, BlockState.ACTIVE, (), block, evicted)


def fill(frames: Frames, count: int) -> list[set[int]]:
    """Block i is taken by report i and freed ten reports later; returns what was held after each."""
    held: dict[int, BlockChange] = {}
    seen = []
    for i in range(count):
        before = dict(held)
        changes = [active(i)]
        held[i] = changes[0]
        if i >= 10:
            changes.append(BlockChange(i - 10, BlockState.FREE))
            del held[i - 10]
        frames.add(report(i, *changes), before, held)
        seen.append(set(held))
    return seen


def test_every_moment_has_the_blocks_of_then() -> None:
    frames = Frames()
    seen = fill(frames, 3 * WHOLE_EVERY)
    track = frames.tracks[GPU]
    for index, held in enumerate(seen):
        assert set(track.blocks(track.count(index + 1.0))) == held


def test_a_long_burst_is_thinned_and_stays_whole() -> None:
    frames = Frames()
    seen = fill(frames, 2 * MOST_FRAMES + 300)
    track = frames.tracks[GPU]
    assert len(track.frames) < MOST_FRAMES and len(track.wholes) <= MOST_FRAMES // WHOLE_EVERY + 1
    assert track.times_s == sorted(track.times_s) and track.times_s[0] <= 8.0, "the beginning is still there"
    for count in range(1, len(track.frames) + 1, 97):
        assert set(track.blocks(count)) == seen[int(track.times_s[count - 1]) - 1]


def test_a_restart_keeps_what_the_cache_holds() -> None:
    frames = Frames()
    fill(frames, 20)
    frames.restart({GPU: {5: active(5)}})
    assert frames.last_s() is None
    frames.add(report(30, active(6)), {}, {5: active(5), 6: active(6)})
    track = frames.tracks[GPU]
    assert set(track.blocks(0)) == {5} and set(track.blocks(1)) == {5, 6}


def test_a_backend_that_stopped_holds_nothing() -> None:
    frames = Frames()
    frames.cleared(GPU, {1: active(1)})
    assert frames.last_s() is None, "a backend that never reported has no past"
    fill(frames, 5)
    frames.cleared(GPU, {i: active(i) for i in range(5)})
    track = frames.tracks[GPU]
    assert set(track.blocks(track.count(5.0))) == {0, 1, 2, 3, 4}
    assert track.blocks(track.count(5.0 + CLEARED_S)) == {}
