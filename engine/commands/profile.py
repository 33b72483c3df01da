"""`offramp profile`: isolated rates of each backend (512 tokens in, 128 out), measured once per machine."""

import argparse
import json
import sys
import time
from typing import Any

from engine.commands.common import Progress, print_table, running_engine
from engine.engine import wait_calibrated
from engine.events import BackendInfo, BackendState, BackendStatus
from engine.profiling.profile import Rates
from engine.profiling.store import forget_rates


def add_parser(commands: Any) -> None:
    from engine.cli import add_engine_options

    parser = commands.add_parser("profile", help="measure and show isolated rates", description=__doc__)
    parser.add_argument("--again", action="store_true", help="measure again, though rates are kept")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_engine_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from engine.cli import config_from

    if args.again:
        forget_rates()
    progress = Progress()
    infos: dict[str, BackendInfo] = {}
    with running_engine(config_from(args)) as (engine, events):
        calibration = engine.subscribe()
        while not engine.ready.wait(0.05):
            for event in events.drain():
                progress.show(event)
        engine.wait_ready()
        sys.stderr.write("Measuring what is not known yet: some seconds a backend.\n")
        wait_calibrated(engine, calibration)
        time.sleep(0.1)
        for event in events.drain():
            progress.show(event)
            if isinstance(event, BackendStatus) and event.state is not BackendState.STOPPED:
                infos[event.info.name] = event.info
    ranked = sorted(infos.values(), key=lambda i: i.rank)
    if args.json:
        rows = [
            {
                "name": i.name,
                "kind": i.kind,
                "device": i.device_name,
                "format": i.format,
                "threads": i.threads,
                "slots": i.slots,
                "emulated": i.emulated,
                "rates": {"prefill": i.prefill_rate, "decode": i.decode_rate},
            }
            for i in ranked
        ]
        sys.stdout.write(json.dumps({"backends": rows}, indent=1) + "\n")
        return 0
    print_table(
        "Isolated rates, 512 tokens in, 128 out" + (f" [EMULATED, {args.emulate}]" if args.emulate else ""),
        ("backend", "device", "format", "threads", "prefill tok/s", "decode tok/s", "512 + 128 s"),
        [
            (i.name, i.device_name, i.format, i.threads, i.prefill_rate, i.decode_rate, isolated_s(i))
            for i in ranked
        ],
    )
    return 0


def isolated_s(info: BackendInfo) -> float | None:
    if info.prefill_rate is None or info.decode_rate is None:
        return None
    return Rates(info.prefill_rate, info.decode_rate).isolated_s
