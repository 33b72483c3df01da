"""Errors that a user or a file can cause. Each message is one sentence that says what to do.

Programming mistakes are not here: they are `assert`s and built-in exceptions, and do show a traceback.
"""


class EngineError(Exception):
    """Something outside the code is wrong. `str(error)` is the whole message for the user."""


class ConfigError(EngineError):
    """An option or a setting has a value that cannot be used."""


class ReloadError(ConfigError):
    """A setting that running backends cannot take: it counts once the engine has been loaded again."""


class UnknownNameError(ConfigError):
    """A preset, policy, backend, profile or model name that does not exist."""

    def __init__(self, what: str, name: str, known: list[str] | tuple[str, ...]) -> None:
        self.what, self.name, self.known = what, name, tuple(known)
        super().__init__(f"There is no {what} named '{name}': choose one of {', '.join(known)}.")


class ModelFileError(EngineError):
    """A model file is missing, truncated or not what it claims to be."""


class UnsupportedModelError(EngineError):
    """A readable model whose architecture or tensor type the engine cannot run."""


class FetchError(EngineError):
    """A download failed: no network, no space, or a wrong checksum."""


class PromptError(EngineError):
    """An empty prompt, or one that does not fit the context."""


class SamplingError(EngineError):
    """A sampling value outside its range."""


class BackendError(EngineError):
    """A backend could not start, or died."""


class ProfileError(EngineError):
    """A profile is missing or malformed, or a calibration failed."""
