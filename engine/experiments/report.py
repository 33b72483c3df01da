"""Reports: one content, four forms: a self-contained HTML page, Markdown, CSV tables and results.json."""

import csv
import io
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from engine import __version__
from engine.errors import ConfigError
from engine.experiments.charts import Mark
from engine.experiments.page import page
from engine.paths import make_folder

Paint = Callable[[Path, Path], None]  # an SVG file to a PNG file
NO_PNG = "No PNG pictures: they need the window's Qt. The SVG files hold the same."


@dataclass(frozen=True, slots=True)
class Table:
    """A table. Cells are ready text; `notes` colours cells: (row, column) to good or bad."""

    name: str  # of its CSV file
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    tones: Mapping[tuple[int, int], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chart:
    name: str  # of its files
    drawing: str  # SVG


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    words: str = ""
    parts: tuple[Table | Chart, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """An experiment told: a headline, sentences, sections, and everything needed to repeat it."""

    kind: str  # compare, sweep-slots, map
    title: str
    headline: str
    tone: str  # good, bad or empty: colour of the headline's verdict
    summary: tuple[str, ...]
    sections: tuple[Section, ...]
    mark: Mark
    facts: tuple[tuple[str, str], ...]  # machine, model, versions, seeds
    commands: tuple[str, ...]  # to repeat it
    definitions: tuple[tuple[str, str], ...]


def machine_facts() -> tuple[tuple[str, str], ...]:
    """The machine and the versions that computed this."""
    versions = [f"offramp {__version__}", f"Python {platform.python_version()}"]
    for name in ("torch", "numpy", "scipy"):
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    cpu = platform.processor() or platform.machine()
    return (
        ("Machine", f"{platform.system()} {platform.release()}, {cpu}, {os.cpu_count()} cores"),
        ("Versions", ", ".join(versions)),
        ("Date", time.strftime("%Y-%m-%d %H:%M")),
    )


def write_report(folder: Path, report: Report, data: Mapping[str, Any], paint: Paint | None) -> list[str]:
    """Write every form of a report into `folder`; returns the names of what was written.

    Raises `ConfigError` where a file cannot be written.
    """
    make_folder(folder / "charts")
    written: list[str] = []

    def put(name: str, text: str) -> Path:
        path = folder / name
        part = path.with_suffix(f"{path.suffix}.part")
        part.write_text(text, "utf-8")
        os.replace(part, path)
        written.append(name)
        return path

    try:
        results = {
            "format": "offramp-experiment",
            "version": 1,
            "kind": report.kind,
            "mark": report.mark.text,
        }
        put("results.json", json.dumps({**results, **data}, indent=1) + "\n")
        for section in report.sections:
            for part in section.parts:
                if isinstance(part, Table):
                    put(f"{part.name}.csv", csv_text(part, report.mark))
                else:
                    drawn = put(f"charts/{part.name}.svg", part.drawing)
                    if paint is not None:
                        paint(drawn, drawn.with_suffix(".png"))
                        written.append(f"charts/{part.name}.png")
        put("report.md", markdown(report))
        put("report.html", page(report))
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written ({error.strerror}): free some space.") from error
    return written


def csv_text(table: Table, mark: Mark) -> str:
    """A table with plain minus signs; what is simulated says so in a column of its own."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    extra = ("mark",) if mark.strong else ()
    writer.writerow([*table.columns, *extra])
    for row in table.rows:
        cells = [c.replace("\u2212", "-") for c in row]
        writer.writerow([*cells, *((mark.text,) if mark.strong else ())])
    return out.getvalue()


def markdown(report: Report) -> str:
    """The report as Markdown, with the pictures beside it."""
    lines = [f"# {report.title}", ""]
    if report.mark.strong:
        lines += [f"**{report.mark.text}**", ""]
    lines += [f"**{report.headline}**", "", *(f"{s}\n" for s in report.summary)]
    for section in report.sections:
        lines += [f"## {section.title}", ""]
        lines += [section.words, ""] if section.words else []
        for part in section.parts:
            if isinstance(part, Chart):
                lines += [f"![{part.name}](charts/{part.name}.svg)", ""]
            else:
                lines += [*_markdown_table(part), ""]
    lines += ["## Repeat it", "", *(f"    {c}" for c in report.commands), ""]
    lines += [f"- {name}: {words}" for name, words in report.facts]
    lines += ["", "## Definitions", "", *(f"- **{name}**: {words}" for name, words in report.definitions)]
    return "\n".join(lines) + "\n"


def _markdown_table(table: Table) -> Sequence[str]:
    head = "| " + " | ".join(table.columns) + " |"
    rule = "|" + "---|" * len(table.columns)
    rows = ["| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in table.rows]
    title = [f"{table.title}", ""] if table.title else []
    return [*title, head, rule, *rows, *(["", table.note] if table.note else [])]


def command_line(argv: Sequence[str] | None = None) -> str:
    """The command that is running, as one would type it again."""
    import shlex

    return "offramp " + shlex.join(sys.argv[1:] if argv is None else argv)
