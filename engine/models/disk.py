"""Room on disk for a model: asked before a download, and told in words when a write fails."""

import errno
import shutil
from pathlib import Path

from engine.errors import EngineError, FetchError, ModelFileError


def require_space(folder: Path, need_bytes: int) -> None:
    """Raise `FetchError` when the disk of `folder` has not `need_bytes` and a twentieth to spare."""
    free = shutil.disk_usage(folder).free
    if free < need_bytes * 1.05:
        raise no_space(folder, need_bytes, free)


def no_space(folder: Path, need_bytes: int, free_bytes: int) -> FetchError:
    return FetchError(
        f"The disk of {folder} has {free_bytes / 1e6:,.0f} MB free, {need_bytes / 1e6:,.0f} MB are needed: "
        "free some space, or set OFFRAMP_DATA_DIR and OFFRAMP_CACHE_DIR to another disk."
    )


def disk_error(error: OSError, folder: Path, need_bytes: int) -> EngineError:
    """What to tell the user of a write into `folder` that failed; `need_bytes` is the room it wanted."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return no_space(folder, need_bytes, shutil.disk_usage(folder).free)
    return ModelFileError(f"{folder} cannot be written ({error.strerror or error}): check its rights.")
