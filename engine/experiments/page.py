"""The HTML page of a report: one file, no script, nothing fetched, readable in print."""

import re
from html import escape
from typing import TYPE_CHECKING

from engine.experiments import svg

if TYPE_CHECKING:
    from engine.experiments.report import Report, Table

_NUMBER = re.compile(r"^[+\u2212-]?[\d,.]+( \u00b1 [\d,.]+)?( %)?$|^n/a$|^$")
_STYLE = f"""
:root {{ color-scheme: light; }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; background: #F7F8FA; color: {svg.TEXT}; font: 15px/24px {svg.FONTS};
 font-variant-numeric: tabular-nums; }}
main {{ max-width: 1120px; margin: 0 auto; padding: 40px 24px 80px; }}
header p.kind {{ color: {svg.MUTED}; margin: 0 0 8px; }}
h1 {{ font-size: 32px; line-height: 40px; font-weight: 600; margin: 0 0 16px; text-wrap: balance; }}
h2 {{ font-size: 20px; line-height: 28px; font-weight: 600; margin: 48px 0 12px; }}
h3 {{ font-size: 15px; font-weight: 600; margin: 24px 0 8px; }}
p {{ margin: 0 0 12px; max-width: 84ch; }}
.good {{ color: {svg.GOOD}; }} .bad {{ color: {svg.BAD}; }} .muted {{ color: {svg.MUTED}; }}
.mark {{ display: inline-block; border: 1px dashed {svg.EMULATED}; border-radius: 4px; color: {svg.EMULATED};
 padding: 2px 12px; margin-bottom: 20px; }}
.lead {{ font-size: 18px; line-height: 28px; }}
figure, .table {{ background: #FFF; border: 1px solid {svg.LINE}; border-radius: 8px; margin: 0 0 24px;
 overflow-x: auto; }}
figure svg {{ display: block; width: 100%; height: auto; }}
.table {{ padding: 8px 16px 16px; }} .table p.muted {{ margin: 12px 0 0; font-size: 13px; }}
table {{ border-collapse: collapse; width: 100%; }}
th {{ color: {svg.MUTED}; font-weight: 400; font-size: 13px; text-align: left; vertical-align: bottom; }}
th, td {{ padding: 6px 16px 6px 0; border-bottom: 1px solid {svg.GRID}; white-space: nowrap; }}
td.words {{ white-space: normal; min-width: 12em; }}
td.n, th.n {{ text-align: right; }} tr:last-child td {{ border-bottom: 0; }}
td:first-child {{ font-weight: 600; }} [title] {{ cursor: help; }}
pre {{ background: #FFF; border: 1px solid {svg.LINE}; border-radius: 8px; padding: 16px;
 font: 13px/20px ui-monospace, Menlo, 'DejaVu Sans Mono', monospace; white-space: pre-wrap; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: 4px 24px; margin: 0; }}
dt {{ font-weight: 600; }} dd {{ margin: 0; color: {svg.MUTED}; }}
@media print {{ body {{ background: #FFF; }} figure, .table {{ break-inside: avoid; }} }}
"""


def page(report: "Report") -> str:
    """The whole page."""
    definitions = dict(report.definitions)
    mark = ""
    if report.mark.strong:
        mark = f'<div class="mark"><b>{report.mark.strong}</b> {escape(report.mark.words)}</div>'
    out = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(report.title)}</title><style>{_STYLE}</style></head><body><main>",
        f'<header><p class="kind">{escape(report.title)}</p>{mark}',
        f'<h1 class="{report.tone}">{_prose(report.headline)}</h1>',
        *(f'<p class="lead">{_prose(s)}</p>' for s in report.summary),
        "</header>",
    ]
    for section in report.sections:
        out.append(f"<section><h2>{escape(section.title)}</h2>")
        if section.words:
            out.append(f"<p>{_prose(section.words)}</p>")
        for part in section.parts:
            drawing = getattr(part, "drawing", None)
            if drawing is not None:
                out.append(f"<figure>{drawing}</figure>")
            else:
                out.append(_table(part, definitions, report.mark.strong))  # type: ignore[arg-type]
        out.append("</section>")
    commands = escape("\n".join(report.commands))
    out.append(f"<section><h2>Repeat it</h2><pre>{commands}</pre>{_list(report.facts)}</section>")
    out.append(f"<section><h2>Definitions</h2>{_list(report.definitions)}</section>")
    out.append("</main></body></html>\n")
    return "\n".join(out)


def _prose(words: str) -> str:
    """A percent sign stays with its number."""
    return escape(words).replace(" %", "&nbsp;%")


def _table(table: "Table", definitions: dict[str, str], mark: str) -> str:
    kinds = []
    for i in range(len(table.columns)):
        cells = [row[i] for row in table.rows]
        long = any(len(c) > 34 for c in cells)
        kinds.append("n" if i and all(_NUMBER.match(c) for c in cells) else "words" if long else "")
    head = "".join(
        f'<th class="{k if k == "n" else ""}"{_hint(c, definitions)}>{escape(c)}</th>'
        for c, k in zip(table.columns, kinds, strict=True)
    )
    rows = []
    for r, row in enumerate(table.rows):
        cells = []
        for c, cell in enumerate(row):
            tone = table.tones.get((r, c), "")
            hint = _hint(cell, definitions) if c == 0 else ""
            cells.append(f'<td class="{kinds[c]} {tone}"{hint}>{escape(cell)}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    title = f"{escape(table.title)} " if table.title else ""
    marked = f'<span style="color:{svg.EMULATED}">{mark}</span>' if mark else ""
    note = f'<p class="muted">{_prose(table.note)}</p>' if table.note else ""
    return (
        f'<div class="table"><h3>{title}{marked}</h3><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>{note}</div>"
    )


def _hint(words: str, definitions: dict[str, str]) -> str:
    name = words.rsplit(",", 1)[0]
    return f' title="{escape(definitions[name], quote=True)}"' if name in definitions else ""


def _list(pairs: "tuple[tuple[str, str], ...]") -> str:
    return "<dl>" + "".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in pairs) + "</dl>"
