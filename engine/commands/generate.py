"""`offramp generate PROMPT`: one reply from a real backend, streamed, with what it cost."""

import argparse
import json
import sys
from typing import Any

from engine.commands.common import STDERR, running_engine
from engine.events import Event, RequestDone, RequestRouted, TextOut
from engine.ledger import rounded
from engine.receipt import Receipt
from engine.request import FinishReason, SamplingParams
from engine.routing.receipt import label_of, receipt_json


def add_parser(commands: Any) -> None:
    from engine.cli import add_engine_options, add_policy_option

    parser = commands.add_parser("generate", help="answer one prompt", description=__doc__)
    parser.add_argument("prompt", nargs="?", help="the prompt; - or nothing reads it from stdin")
    parser.add_argument("--system", metavar="TEXT", help="system prompt")
    parser.add_argument("--backend", metavar="NAME", help="past the router, to this backend")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the text")
    sampling = parser.add_argument_group("sampling")
    sampling.add_argument("--greedy", action="store_true", help="always the most likely token")
    sampling.add_argument("--max-new-tokens", type=int, default=256, metavar="N")
    sampling.add_argument("--temperature", type=float, default=0.7)
    sampling.add_argument("--top-k", type=int, default=0, help="0 = off")
    sampling.add_argument("--top-p", type=float, default=0.95, help="1 = off")
    sampling.add_argument("--min-p", type=float, default=0.0, help="0 = off")
    sampling.add_argument("--repetition-penalty", type=float, default=1.0, help="1 = off")
    sampling.add_argument("--sampling-seed", type=int, help="same seed, same text")
    sampling.add_argument("--stop", action="append", default=[], metavar="TEXT", help="may be given again")
    sampling.add_argument(
        "--ignore-eos", action="store_true", help="go on to --max-new-tokens whatever comes"
    )
    add_engine_options(parser)
    add_policy_option(parser)
    parser.set_defaults(run=run)


def sampling_from(args: argparse.Namespace) -> SamplingParams:
    params = SamplingParams(
        temperature=0.0 if args.greedy else args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        min_p=args.min_p,
        repetition_penalty=args.repetition_penalty,
        seed=args.sampling_seed,
        max_new_tokens=args.max_new_tokens,
        stop=tuple(args.stop),
        ignore_eos=args.ignore_eos,
    )
    params.validate()
    return params


def run(args: argparse.Namespace) -> int:
    from engine.cli import config_from
    from engine.errors import PromptError

    sampling = sampling_from(args)
    prompt = sys.stdin.read() if args.prompt in (None, "-") else args.prompt
    if not prompt.strip():
        raise PromptError("The prompt is empty: write something to answer.")
    messages = [{"role": "user", "content": prompt}]
    if args.system:
        messages.insert(0, {"role": "system", "content": args.system})
    text: list[str] = []
    receipts: list[Receipt] = []
    ended: list[RequestDone] = []
    with running_engine(config_from(args)) as watch:
        watch.until_ready()
        request_id = watch.engine.submit_chat(messages, sampling, args.backend)

        def over(events: list[Event]) -> bool:
            for event in events:
                if isinstance(event, TextOut) and event.request_id == request_id:
                    text.append(event.text)
                    if not args.json:
                        sys.stdout.write(event.text)
                        sys.stdout.flush()
                elif isinstance(event, RequestRouted) and event.receipt.request_id == request_id:
                    receipts.append(event.receipt)
                elif isinstance(event, RequestDone) and event.request_id == request_id:
                    ended.append(event)
            return bool(ended)

        watch.until(over, 0.01)
        labels = {s.info.name: s.info.device_name for s in watch.statuses.values()}
    done, receipt = ended[0], receipts[-1] if receipts else None
    if args.json:
        sys.stdout.write(json.dumps(_json(done, "".join(text), receipt), indent=1) + "\n")
    elif text:
        sys.stdout.write("\n")
    if done.reason is FinishReason.ERROR:
        STDERR.print(f"offramp: {done.message}")
        return 2 if receipt is None else 1
    if not args.json:
        STDERR.print(_signature(done, labels.get(done.backend, ""), args.emulate))
        if done.message:
            STDERR.print(done.message)
    return 0


def _signature(done: RequestDone, device: str, emulated: str | None) -> str:
    t = done.timings
    ttft = "n/a" if t.ttft_s is None else f"{t.ttft_s:.2f} s"
    speed = "n/a" if not t.tpot_s else f"{1 / t.tpot_s:.1f} tok/s"
    mark = "EMULATED, " if emulated else ""
    return (
        f"[{mark}{label_of(done.backend)} ({done.backend}, {device}): TTFT {ttft}, {speed}, "
        f"{done.prompt_tokens:,} tokens in, {done.cached_tokens:,} cached, {done.output_tokens:,} out, "
        f"finish reason {done.reason}]"
    )


def _json(done: RequestDone, text: str, receipt: Receipt | None) -> dict[str, object]:
    t = done.timings
    return {
        "text": text,
        "backend": done.backend,
        "prompt_tokens": done.prompt_tokens,
        "cached_tokens": done.cached_tokens,
        "output_tokens": done.output_tokens,
        "ttft_s": rounded(t.ttft_s),
        "tpot_s": rounded(t.tpot_s),
        "e2e_s": rounded(t.e2e_s),
        "finish_reason": done.reason,
        "message": done.message,
        "receipt": receipt_json(receipt) if receipt else None,
    }
