"""A self-contained HTML page: the parts that sections are made of, and the one template (``page.html``) around them.

Every text is escaped here; nothing is ever fetched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape, unescape
from importlib.resources import files
from string import Template
from typing import Any

from trine.core.errors import require_extra
from trine.report.data_files import plain
from trine.report.figures import Figure

# The browser itself refuses whatever would reach for the network.
CONTENT_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "font-src data:; form-action 'none'; base-uri 'none'"
)


@dataclass(frozen=True)
class Cell:
    """A table cell: text, whether it is a number (right-aligned), the best of its column, long enough to be wrapped."""

    text: str
    number: bool = True
    best: bool = False
    wrap: bool = False
    detail: str = ""
    """In small letters below the text."""


def embedded_json(value: Any) -> str:
    """JSON that may stand inside a script element: no character of it can end the element."""
    text = json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def figure(figure_id: str, spec: Figure) -> str:
    """The place of a figure and its data; the page's script draws it."""
    data = f'<script type="application/json" id="{figure_id}-data">{embedded_json(spec)}</script>'
    return f'<div class="plot" id="{figure_id}"></div>{data}'


_FIGURE = re.compile(
    r'<h2>(?P<title>[^<]*)</h2>|<div class="plot" id="(?P<id>[^"]+)"></div>'
    r'<script type="application/json" id="[^"]+-data">(?P<spec>.*?)</script>'
)


def figures_of(document: str) -> dict[str, tuple[str, Figure]]:
    """The inverse of ``figure``: title of the section and specification of each figure of a page, by figure id."""
    found: dict[str, tuple[str, Figure]] = {}
    title = ""
    for match in _FIGURE.finditer(document):
        if match["id"] is None:
            title = unescape(match["title"]).replace("\xa0", " ")
        else:
            found[match["id"]] = title, json.loads(match["spec"])
    return found


def empty(sentence: str) -> str:
    return f'<p class="empty">{escape(sentence)}</p>'


def section(title: str, *parts: str, caption: str = "") -> str:
    return f"<section><h2>{_kept_together(title)}</h2>{caption_of(caption)}{''.join(parts)}</section>"


def caption_of(sentence: str) -> str:
    return f'<p class="caption">{_kept_together(sentence)}</p>' if sentence else ""


_BEFORE_UNIT = re.compile(r"(?<=[0-9\]]) (?=(%|s|min|h|d)(?![A-Za-z]))")


def _kept_together(sentence: str) -> str:
    """Escaped, and so that no line begins with the unit of the number before it."""
    return _BEFORE_UNIT.sub("&nbsp;", escape(sentence))


def pair(*sections: str) -> str:
    return f'<div class="pair">{"".join(sections)}</div>'


def cards(values: Iterable[tuple[str, str]]) -> str:
    """Headline numbers; ``values`` are (number, what it is)."""
    inner = "".join(f'<div class="card"><b>{escape(v)}</b><span>{escape(what)}</span></div>' for v, what in values)
    return f'<div class="cards">{inner}</div>'


def notes(cautions: Sequence[str], remarks: Sequence[str] = ()) -> str:
    """What makes the figures less certain, and what else a reader should know of them."""
    return _note_list("Read with care", cautions, "notes caution") + _note_list("Notes", remarks, "notes")


def _note_list(title: str, sentences: Sequence[str], classes: str) -> str:
    items = "".join(f"<li>{escape(s)}</li>" for s in sentences)
    return f'<div class="{classes}"><b>{title}</b><ul>{items}</ul></div>' if items else ""


def table(header: Sequence[Cell], rows: Iterable[Sequence[Cell]]) -> str:
    head = "".join(f"<th{_classes(c)}>{escape(c.text)}</th>" for c in header)
    body = "".join("<tr>" + "".join(f"<td{_classes(c)}>{_content(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _content(cell: Cell) -> str:
    return escape(cell.text) + (f"<small>{escape(cell.detail)}</small>" if cell.detail else "")


def _classes(cell: Cell) -> str:
    names = [name for name, on in (("num", cell.number), ("best", cell.best), ("wrap", cell.wrap)) if on]
    return f' class="{" ".join(names)}"' if names else ""


def settings_table(settings: dict[str, Any]) -> str:
    rows = "".join(f'<tr><td>{escape(k)}</td><td class="wrap">{escape(v)}</td></tr>' for k, v in _flat(plain(settings)))
    return f'<div class="scroll"><table class="settings"><tbody>{rows}</tbody></table></div>'


def _flat(value: Any, prefix: str = "") -> Iterable[tuple[str, str]]:
    """Nested settings as dotted keys, the way they are written on the command line."""
    if not isinstance(value, dict) or not value:
        single = value if isinstance(value, list) else [value]
        yield prefix, ", ".join(v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in single)
        return
    for key, inner in value.items():
        yield from _flat(inner, f"{prefix}.{key}" if prefix else key)


def selector(choices: Sequence[tuple[str, str]]) -> str:
    """A choice that shows one of the page's views; all selectors of a page move together."""
    options = "".join(f'<option value="{escape(v)}">{escape(text)}</option>' for v, text in choices)
    return f'<select data-choice aria-label="policy and placement">{options}</select>'


def view(value: str, content: str, shown: bool) -> str:
    return f'<div data-view="{escape(value)}"{"" if shown else " hidden"}>{content}</div>'


def require_page() -> None:
    """Raise unless this installation can make pages."""
    require_extra("report", "plotly", purpose="report.html needs")


def page(title: str, lead: str, body: Iterable[str]) -> str:
    """The whole document, plotly.js and the page's own script and style included."""
    require_page()
    from plotly.offline import get_plotlyjs

    template, style, script = (
        files("trine.report").joinpath(name).read_text(encoding="utf-8")
        for name in ("page.html", "page.css", "page.js")
    )
    return Template(template).substitute(
        content_policy=CONTENT_POLICY,
        title=escape(title),
        heading=_kept_together(title),
        lead=_kept_together(lead),
        body="\n".join(part for part in body if part),
        style=style,
        plotly=get_plotlyjs(),
        script=script,
    )
