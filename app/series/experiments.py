"""What the dialog of experiments offers: which, on what profile, how thoroughly. No Qt."""

from dataclasses import dataclass

from app.series.choices import Choice

QUICK, FULL = "quick", "full"
MEASURED = "this machine, measured"


@dataclass(frozen=True, slots=True)
class Experiment:
    """`arguments` are those of the command line; `about` says what it answers."""

    key: str
    title: str
    about: str
    arguments: tuple[str, ...]


EXPERIMENTS = (
    Experiment("map", "Offload map", "Where does sending to the slower backend pay?", ("map",)),
    Experiment("slots", "Sweep of slots", "How many requests at once serve best?", ("sweep", "slots")),
    Experiment("rate", "Sweep of arrival rate", "From a fifth of capacity to beyond it.", ("sweep", "rate")),
    Experiment(
        "hit-rate", "Sweep of cache hits", "From nothing to nearly all cached.", ("sweep", "hit-rate")
    ),
    Experiment("prompt", "Sweep of prompt length", "Short to long prompts, cold.", ("sweep", "prompt")),
    Experiment("output", "Sweep of reply length", "Short to long replies.", ("sweep", "output")),
    Experiment("kv", "Sweep of cache size", "When do prefixes stay?", ("sweep", "kv")),
)
DEPTHS = (
    Choice(QUICK, QUICK, "Few points: a minute or two."),
    Choice(FULL, FULL, "Every point, more runs each: many minutes."),
)


def profile_choices() -> list[Choice]:
    """This machine's calibration where there is one, then what ships, then the machine itself."""
    from engine.errors import EngineError
    from engine.profiling.profile import load_profile, local_profile_path, published_profiles

    names = (["local"] if local_profile_path().is_file() else []) + list(published_profiles())
    out = []
    for name in names:
        try:
            out.append(Choice(name, name, load_profile(name).title))
        except EngineError:
            continue  # a calibration of another version: the command says so
    note = "Real runs on the window's backends. Its model is unloaded meanwhile, and comes back."
    return [*out, Choice(MEASURED, MEASURED, note)]
