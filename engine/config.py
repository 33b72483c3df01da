"""Configuration that never changes after it is built, with derived properties."""

from dataclasses import dataclass, field
from pathlib import Path

from engine.errors import ConfigError
from engine.request import BackendName

BLOCK_TOKENS = 16
SCHEDULING_POLICIES = ("fcfs", "shortest-prefill-first", "round-robin")
FORMATS = ("auto", "float32", "bf16", "int8", "int4")


@dataclass(frozen=True, slots=True)
class BackendSpec:
    """One backend: where it computes and how much it may hold."""

    name: BackendName
    kind: str  # "cpu" or "gpu": the word on the screen
    device: str  # "cpu", "cuda:0", "mps", or "emulated"
    threads: int = 1
    format: str = "auto"  # one of FORMATS
    slots: int = 4
    kv_blocks: int = 384
    token_budget: int = 512
    scheduling: str = "fcfs"

    def validate(self) -> None:
        for label, value in (("threads", self.threads), ("slots", self.slots)):
            if not 1 <= value <= 256:
                raise ConfigError(f"{label} of {self.name} is {value}: use a number from 1 to 256.")
        if not 16 <= self.token_budget <= 65536:
            raise ConfigError(f"The token budget of {self.name} is {self.token_budget}: use 16 to 65,536.")
        if not 2 <= self.kv_blocks <= 1_000_000:
            raise ConfigError(f"The KV pool of {self.name} has {self.kv_blocks} blocks: use 2 to 1,000,000.")
        if self.scheduling not in SCHEDULING_POLICIES:
            raise ConfigError(
                f"There is no scheduling policy '{self.scheduling}': "
                f"choose one of {', '.join(SCHEDULING_POLICIES)}."
            )

    @property
    def emulated(self) -> bool:
        return self.device == "emulated"

    @property
    def label(self) -> str:
        """The word on the screen: cpu -> CPU, cpu-1 -> CPU 1, gpu -> GPU."""
        head, _, tail = self.name.partition("-")
        return f"{head.upper()} {tail}".strip()


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything the engine needs before it starts."""

    backends: tuple[BackendSpec, ...]
    model: str = "smollm2-135m-instruct"  # catalogue name, GGUF file or model folder
    policy: str = "isolated-rates"
    context_tokens: int = 4096
    emulate: str | None = None  # profile name; the backends then only wait
    load_format: str = "auto"  # "dummy" gives random weights of `architecture`
    architecture: str | None = None
    seed: int = 0
    data_dir: Path | None = None
    calibrate: bool = True  # measure isolated rates when none are cached
    extra: dict[str, str] = field(default_factory=dict)
