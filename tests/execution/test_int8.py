"""Dynamic int8: exact whole-number products, near results, and rows that do not know their company."""

import pytest
import torch

from engine.execution import int8

pytestmark = pytest.mark.skipif(not int8.available(), reason="torch has no int8 product here")
GENERATOR = torch.Generator().manual_seed(1)
WEIGHT = torch.randn(96, 192, generator=GENERATOR) / 14


def rows(count: int) -> torch.Tensor:
    """Rows of very different sizes, the last one zero."""
    x = torch.randn(count, 192, generator=torch.Generator().manual_seed(2))
    sizes = 10.0 ** torch.arange(count).remainder(7).sub(3)
    x = x * sizes[:, None]
    x[-1] = 0
    return x


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Of the worst row, relative to the row's length."""
    return float(((got - want).norm(dim=1) / want.norm(dim=1).clamp_min(1e-9)).max())


@pytest.mark.parametrize("turn", [False, True])
def test_a_writer_is_near_for_every_row(turn: bool) -> None:
    x = rows(64)
    assert error(int8.Writer(WEIGHT, turn)(x), x @ WEIGHT.t()) < 0.02


def test_a_reader_is_near_after_the_norm() -> None:
    x, bias = rows(64)[:-1], torch.randn(96)
    want = x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6)
    got = int8.Reader(WEIGHT, bias)(int8.Norm(192, 1e-6)(x))
    assert error(got, want @ WEIGHT.t() + bias) < 0.04  # what lies beyond the clip included


def test_beyond_the_clip_nothing_wraps_around() -> None:
    x = torch.full((1, 192), 1e-3)
    x[0, :2] = torch.tensor([100.0, -100.0])
    codes = int8.Norm(192, 1e-6)(x)[0].int() - int8.levels() - 1
    assert codes[:2].tolist() == [int8.levels(), -int8.levels()] and codes[2:].abs().max() == 0
    assert int8.quiet_share() < 5e-4


def test_rows_are_the_same_bit_for_bit_in_any_company() -> None:
    x = rows(31)
    norm, reader, writer = int8.Norm(192, 1e-6), int8.Reader(WEIGHT, None), int8.Writer(WEIGHT, False)
    together, written = reader(norm(x)), writer(x)
    for at in range(31):
        for company in (slice(at, at + 1), slice(max(0, at - 3), at + 1), slice(at // 2, at + 1)):
            assert torch.equal(reader(norm(x[company]))[-1], together[at])
            assert torch.equal(writer(x[company])[-1], written[at])


def test_writing_adds_to_the_stream_in_place() -> None:
    x, stream = rows(5), torch.ones(5, 96)
    writer = int8.Writer(WEIGHT, True)
    want = stream + writer(x)
    assert writer.add_to(stream, x) is stream
    torch.testing.assert_close(stream, want)


def test_seven_bits_where_eight_would_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "levels", lambda: 63)
    x = rows(16)
    writer = int8.Writer(WEIGHT, True)
    assert error(writer(x), x @ WEIGHT.t()) < 0.04
    codes = int8.Norm(192, 1e-6)(x)
    assert int(codes.min()) >= 1 and int(codes.max()) <= 127
