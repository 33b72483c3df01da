"""Configuration that never changes after it is built, with derived properties."""

from dataclasses import dataclass, replace

from engine.errors import ConfigError, ReloadError, UnknownNameError
from engine.request import BackendName
from engine.weights import PolicyWeights

BLOCK_TOKENS = 16
SCHEDULING_POLICIES = ("fcfs", "shortest-prefill-first", "round-robin")
TOKEN_BUDGET = 512  # of a step
# CUDA computes a prompt of 512 tokens in 3 ms: with 512 in all, rows that decode cut every prompt in two.
CUDA_TOKEN_BUDGET = 2048
METAL_TOKENS = 512  # a step's at most: the window server kills long command buffers (omlx#1387)
MOST_SLOTS = 256
AUTO_SLOTS = 8  # with `--slots auto`: what calibration may use, before the step curve says how many pay
FORMATS = ("auto", "float32", "bf16", "int8", "int4", "int8-dynamic")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a backend may do at once. Both can change between two of its steps."""

    slots: int  # requests that are active
    token_budget: int  # tokens of a step


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
    token_budget: int = TOKEN_BUDGET
    scheduling: str = "fcfs"

    def validate(self) -> None:
        for label, value in (("threads", self.threads), ("slots", self.slots)):
            if not 1 <= value <= MOST_SLOTS:
                raise ConfigError(f"{label} of {self.name} is {value}: use a number from 1 to 256.")
        if self.token_budget < self.slots:
            raise ConfigError(
                f"{self.name} has {self.slots} slots and a token budget of {self.token_budget}: "
                "use a budget of at least one token a slot."
            )
        if self.format not in FORMATS:
            raise UnknownNameError("format", self.format, FORMATS)
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
    def limits(self) -> Limits:
        """Those that it starts with."""
        metal = self.device == "mps"
        return Limits(self.slots, min(self.token_budget, METAL_TOKENS) if metal else self.token_budget)

    @property
    def most_slots(self) -> int:
        """How many it can be given while it runs."""
        return MOST_SLOTS if self.emulated else self.slots

    @property
    def label(self) -> str:
        """The word on the screen: cpu -> CPU, cpu-1 -> CPU 1, gpu -> GPU."""
        head, _, tail = self.name.partition("-")
        return f"{head.upper()} {tail}".strip()


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """What the user asked for, before the machine is known. `choose_backends` turns it into specs."""

    wanted: str = "auto"  # "auto", or a list such as "cpu,cpu" or "cpu,cuda:0,cuda:1"
    format: str = "auto"
    threads: int | None = None  # per CPU backend; None = the thread plan
    slots: str = "4"  # a number for every backend, or "gpu=1,cpu=4", or "auto"
    kv_blocks: int = 384
    token_budget: int | None = None  # None = what suits the device
    scheduling: str = "fcfs"

    def budget_of(self, device: str) -> int:
        """Tokens a step on `device`: as asked for, else 2,048 on CUDA and 512 elsewhere."""
        if self.token_budget is not None:
            return self.token_budget
        return CUDA_TOKEN_BUDGET if device.startswith("cuda") else TOKEN_BUDGET

    def slots_of(self, name: str, default: int = 4) -> int:
        """Slots of one backend by name or by the kind it starts with; with "auto" the most to begin with."""
        if self.slots == "auto":
            return AUTO_SLOTS
        chosen = default
        for part in self.slots.split(","):
            key, _, value = part.rpartition("=")
            if not value.strip().isdecimal() or not 1 <= int(value) <= MOST_SLOTS:
                raise ConfigError(
                    f"--slots {self.slots} is unclear: use a number from 1 to 256, auto, or gpu=1,cpu=4."
                )
            if key.strip() in ("", name) or (name.startswith(f"{key.strip()}-")):
                chosen = int(value)
        return chosen

    def check_slot_names(self, names: list[str]) -> None:
        """Refuse a `--slots` entry that names no backend."""
        if self.slots == "auto":
            return
        for part in self.slots.split(","):
            key = part.rpartition("=")[0].strip()
            if key and not any(n == key or n.startswith(f"{key}-") for n in names):
                raise UnknownNameError("backend", key, names)


def live_limits(spec: BackendSpec, options: BackendOptions, usual_slots: int) -> Limits:
    """What `options` ask of a backend that runs; `usual_slots` where they do not name it.

    Raises `ReloadError` for more than a real backend was started with: its kernels were prepared and its step
    times measured for so much. An emulated one has nothing to prepare. Raises `ConfigError` for nonsense.
    """
    wanted = replace(
        spec, slots=options.slots_of(spec.name, usual_slots), token_budget=options.budget_of(spec.device)
    )
    wanted.validate()
    if wanted.slots > spec.most_slots:
        raise ReloadError(f"{spec.label} was prepared for {spec.slots} slots: more take a reload.")
    if wanted.limits.token_budget > spec.limits.token_budget and not spec.emulated:
        words = f"{spec.label} was prepared for {spec.limits.token_budget:,} tokens a step"
        raise ReloadError(f"{words}: more take a reload.")
    return wanted.limits


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything the engine needs before it starts."""

    model: str = "smollm2-135m-instruct"  # catalogue name, GGUF file or model folder
    policy: str = "total-delay"
    weights: PolicyWeights = PolicyWeights()  # of that policy
    options: BackendOptions = BackendOptions()
    context_tokens: int = 4096
    emulate: str | None = None  # profile name; the backends then only wait
    load_format: str = "auto"  # "dummy" gives random weights of `architecture`
    architecture: str | None = None
    seed: int = 0
    calibrate: bool = True  # measure isolated rates when none are kept
