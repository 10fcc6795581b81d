"""Serves the API inside the daemon's event loop: one socket, no signal handlers of its own, a clean end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from trine.core.errors import InputError
from trine.server.api.limits import DEFAULT, Limits
from trine.server.api.protocol import limited_protocol

if TYPE_CHECKING:
    from fastapi import FastAPI

LOOPBACK = "127.0.0.1"


async def serve(
    app: FastAPI,
    listener: socket.socket,
    *,
    stop: asyncio.Event,
    ready: Callable[[str], None],
    limits: Limits = DEFAULT,
    tls: tuple[Path, Path] | None = None,
) -> None:
    """Serve on ``listener`` (see ``bind``) until ``stop`` is set. ``ready`` gets the URL once clients can connect.

    ``tls`` is a certificate and its key. On ``stop`` open requests have ``limits.shutdown_s`` to end.
    """
    server = _Server(_config(app, limits, tls))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    stopping = asyncio.create_task(stop.wait())
    try:
        await _until_started(server, serving)
        ready(url_of(listener, secure=tls is not None))
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        app.state.watches.close()
        server.should_exit = True
        await serving


def bind(host: str = LOOPBACK, port: int = 0) -> socket.socket:
    """A listening socket, or one sentence saying why not; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    expected = "an address of this machine and a free port up to 65535 (0 takes any free port)"
    if not 0 <= port <= 65_535:
        raise InputError(f"{host}:{port}", "cannot listen there (no such port)", expected)
    try:
        return socket.create_server((host, port), family=family, backlog=1_024)
    except OSError as error:
        raise InputError(f"{host}:{port}", f"cannot listen there ({error.strerror})", expected) from None


def url_of(listener: socket.socket, secure: bool = False) -> str:
    host, port = listener.getsockname()[:2]
    return f"{'https' if secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect; an operator who opens the API should use TLS."""
    return host in ("localhost", "::1") or host.startswith("127.")


class _Server(uvicorn.Server):
    """Leaves signals to the daemon."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _config(app: FastAPI, limits: Limits, tls: tuple[Path, Path] | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=limited_protocol(limits),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(limits.idle_s),
        timeout_graceful_shutdown=int(limits.shutdown_s),
        ssl_certfile=tls[0] if tls else None,
        ssl_keyfile=tls[1] if tls else None,
    )


async def _until_started(server: uvicorn.Server, serving: asyncio.Task[None]) -> None:
    while not server.started and not serving.done():
        await asyncio.sleep(0.005)
