"""A real server on a free loopback port, in a thread of the test process, in front of the fake service."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.api.fake import ADMIN_TOKEN, ANNA_TOKEN, BEN_TOKEN, FakeAuth, FakeService
from trine.server.api.app import build_app
from trine.server.api.gate import Authority
from trine.server.api.limits import Limits
from trine.server.api.serve import bind, serve


class Notes:
    """A request log that keeps its entries."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def info(self, event: str, **values: Any) -> None:
        self.entries.append({"event": event, **values})

    def error(self, event: str, **values: Any) -> None:
        self.entries.append({"event": event, **values})


def eventually(holds: Callable[[], bool], within_s: float = 15) -> None:
    """Return as soon as it holds; fail if it never does."""
    deadline_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


@dataclass
class Running:
    """A server and clients for it."""

    url: str
    service: FakeService
    log: Notes
    loop: asyncio.AbstractEventLoop
    stop: Callable[[], None]
    clients: ExitStack

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def client(self, token: str | None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self.clients.enter_context(httpx.Client(base_url=self.url, headers=headers, timeout=20))

    def noted(self, count: int) -> list[dict[str, Any]]:
        """The request log once it has ``count`` entries (it is written after the answer)."""
        eventually(lambda: len(self.log.entries) >= count)
        return self.log.entries

    def renewed(self, logs: Path) -> Running:
        """As if it had just begun: no jobs, an empty request log."""
        self.service.__init__(logs)  # type: ignore[misc]
        self.log.entries.clear()
        return self

    def finish(self, job_id: str) -> None:
        asyncio.run_coroutine_threadsafe(self.service.finish(job_id), self.loop).result(10)


@contextmanager
def running(service: FakeService, limits: Limits, auth: Authority) -> Iterator[Running]:
    log, started, found = Notes(), threading.Event(), dict[str, Any]()

    async def main() -> None:
        found["stop"], found["loop"] = asyncio.Event(), asyncio.get_running_loop()
        app = build_app(service, auth, limits, log)
        with bind() as listener:
            await serve(app, listener, stop=found["stop"], ready=ready, limits=limits)

    def ready(url: str) -> None:
        found["url"] = url
        started.set()

    def stop() -> None:
        if thread.is_alive():
            found["loop"].call_soon_threadsafe(found["stop"].set)
        thread.join(20)
        assert not thread.is_alive()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert started.wait(20)
    with ExitStack() as clients:
        try:
            yield Running(found["url"], service, log, found["loop"], stop, clients)
        finally:
            stop()


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers: ``start(limits=..., service=..., auth=...)``."""
    with ExitStack() as stack:

        def begin(
            limits: Limits | None = None, service: FakeService | None = None, auth: Authority | None = None
        ) -> Running:
            made = running(service or FakeService(tmp_path), limits or Limits(), auth or FakeAuth())
            return stack.enter_context(made)

        yield begin


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(FakeService(tmp_path_factory.mktemp("logs")), Limits(), FakeAuth()) as server:
        yield server


@pytest.fixture
def server(shared: Running, tmp_path: Path) -> Running:
    return shared.renewed(tmp_path)


@pytest.fixture
def admin(server: Running) -> httpx.Client:
    return server.client(ADMIN_TOKEN)


@pytest.fixture
def anna(server: Running) -> httpx.Client:
    return server.client(ANNA_TOKEN)


@pytest.fixture
def ben(server: Running) -> httpx.Client:
    return server.client(BEN_TOKEN)
