"""A real Chromium, driven by Playwright. A page that reports an error, breaks the policy or asks another host fails."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.live import Daemon, daemon

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
OPTIONS = ("--no-sandbox", "--disable-background-networking", "--disable-component-update")
Open = Callable[..., Any]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium (apt-get install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright (make .venv/.ready-dev)")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=list(OPTIONS))
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Open]:
    """Opens pages, each in a browser profile of its own; what is wrong with any of them fails the test."""
    contexts, troubles = [], list[str]()

    def opened(url: str, *, allow_failures: bool = False, **options: Any) -> Any:
        context = chromium.new_context(viewport={"width": 1280, "height": 800}, **options)
        contexts.append(context)
        page = context.new_page()
        host = url.split("/")[2]
        page.on("pageerror", lambda error: troubles.append(f"error in the page: {error}"))
        page.on("console", lambda said: _judge(said, troubles, allow_failures))
        page.on("request", lambda asked: troubles.append(asked.url) if asked.url.split("/")[2] != host else None)
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not troubles


def _judge(said: Any, troubles: list[str], allow_failures: bool) -> None:
    """Requests that fail are part of some tests; a violated policy never is."""
    failed = "Failed to load resource" in said.text
    if said.type == "error" and not (failed and (allow_failures or "404" in said.text)):
        troubles.append(said.text)


def free_port() -> int:
    """A port for a daemon that is restarted and has to be found again where it was."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Daemon]:
    with daemon(tmp_path / "state", "--gpus", "2x2", "--event-driven", "--port", str(free_port())) as found:
        found.up()
        yield found


def log_in(page: Any, secret: str) -> None:
    page.get_by_label("Token or code").fill(secret)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("navigation").wait_for()
