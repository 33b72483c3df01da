"""What the default policy weighs, as far as a user may change it, and the one line that says it."""

from dataclasses import dataclass, fields, replace
from typing import Any

from engine.errors import ConfigError, UnknownNameError

MOST_OTHERS, MOST_MARGIN = 10.0, 1.0
_SWITCH = {"on": True, "off": False}


@dataclass(frozen=True, slots=True)
class PolicyWeights:
    """The terms of `total-delay`. As made without arguments it is the policy that the README measures."""

    others: float = 1.0  # weight of everybody else's waiting beside the request's own; 0 = only its own
    margin: float = 0.05  # leaving the fastest backend must save more than this share of the request's E2E
    guards: bool = True  # leaving it may delay no first token, nor the end of everything
    moves: bool = True  # may the head of a queue go to another backend before it has begun

    def validate(self) -> None:
        """Raises `ConfigError` naming the value that makes no sense."""
        if not 0 <= self.others <= MOST_OTHERS:
            raise ConfigError(f"The weight of others is {self.others:g}: use a number from 0 to 10.")
        if not 0 <= self.margin <= MOST_MARGIN:
            raise ConfigError(f"The margin is {self.margin:g}: use a share from 0 to 1, such as 0.05.")

    def __str__(self) -> str:
        """As `parse_weights` reads it."""
        return ",".join(f"{f.name}={_text(getattr(self, f.name))}" for f in fields(self))


DEFAULT_WEIGHTS = PolicyWeights()


def _text(value: float | bool) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    short = f"{value:g}"
    return short if float(short) == value else repr(value)  # what was recorded must come back as it was


def parse_weights(text: str) -> PolicyWeights:
    """`others=0.5,moves=off`: what is not named keeps its default. Raises `ConfigError`."""
    out = DEFAULT_WEIGHTS
    kinds = {f.name: isinstance(getattr(out, f.name), bool) for f in fields(out)}
    seen: set[str] = set()
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise ConfigError(f"The weights '{text}' are unclear: write them as {DEFAULT_WEIGHTS}.")
        if name not in kinds:
            raise UnknownNameError("weight", name, list(kinds))
        if name in seen:
            raise ConfigError(f"The weights '{text}' name {name} twice: give it one value.")
        seen.add(name)
        change: dict[str, Any] = {name: _switch(name, value) if kinds[name] else _number(name, value)}
        out = replace(out, **change)
    out.validate()
    return out


def _switch(name: str, value: str) -> bool:
    if value not in _SWITCH:
        raise ConfigError(f"{name}={value} is unclear: use {name}=on or {name}=off.")
    return _SWITCH[value]


def _number(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ConfigError(f"{name}={value} is no number: use one such as {name}=0.5.") from None
