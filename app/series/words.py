"""How numbers read on the screen: one place, so that a table, a chart and a sentence agree. No Qt."""

NA = "n/a"
MINUS = "\N{MINUS SIGN}"
GROWING = "…"
_SMALL = [
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]


def figure(value: float | None, decimals: int = 0, signed: bool = False) -> str:
    """`1,000`, `0.00`, a true minus sign; `n/a` for None, because 0 is a measurement and None is not."""
    if value is None:
        return NA
    text = f"{abs(value):,.{decimals}f}"
    if value < 0 and text.strip("0.,"):  # a value that rounds to nothing has no sign
        return MINUS + text
    return "+" + text if signed and text.strip("0.,") else text


def seconds(value: float | None, decimals: int = 2) -> str:
    return NA if value is None else f"{figure(value, decimals)} s"


def duration(value_s: float) -> str:
    """`46.7 ms`, and `8.08 s` from a second on."""
    return seconds(value_s) if value_s >= 1 else f"{figure(1_000 * value_s, 1)} ms"


def percent(value: float | None, decimals: int = 1, signed: bool = False) -> str:
    return NA if value is None else f"{figure(value, decimals, signed)} %"


def spelled(count: int) -> str:
    """Small counts as words, for sentences."""
    return _SMALL[count] if 0 <= count < len(_SMALL) else figure(count)


def plural(count: int, noun: str) -> str:
    return noun if count == 1 else noun + "s"


def apart(first: float, second: float, decimals: int = 1) -> int:
    """Decimals at which two different figures also read differently (at most 3)."""
    while decimals < 3 and first != second and f"{first:.{decimals}f}" == f"{second:.{decimals}f}":
        decimals += 1
    return decimals
