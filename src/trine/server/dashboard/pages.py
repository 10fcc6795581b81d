"""What a page is, how it is found, and the headers all of them have."""

from __future__ import annotations

import base64
import hashlib
import html
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from trine.server import dashboard

ROOT = "/ui"
"""All pages are here or below, and the login: the gate asks for no token here."""

# The colours and letters of the reports; a page of text needs no more of their style.
_STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --panel: #f6f7f9; --ink: #1b1f24; }
@media (prefers-color-scheme: dark) { :root { --paper: #15181d; --panel: #1d2127; --ink: #e6e9ed; } }
body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  max-width: 44rem; margin: 0 auto; padding: 36px 32px 64px; background: var(--paper); color: var(--ink); }
h1 { font-size: 27px; line-height: 1.2; font-weight: 650; }
h2 { font-size: 18px; font-weight: 620; margin: 32px 0 2px; }
pre { background: var(--panel); border-radius: 8px; padding: 12px 14px; overflow-x: auto; }
"""


def _hash_source(text: str) -> str:
    """The one inline text that a policy admits: a page that was tampered with on the way shows no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


COMMON_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
"""Of all pages and files below ``ROOT``."""
HEADERS = {
    **COMMON_HEADERS,
    # No script, no image, no font, no form, no frame: a page is text with one style sheet, whatever is put into it.
    "Content-Security-Policy": f"default-src 'none'; style-src {_hash_source(_STYLE)}; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Page:
    """A page at ``ROOT`` + ``path``; ``body`` makes the HTML inside its ``<body>``, with all texts escaped."""

    path: str
    title: str
    body: Callable[[], str]

    def document(self) -> str:
        title = html.escape(self.title)
        return (
            f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{self.body()}\n</body>\n</html>\n"
        )


def find_pages() -> list[Page]:
    """The pages of all modules beside this one, in the order of their paths."""
    modules = [import_module(f"{dashboard.__name__}.{each.name}") for each in pkgutil.iter_modules(dashboard.__path__)]
    return sorted((module.PAGE for module in modules if hasattr(module, "PAGE")), key=lambda page: page.path)


def page_routes() -> list[Route]:
    """A route for each page; not part of the API, and so not of its description."""
    return [Route(ROOT + page.path, _endpoint(page), methods=["GET"], include_in_schema=False) for page in find_pages()]


def is_page(path: str) -> bool:
    """Whether a path of a request belongs to the pages, one that does not exist included."""
    return path == ROOT or path.startswith(f"{ROOT}/")


def _endpoint(page: Page) -> Callable[[Request], Response]:
    def answer(_: Request) -> Response:
        return HTMLResponse(page.document(), headers=HEADERS)

    return answer
