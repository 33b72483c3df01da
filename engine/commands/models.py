"""`offramp models list|fetch|path`: what can be run, and where it lies."""

import argparse
import sys
from typing import Any

from engine.commands.common import print_table
from engine.models.catalog import list_models, local_model, model_path
from engine.models.fetch import main as fetch_main


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("models", help="list, fetch and find models", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="the catalogue, and what of it is on this disk")
    listing.set_defaults(run=show_list)
    fetch = actions.add_parser("fetch", help="download a model, with checksum, and print its path")
    fetch.add_argument("name", nargs="?", default="smollm2-135m-instruct")
    fetch.set_defaults(run=do_fetch)
    path = actions.add_parser("path", help="print where a model lies (or would lie)")
    path.add_argument("name", nargs="?", default="smollm2-135m-instruct")
    path.set_defaults(run=show_path)


def show_list(args: argparse.Namespace) -> int:
    rows = [
        (
            s.entry.name,
            "yes" if s.installed else "no",
            f"{s.size_bytes / 1e6:,.0f} MB",
            s.entry.context_tokens,
            s.entry.licence,
            s.entry.title,
        )
        for s in list_models()
    ]
    print_table("", ("name", "on disk", "size", "context", "licence", "what"), rows)
    sys.stdout.write("Any GGUF file or model folder works as well: --model PATH.\n")
    return 0


def do_fetch(args: argparse.Namespace) -> int:
    return fetch_main([args.name])


def show_path(args: argparse.Namespace) -> int:
    local = local_model(args.name)
    sys.stdout.write(f"{local or model_path(args.name)}\n")
    return 0
