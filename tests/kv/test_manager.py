"""The KV manager against an oracle that knows prefixes as plain token tuples."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.config import BLOCK_TOKENS
from engine.kv.manager import KvManager, KvSequence, blocks_for
from engine.kv.prefix import restorable_blocks
from engine.request import Request
from engine.step_report import BlockState
from tests.builders import make_kv, make_request, unlike


def admitted(kv: KvManager, request: Request) -> KvSequence:
    sequence = kv.admit(request, kv.prompt_chain(request.prompt))
    assert sequence is not None
    return sequence


def computed(kv: KvManager, request: Request, tokens: int | None = None) -> KvSequence:
    """Admit a request and compute its prompt (or `tokens` of it)."""
    sequence = admitted(kv, request)
    end = request.prompt_tokens if tokens is None else tokens
    kv.grow(sequence, end)
    kv.fill(sequence, request.prompt, end)
    kv.check_integrity()
    return sequence


def test_admission_reserves_the_whole_request() -> None:
    kv = make_kv(10)
    sequence = admitted(kv, make_request(1, 40, 8))  # 48 positions
    assert sequence.promised == 3 and kv.available == 7
    assert kv.pool.unused == 10  # a promise is not a block


def test_there_is_no_admission_beyond_the_pool() -> None:
    kv = make_kv(5)
    admitted(kv, make_request(1, 40, 8))
    request = make_request(2, 40, 8)
    assert kv.admit(request, kv.prompt_chain(request.prompt)) is None
    kv.check_integrity()
    assert kv.available == 2


def test_shared_blocks_are_counted_once() -> None:
    """Restored blocks that somebody holds cost nothing; those that nobody holds leave the pool."""
    kv = make_kv(6)
    prompt = unlike(1, 64)
    first = computed(kv, make_request(1, prompt, 16))  # 5 blocks
    second = make_request(2, prompt, 16)
    assert kv.admit(second, kv.prompt_chain(prompt)) is None  # needs 2 more and 1 is left
    kv.release(first)
    again = admitted(kv, second)
    assert len(again.blocks) == 3 and again.promised == 2 and kv.available == 1
    kv.check_integrity()


def test_the_seed_prompt_restores_496_of_516() -> None:
    kv = make_kv(100)
    prefix = unlike(1, 500)
    kv.release(computed(kv, make_request(1, prefix, 1)))
    sequence = admitted(kv, make_request(2, (*prefix, *unlike(2, 16)), 128))
    assert len(sequence.blocks) * BLOCK_TOKENS == 496


def test_the_last_token_of_a_wholly_cached_prompt_is_left_to_compute() -> None:
    kv = make_kv(10)
    kv.release(computed(kv, make_request(1, unlike(1, 48), 1)))
    sequence = admitted(kv, make_request(2, unlike(1, 48), 1))
    assert len(sequence.blocks) == 2
    assert kv.adopt(sequence, 32) == 32
    assert kv.next_hash(sequence, 32) is None  # nobody is worth waiting for there


def test_tails_are_evicted_before_heads() -> None:
    kv = make_kv(4)
    prompt = unlike(1, 64)
    chain = kv.prompt_chain((*prompt, 1))
    kv.release(_whole(kv, prompt))
    for left in (3, 2, 1, 0):
        request = make_request(10 + left, 1, 1)
        taker = admitted(kv, request)
        kv.grow(taker, 1)
        assert kv.match_tokens(chain) == left * BLOCK_TOKENS
        kv.check_integrity()


def _whole(kv: KvManager, prompt: tuple[int, ...]) -> KvSequence:
    """A sequence whose every block is full."""
    request = make_request(1, prompt[:-1], 1)
    sequence = admitted(kv, request)
    kv.grow(sequence, len(prompt))
    kv.fill(sequence, prompt, len(prompt))
    return sequence


def test_a_second_copy_stays_private() -> None:
    kv = make_kv(10)
    prompt = unlike(1, 40)
    one, two = admitted(kv, make_request(1, prompt, 8)), admitted(kv, make_request(2, prompt, 8))
    for sequence in (one, two):
        kv.grow(sequence, 40)
        kv.fill(sequence, prompt, 40)
        kv.check_integrity()
    assert len(kv.index) == 2
    kv.release(one)
    kv.release(two)
    kv.check_integrity()
    assert kv.pool.unused == 10 and len(kv.index) == 2


def test_adoption_needs_a_block_border_with_nothing_begun() -> None:
    kv = make_kv(20)
    prompt = unlike(1, 64)
    begun, fresh = make_request(2, prompt, 8), make_request(3, prompt, 8)
    mine, idle = admitted(kv, begun), admitted(kv, fresh)
    kv.grow(mine, 20)
    kv.fill(mine, prompt, 20)
    computed(kv, make_request(1, prompt, 8))
    assert kv.adopt(mine, 20) == 20  # in the middle of a block
    assert kv.adopt(idle, 0) == 48
    kv.check_integrity()
    kv.grow(mine, 32)
    kv.fill(mine, prompt, 32)
    assert kv.adopt(mine, 32) == 48
    kv.check_integrity()


def test_replies_become_restorable_too() -> None:
    kv = make_kv(10)
    request = make_request(1, 20, 20)
    sequence = admitted(kv, request)
    tokens = [*request.prompt, *range(20)]
    kv.grow(sequence, 39)
    kv.fill(sequence, tokens, 39)
    kv.release(sequence)
    assert kv.match_tokens(kv.prompt_chain([*tokens, 7])) == 32


def test_drop_unowned_spares_what_is_in_use() -> None:
    kv = make_kv(20)
    kv.release(computed(kv, make_request(1, 40, 1)))
    mine = computed(kv, make_request(2, 40, 1))
    kv.drop_unowned()
    kv.check_integrity()
    assert kv.match_tokens(kv.prompt_chain(unlike(1, 40))) == 0
    assert kv.match_tokens(kv.prompt_chain(unlike(2, 40))) == 32
    states = {c.block: c.state for c in kv.take_changes()[0]}
    assert all(states[b] is BlockState.ACTIVE for b in mine.blocks)


# Few tokens and few lengths, so that prefixes meet often.
PROMPTS = st.lists(st.sampled_from([(1,) * 16, (2,) * 16, (3,) * 16]), max_size=4).flatmap(
    lambda parts: st.integers(1, 17).map(lambda rest: tuple(t for p in parts for t in p) + (9,) * rest)
)


class KvMachine(RuleBasedStateMachine):
    """Random lives of requests. The oracle keeps the token tuples that each block is known by."""

    BLOCKS = 12

    def __init__(self) -> None:
        super().__init__()
        self.kv = make_kv(self.BLOCKS)
        self.live: dict[int, tuple[Request, KvSequence, list[int], int]] = {}
        self.ids = 0
        self.known: dict[tuple[int, ...], int] = {}  # leading tokens -> block
        self.mirror: set[bytes] = set()

    @rule(prompt=PROMPTS, new=st.integers(1, 20))
    def admit(self, prompt: tuple[int, ...], new: int) -> None:
        self.ids += 1
        request = make_request(self.ids, prompt, new)
        chain = self.kv.prompt_chain(prompt)
        match = self._expected_match(prompt)
        assert self.kv.match_tokens(chain) == match
        owned = sum(1 for b in self._matched(prompt) if self.kv.pool.is_owned(b))
        need = blocks_for(len(prompt) + new) - owned  # owned blocks cost nothing
        room = self.kv.available
        sequence = self.kv.admit(request, chain)
        assert (sequence is not None) == (need <= room)
        if sequence is not None:
            assert sequence.blocks == self._matched(prompt)
            assert self.kv.available == room - need
            self.live[self.ids] = (request, sequence, list(prompt), match)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), most=st.integers(1, 40))
    def compute(self, data: st.DataObject, most: int) -> None:
        key = data.draw(st.sampled_from(sorted(self.live)))
        request, sequence, tokens, done = self.live[key]
        done = self.kv.adopt(sequence, done)
        assert done <= restorable_blocks(request.prompt_tokens) * BLOCK_TOKENS or done == self.live[key][3]
        limit = request.prompt_tokens + request.sampling.max_new_tokens
        end = min(max(done + 1, min(done + most, len(tokens))), limit)
        while len(tokens) < end:
            tokens.append(len(tokens) % 5)
        self.kv.grow(sequence, end)
        self._relearn()
        self.kv.fill(sequence, tokens, end)
        self.live[key] = (request, sequence, tokens, end)
        for i in range(end // BLOCK_TOKENS):
            head = tuple(tokens[: (i + 1) * BLOCK_TOKENS])
            if head not in self.known:
                self.known[head] = sequence.blocks[i]

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        _, sequence, _, _ = self.live.pop(data.draw(st.sampled_from(sorted(self.live))))
        self.kv.release(sequence)

    @rule()
    def drop_unowned(self) -> None:
        self.kv.drop_unowned()
        self.known = {h: b for h, b in self.known.items() if self.kv.pool.is_owned(b)}

    @rule()
    def publish(self) -> None:
        changes, added, removed = self.kv.take_changes()
        self.mirror.difference_update(removed)
        self.mirror.update(added)
        assert self.mirror == {h for h, _ in self.kv.index.items()}
        assert all(c.state is self.kv.pool.state(c.block) for c in changes)

    @invariant()
    def sound(self) -> None:
        self.kv.check_integrity()
        self._relearn()
        assert len(self.known) == len(self.kv.index)

    def teardown(self) -> None:
        for _, sequence, _, _ in self.live.values():
            self.kv.release(sequence)
        self.kv.check_integrity()
        assert self.kv.pool.unused == self.kv.available == self.BLOCKS  # none lost
        self.kv.drop_unowned()
        assert len(self.kv.index) == 0

    def _relearn(self) -> None:
        """Forget what eviction has taken: a block that keeps no hash any more."""
        self.known = {h: b for h, b in self.known.items() if self.kv.pool.hash_of(b) is not None}

    def _matched(self, prompt: tuple[int, ...]) -> list[int]:
        self._relearn()
        blocks = []
        for i in range(restorable_blocks(len(prompt))):
            block = self.known.get(prompt[: (i + 1) * BLOCK_TOKENS])
            if block is None:
                break
            blocks.append(block)
        return blocks

    def _expected_match(self, prompt: tuple[int, ...]) -> int:
        return len(self._matched(prompt)) * BLOCK_TOKENS


TestKvMachine = KvMachine.TestCase
TestKvMachine.settings = settings(
    max_examples=80, stateful_step_count=40, deadline=None, derandomize=True, database=None
)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(PROMPTS, st.integers(1, 8)), min_size=1, max_size=10))
def test_one_after_the_other_leaves_everything_restorable(work: list[tuple[tuple[int, ...], int]]) -> None:
    """With room for all, each prompt finds every whole block that an earlier one has in common with it."""
    kv = make_kv(200)
    before: list[tuple[int, ...]] = []
    for number, (prompt, new) in enumerate(work, 1):
        request = make_request(number, prompt, new)
        longest = 0
        for other in before:
            same = 0
            while same < min(len(other), len(prompt)) and other[same] == prompt[same]:
                same += 1
            longest = max(longest, same // BLOCK_TOKENS)
        sequence = admitted(kv, request)
        assert len(sequence.blocks) == min(longest, restorable_blocks(len(prompt)))
        kv.grow(sequence, len(prompt))
        kv.fill(sequence, prompt, len(prompt))
        kv.release(sequence)
        before.append(prompt)
