"""Where a client looks for the daemon, and what it says when there is none."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.client.fake_daemon import TOKEN, FakeDaemon, announce, serving
from trine.client import Client, DaemonError, NoDaemonError
from trine.client.address import find_address, state_directory
from trine.core.errors import InputError


@pytest.fixture
def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HOME": "/h"}, "/h/.local/state/trine"),
        ({"HOME": "/h", "XDG_STATE_HOME": "/x"}, "/x/trine"),
        ({"HOME": "/h", "XDG_STATE_HOME": "/x", "TRINE_STATE": "/t"}, "/t"),
    ],
)
def test_the_state_directory_follows_the_environment(environ: dict[str, str], expected: str) -> None:
    assert state_directory(None, environ) == Path(expected)
    assert state_directory("/mine", environ) == Path("/mine")


def test_arguments_go_before_the_environment_and_that_before_the_state_directory(state: Path) -> None:
    announce(state, "http://127.0.0.1:1", 1)
    here = {"TRINE_STATE": str(state)}
    there = here | {"TRINE_API": "http://there:2", "TRINE_TOKEN": "abc"}
    assert find_address(environ=here).url == "http://127.0.0.1:1"
    assert (find_address(environ=there).url, find_address(environ=there).token) == ("http://there:2", "abc")
    assert find_address(state=state, environ=there).token == TOKEN
    assert find_address("http://mine:3", "xyz", environ=there).url == "http://mine:3"


def test_a_token_can_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("abc\n")
    environ = {"TRINE_API": "http://there:2", "TRINE_TOKEN_FILE": str(tmp_path / "mine")}
    assert find_address(environ=environ).token == "abc"
    (tmp_path / "mine").unlink()
    with pytest.raises(InputError, match="TRINE_TOKEN_FILE"):
        find_address(environ=environ)


def test_ones_own_token_goes_before_that_of_a_directory_that_was_not_named(state: Path) -> None:
    """Else whoever may read both would act as the administrator without a word."""
    announce(state, "http://127.0.0.1:1", 1)
    environ = {"TRINE_STATE": str(state), "TRINE_TOKEN": "mine"}
    assert find_address(environ=environ).token == "mine"
    assert find_address(state=state, environ=environ).token == TOKEN


def test_inside_a_job_the_token_of_the_same_daemon_is_found(state: Path) -> None:
    announce(state, "http://127.0.0.1:1", 1)
    environ = {"TRINE_API": "http://127.0.0.1:1", "TRINE_STATE": str(state)}
    assert find_address(environ=environ).token == TOKEN
    with pytest.raises(InputError, match="no token for http://other:1"):
        find_address(environ=environ | {"TRINE_API": "http://other:1"})


@pytest.mark.parametrize("url", ["localhost:80", "ftp://host", "http://", "http://host:99999", ""])
def test_a_url_that_is_none_is_named(url: str) -> None:
    with pytest.raises(InputError, match="http://HOST:PORT"):
        find_address(url, "abc")


def test_no_daemon_is_one_sentence_with_the_way_out(state: Path) -> None:
    with pytest.raises(NoDaemonError, match=r"no daemon at .*state.*trine up"):
        Client(state=state)


def test_a_daemon_that_died_is_said_to_be_gone_and_no_token_is_sent(state: Path, dead_pid: int) -> None:
    fake = FakeDaemon()
    with serving(fake, state) as url:
        announce(state, url, dead_pid)
        with pytest.raises(NoDaemonError, match=f"process {dead_pid} does not exist.*stale"):
            Client(state=state)
    assert fake.requests == []


def test_nobody_listening_is_said_with_the_address(state: Path) -> None:
    with serving(FakeDaemon(), state) as url:
        pass
    with Client(state=state) as client, pytest.raises(NoDaemonError, match=url):
        client.jobs()


@pytest.mark.parametrize("content", ["{", "[]", "{}", json.dumps({"url": "nonsense", "pid": 1})])
def test_a_damaged_announcement_is_named(state: Path, content: str) -> None:
    state.mkdir()
    (state / "api.json").write_text(content)
    with pytest.raises(InputError, match=r"api\.json"):
        Client(state=state)


def test_a_missing_token_is_named(state: Path) -> None:
    announce(state, "http://127.0.0.1:1", 1)
    (state / "token").unlink()
    with pytest.raises(InputError, match=r"token: cannot be read"):
        Client(state=state)


@pytest.mark.parametrize("token", ["two\nlines", "clé", "a b"])
def test_a_token_that_cannot_be_one_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(InputError, match="visible ASCII") as caught:
        find_address("http://there:2", token)
    assert token not in str(caught.value)


class Stranger(BaseHTTPRequestHandler):
    """Answers, but is no daemon."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>hello</html>")

    def log_message(self, *_: object) -> None:
        pass


def test_a_stranger_at_the_address_is_no_daemon() -> None:
    with HTTPServer(("127.0.0.1", 0), Stranger) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        with Client(url, "abc") as client, pytest.raises(DaemonError, match="is it a trine daemon"):
            client.jobs()
        thread.join()
