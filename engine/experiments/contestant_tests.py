"""What both sides of a comparison compute: contexts, rows, prompts. Plain data, no torch."""

CONTEXT = 512
SHARED = 496  # tokens of prefix in common, as in the warm burst
STEPS = 12
ROWS = 8


def prompts(vocab: int, shared: bool, rows: int = ROWS) -> list[list[int]]:
    """`rows` lists of `CONTEXT` ids, the first `SHARED` of them alike or not."""
    lists = [
        [(7 * n * n + 31 * n + 1009 * r + 5) % (vocab - 10) + 5 for n in range(CONTEXT)] for r in range(rows)
    ]
    return [lists[0][:SHARED] + r[SHARED:] for r in lists] if shared else lists


def burst_prompts(vocab: int, requests: int, length: int, turn: int) -> list[list[int]]:
    """`requests` lists of `length` ids. Another turn gives others, which no cache knows."""
    first = [7919 * (turn * requests + r) + 11 for r in range(requests)]
    return [[(f + 13 * n * n + 37 * n * (f % 101)) % (vocab - 10) + 5 for n in range(length)] for f in first]


def parse_burst(test: str) -> tuple[int, int, int]:
    """Requests, prompt tokens and new tokens of a test such as burst_48_512_128."""
    _, requests, prompt, count = test.split("_")
    return int(requests), int(prompt), int(count)
