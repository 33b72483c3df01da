"""Where Offramp keeps its files. Nothing is created until someone asks for a folder here.

`OFFRAMP_DATA_DIR`, `OFFRAMP_MODELS_DIR`, `OFFRAMP_CACHE_DIR`, `OFFRAMP_CONFIG_DIR` and `OFFRAMP_LOG_DIR`
override the system's choice.
"""

import os
from pathlib import Path

import platformdirs

from engine.errors import ConfigError

_APP = "offramp"


def data_dir() -> Path:
    """Models, chats and runs: what a user would miss."""
    return _folder("OFFRAMP_DATA_DIR", platformdirs.user_data_dir(_APP, appauthor=False))


def cache_dir() -> Path:
    """Converted tokenizers, calibrations, bake-offs: what can be made again."""
    return _folder("OFFRAMP_CACHE_DIR", platformdirs.user_cache_dir(_APP, appauthor=False))


def config_dir() -> Path:
    """`settings.json`."""
    return _folder("OFFRAMP_CONFIG_DIR", platformdirs.user_config_dir(_APP, appauthor=False))


def log_dir() -> Path:
    """Rotating log files, one a process."""
    return _folder("OFFRAMP_LOG_DIR", platformdirs.user_log_dir(_APP, appauthor=False))


def models_dir() -> Path:
    """Downloaded models, one folder a catalogue name."""
    return _folder("OFFRAMP_MODELS_DIR", str(data_dir() / "models"))


def make_folder(path: Path) -> Path:
    """Create `path` with its parents; `ConfigError` where that is not allowed."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The folder {path} cannot be created ({error.strerror}): "
            "free the path, or set OFFRAMP_DATA_DIR and OFFRAMP_CACHE_DIR to folders that can be written."
        ) from error
    return path


def _folder(variable: str, default: str) -> Path:
    override = os.environ.get(variable)
    return Path(override).expanduser().absolute() if override else Path(default)
