"""Serves the dashboard itself: one page, a style sheet and ES modules from ``app/``, as they are, to everybody.

They hold no data: the modules ask the API for it, within a session. Nothing is built and nothing comes from elsewhere,
so the policy can forbid all that is not a file of this directory.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from trine.server.api.browser import header
from trine.server.dashboard.pages import COMMON_HEADERS, ROOT

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
HEADERS = {
    **COMMON_HEADERS,
    # Trusted types: a text that would become markup or a script is an error of the page, whatever a job is called.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    # Asked for again at every view, answered with 304: after an update nobody sees the modules of before.
    "Cache-Control": "no-cache",
}


def app_files() -> dict[str, bytes]:
    """All files by their path below ``/ui/``; the page itself is the empty path."""
    found = {path: each.read_bytes() for path, each in _walk(files("trine.server.dashboard") / "app", "")}
    found[""] = found.pop("index.html")
    return found


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, Traversable]]:
    below: list[tuple[str, Traversable]] = []
    for each in sorted(folder.iterdir(), key=lambda entry: entry.name):
        path = f"{prefix}{each.name}"
        if each.is_dir():
            below += _walk(each, f"{path}/")
        elif path.rpartition(".")[2] in _TYPES:
            below.append((path, each))
    return below


def app_routes() -> list[Route]:
    """A route for each file: no other path exists, so none can lead out of the directory."""
    return [_route(path, content) for path, content in app_files().items()]


def _route(path: str, content: bytes) -> Route:
    kind = _TYPES[path.rpartition(".")[2]] if path else _TYPES["html"]
    tag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'

    async def answer(request: Request) -> Response:
        headers = {**HEADERS, "ETag": tag}
        if header(request.scope, "if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers={**headers, "Content-Type": kind})

    return Route(f"{ROOT}/{path}" if path else ROOT, answer, methods=["GET"], include_in_schema=False)
