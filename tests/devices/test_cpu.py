"""Thread plans and names of the CPU."""

import pytest

from engine.devices.cpu import cpu_threads, device_name, physical_cores
from engine.errors import ConfigError


@pytest.mark.parametrize(
    ("backends", "cores", "threads"),
    [
        (1, 1, [1]),
        (1, 2, [1]),
        (2, 2, [1, 1]),
        (1, 8, [7]),
        (2, 8, [4, 3]),
        (3, 8, [3, 2, 2]),
        (2, 3, [1, 1]),
    ],
)
def test_threads_sum_to_one_less_than_the_cores(backends: int, cores: int, threads: list[int]) -> None:
    assert cpu_threads(backends, cores) == threads


def test_no_backend_is_refused() -> None:
    with pytest.raises(ConfigError):
        cpu_threads(0, 4)


def test_the_name_says_how_many_cores() -> None:
    name = device_name(1)
    assert f"1 of {physical_cores()} core" in name and "(R)" not in name and "@" not in name
