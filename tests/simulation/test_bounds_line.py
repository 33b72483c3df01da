"""The line under the table of policies: which bounds hold."""

from engine.experiments.tables import Row, bounds_line


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
