"""A model from the Hugging Face hub, through huggingface_hub, which resumes by itself."""

import errno
import logging
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path

from engine.errors import FetchError
from engine.models.catalog import SAFETENSORS_FILES, HubSource, ModelEntry, size_on_disk
from engine.models.disk import disk_error, require_space
from engine.models.download import OnProgress, Progress
from engine.paths import make_folder


def from_hub(entry: ModelEntry, source: HubSource, target: Path, on_progress: OnProgress | None) -> None:
    """Download into the ".partial" folder, where a later try goes on, and rename. Raises `FetchError` or
    `ModelFileError`."""
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
        failure = disk_error(error, partial, entry.size_bytes)
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
