"""``trine dashboard`` hands a browser a login without a secret that other users of the machine could read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.live import Daemon, daemon, until


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with daemon(tmp_path_factory.mktemp("live") / "state", "--gpus", "1x2", "--port", "0") as found:
        found.up()
        yield found


def dashboard(live: Daemon, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")}
    command = [sys.executable, "-m", "trine", "dashboard", "--state", str(live.state), *options]
    return subprocess.run(command, env=kept | variables, capture_output=True, text=True, timeout=60, check=True)


def address(live: Daemon) -> str:
    assert live.client is not None
    return f"{live.client.dashboard_url()}/ui"


def log_in(live: Daemon, code: str) -> dict[str, str] | None:
    """The headers of a session; none if the code is not good."""
    answer = httpx.post(f"{address(live)}/login", json={"secret": code})
    if answer.status_code != 200:
        return None
    cookies = "; ".join(f"{name}={value}" for name, value in answer.cookies.items())
    return {"Cookie": cookies, "Trine-Proof": answer.json()["proof"]}


def session_of(live: Daemon, session: dict[str, str]) -> httpx.Response:
    return httpx.get(f"{address(live).removesuffix('/ui')}/v1/session", headers=session)


def test_a_browser_is_given_a_private_file_with_a_code_that_is_good_once(live: Daemon, tmp_path: Path) -> None:
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$@" > {opened}.new\nmv {opened}.new {opened}\n')
    browser.chmod(0o755)
    said = dashboard(live, BROWSER=f"{browser} %s", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert f"{address(live)} opens in your browser" in said.stdout + said.stderr
    until(opened.exists, "the browser to be started")
    file = Path(opened.read_text().strip().removeprefix("file://"))
    assert file.stat().st_mode & 0o077 == 0 and file.parent.stat().st_mode & 0o077 == 0
    found = re.search(rf"url={re.escape(address(live))}#code=([A-Z0-9-]+)\"", file.read_text())
    assert found is not None
    code = found.group(1)
    assert code not in opened.read_text() + said.stdout + said.stderr
    session = log_in(live, code)
    assert session is not None and log_in(live, code) is None
    assert session_of(live, session).json()["admin"]


def test_without_a_screen_the_address_and_a_code_are_printed_and_logins_end_together(live: Daemon) -> None:
    assert _code(dashboard(live, "--print", BROWSER="/bin/false %s").stdout)
    said = dashboard(live).stdout
    assert said.startswith(f"{address(live)}\n")
    session = log_in(live, _code(said))
    assert session is not None and session_of(live, session).status_code == 200
    dashboard(live, "--log-out")
    assert session_of(live, session).status_code == 401


def _code(said: str) -> str:
    found = re.search(r"Log in with the code ([A-Z0-9-]+),", said)
    assert found is not None
    return found.group(1)


def test_a_daemon_says_where_its_dashboard_is(tmp_path: Path) -> None:
    with daemon(tmp_path / "state", "--gpus", "1x1", "--port", "0") as found:
        found.up()
        assert found.process is not None and found.process.stderr is not None
        said = found.process.stderr.readline().decode()
        assert f"dashboard: {address(found)} (trine dashboard)" in said
        assert httpx.get(address(found)).status_code == 200
