"""Traces: what is recognised, what is refused and where, and prompts that share as the file says."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ConfigError
from engine.kv.prefix import restorable_blocks
from engine.simulation.simulate import fake_tokenise
from engine.workloads.replayed import clipped, retimed, trace_workload
from engine.workloads.traces import Trace, read_trace

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:47.9951690,396,109
"""
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
118,GPT-4,417,276,693,Conversation log
"""


def write(folder: Path, text: str | bytes, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def mooncake(folder: Path, rows: list[dict[str, Any]]) -> Trace:
    return read_trace(write(folder, "\n".join(json.dumps(r) for r in rows), "trace.jsonl"))


def line(at: Any = 0, given: Any = 600, made: Any = 20, **more: Any) -> dict[str, Any]:
    return {"timestamp": at, "input_length": given, "output_length": made, **more}


def build(trace: Trace, context: int = 4096, seed: int = 0) -> Any:
    return trace_workload(trace, fake_tokenise, context, seed)


# --- what is recognised ---


def test_azure_columns_and_dates(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, AZURE))
    assert [(r.prompt_tokens, r.output_tokens) for r in trace.rows] == [(374, 44), (396, 109)]
    assert trace.rows[0].at_s == 0 and trace.rows[1].at_s == pytest.approx(1.314579, abs=1e-5)


def test_burstgpt_columns_and_failed_requests(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, BURSTGPT))
    assert [(r.at_s, r.prompt_tokens, r.output_tokens) for r in trace.rows] == [(0, 472, 18), (113, 417, 276)]
    assert any("left out" in note for note in trace.notes)


def test_a_byte_order_mark_and_blank_lines(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, b"\xef\xbb\xbf" + b"time,input,output\n\n1,20,3\n"))
    assert len(trace.rows) == 1


@pytest.mark.parametrize(("tokens", "lengths"), [(512, (1322, 2048)), (16, (40, 64))])
def test_prompts_share_as_their_hashes_do(tmp_path: Path, tokens: int, lengths: tuple[int, int]) -> None:
    blocks = [-(-n // tokens) for n in lengths]
    rows = [line(0, lengths[0], hash_ids=list(range(blocks[0])))]
    rows.append(line(500, lengths[1], hash_ids=[0, 1, *range(90, 88 + blocks[1])]))
    trace = mooncake(tmp_path, rows)
    assert trace.block_tokens == tokens and trace.rows[1].at_s == 0.5
    first, second = (r.prompt for r in build(trace).requests)
    assert (len(first), len(second)) == lengths
    assert first[: 2 * tokens] == second[: 2 * tokens]
    assert first[2 * tokens] != second[2 * tokens]


def test_lines_with_a_chat_id_are_in_seconds(tmp_path: Path) -> None:
    rows = [line(61.1, 32, hash_ids=[1, 2], chat_id=1), line(61.6, 32, hash_ids=[1, 3], chat_id=2)]
    trace = mooncake(tmp_path, rows)
    assert trace.rows[1].at_s == pytest.approx(0.5) and trace.block_tokens == 16


def test_an_own_burst(tmp_path: Path) -> None:
    requests = [
        {"at_s": 0.2, "prompt": "one two three", "max_new_tokens": 7},
        {"prompt_tokens": 300, "prefix": "a", "prefix_tokens": 256, "max_new_tokens": 64, "reply_tokens": 9},
        {"prompt_tokens": 320, "prefix": "a", "prefix_tokens": 256},
    ]
    path = write(tmp_path, json.dumps({"requests": requests, "warm": True}, indent=1), "own.json")
    workload = build(read_trace(path))
    a, b, c = workload.requests
    assert [len(r.prompt) for r in (a, b, c)] == [300, 320, 3] and c.offset_s == 0.2
    assert a.prompt[:256] == b.prompt[:256] == workload.seeding[0] and a.prompt[256] != b.prompt[256]
    assert (a.reply_tokens, a.sampling.max_new_tokens) == (9, 64)
    assert c.output_tokens == 7 and c.sampling.ignore_eos


def test_unlike_prompts_share_no_block(tmp_path: Path) -> None:
    text = "time,input,output\n" + "".join(f"{i},64,4\n" for i in range(200))
    prompts = [r.prompt for r in build(read_trace(write(tmp_path, text))).requests]
    assert len({p[:16] for p in prompts}) == 200 and restorable_blocks(64) > 0


# --- fitting ---


def test_clipping_to_a_context(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "time,input,output\n0,9000,5000\n1,10,3\n"))
    workload = build(trace, 1024)
    assert all(len(r.prompt) + r.sampling.max_new_tokens <= 1024 for r in workload.requests)
    assert workload.requests[1].output_tokens == 3 and len(workload.requests[1].prompt) == 10
    assert "1 of 2 cut" in workload.description
    assert clipped(trace, 1_000_000).rows[0].prompt_tokens == 9000


def test_replies_hide_their_length_behind_the_longest(tmp_path: Path) -> None:
    first, second = build(read_trace(write(tmp_path, AZURE))).requests
    assert first.sampling.max_new_tokens == second.sampling.max_new_tokens == 109
    assert (first.reply_tokens, second.output_tokens) == (44, 109)


def test_timing(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "time,input,output\n0,5,1\n10,5,1\n20,5,1\n"))
    assert [r.at_s for r in retimed(trace, speed=2).rows] == [0, 5, 10]
    assert [r.at_s for r in retimed(trace, rate_rps=4).rows] == [0, 0.25, 0.5]
    assert retimed(trace) is trace
    with pytest.raises(ConfigError, match="times as fast"):
        retimed(trace, speed=0)


def test_a_limit_takes_the_first(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, BURSTGPT), limit=1)
    assert len(trace.rows) == 1 and "first 1" in trace.notes[0]


def test_the_same_seed_the_same_text(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, AZURE))
    assert build(trace) == build(trace) != build(trace, seed=1)


# --- what is refused ---

BAD = [
    ("", "empty"),
    ("\n \n", "empty"),
    ("time,input,output\n", "no request"),
    ("time,input\n0,5\n", "line 1: there is no column of output"),
    ("input,output\n5,5\n", "line 1: there is no column of time"),
    ("time,input,output\n0,5,1\n1,5\n", "line 3: a column is missing"),
    ("time,input,output\n0,5,1\n-1,5,1\n", "line 3: the time is"),
    ("time,input,output\nnan,5,1\n", "line 2: the time is"),
    ("time,input,output\ninf,5,1\n", "line 2: the time is"),
    ("time,input,output\nnoon,5,1\n", "line 2: the time is"),
    ("time,input,output\n0,nan,1\n", "line 2: input is"),
    ("time,input,output\n0,5.5,1\n", "line 2: input is"),
    ("time,input,output\n0,1000000000,1\n", "line 2: input is"),
    ("time,input,output\n0,5,-1\n", "line 2: output is"),
    (b"time,input,output\n0,5,1\n\xff\xfe,5,1\n", "line 3: this is no UTF-8"),
    ("time,input,output\n0,5,1\n".encode("utf-16"), "line 1: this is no UTF-8"),
    (b"time,input,output\n0,5\0,1\n", "line 2: this is no text"),
]
BAD_JSON = [
    ('{"timestamp": 0, "input_length": 5}\n', "line 1: 'output_length' is missing"),
    ('{"timestamp": 0, "input_length": 5, "output_length": 1}\n{"timestamp"\n', "line 2: this is not JSON"),
    ('{"timestamp": -5, "input_length": 5, "output_length": 1}\n', "line 1: the time is"),
    ('{"timestamp": NaN, "input_length": 5, "output_length": 1}\n', "line 1: the time is"),
    ('{"timestamp": true, "input_length": 5, "output_length": 1}\n', "line 1: the time is"),
    ('{"timestamp": 0, "input_length": 1e9, "output_length": 1}\n', "line 1: input_length is"),
    ('{"timestamp": 0, "input_length": null, "output_length": 1}\n', "line 1: input_length is"),
    ('{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": 7}\n', "line 1: 'hash_ids'"),
    ('{"requests": []}', "no requests"),
    ('{"requests": [5]}', "request 1: this is no object"),
    ('{"requests": [{"at_s": 0}]}', "request 1: the prompt is empty"),
    ('{"requests": [{"prompt": "a", "what": 1}]}', "'what' is unknown"),
    ('{"requests": [{"prompt": "a", "max_new_tokens": 0}]}', "request 1: max_new_tokens"),
    ('{\n"requests": [\n{"prompt": "a",}]}', "line 3: this is not JSON"),
]


@pytest.mark.parametrize(
    ("text", "words", "name"),
    [(t, w, "trace.csv") for t, w in BAD] + [(t, w, "trace.jsonl") for t, w in BAD_JSON],
)
def test_a_malformed_trace_is_one_sentence(tmp_path: Path, text: str | bytes, words: str, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_trace(write(tmp_path, text, name))
    message = str(caught.value)
    assert words in message and message.endswith(".") and "\n" not in message and name in message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_trace(tmp_path / "none.csv")
