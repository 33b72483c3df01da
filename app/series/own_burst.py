"""The user's own burst: what the form says, in words and as the JSON that the command line reads. No Qt."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import ConfigError
from engine.paths import data_dir, make_folder


@dataclass(frozen=True, slots=True)
class OwnBurst:
    """`count` prompts `gap_ms` apart; the first `shared` tokens of each are the same ones."""

    count: int
    gap_ms: int
    prompt: int
    shared: int
    warm: bool  # what is shared is in every cache before the clock starts
    reply: int

    def name(self) -> str:
        shared = f"-{self.shared}{'warm' if self.warm else 'shared'}" if self.shared else ""
        return f"own-{self.count}x{self.prompt}{shared}-{self.reply}out-{self.gap_ms}ms"

    def words(self) -> str:
        prompts = "1 prompt" if self.count == 1 else f"{self.count} prompts"
        parts = [f"{prompts} of {self.prompt:,} tokens"]
        if self.shared:
            where = "in every cache before the start" if self.warm else "computed once, then shared"
            parts.append(f"the first {self.shared:,} alike and {where}")
        parts.append(f"{self.reply:,} tokens out each")
        if self.count > 1:
            parts.append(f"{self.gap_ms:,} ms apart")
        return ", ".join(parts) + "."

    def data(self) -> dict[str, Any]:
        """As `--trace FILE` reads it."""
        one: dict[str, Any] = {"prompt_tokens": self.prompt, "max_new_tokens": self.reply}
        if self.shared:
            one |= {"prefix": "shared", "prefix_tokens": self.shared}
        requests = [{"at_s": i * self.gap_ms / 1000, **one} for i in range(self.count)]
        return {"requests": requests, "warm": bool(self.shared and self.warm)}

    def save(self, path: Path | None = None) -> Path:
        """Write it, by default where bursts are kept. Raises `ConfigError`."""
        path = path or make_folder(data_dir() / "bursts") / f"{self.name()}.json"
        try:
            path.write_text(json.dumps(self.data(), indent=1) + "\n", "utf-8")
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be written ({error.strerror}): choose another place."
            ) from error
        return path
