"""`offramp regret RUN`: how far was this run from the best placement, and what cost it? Simulated on the
run's own calibration, every placement tried where that is possible."""

import argparse
import json
import sys
from typing import Any

from engine.commands.common import print_table
from engine.experiments.regret import explain
from engine.recording import calibrated, find_run, read_run, recorded_weights


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("regret", help="compare a run with the best placement", description=__doc__)
    parser.add_argument("run_name", metavar="RUN", help="a run file, the start of its id, or last")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object, and nothing else, on stdout"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    path = find_run(args.run_name)
    recorded = read_run(path)
    data = explain(
        calibrated(recorded, path),
        recorded.workload,
        str(recorded.head["policy"]),
        recorded.result,
        recorded_weights(recorded.head),
    )
    if args.json:
        sys.stdout.write(json.dumps(data, indent=1) + "\n")
        return 0
    names = (
        ("measured", "as it ran"),
        ("simulated_same_placement", "the same placement, simulated"),
        ("policy_simulated", f"{data['policy']}, simulated"),
        ("policy_true_lengths", f"{data['policy']} with true lengths, simulated"),
        ("best", "best placement known" + (", all tried" if data["proven"] else "")),
        ("lower_bound", "lower bound"),
    )
    rows = []
    for key, words in names:
        values = data[key]
        assert isinstance(values, dict)
        rows.append((words, values.get("makespan_s"), values.get("mean_e2e_s")))
    print_table(
        f"{recorded.head['preset']}, SIMULATED but for the first row", ("", "makespan s", "mean E2E s"), rows
    )
    split = data["regret"]
    assert isinstance(split, dict)
    for goal, parts in split.items():
        words = ", ".join(f"{k.replace('_', ' ')} {v:+.1%}" for k, v in parts.items() if v is not None)
        sys.stdout.write(f"Regret of {goal.replace('_', ' ')}: {words}\n")
    return 0
