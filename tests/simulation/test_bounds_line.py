"""The line under the table of policies: which bounds hold."""

import pytest

from engine.cli import main
from engine.experiments.tables import Row, all_policies, bounds_line
from engine.profiling.profile import load_profile


def rows(preset: str, makespan_s: float, p95_s: float) -> list[Row]:
    def row(policy: str, makespan: float, p95: float) -> Row:
        default = policy == "total-delay"
        return {
            "preset": preset, "policy": policy, "default": default, "makespan_s": makespan, "p95_ttft_s": p95
        }  # fmt: skip

    return [row("total-delay", makespan_s, p95_s), row("forced-cpu", 30.0, 9.0), row("forced-gpu", 10.0, 2.0)]


def test_all_hold() -> None:
    assert bounds_line(rows("code", 10.05, 2.03)).startswith("2 of 2 bounds hold")


def test_what_breaks_is_named() -> None:
    line = bounds_line(rows("code", 10.2, 2.1))
    assert line.startswith("0 of 2") and "code makespan_s +2.0%" in line and "code p95_ttft_s +5.0%" in line


def test_warm_bursts_may_wait_longer_for_their_first_token() -> None:
    assert bounds_line(rows("seed-warm-8", 10.0, 2.1)).startswith("2 of 2")
    assert bounds_line(rows("seed-warm-8", 10.0, 2.2)).startswith("1 of 2")


def test_at_best_slots_the_rows_say_with_how_many_and_what_holds() -> None:
    profile = load_profile("apple-m2-published")
    rows = all_policies(profile, ["seed-warm-8"], "best", [0])
    assert all(row["slots"] == {"cpu": 4, "gpu": 1} for row in rows)  # the published GPU batches badly
    default = next(row for row in rows if row["default"])
    bounds = default["bounds"]
    assert isinstance(bounds, dict) and set(bounds) == {"makespan_s", "p95_ttft_s"}
    assert all(bound["holds"] and bound["change"] <= bound["most"] for bound in bounds.values())
    assert not any("bounds" in row for row in rows if not row["default"])
    assert bounds_line(rows).startswith("2 of 2")


@pytest.mark.parametrize("words", ["--regret", "--bounds"])
def test_best_slots_belong_to_one_burst(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", words, "--slots", "best"]) == 2
    assert "belongs to one preset" in capsys.readouterr().err
