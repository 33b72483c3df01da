"""Every burst leaves a file, a JSON object a line: first the head, then steps and requests, last the result.

Prompts are there as block hashes only: enough to know what shares what, nothing that can be read.
A replay builds prompts that share in the same way and runs them on the simulator with the run's own profile.
"""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from engine import __version__
from engine.config import BLOCK_TOKENS
from engine.errors import ConfigError, ModelFileError, ProfileError
from engine.kv.prefix import extend_chain, root_hash
from engine.ledger import Entry
from engine.paths import data_dir, make_folder
from engine.profiling.profile import Profile, parse_profile, profile_json
from engine.request import FinishReason, SamplingParams
from engine.step_report import StepReport
from engine.weights import DEFAULT_WEIGHTS, PolicyWeights, parse_weights
from engine.workloads.presets import PlannedRequest, Workload

FORMAT, VERSION = "offramp-run", 1
EARLY = (FinishReason.ERROR, FinishReason.ABORT)  # of requests that did not end by themselves
_SALT = "recorded"


def runs_dir() -> Path:
    return data_dir() / "runs"


def prompt_blocks(prompt: Sequence[int]) -> list[str]:
    """Short chained hashes of the whole blocks of a prompt: equal as far as two prompts are."""
    chain = extend_chain([], root_hash(_SALT), prompt, len(prompt) // BLOCK_TOKENS)
    return [h.hex()[:12] for h in chain]


class Recorder:
    """Writes one run as it happens. A run that is cut short is still readable up to there."""

    def __init__(self, head: dict[str, Any]) -> None:
        folder = make_folder(runs_dir())
        stamp = time.strftime("%Y%m%d-%H%M%S")
        self.path = folder / f"{stamp}-{head['preset']}-{head['run_id'][:8]}.jsonl"
        self._file: IO[str] = self.path.open("w", encoding="utf-8")
        self._line({"format": FORMAT, "version": VERSION, "offramp": __version__, **head})

    def step(self, report: StepReport) -> None:
        """Features and times of a step that computed something."""
        if report.decode_rows or report.prefill_tokens:
            self._line(
                {
                    "step": report.backend,
                    "start_s": round(report.started_s, 6),
                    "end_s": round(report.finished_s, 6),
                    "n": report.decode_rows,
                    "K": report.context_tokens,
                    "P": report.prefill_tokens,
                    "C": report.prefill_attention,
                    "chunks": report.prefill_chunks,
                }
            )

    def request(self, entry: Entry, offset_s: float) -> None:
        """A request that ended. The times of its tokens count from its submission."""
        request = entry.request
        self._line(
            {
                "request": entry.number,
                "offset_s": round(offset_s, 6),
                "tag": request.tag,
                "prompt_tokens": request.prompt_tokens,
                "blocks": prompt_blocks(request.prompt),
                "max_new_tokens": request.sampling.max_new_tokens,
                "ignore_eos": request.sampling.ignore_eos,
                "output_tokens": len(entry.tokens),
                "backend": entry.backend,
                "finish_reason": entry.reason,
                "token_times_s": [round(s - request.arrival_s, 6) for s in entry.token_times_s],
            }
        )

    def close(self, result: dict[str, object] | None) -> None:
        if result is not None:
            self._line({"result": result})
        self._file.close()

    def _line(self, data: dict[str, Any]) -> None:
        self._file.write(json.dumps(data, separators=(",", ":")) + "\n")
        if "step" not in data:
            self._file.flush()


@dataclass(frozen=True, slots=True)
class Run:
    """A run read back."""

    head: dict[str, Any]
    workload: Workload
    profile: Profile | None  # None when its backends were not calibrated
    steps: tuple[dict[str, Any], ...]
    result: dict[str, Any] | None  # None when it was cut short


def find_run(name: str) -> Path:
    """A run by path, by the start of its id or file name, or "last". Raises `ModelFileError`."""
    path = Path(name)
    if path.is_file():
        return path
    runs = sorted(runs_dir().glob("*.jsonl"))
    found = runs[-1:] if name == "last" else [r for r in runs if name in r.name]
    if not found:
        raise ModelFileError(f"There is no run '{name}': name a file, the start of its id, or last.")
    return found[-1]


def read_head(path: Path) -> dict[str, Any]:
    """The first line of a run file. Raises `ModelFileError` saying why it is none that this version reads."""
    try:
        with path.open(encoding="utf-8") as file:
            return _checked_head(json.loads(file.readline()), path)
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFileError(f"{path} cannot be read ({error}): name a run file.") from error
    except (ValueError, AttributeError) as error:
        raise ModelFileError(f"{path} is no Offramp run: its first line does not say so.") from error


def _checked_head(head: dict[str, Any], path: Path) -> dict[str, Any]:
    if head.get("format") != FORMAT:
        raise ModelFileError(f"{path} is no Offramp run: its first line does not say so.")
    if head.get("version") != VERSION:
        raise ModelFileError(
            f"{path} has version {head.get('version')} and this Offramp reads {VERSION}: "
            "open it with the version that wrote it."
        )
    return head


def read_run(path: Path) -> Run:
    """Read a run file. Raises `ModelFileError` naming the line that is wrong."""
    head: dict[str, Any] | None = None
    requests, steps, result = [], [], None
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFileError(f"{path} cannot be read ({error}): name a run file.") from error
    for number, line in enumerate(lines, 1):
        try:
            data = json.loads(line)
            if head is None:
                head = _checked_head(data, path)
            elif "request" in data:
                requests.append((data["request"], _planned(data)))
            elif "step" in data:
                steps.append(data)
            elif "result" in data:
                result = data["result"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if number == len(lines) > 1:
                break  # the last line of a run that was cut short
            raise ModelFileError(f"{path}, line {number} is not readable: record the run again.") from error
    if head is None or not requests:
        raise ModelFileError(f"{path} holds no finished request: nothing can be replayed.")
    requests.sort(key=lambda pair: pair[0])
    seeding = tuple(_prompt(s["blocks"], s["tokens"], -1) for s in head.get("seeding", []))
    workload = Workload(
        str(head["preset"]), int(head.get("seed", 0)), tuple(p for _, p in requests), seeding, "recorded"
    )
    profile = None
    if head.get("profile") is not None:
        profile = parse_profile(head["profile"], str(path))
    return Run(head, workload, profile, tuple(steps), result)


def ended_early(result: Mapping[str, Any]) -> tuple[int, int]:
    """Requests of a burst's result that ended with error, and that were stopped."""
    reasons = [r.get("finish_reason") for r in result.get("requests") or ()]
    failed, stopped = (reasons.count(reason) for reason in EARLY)
    return failed, stopped


def early_words(result: Mapping[str, Any]) -> str:
    """`1 of 8 requests ended with error, 2 were stopped`; "" where all ended by themselves."""
    failed, stopped = ended_early(result)
    if not failed and not stopped:
        return ""
    count = len(result["requests"])
    first = f"{failed or stopped:,} of {count:,} request{'' if count == 1 else 's'} "
    were = "was stopped" if stopped == 1 else "were stopped"
    if not failed:
        return first + were
    return first + "ended with error" + (f", {stopped:,} {were}" if stopped else "")


def refuse_early(result: Mapping[str, Any] | None, what: str) -> None:
    """Raises `ConfigError` for a burst of which some replies are not whole: `what` would compare them."""
    if result is not None and (words := early_words(result)):
        raise ConfigError(f"{words}: {what} needs a burst of which every request ended by itself.")


def calibrated(run: Run, path: Path) -> Profile:
    """The run's own profile. Raises `ProfileError` when it had none."""
    if run.profile is None:
        raise ProfileError(
            f"{path.name} ran on backends without step times: run `offramp profile`, then the burst again."
        )
    return run.profile


def recorded_weights(head: Mapping[str, Any]) -> PolicyWeights:
    """What `total-delay` weighed in a run, by its first line; older runs knew the default only.

    Raises `ConfigError` where the line says something that this version does not know.
    """
    return parse_weights(str(head["weights"])) if "weights" in head else DEFAULT_WEIGHTS


def seeding_json(seeding: Sequence[Sequence[int]]) -> list[dict[str, object]]:
    return [{"blocks": prompt_blocks(s), "tokens": len(s)} for s in seeding]


def head_json(
    run_id: str,
    workload: Workload,
    policy: str,
    model: str,
    emulated: bool,
    profile: Profile | None,
    weights: PolicyWeights = DEFAULT_WEIGHTS,
) -> dict[str, Any]:
    """The first line of a run."""
    return {
        "run_id": run_id,
        "preset": workload.preset,
        "seed": workload.seed,
        "capacity_rps": workload.capacity_rps,
        "policy": policy,
        "weights": str(weights),
        "model": model,
        "emulated": emulated,
        "date": time.strftime("%Y-%m-%dT%H:%M:%S"),
        "profile": profile_json(profile) if profile is not None else None,
        "seeding": seeding_json(workload.seeding),
    }


def _planned(data: dict[str, Any]) -> PlannedRequest:
    sampling = SamplingParams(
        temperature=0.0,
        top_p=1.0,
        max_new_tokens=int(data["max_new_tokens"]),
        ignore_eos=bool(data["ignore_eos"]),
    )
    output = int(data["output_tokens"])
    hidden = None if sampling.ignore_eos and output == sampling.max_new_tokens else max(1, output)
    prompt = _prompt(data["blocks"], int(data["prompt_tokens"]), int(data["request"]))
    return PlannedRequest(float(data["offset_s"]), prompt, sampling, str(data["tag"]), hidden)


def _prompt(blocks: Sequence[str], tokens: int, number: int) -> tuple[int, ...]:
    """Token ids that share whole blocks exactly as the recorded prompt did; the rest is its own."""
    ids: list[int] = []
    for block in blocks:
        digest = hashlib.blake2b(block.encode(), digest_size=4 * BLOCK_TOKENS).digest()
        ids += [int.from_bytes(digest[i : i + 4], "little") >> 1 for i in range(0, len(digest), 4)]
    return tuple(ids + [number * 64 + i + 1 for i in range(tokens - len(ids))])
