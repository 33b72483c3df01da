"""`offramp models list|fetch|delete|inspect|path`: what can be run, whether it fits, and where it lies."""

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from engine.commands.common import STDERR, print_table
from engine.errors import ConfigError
from engine.models.catalog import DEFAULT_MODEL, local_model, model_path
from engine.models.fetch import main as fetch_main
from engine.models.fit import size_words
from engine.models.hub import is_hub_name, look_up, parse_reference
from engine.models.inspect import examine
from engine.models.store import delete_model
from engine.shelf import Judge, ShelfModel, shelf


def add_parser(commands: Any) -> None:
    from engine.cli import add_engine_options

    parser = commands.add_parser("models", help="list, fetch, inspect and delete models", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="the catalogue, what of it is on this disk, and what fits")
    add_engine_options(listing)
    listing.add_argument("--json", action="store_true", help="print JSON rows")
    listing.set_defaults(run=show_list)
    fetch = actions.add_parser("fetch", help="download a model, with checksum, and print its path")
    fetch.add_argument("name", nargs="?", default=DEFAULT_MODEL, help="a name, or hf:owner/repo/file.gguf")
    fetch.set_defaults(run=do_fetch)
    delete = actions.add_parser("delete", help="delete a model that Offramp downloaded")
    delete.add_argument("name")
    delete.add_argument("--yes", action="store_true", help="do not ask")
    delete.set_defaults(run=do_delete)
    look = actions.add_parser("inspect", help="family, tensors and fit of a model, before it is loaded")
    look.add_argument("name", help="a name, a file, a folder, or hf:owner/repo/file.gguf")
    add_engine_options(look)
    look.set_defaults(run=do_inspect)
    path = actions.add_parser("path", help="print where a model lies (or would lie)")
    path.add_argument("name", nargs="?", default=DEFAULT_MODEL)
    path.set_defaults(run=show_path)


def judge_of(args: argparse.Namespace) -> Judge:
    """For the backends that `args` would start. Raises `EngineError` for options that make no sense."""
    from engine.cli import config_from

    config = config_from(args)
    return Judge(config.options, config.context_tokens)


def show_list(args: argparse.Namespace) -> int:
    judge = judge_of(args)
    rows = shelf(judge)
    if args.json:
        sys.stdout.write(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
        return 0
    if judge.trouble:
        STDERR.print(judge.trouble)
    head = ("name", "on disk", "size", "family", "tensors", "licence", "fit", "what")
    print_table("", head, [_cells(row) for row in rows])
    sys.stdout.write(
        "Any GGUF file or model folder works as well: --model PATH, or hf:owner/repo/file.gguf.\n"
    )
    return 0


def _cells(row: ShelfModel) -> tuple[object, ...]:
    where = row.owner or ("yes" if row.installed else "no")
    if row.arrived_bytes:
        where = f"{row.arrived_bytes / max(1, row.size_bytes):.0%} of it"
    verdict = row.fit.words if row.fit.verdict == "unknown" else f"{row.fit.verdict}: {row.fit.words}"
    what = f"{row.title}, {row.note}" if row.note else row.title
    tensors = ", ".join(row.tensors)
    return row.name, where, size_words(row.size_bytes), row.family, tensors, row.licence, verdict, what


def do_fetch(args: argparse.Namespace) -> int:
    return fetch_main([args.name])


def do_delete(args: argparse.Namespace) -> int:
    name = args.name
    if not args.yes:
        if not sys.stdin.isatty():
            raise ConfigError(f"Deleting {name} needs a yes: add --yes.")
        sys.stderr.write(f"Delete {name} and what is left of its download? [y/N] ")
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            sys.stderr.write("Nothing was deleted.\n")
            return 0
    sys.stdout.write(f"Deleted {delete_model(name)}\n")
    return 0


def do_inspect(args: argparse.Namespace) -> int:
    """Exit code 2 where the model could not run."""
    if is_hub_name(args.name):
        seen = look_up(parse_reference(args.name)).found
    else:
        seen = examine(local_model(args.name) or model_path(args.name))
    found = judge_of(args).of_inspection(seen)
    lines = (
        ("family", seen.family),
        ("tensors", ", ".join(seen.tensor_types) or "not said"),
        ("size", size_words(seen.size_bytes) if seen.size_bytes else "not said"),
        ("parameters", f"{seen.parameters / 1e6:,.0f}M" if seen.parameters else "not known"),
        ("context", f"{seen.shape.max_context:,} tokens" if seen.shape is not None else "not known"),
        ("fit", f"{found.verdict}: {found.words}"),
    )
    for key, value in lines:
        sys.stdout.write(f"{key:<11} {value}\n")
    return 2 if seen.problem else 0


def show_path(args: argparse.Namespace) -> int:
    local = local_model(args.name)
    sys.stdout.write(f"{local or model_path(args.name)}\n")
    return 0
