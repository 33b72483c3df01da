"""Colours for code: what Pygments makes of it, in inks that no backend uses. Imported when code is shown."""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from PySide6.QtGui import QColor

MOST_CHARACTERS = 20_000  # beyond, finding the tokens would hold the window up
# Token type -> (dark, light, bold). The first type that holds the token counts, from the inside out.
INKS: dict[str, tuple[str, str, bool]] = {
    "Comment": ("#9AA3AF", "#5B6472", False),
    "Comment.Preproc": ("#C3A6F0", "#6B3FA0", False),
    "Keyword": ("#C3A6F0", "#6B3FA0", True),
    "Operator.Word": ("#C3A6F0", "#6B3FA0", True),
    "Literal.String": ("#7FD1B0", "#00674A", False),
    "Literal.Number": ("#E6A3B8", "#9C2F52", False),
    "Name.Function": ("#E8EAED", "#16191D", True),
    "Name.Class": ("#E8EAED", "#16191D", True),
    "Name.Tag": ("#C3A6F0", "#6B3FA0", True),
    "Name.Attribute": ("#E6A3B8", "#9C2F52", False),
    "Generic.Inserted": ("#7FD1B0", "#00674A", False),
    "Generic.Deleted": ("#E6A3B8", "#9C2F52", False),
}
Span = tuple[int, int, QColor, bool]  # first character, count, ink, bold


def spans(code: str, language: str, dark: bool) -> Iterator[Span]:
    """The coloured parts of `code`, offsets in Unicode code points; nothing for a language nobody knows."""
    if language and len(code) <= MOST_CHARACTERS:
        for start, count, kind in _parts(code, language):
            in_dark, in_light, bold = INKS[kind]
            yield start, count, QColor(in_dark if dark else in_light), bold


@lru_cache(maxsize=256)
def _parts(code: str, language: str) -> tuple[tuple[int, int, str], ...]:
    """(first character, count, key of INKS). Kept, since a new theme draws everything again."""
    lexer = _lexer(language)
    if lexer is None:
        return ()
    found = ((start, len(text), _key(str(kind))) for start, kind, text in lexer(code) if text.strip())
    return tuple((start, count, kind) for start, count, kind in found if kind)


@lru_cache(maxsize=64)
def _lexer(language: str) -> Callable[[str], Iterable[tuple[int, object, str]]] | None:
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(language).get_tokens_unprocessed
    except ClassNotFound:
        return None


@lru_cache(maxsize=512)
def _key(kind: str) -> str:
    """The nearest type with an ink of its own; "" for plain text."""
    kind = kind.removeprefix("Token.")
    while kind and kind not in INKS:
        kind = kind.rpartition(".")[0]
    return kind
