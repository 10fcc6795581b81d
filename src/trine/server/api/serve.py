"""Serves the API inside the daemon's event loop, over TCP and on a unix socket: no signal handlers, a clean end."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn

from trine.core.errors import InputError
from trine.server.api.limits import DEFAULT, Limits
from trine.server.api.protocol import limited_protocol

if TYPE_CHECKING:
    from fastapi import FastAPI

LOOPBACK = "127.0.0.1"
USUAL_PORT = 7460
"""Where a daemon listens if nothing is said and the port is free."""
SOCKET = "api.sock"
"""The daemon's unix socket in its state directory."""
_BACKLOG = 1_024
_LONGEST_PATH = 107
"""Bytes that the address of a unix socket can hold."""
_ANY = {"0.0.0.0": LOOPBACK, "::": "::1"}


async def serve(
    app: FastAPI,
    listener: socket.socket,
    *,
    stop: asyncio.Event,
    ready: Callable[[str], None],
    limits: Limits = DEFAULT,
    tls: tuple[Path, Path] | None = None,
    local: socket.socket | None = None,
) -> None:
    """Serve on ``listener`` (see ``bind``) until ``stop`` is set. ``ready`` gets the URL once clients can connect.

    ``tls`` is a certificate and its key; ``local`` (see ``bind_local``) is served beside it, without TLS. On ``stop``
    open requests have ``limits.shutdown_s`` to end.
    """
    server = _Server(_config(app, limits, tls), local)
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


def bind(host: str = LOOPBACK, port: int | None = 0) -> socket.socket:
    """A listening socket, or one sentence saying why not.

    Port 0 takes a free one; ``None`` the usual one, or a free one if that is taken.
    """
    if port is None:
        with suppress(InputError):
            return bind(host, USUAL_PORT)
        return bind(host, 0)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    expected = "an address of this machine and a free port up to 65535 (0 takes any free port)"
    if not 0 <= port <= 65_535:
        raise InputError(f"{host}:{port}", "cannot listen there (no such port)", expected)
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise InputError(f"{host}:{port}", f"cannot listen there ({error.strerror})", expected) from None


@contextmanager
def bind_local(state: Path) -> Iterator[socket.socket | None]:
    """A listening unix socket in ``state``; ``None`` where the file system cannot hold one.

    All users that may enter the directory can connect: tokens decide, as they do over TCP. What a daemon before left
    there is replaced, so only the daemon that holds the lock of the state directory may call this.
    """
    path = state / SOCKET
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        with _short(path) as address:
            listener.bind(address)
        path.chmod(0o666)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            raise InputError(str(path), f"cannot be made ({error.strerror})", "a socket of the daemon") from None
        yield None
        return
    try:
        yield listener
    finally:
        listener.close()
        path.unlink(missing_ok=True)


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """A name of ``path`` that fits into the address of a socket: a long one goes by way of its open directory."""
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def usable_url(host: str, listener: socket.socket, tls: tuple[Path, Path] | None = None) -> str:
    """The URL by which programs on this machine reach ``listener``, which listens on ``host``.

    Clients cannot connect to a wildcard address, and a certificate is valid for the names in it only.
    """
    bound = str(listener.getsockname()[0])
    reached = _ANY.get(bound, bound)
    names = certificate_names(tls[0]) if tls is not None else []
    if names and reached not in names:
        fitting = [host, "localhost", socket.gethostname(), socket.getfqdn()]
        plain = [name for name in names if "*" not in name]
        reached = next((name for name in [*fitting, *plain] if name in plain), reached)
    shown = f"[{reached}]" if ":" in reached else reached
    return f"{'https' if tls else 'http'}://{shown}:{listener.getsockname()[1]}"


def certificate_names(certificate: Path) -> list[str]:
    """The names and addresses that a certificate is valid for; empty if they cannot be read."""
    try:
        # The one decoder in the standard library that needs no connection.
        decoded = ssl._ssl._test_decode_cert(str(certificate))  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return []
    return [name for kind, name in decoded.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]


def url_of(listener: socket.socket, secure: bool = False) -> str:
    host, port = listener.getsockname()[:2]
    return f"{'https' if secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect; an operator who opens the API should use TLS."""
    return host in ("localhost", "::1") or host.startswith("127.")


class _Server(uvicorn.Server):
    """Leaves signals to the daemon, and serves a unix socket beside the sockets of uvicorn."""

    def __init__(self, config: uvicorn.Config, local: socket.socket | None) -> None:
        super().__init__(config)
        self._local = local

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._local is not None:
            loop = asyncio.get_running_loop()
            server = await loop.create_unix_server(self._protocol, sock=self._local, backlog=self.config.backlog)
            self.servers.append(server)  # closed with the others

    def _protocol(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

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
        backlog=max(1, min(_BACKLOG, limits.connections // 2)),
        timeout_keep_alive=int(limits.idle_s),
        timeout_graceful_shutdown=int(limits.shutdown_s),
        ssl_certfile=tls[0] if tls else None,
        ssl_keyfile=tls[1] if tls else None,
    )


async def _until_started(server: uvicorn.Server, serving: asyncio.Task[None]) -> None:
    while not server.started and not serving.done():
        await asyncio.sleep(0.005)
