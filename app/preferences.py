"""What the engine is started with. Precedence: command line > OFFRAMP_* > settings.json > default. No Qt."""

import json
import logging
import os
from argparse import SUPPRESS, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.config import SCHEDULING_POLICIES
from engine.errors import ConfigError
from engine.paths import config_dir, make_folder
from engine.weights import parse_weights

log = logging.getLogger(__name__)
VERSION = 1
# key in settings.json and on the command line -> the type of its value; None may be saved as well
KEYS: dict[str, type] = {
    "model": str,
    "backends": str,
    "threads": int,
    "slots": str,
    "kv_blocks": int,
    "token_budget": int,
    "scheduling": str,
    "context": int,
    "weights": str,
}
MOST = {"threads": 1024, "kv_blocks": 1_000_000, "token_budget": 65_536, "context": 1_048_576}


def settings_path() -> Path:
    return config_dir() / "settings.json"


def _good(key: str, value: object) -> bool:
    """Of the right type and in a sane range. Whether it fits this machine the engine says."""
    if key not in KEYS or isinstance(value, bool) or not isinstance(value, KEYS[key]):
        return False
    if isinstance(value, int):
        return 1 <= value <= MOST[key]
    if key == "scheduling":
        return value in SCHEDULING_POLICIES
    if key == "weights":
        return _are_weights(str(value))
    return 0 < len(str(value)) < 4096


def _are_weights(text: str) -> bool:
    try:
        parse_weights(text)
    except ConfigError:
        return False
    return True


class Preferences:
    """The saved choices of the user. A bad key is dropped, the others stay; another version is ignored."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or settings_path()
        self.values: dict[str, object] = {}
        self.problem = ""  # why nothing could be read
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            self.problem = f"{self.path} cannot be read ({error}): the defaults are used."
            return
        if not isinstance(data, dict) or data.get("version") != VERSION:
            self.problem = f"{self.path} is of another version of Offramp: the defaults are used."
            return
        for key, value in data.items():
            if _good(key, value):
                self.values[key] = value
            elif key != "version":
                log.warning("%s: %s is dropped", self.path, key)

    def change(self, changes: Mapping[str, object]) -> None:
        """Keep these; None takes one away. Raises `ConfigError` where the file cannot be written."""
        for key, value in changes.items():
            if value is None:
                self.values.pop(key, None)
            elif _good(key, value):
                self.values[key] = value
        make_folder(self.path.parent)
        temporary = self.path.with_suffix(".json.part")
        try:
            text = json.dumps({"version": VERSION, **self.values}, indent=2)
            temporary.write_text(text + "\n", encoding="utf-8")
            os.replace(temporary, self.path)
        except OSError as error:
            raise ConfigError(
                f"The settings were not saved ({error.strerror}): make {self.path.parent} writable."
            ) from error


def from_environment(variables: Mapping[str, str]) -> dict[str, object]:
    """`OFFRAMP_MODEL`, `OFFRAMP_SLOTS` and so on, as far as they make sense."""
    out: dict[str, object] = {}
    for key, kind in KEYS.items():
        text = variables.get(f"OFFRAMP_{key.upper()}", "")
        value: object = int(text) if kind is int and text.isdecimal() else text
        if text and _good(key, value):
            out[key] = value
    return out


def given_on_command_line(argv: Sequence[str]) -> set[str]:
    """Names of the options that were really typed."""
    from engine.cli import window_parser

    parser = window_parser()
    for action in parser._actions:
        action.default = SUPPRESS
    return set(vars(parser.parse_args(list(argv))))


def effective(
    args: Namespace, given: set[str], saved: Mapping[str, object], variables: Mapping[str, str]
) -> Namespace:
    """`args` with what the command line left open filled from the environment, then from settings.json."""
    values = {**saved, **from_environment(variables)}
    return Namespace(**{**vars(args), **{k: v for k, v in values.items() if k not in given}})
