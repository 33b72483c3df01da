"""Colours for code: what Pygments makes of it, in inks that no backend uses. Imported when code is shown."""

from collections.abc import Iterator

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
    if not language or len(code) > MOST_CHARACTERS:
        return
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return
    for start, kind, text in lexer.get_tokens_unprocessed(code):
        ink = _ink(str(kind).removeprefix("Token."))
        if ink is not None and text.strip():
            yield start, len(text), QColor(ink[0] if dark else ink[1]), ink[2]


def _ink(kind: str) -> tuple[str, str, bool] | None:
    while kind and kind not in INKS:
        kind = kind.rpartition(".")[0]
    return INKS.get(kind)
