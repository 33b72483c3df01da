"""How often the window repaints: as often as a fifth of a core allows, four to ten times a second."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.refresher import LONGEST_MS, SHARE, SHORTEST_MS, TURNS, Cadence


class Spent:
    """Processor time that the test hands out."""

    def __init__(self) -> None:
        self.now_s = 5.0

    def __call__(self) -> float:
        return self.now_s


def settled(cost_ms: float) -> int:
    spent = Spent()
    cadence = Cadence(spent)
    turn = 0
    for _ in range(40):
        spent.now_s += cost_ms / 1000
        turn = cadence.turn_ms()
    return turn


@pytest.mark.parametrize(
    ("cost_ms", "round_ms"), [(0, SHORTEST_MS), (8, SHORTEST_MS), (33, 165), (40, 200), (400, LONGEST_MS)]
)
def test_a_costly_round_takes_longer(cost_ms, round_ms) -> None:
    assert settled(cost_ms) * TURNS == pytest.approx(round_ms, abs=TURNS)


def test_one_costly_round_is_soon_forgotten() -> None:
    spent = Spent()
    cadence = Cadence(spent)
    spent.now_s += 0.1
    assert cadence.turn_ms() * TURNS > SHORTEST_MS
    for _ in range(10):
        cadence.turn_ms()
    assert cadence.turn_ms() * TURNS == SHORTEST_MS


@given(st.lists(st.floats(0, 2_000), min_size=1, max_size=60))
def test_whatever_it_costs_it_stays_between_four_and_ten_a_second(costs) -> None:
    spent = Spent()
    cadence = Cadence(spent)
    for cost_ms in costs:
        spent.now_s += cost_ms / 1000
        round_s = cadence.turn_ms() * TURNS / 1000
        assert 3.9 < 1 / round_s < 10


@given(st.floats(SHORTEST_MS * SHARE, LONGEST_MS * SHARE))
def test_within_its_bounds_it_takes_its_share_of_a_core(cost_ms) -> None:
    round_ms = settled(cost_ms) * TURNS
    assert cost_ms / round_ms == pytest.approx(SHARE, rel=0.02)
