#!/usr/bin/env python3
"""Set Offramp up, run it, test it. Standard library only; starts on Python 3.9 and looks for a newer one.

    python3 packaging/dev.py run [-- arguments for offramp]
    python3 packaging/dev.py test [arguments for pytest, such as -k name or -n 0]
    python3 packaging/dev.py check
    python3 packaging/dev.py screenshots [folder]

`run` makes .venv, installs the pinned requirements, fetches the model and opens the window; the second time
it starts within seconds. `--cpu-torch` takes torch's CPU build on Linux (0.2 GB instead of 3 GB).
"""

import argparse
import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "offramp.stamp"
CONSTRAINTS = ROOT / "packaging" / "constraints.txt"
WINDOWS = os.name == "nt"
MODEL = "smollm2-135m-instruct"
TEST_WORKERS = 2  # each loads models of its own, up to 3 GB; more would also disturb the tests of real time
CPU_TORCH_INDEX = "https://download.pytorch.org/whl/cpu"

VERSIONS = ((3, 11), (3, 12), (3, 13))  # best tested first
GET_PYTHON = """Offramp needs Python 3.11, 3.12 or 3.13, and none was found. Get one:
  macOS            brew install python@3.12        or https://www.python.org/downloads/
  Debian, Ubuntu   sudo apt install python3 python3-venv
  Fedora           sudo dnf install python3.12
  Windows          winget install Python.Python.3.12
Then run this again."""

# What Qt's window needs from a Linux system: library -> Debian package.
LIBRARIES = {
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libxkbcommon.so.0": "libxkbcommon0",
    "libdbus-1.so.3": "libdbus-1-3",
}


class Stop(Exception):
    """Ends the program with a sentence and an exit code."""

    def __init__(self, message, code=1):
        super().__init__(message)
        self.code = code


def main(arguments):
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        description=__doc__.partition("\n\n")[0],
        usage="dev.py {run,test,check,screenshots} ...",
    )
    parser.add_argument("command", choices=("run", "test", "check", "screenshots"))
    parser.add_argument("--cpu-torch", action="store_true", help="torch's CPU build, on Linux")
    ours, rest = parser.parse_known_args(_before_dashes(arguments))
    rest += _after_dashes(arguments)
    try:
        if ours.command != "check":
            require_libraries()
        set_up(ours.cpu_torch)
        return {"run": run, "test": test, "check": check, "screenshots": screenshots}[ours.command](rest)
    except Stop as stop:
        print(stop, file=sys.stderr)
        return stop.code
    except KeyboardInterrupt:
        return 130


def _before_dashes(arguments):
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _after_dashes(arguments):
    return arguments[arguments.index("--") + 1 :] if "--" in arguments else []


# -- set-up


def set_up(cpu_torch=False):
    """Make .venv as pyproject.toml and constraints.txt want it; nothing to do if it is already so."""
    if STAMP.is_file() and STAMP.read_text() == fingerprint(venv_python()):
        return
    python = venv_python() if version_of(venv_python()) in VERSIONS else None
    if python is None:
        found = find_python()
        say("Making .venv with Python %d.%d" % version_of(found))
        if VENV.exists():
            shutil.rmtree(VENV)
        if subprocess.call([found, "-m", "venv", str(VENV)]):
            shutil.rmtree(VENV, ignore_errors=True)  # half a venv has no pip
            raise Stop("The venv could not be made. On Debian and Ubuntu: sudo apt install python3-venv")
        python = venv_python()
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check"]
    say("Installing the requirements (some minutes the first time)")
    if cpu_torch and sys.platform.startswith("linux"):
        call([*pip, "--index-url", CPU_TORCH_INDEX, "torch", "-c", str(CONSTRAINTS)], "torch's CPU build")
    call([*pip, "-e", ".[test]", "-c", str(CONSTRAINTS)], "the requirements")
    STAMP.write_text(fingerprint(python))


def fingerprint(python):
    """Changes when another installation would result. "" while there is no venv."""
    version = version_of(python)
    if version is None:
        return ""
    digest = hashlib.sha256(repr((version, str(ROOT))).encode())
    for file in (ROOT / "pyproject.toml", CONSTRAINTS):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def venv_python():
    return str(VENV / ("Scripts/python.exe" if WINDOWS else "bin/python"))


def find_python():
    """The first interpreter of a fitting version: this one, then those on PATH and in the usual places."""
    names = [sys.executable]
    for major, minor in VERSIONS:
        name = "python%d.%d" % (major, minor)
        names.append(shutil.which(name))
        for folder in ("/opt/homebrew/bin", "/usr/local/bin", "/usr/bin"):
            names.append(os.path.join(folder, name))
        names += sorted(
            str(p) for p in Path.home().glob(".pyenv/versions/%d.%d.*/bin/python" % (major, minor))
        )
        if WINDOWS and shutil.which("py"):
            listed = output(["py", "-%d.%d" % (major, minor), "-c", "import sys; print(sys.executable)"])
            names.append(listed.strip())
    names += [shutil.which("python3"), shutil.which("python")]
    for name in names:
        if name and version_of(name) in VERSIONS:
            return name
    raise Stop(GET_PYTHON)


def version_of(python):
    """(3, 11) and the like; None if it does not run (a pyenv shim, a venv whose base is gone)."""
    if not python or not os.path.exists(python):
        return None
    text = output([python, "-c", "import sys; print(*sys.version_info[:2])"])
    return tuple(int(part) for part in text.split()) or None


def require_libraries():
    """Qt reports a missing system library in words nobody can act on; say the package instead."""
    if not sys.platform.startswith("linux"):
        return
    missing = []
    for library, package in LIBRARIES.items():
        try:
            ctypes.CDLL(library)
        except OSError:
            missing.append(package)
    if missing:
        raise Stop(
            "The window needs system libraries that are not here. On Debian and Ubuntu:\n"
            "  sudo apt install -y %s\nElsewhere install %s by your distribution's names."
            % (" ".join(missing), ", ".join(name for name, p in LIBRARIES.items() if p in missing)),
            code=2,
        )


# -- the commands


def run(arguments):
    if not arguments or arguments[0].startswith("-"):  # the window, not a subcommand
        model = option(arguments, "--model") or MODEL
        needs_model = not any(
            a.partition("=")[0]
            in ("--emulate", "--load-format", "--help", "--help-window", "-h", "--version")
            for a in arguments
        )
        if needs_model and subprocess.call(in_venv("-m", "engine.models.fetch", model), cwd=str(ROOT)):
            return 1  # it has said why
    return subprocess.call(in_venv("-m", "app", *arguments), cwd=str(ROOT))


def check(arguments=()):
    """ruff, mypy and the import contracts; 0 when all agree."""
    failed = []
    scripts = str(Path(venv_python()).parent / "lint-imports")
    for name, command in (
        ("ruff", in_venv("-m", "ruff", "check", ".")),
        ("mypy", in_venv("-m", "mypy")),
        ("import-linter", [scripts, "--no-cache"]),
    ):
        say(name)
        if subprocess.call(command, cwd=str(ROOT)):
            failed.append(name)
    if failed:
        print("Not passed: " + ", ".join(failed), file=sys.stderr)
    return 1 if failed else 0


def test(arguments):
    """All checks, then the tests in two processes (`-n 0`: in one); pytest has the last word on screen."""
    checked = check()
    say("pytest")
    environment = dict(os.environ, QT_QPA_PLATFORM="offscreen")
    # Whole files, so that what a file's tests share is made once; `-n 0` or another number behind it wins.
    count = str(min(TEST_WORKERS, os.cpu_count() or 1))
    workers = ["-n", count, "--dist", "loadfile", "--no-loadscope-reorder"]
    tested = subprocess.call(in_venv("-m", "pytest", *workers, *arguments), cwd=str(ROOT), env=environment)
    return tested or checked


def screenshots(arguments):
    """Render every state of the window offscreen: both schemes, three sizes. The folder comes first."""
    if not arguments or arguments[0].startswith("-"):
        arguments = ["build/screenshots", *arguments]
    environment = dict(os.environ, QT_QPA_PLATFORM="offscreen")
    if subprocess.call(in_venv("-m", "app.gallery", *arguments), cwd=str(ROOT), env=environment):
        raise Stop("The pictures failed; what stands above tells why.")
    return 0


# -- small help


def in_venv(*arguments):
    return [venv_python(), *arguments]


def option(arguments, name):
    """The value of `--name value` or `--name=value`."""
    for index, argument in enumerate(arguments):
        if argument == name and index + 1 < len(arguments):
            return arguments[index + 1]
        if argument.startswith(name + "="):
            return argument.partition("=")[2]
    return None


def call(command, what):
    if subprocess.call(command, cwd=str(ROOT)):
        raise Stop("Installing %s failed; what pip says above tells why. Run this again afterwards." % what)


def output(command):
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    except OSError:
        return ""


def say(what):
    print("== " + what, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
