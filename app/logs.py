"""The window's log file: rotating, 5 x 2 MB, never any text of a prompt."""

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path

from engine.errors import EngineError
from engine.paths import log_dir, make_folder

BYTES, FILES = 2_000_000, 5
TAIL_BYTES = 64_000


def log_path() -> Path:
    return log_dir() / "window.log"


def open_log() -> None:
    """Warnings and the life of backends go to the file; without a folder for it, only to stderr."""
    try:
        make_folder(log_dir())
        handler = RotatingFileHandler(
            log_path(), maxBytes=BYTES, backupCount=FILES - 1, encoding="utf-8", delay=True
        )
    except (EngineError, OSError) as error:
        logging.getLogger(__name__).warning("no log file: %s", error)
        return
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    logging.getLogger("app").setLevel(logging.INFO)


def tail() -> str:
    """The end of the log, or a sentence where there is none."""
    path = log_path()
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return "Nothing has been logged yet."
    except OSError as error:
        return f"The log cannot be read: {error.strerror}."
    return text if len(text) < TAIL_BYTES else text[text.index("\n") + 1 :]
