"""KV manager: block tables of admitted requests over one pool and one prefix index. No tensors here.

Admission reserves the most a request can need, so an admitted request always runs to its end and nothing
is ever preempted. A reservation is a promise, not a block: blocks are taken as the tokens come.
Invariant: pool.unused >= sum of all promises.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.config import BLOCK_TOKENS
from engine.errors import PromptError
from engine.kv.block_pool import BlockPool
from engine.kv.prefix import PrefixIndex, extend_chain, restorable_blocks
from engine.request import Request, RequestId
from engine.step_report import BlockChange


def blocks_for(tokens: int) -> int:
    """Blocks that `tokens` positions occupy."""
    return -(-tokens // BLOCK_TOKENS)


def check_pool(request: Request, pool_blocks: int) -> None:
    """Raise `PromptError` for a request that could never be admitted: it would wait for ever."""
    need = blocks_for(request.prompt_tokens + request.sampling.max_new_tokens)
    if need > pool_blocks:
        raise PromptError(
            f"The request needs {need:,} KV blocks and the pool holds {pool_blocks:,}: "
            "shorten it or give the backends a larger KV pool."
        )


@dataclass(slots=True)
class KvSequence:
    """The block table of one admitted request.

    tokens [0, cached)                    restored; their blocks may be shared with others
    tokens [cached, filled x 16)          computed here, in whole blocks, restorable by others
    tokens [filled x 16, computed)        computed here, in the last, private block
    """

    request_id: RequestId
    prompt_tokens: int
    chain: list[bytes]  # hashes of the leading whole blocks, as far as needed yet
    blocks: list[int] = field(default_factory=list)
    filled: int = 0  # leading whole blocks that are complete
    promised: int = 0  # blocks reserved and not yet taken


class KvManager:
    """Everything the scheduler needs to know about the cache of one backend."""

    def __init__(self, num_blocks: int, salt: str) -> None:
        self.pool = BlockPool(num_blocks)
        self.index = PrefixIndex(salt)
        self._sequences: dict[RequestId, KvSequence] = {}
        self._promised = 0

    @property
    def available(self) -> int:
        """Blocks that could be promised to somebody else now."""
        return self.pool.unused - self._promised

    def prompt_chain(self, prompt: Sequence[int]) -> list[bytes]:
        """Hashes of the restorable blocks of a prompt."""
        return extend_chain([], self.index.root, prompt, restorable_blocks(len(prompt)))

    def match_tokens(self, chain: Sequence[bytes]) -> int:
        """Tokens that a prompt with this chain could restore now."""
        return len(self.index.match(chain)) * BLOCK_TOKENS

    def admit(self, request: Request, chain: list[bytes]) -> KvSequence | None:
        """Restore the longest cached prefix and reserve the rest; None when there is no room now."""
        matched = self.index.match(chain)
        need = blocks_for(request.prompt_tokens + request.sampling.max_new_tokens) - len(matched)
        unowned = sum(1 for b in matched if not self.pool.is_owned(b))
        if self.available - unowned < need:
            return None
        sequence = KvSequence(request.id, request.prompt_tokens, list(chain))
        for block in matched:
            self.pool.share(block, request.id)
        sequence.blocks, sequence.filled, sequence.promised = matched, len(matched), need
        self._promised += need
        self._sequences[request.id] = sequence
        return sequence

    def adopt(self, sequence: KvSequence, computed: int) -> int:
        """Take over blocks of its prompt that others have filled meanwhile; returns tokens now computed.

        Possible only at a block border with no block of its own begun there.
        """
        if computed % BLOCK_TOKENS or len(sequence.blocks) * BLOCK_TOKENS != computed:
            return computed
        limit = restorable_blocks(sequence.prompt_tokens)
        while len(sequence.blocks) < limit:
            block = self.index.get(sequence.chain[len(sequence.blocks)])
            if block is None:
                break
            self.pool.share(block, sequence.request_id)
            sequence.blocks.append(block)
            sequence.filled += 1
            self._spend(sequence)
        return len(sequence.blocks) * BLOCK_TOKENS

    def next_hash(self, sequence: KvSequence, computed: int) -> bytes | None:
        """Hash of the restorable prompt block that starts at `computed`; None elsewhere."""
        index, rest = divmod(computed, BLOCK_TOKENS)
        limit = restorable_blocks(sequence.prompt_tokens)
        return None if rest or index >= limit else sequence.chain[index]

    def prompt_hashes(self, sequence: KvSequence, start: int, end: int) -> list[bytes]:
        """Hashes of the restorable prompt blocks that positions [start, end) touch."""
        limit = restorable_blocks(sequence.prompt_tokens)
        return sequence.chain[start // BLOCK_TOKENS : min(blocks_for(end), limit)]

    def grow(self, sequence: KvSequence, tokens: int) -> None:
        """Make the block table cover `tokens` positions, out of what was promised."""
        while len(sequence.blocks) * BLOCK_TOKENS < tokens:
            block, evicted = self.pool.take(sequence.request_id, len(sequence.blocks))
            if evicted is not None:
                self.index.remove(evicted)
            sequence.blocks.append(block)
            self._spend(sequence)

    def fill(self, sequence: KvSequence, tokens: Sequence[int], computed: int) -> None:
        """Positions [0, computed) of `tokens` are in the cache: make whole new blocks restorable at once."""
        whole = computed // BLOCK_TOKENS
        if whole <= sequence.filled:
            return
        extend_chain(sequence.chain, self.index.root, tokens, whole)
        for i in range(sequence.filled, whole):
            # Somebody else may hold the same content already; then this copy stays private.
            if sequence.chain[i] not in self.index:
                self.index.add(sequence.chain[i], sequence.blocks[i])
                self.pool.keep(sequence.blocks[i], sequence.chain[i])
        sequence.filled = whole

    def release(self, sequence: KvSequence) -> None:
        """The request ended. Its tail goes first, so that prefixes outlive what follows them."""
        for block in reversed(sequence.blocks):
            self.pool.release(block, sequence.request_id)
        self._promised -= sequence.promised
        del self._sequences[sequence.request_id]

    def drop_unowned(self) -> None:
        """Forget every cached block that no request holds."""
        for block_hash in self.pool.drop_cached():
            self.index.remove(block_hash)

    def take_changes(self) -> tuple[tuple[BlockChange, ...], tuple[bytes, ...], tuple[bytes, ...]]:
        """(block changes, hashes added, hashes removed) since the last call."""
        return (self.pool.take_changes(), *self.index.take_delta())

    def check_integrity(self) -> None:
        """Raise AssertionError when the pool, the index and the block tables disagree."""
        self.pool.check_integrity((s.request_id, s.blocks) for s in self._sequences.values())
        assert self._promised == sum(s.promised for s in self._sequences.values())
        assert self.available >= 0, "more blocks are promised than exist"
        for block_hash, block in self.index.items():
            assert self.pool.hash_of(block) == block_hash, f"block {block} is indexed under another hash"
        kept = sum(1 for b in range(self.pool.num_blocks) if self.pool.hash_of(b) is not None)
        assert kept == len(self.index), "a block keeps a hash that the index does not know"

    def _spend(self, sequence: KvSequence) -> None:
        assert sequence.promised > 0, "a request needs more blocks than it was admitted with"
        sequence.promised -= 1
        self._promised -= 1
