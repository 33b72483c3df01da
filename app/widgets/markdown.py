"""A reply that has ended as Markdown: its text, its tables, its code in colours.

What a reply says is never trusted: it shows no pictures, and its links open pages of the web or nothing.
"""

from itertools import accumulate

from PySide6.QtCore import QUrl
from PySide6.QtGui import (
    QFont,
    QFontDatabase,
    QTextBlock,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
    QTextFrameFormat,
    QTextLength,
    QTextTable,
)

from app.theme import Theme, font
from app.widgets.highlight import spans

LINE, CODE_LINE = 24, 20
DIALECT = QTextDocument.MarkdownFeature.MarkdownDialectGitHub | QTextDocument.MarkdownFeature.MarkdownNoHTML
FIRST = "\N{WORD JOINER}"
LINES = "\r\n"
LANGUAGE = QTextFormat.Property.BlockCodeLanguage
RULE = QTextFormat.Property.BlockTrailingHorizontalRulerWidth
QUOTE = QTextFormat.Property.BlockQuoteLevel
WEB = ("http", "https", "mailto")
KEEP = QTextCursor.MoveMode.KeepAnchor


def code_font() -> QFont:
    out = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
    out.setPixelSize(font("label").pixelSize())
    return out


def insert_markdown(cursor: QTextCursor, text: str, theme: Theme) -> None:
    """Write `text` at the cursor, which stands in an empty block at the end of its document."""
    document, start = cursor.document(), cursor.position()
    # Qt gives the first block of what it inserts the shape of the block at the cursor: a heading or a line
    # of code would not be known as one. A first paragraph of our own takes that, and goes.
    cursor.insertMarkdown(f"{FIRST}\n\n{text.strip(LINES) or FIRST}", DIALECT)
    own = QTextCursor(document)
    own.setPosition(start)
    own.setPosition(start + len(FIRST), KEEP)
    own.removeSelectedText()
    block = document.findBlock(start)
    if QTextCursor(block.next()).currentTable() is None:  # deleting up to a table would delete the table
        own.deleteChar()
    _make_safe(document, start, theme)
    runs = _shape(document, start, theme)
    for first, last, language in reversed(runs):  # from the end: frames shift what follows them
        _colour(document, first, last, language, theme)
        _frame(document, first, last, theme)
    cursor.movePosition(QTextCursor.MoveOperation.End)


def code_at(document: QTextDocument, position: int) -> str:
    """The framed code at this position; "" where there is none."""
    cursor = QTextCursor(document)
    cursor.setPosition(position)
    frame = cursor.currentFrame()
    if frame == document.rootFrame() or isinstance(frame, QTextTable):
        return ""
    cursor.setPosition(frame.firstPosition())
    cursor.setPosition(frame.lastPosition(), KEEP)
    return cursor.selectedText().replace("\u2029", "\n")


def _blocks(document: QTextDocument, start: int) -> list[QTextBlock]:
    out, block = [], document.findBlock(start)
    while block.isValid():
        out.append(block)
        block = block.next()
    return out


def _make_safe(document: QTextDocument, start: int, theme: Theme) -> None:
    """Pictures become their names; a link to anything but the web becomes text."""
    changes: list[tuple[int, int, QTextCharFormat]] = []
    for block in _blocks(document, start):
        parts = block.begin()
        while not parts.atEnd():
            part = parts.fragment()
            if part.charFormat().isImageFormat() or part.charFormat().isAnchor():
                changes.append((part.position(), part.length(), part.charFormat()))
            parts += 1
    for position, length, shape in reversed(changes):
        cursor = QTextCursor(document)
        cursor.setPosition(position)
        cursor.setPosition(position + length, KEEP)
        plain = QTextCharFormat()
        plain.setFont(font("body"))
        plain.setForeground(theme.text)
        if shape.isImageFormat():
            name = shape.property(QTextFormat.Property.ImageAltText) or shape.toImageFormat().name()
            cursor.insertText(f"[picture: {name}]", plain)
        elif QUrl(shape.anchorHref()).scheme() not in WEB:
            cursor.setCharFormat(plain)
        else:
            shape.setForeground(theme.text)
            shape.setFontUnderline(True)
            shape.setToolTip(shape.anchorHref())
            cursor.setCharFormat(shape)


def _shape(document: QTextDocument, start: int, theme: Theme) -> list[tuple[int, int, str]]:
    """Line heights, margins and headings. Returns the runs of code: (first, last position, language)."""
    runs: list[tuple[int, int, str]] = []
    inside, tables = "", {}  # the language of the run of code so far
    for block in _blocks(document, start):
        cursor = QTextCursor(block)
        cursor.movePosition(QTextCursor.MoveOperation.EndOfBlock, KEEP)
        before, shape = block.blockFormat(), QTextBlockFormat()
        special = (
            any(before.hasProperty(p) for p in (LANGUAGE, RULE)) or block.textList() or cursor.currentTable()
        )
        if not block.text() and not special:  # Qt puts one on either side of a table
            _flatten(block)
            inside = ""
            continue
        code = before.hasProperty(LANGUAGE)
        language = "code " + str(before.property(LANGUAGE) or "").split(" ")[0] if code else ""
        table = cursor.currentTable()
        margin = 0 if code or table is not None else 4 if block.textList() else 8
        shape.setTopMargin(margin)
        shape.setBottomMargin(0)
        height = CODE_LINE if code else LINE
        shape.setLineHeight(height, QTextBlockFormat.LineHeightTypes.MinimumHeight.value)
        shape.setNonBreakableLines(False)  # a long line wraps: nothing is cut at the right
        if before.hasProperty(QUOTE):
            shape.setLeftMargin(16 * int(before.property(QUOTE)))
            shape.setRightMargin(0)
        cursor.mergeBlockFormat(shape)
        if before.headingLevel():
            heading = QTextCharFormat()
            heading.setFont(font("body", bold=True))
            heading.setForeground(theme.text)
            heading.setProperty(QTextFormat.Property.FontSizeAdjustment, 0)  # four sizes on the screen
            cursor.mergeCharFormat(heading)
        if code:
            first = runs.pop()[0] if inside == language else block.position()
            runs.append((first, block.position() + block.length() - 1, language.removeprefix("code ")))
        else:
            _use_code_font(block)
        inside = language
        if table is not None:
            tables[table.firstPosition()] = table
    for table in tables.values():
        _shape_table(table, theme)
    return runs


def _use_code_font(block: QTextBlock) -> None:
    """`inline` code, in the size of the labels."""
    found, parts = [], block.begin()
    while not parts.atEnd():
        if parts.fragment().charFormat().fontFixedPitch():
            found.append((parts.fragment().position(), parts.fragment().length()))
        parts += 1
    for position, length in found:
        cursor = QTextCursor(block)
        cursor.setPosition(position)
        cursor.setPosition(position + length, KEEP)
        shape = QTextCharFormat()
        shape.setFont(code_font())
        cursor.mergeCharFormat(shape)


def _shape_table(table: QTextTable, theme: Theme) -> None:
    shape = table.format()
    shape.setBorderCollapse(True)
    shape.setBorder(1)
    shape.setBorderBrush(theme.strong)
    shape.setBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_Solid)
    shape.setCellPadding(4)
    shape.setCellSpacing(0)
    shape.setTopMargin(8)
    # The panel is narrow: columns share its width, and their text wraps.
    shape.setWidth(QTextLength(QTextLength.Type.PercentageLength, 100))
    table.setFormat(shape)


def _colour(document: QTextDocument, first: int, last: int, language: str, theme: Theme) -> None:
    cursor = QTextCursor(document)
    cursor.setPosition(first)
    cursor.setPosition(last, KEEP)
    plain = QTextCharFormat()
    plain.setFont(code_font())
    plain.setForeground(theme.text)
    cursor.setCharFormat(plain)
    code = cursor.selectedText().replace("\u2029", "\n")
    # Qt counts in UTF-16, Pygments in code points: they differ after an emoji.
    at = list(accumulate((1 + (ord(c) > 0xFFFF) for c in code), initial=first))
    for start, count, ink, bold in spans(code, language, theme.name == "dark"):
        shape = QTextCharFormat()
        shape.setForeground(ink)
        if bold:
            shape.setFontWeight(QFont.Weight.DemiBold)
        cursor.setPosition(at[start])
        cursor.setPosition(at[start + count], KEEP)
        cursor.mergeCharFormat(shape)


def _frame(document: QTextDocument, first: int, last: int, theme: Theme) -> None:
    """Around a run of code."""
    cursor = QTextCursor(document)
    cursor.setPosition(first)
    if cursor.currentList() is not None or cursor.blockFormat().indent() or cursor.currentTable():
        return  # a frame would tear the list apart
    cursor.setPosition(last, KEEP)
    shape = QTextFrameFormat()
    shape.setBackground(theme.window)
    shape.setBorder(1)
    shape.setBorderBrush(theme.line)
    shape.setBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_Solid)
    shape.setPadding(8)
    shape.setTopMargin(8)
    shape.setBottomMargin(0)
    frame = cursor.insertFrame(shape)
    # Qt leaves an empty line on either side.
    for position in (frame.firstPosition() - 1, frame.lastPosition() + 1):
        block = document.findBlock(position)
        if not block.text():
            _flatten(block)


def _flatten(block: QTextBlock) -> None:
    cursor = QTextCursor(block)
    shape = QTextBlockFormat()
    shape.setTopMargin(0)
    shape.setLineHeight(1, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
    cursor.setBlockFormat(shape)
