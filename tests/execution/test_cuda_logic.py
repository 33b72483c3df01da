"""What decoding in graphs does on any device: buckets, padding, block tables, sampling on the device.

A CPU runner is given the graphs' path, which records nothing there and runs the same work step by step.
"""

from pathlib import Path

import pytest
import torch

from engine.execution.cuda_graphs import DecodeGraphs, PendingSample, context_buckets, row_bucket
from engine.execution.decode_inputs import HEADER, DecodeInputs, Draw, Staging, draw_of
from engine.execution.prefill_graphs import MOST_TOKENS, STAGES, PrefillGraphs, token_bucket
from engine.execution.sampler import Sampler
from engine.execution.torch_runner import TorchRunner
from engine.request import GREEDY, SamplingParams
from engine.scheduling.batch import Batch
from tests.support import Stream, generate, open_runner, scattered, tiny_model

SAMPLED = (
    SamplingParams(temperature=1.2, top_p=1.0, seed=1),
    SamplingParams(temperature=0.9, top_p=1.0, min_p=0.05, seed=2),
    SamplingParams(temperature=1.5, top_p=0.7, seed=3),
    SamplingParams(temperature=0.8, top_p=1.0, top_k=5, seed=4),
    SamplingParams(temperature=1.1, top_p=0.9, top_k=20, min_p=0.02, seed=5),
    SamplingParams(temperature=1.0, top_p=0.95, repetition_penalty=1.3, seed=16),
    GREEDY,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    tiny_model("qwen2").save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def long_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long")
    tiny_model("llama", max_position_embeddings=4096).save_pretrained(path)
    return path


def with_graphs(path: Path, slots: int = 4) -> TorchRunner:
    runner = open_runner(path)
    runner._make_graphs(slots, lambda *_: None)
    return runner


def streams(sampling: tuple[SamplingParams, ...]) -> list[Stream]:
    """A request each: prompts of several lengths, in scattered blocks of their own."""
    made = []
    for n, params in enumerate(sampling):
        tokens = [(n * 7 + i * 3) % 300 + 3 for i in range(5 + 11 * n)]
        blocks = [(n * 13 + i * 7 * 13) % 383 for i in range(10)]
        made.append(Stream(n, tokens, blocks, sampling=params))
    taken = [b for s in made for b in s.blocks]
    assert len(set(taken)) == len(taken)
    return made


def test_row_buckets() -> None:
    assert [row_bucket(n) for n in (1, 2, 3, 4, 5, 9, 33, 64)] == [1, 2, 4, 4, 8, 16, 64, 64]


def test_context_buckets_hold_the_whole_context() -> None:
    assert context_buckets(4096) == [512, 1024, 2048, 4096]
    assert context_buckets(100) == [112]
    assert context_buckets(3000) == [512, 1024, 2048, 3008]


def test_graphs_give_the_text_of_the_plain_path(folder: Path) -> None:
    """Greedy and seeded sampling alike: both draw the same number from the same distribution."""
    plain, recorded = open_runner(folder), with_graphs(folder)
    expected = generate(plain, streams(SAMPLED), 20, chunk=16)
    assert generate(recorded, streams(SAMPLED), 20, chunk=16) == expected
    plain.close()
    recorded.close()


def test_company_changes_nothing(folder: Path) -> None:
    runner = with_graphs(folder, slots=8)
    alone = []
    for stream in streams(SAMPLED):
        alone += generate(runner, [stream], 12)
        runner.forget(stream.row().request_id)
    assert generate(runner, streams(SAMPLED), 12, chunk=3) == alone
    runner.close()


def test_more_rows_than_one_launch_holds(folder: Path) -> None:
    runner = with_graphs(folder, slots=2)
    assert runner._graphs is not None and runner._graphs.most_rows == 2
    plain = open_runner(folder)
    assert generate(runner, streams(SAMPLED), 6) == generate(plain, streams(SAMPLED), 6)
    runner.close()
    plain.close()


def test_contexts_cross_buckets(tmp_path: Path) -> None:
    tiny_model("llama", max_position_embeddings=2048).save_pretrained(tmp_path)
    runner, plain = with_graphs(tmp_path), open_runner(tmp_path)
    prompt = [i * 5 % 300 + 3 for i in range(506)]
    both = [generate(r, [Stream(1, list(prompt), scattered(40))], 14) for r in (runner, plain)]
    assert both[0] == both[1]
    assert runner._graphs is not None and {key[1] for key in runner._graphs._graphs} == {512, 1024}
    runner.close()
    plain.close()


def test_padding_leaves_the_cache_alone(folder: Path) -> None:
    runner = with_graphs(folder)
    rows = streams((GREEDY,) * 3)
    generate(runner, rows, 1)
    before = [runner._storage.layer(i).clone() for i in range(runner.shape.layers)]
    places = [s.blocks[s.computed // 16] * 16 + s.computed % 16 for s in rows]
    runner.run(Batch([s.row() for s in rows]))  # three rows in a bucket of four
    for index, old in enumerate(before):
        changed = (runner._storage.layer(index) != old).flatten(1).any(1).nonzero().flatten().tolist()
        assert set(changed) - {runner._storage.scratch_token} == set(places)
    runner.close()


def test_a_step_mixes_single_tokens_and_chunks(folder: Path) -> None:
    """Ids come back in the rows' order, and only for rows that sample."""
    runner, plain = with_graphs(folder), open_runner(folder)
    for r in (runner, plain):
        ready = streams((GREEDY,) * 4)
        generate(r, ready[:1], 1)
        batch = Batch([ready[0].row(), ready[1].row(5), ready[2].row(), ready[3].row(1)])
        ids = r.run(batch)
        assert len(ids) == 2
        if r is runner:
            first = ids
    assert ids == first
    runner.close()
    plain.close()


def test_the_graphs_belong_to_cuda(folder: Path) -> None:
    runner = open_runner(folder)
    assert runner._graphs is None
    made = DecodeGraphs(runner._model, runner._storage, runner._sampler, 100, 3, lambda *_: None)
    assert made.most_rows == 4 and made.decoder_name == "tables"
    runner.close()


def test_what_a_row_asks_of_sampling() -> None:
    kinds = [draw_of(p) for p in SAMPLED]
    assert kinds == [Draw.PLAIN, Draw.PLAIN, *[Draw.FILTERED] * 3, Draw.GREEDY, Draw.GREEDY]


def test_staging_writes_rows_padding_and_changes() -> None:
    staging = Staging(4, 6, pinned=False)
    first, second = (s.row() for s in streams((SAMPLED[4], GREEDY))[:2])
    first.blocks, second.blocks = [9, 8], [7]
    first.tokens, second.tokens = [41], [42]
    staging.place([first, second], 4)
    assert staging.sample([first, second], lambda _: 0.25) == Draw.FILTERED
    inputs = DecodeInputs.of(staging.matrix)
    assert inputs.ids.tolist()[:2] == [41, 42] and inputs.lengths.tolist() == [1, 1, 0, 0]
    assert inputs.blocks[:2, :2].tolist() == [[9, 8], [7, 0]] and inputs.stride == HEADER + 6
    assert inputs.uniforms[0] == 0.25 and inputs.temperatures.tolist()[:2] == pytest.approx([1.1, 0.0])
    assert inputs.top_k[0] == 20 and inputs.top_p[0] == pytest.approx(0.9)
    assert inputs.min_p[0] == pytest.approx(0.02)
    second.blocks = [7, 5]
    staging.place([second], 1)
    assert inputs.blocks[0, :2].tolist() == [7, 5] and inputs.ids[0] == 42


@pytest.mark.parametrize("params", SAMPLED, ids=lambda p: f"seed{p.seed}")
def test_the_device_draws_what_the_host_draws(params: SamplingParams) -> None:
    logits = torch.randn(3, 5000, generator=torch.Generator().manual_seed(9)) * 3
    rows = [s.row() for s in streams((params, SAMPLED[2], params))]
    for row in rows:
        row.samples = True
    host, device = Sampler(4), Sampler(4)
    for _ in range(40):
        assert PendingSample(logits, rows, device).collect() == host.sample(logits, rows)


def test_a_flat_distribution_is_sorted_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The likeliest tokens do not hold what the filters leave: nothing of the tail may be lost."""
    rows = [s.row() for s in streams((SamplingParams(temperature=1.0, top_p=1.0, top_k=4999), SAMPLED[2]))]
    for row in rows:
        row.samples = True
    sampler = Sampler(0)
    monkeypatch.setattr(sampler, "uniform", lambda _: 1 - 1e-12)
    assert PendingSample(torch.zeros(2, 5000), rows, sampler).collect() == [4998, 3499]


def compare_chunk(runner: TorchRunner, plain: TorchRunner, ours: Stream, theirs: Stream, chunk: int) -> None:
    """Compute a chunk of the same stream both ways, and hold the logits of its last token together."""
    row = ours.row(chunk)
    assert runner._prefills is not None
    with torch.inference_mode():
        logits = runner._prefills.logits(row)
    expected = plain.logits(Batch([theirs.row(chunk)]), every_token=True)[-1:]
    assert (logits - expected).abs().max() < 1e-4 * expected.abs().max()
    ours.computed += row.length
    theirs.computed += row.length


@pytest.mark.parametrize("chunk", [7, 40, 130])
def test_padded_chunks_give_the_plain_logits(folder: Path, chunk: int) -> None:
    runner, plain = with_graphs(folder), open_runner(folder)
    prompt = [i * 5 % 300 + 3 for i in range(260)]
    ours, theirs = (Stream(1, list(prompt), scattered(20)) for _ in range(2))
    while ours.computed < len(prompt) - 1:
        compare_chunk(runner, plain, ours, theirs, chunk)
    runner.close()
    plain.close()


@pytest.mark.parametrize("length", [513, 700, 1024, 1500])
def test_a_long_chunk_in_pieces_gives_the_plain_logits(long_folder: Path, length: int) -> None:
    runner, plain = with_graphs(long_folder), open_runner(long_folder)
    prompt = [i * 5 % 300 + 3 for i in range(40 + length)]
    ours, theirs = (Stream(1, list(prompt), [3 * (i * 7 % 101) for i in range(100)]) for _ in range(2))
    for chunk in (40, length):  # what is cached already comes before the first piece
        compare_chunk(runner, plain, ours, theirs, chunk)
    runner.close()
    plain.close()


@pytest.mark.parametrize(("seconds", "pieces"), [((1, 2, 1, 2), 4), ((1, 2, 3, 2), 2), ((2, 1), 1)])
def test_as_many_pieces_as_are_faster_than_the_plain_pass(
    long_folder: Path, monkeypatch: pytest.MonkeyPatch, seconds: tuple[int, ...], pieces: int
) -> None:
    runner, told = with_graphs(long_folder), list(seconds)
    prefills = runner._prefills
    assert prefills is not None and prefills.pieces == 1
    monkeypatch.setattr(PrefillGraphs, "_seconds", lambda *_: told.pop(0))
    prefills.choose_pieces(lambda row: runner.logits(Batch([row])), 4096)
    assert prefills.pieces == pieces and told == []
    lengths = [
        n for n in (1, 2, 512, 513, 1024, 1025, 2048, 2049) if prefills.takes(Stream(1, [3] * n, []).row(n))
    ]
    assert max(lengths) == MOST_TOKENS * pieces and min(lengths) == 2
    runner.close()


def test_a_small_cache_or_context_bounds_the_pieces(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = with_graphs(folder)
    assert runner._prefills is not None
    monkeypatch.setattr(PrefillGraphs, "_seconds", lambda self, compute, row: float(compute != self.logits))
    runner._prefills.choose_pieces(lambda row: runner.logits(Batch([row])), 1600)
    assert runner._prefills.pieces == 2
    runner.close()


def test_token_buckets() -> None:
    assert [token_bucket(n) for n in (2, 32, 33, 500, 512)] == [32, 32, 64, 512, 512]


def test_many_chunks_of_one_step_do_not_spoil_each_other(folder: Path) -> None:
    """More than the stages hold, with every way to draw: each gets the id that it gets alone."""
    runner, alone = with_graphs(folder), with_graphs(folder)
    prompts = [[(n * 31 + i * 7) % 300 + 3 for i in range(20 + 3 * n)] for n in range(2 * STAGES + 1)]
    made = [
        Stream(n, prompt, [n + 20 * i for i in range(5)], sampling=(GREEDY, *SAMPLED)[n % (1 + len(SAMPLED))])
        for n, prompt in enumerate(prompts)
    ]
    together = runner.run(Batch([stream.row() for stream in made]))
    assert together == [alone.run(Batch([stream.row()]))[0] for stream in made]
    assert len(set(together)) > STAGES
    runner.close()
    alone.close()
