"""Convert a model's tokenizer once, in a child process: this one needs neither transformers nor torch.

`python -m engine.models.prepare MODEL OUT_DIR` writes what `engine.text.TextCodec` reads: tokenizer.json,
chat_template.jinja and meta.json. `prepared` calls it and keeps the result in the cache.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from engine.errors import EngineError, ModelFileError, UnsupportedModelError
from engine.events import SetupStep
from engine.models.download import OnProgress
from engine.models.inspect import inspect_model
from engine.paths import cache_dir, make_folder
from engine.text import META_VERSION

_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
)
# Exit codes of the child whose last line on stderr is a sentence for the user.
_REFUSALS: dict[int, type[EngineError]] = {3: UnsupportedModelError, 4: ModelFileError}

# Tokens that end a turn or a text in the known chat formats, beside the one the tokenizer itself names.
_ENDS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|end|>", "<end_of_turn>", "</s>")


def prepared(
    model: Path, on_progress: OnProgress | None = None, check: Callable[[], None] = lambda: None
) -> Path:
    """The folder for `TextCodec.load`, made on first use (some seconds), cached by the file's identity.

    `check` is called meanwhile; an exception from it ends the work and passes on. Raises `ModelFileError` or
    `UnsupportedModelError`.
    """
    folder = cache_dir() / "tokenizers" / identity(model)
    if (folder / "meta.json").is_file():
        return folder
    make_folder(folder.parent)
    with FileLock(folder.with_name(folder.name + ".lock")):
        if not (folder / "meta.json").is_file():
            step = SetupStep("tokenizer", "Converting the tokenizer", "once per model, a few seconds")
            _tell(on_progress, step)
            try:
                _in_child(model, folder, check)
            except EngineError as error:
                _tell(on_progress, SetupStep(step.key, step.title, str(error), "failed"))
                raise
            _tell(on_progress, SetupStep(step.key, step.title, "", "done"))
    return folder


def identity(model: Path) -> str:
    """A name that changes when the model's files, or this converter, change."""
    files = [model] if model.is_file() else [model / name for name in _FILES]
    facts: list[object] = [META_VERSION, str(model.resolve())]
    for file in files:
        if file.is_file():
            status = file.stat()
            facts.append((file.name, status.st_size, status.st_mtime_ns))
    if len(facts) == 2:
        raise ModelFileError(f"There is no model at {model}: check the path.")
    return hashlib.blake2b(repr(facts).encode(), digest_size=12).hexdigest()


def _in_child(model: Path, folder: Path, check: Callable[[], None]) -> None:
    temporary = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    command = [sys.executable, "-m", "engine.models.prepare", str(model), str(temporary)]
    try:
        code, told = _watched(command, check)
        lines = told.strip().splitlines() or ["no message"]
        if refusal := _REFUSALS.get(code):
            raise refusal(lines[-1])
        if code:
            raise ModelFileError(
                f"The tokenizer of {model.name} cannot be converted ({lines[-1]}): use another file."
            )
        shutil.rmtree(folder, ignore_errors=True)  # without meta.json: left by a crash
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _watched(command: list[str], check: Callable[[], None]) -> tuple[int, str]:
    """Run it to its end, or to the first exception from `check`. (exit code, what it said on stderr)"""
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as child:
        try:
            while True:
                try:
                    told = child.communicate(timeout=0.1)[1]
                    return child.returncode, told
                except subprocess.TimeoutExpired:
                    check()
        except BaseException:
            child.kill()
            raise


def _tell(on_progress: OnProgress | None, step: SetupStep) -> None:
    if on_progress is not None:
        on_progress(step)


def convert(model: Path, out: Path) -> None:
    """The work itself, in the child. Imports transformers; meta.json is written last."""
    shape = inspect_model(model)  # refuses what cannot run before seconds go into an import
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # everything is in the file
    from transformers import AutoTokenizer

    place = {"gguf_file": model.name} if model.is_file() else {}
    with plain_memmaps():
        tokenizer = AutoTokenizer.from_pretrained(
            model.parent if model.is_file() else model, local_files_only=True, **place
        )
    if not tokenizer.is_fast:
        raise UnsupportedModelError(
            f"{model.name} has a tokenizer that only runs in Python: use another model."
        )
    backend = tokenizer.backend_tokenizer
    if model.is_file():
        _repair(backend, model)
    out.mkdir(parents=True, exist_ok=True)
    backend.save(str(out / "tokenizer.json"))
    if isinstance(tokenizer.chat_template, str):
        (out / "chat_template.jinja").write_text(tokenizer.chat_template, encoding="utf-8")
    vocabulary = backend.get_vocab(with_added_tokens=True)
    ends = {tokenizer.eos_token_id, *shape.eos_ids, *_generation_ends(model)}
    ends |= {vocabulary.get(token) for token in _ENDS}
    meta = {
        "version": META_VERSION,
        "vocab_size": shape.vocab,
        "max_context": shape.max_context,
        "bos_id": tokenizer.bos_token_id,
        "eos_ids": sorted(end for end in ends if end is not None),
        "add_bos": _adds_bos(tokenizer),
        "special_ids": sorted(_special_ids(backend)),
        "special_tokens": {k: v for k, v in tokenizer.special_tokens_map.items() if isinstance(v, str)},
        "byte_level": json.loads(backend.to_str())["decoder"].get("type") == "ByteLevel",
    }
    (out / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")


@contextmanager
def plain_memmaps() -> Iterator[None]:
    """`numpy.memmap` gives plain arrays meanwhile: the gguf library takes a million slices of one, and each
    slice of a memmap costs four times that of an array over the same pages."""
    import numpy as np

    usual = np.memmap

    def plain(*arguments: Any, **options: Any) -> Any:
        return usual(*arguments, **options).view(np.ndarray)

    setattr(np, "memmap", plain)  # noqa: B010
    try:
        yield
    finally:
        setattr(np, "memmap", usual)  # noqa: B010


def _repair(backend: Any, model: Path) -> None:
    """SmolLM2 was trained with every digit apart; the conversion from GGUF leaves that rule out."""
    from tokenizers import pre_tokenizers

    from engine.models.gguf import GgufFile

    file = GgufFile(model)
    kind = file.metadata.get("tokenizer.ggml.pre")
    file.close()
    if kind == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, backend.pre_tokenizer])


def _adds_bos(tokenizer: Any) -> bool:
    ids = tokenizer("a").input_ids
    return tokenizer.bos_token_id is not None and ids[:1] == [tokenizer.bos_token_id]


def _special_ids(backend: Any) -> set[int]:
    return {number for number, token in backend.get_added_tokens_decoder().items() if token.special}


def _generation_ends(model: Path) -> list[int]:
    """End ids that a folder's generation_config.json names."""
    path = model / "generation_config.json"
    if not path.is_file():
        return []
    found = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
    return found if isinstance(found, list) else [found]


if __name__ == "__main__":
    try:
        convert(Path(sys.argv[1]), Path(sys.argv[2]))
    except EngineError as failure:
        sys.stderr.write(f"\n{failure}\n")
        sys.exit(3 if isinstance(failure, UnsupportedModelError) else 4)
