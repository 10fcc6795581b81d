"""A local daemon is reached by its unix socket, and only one of the expected user is told the token."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer

import pytest

from tests.client.fake_daemon import TOKEN, announce
from trine.client import Client, DaemonError, NoDaemonError
from trine.client.address import find_address
from trine.client.errors import UntrustedDaemonError
from trine.client.transport import _tls_problem
from trine.core.errors import InputError

_LISTEN = """
import os, socket, sys
os.setuid(65534)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("listens", flush=True)
connection, _ = listener.accept()
print(len(connection.recv(1000)), flush=True)
"""


class Nodes(BaseHTTPRequestHandler):
    """Answers every question with no nodes; keeps the tokens it was told."""

    tokens: list[str]

    def do_GET(self) -> None:
        self.tokens.append(self.headers["Authorization"])
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        return self.socket.accept()[0], ("local", 0)


@contextmanager
def listening(path: Path) -> Iterator[list[str]]:
    """A daemon on a unix socket; yields the tokens it is told."""
    tokens: list[str] = []
    here = Path.cwd()
    os.chdir(path.parent)  # an address holds 107 bytes
    try:
        server = Server(path.name, type("Handler", (Nodes,), {"tokens": tokens}))
    finally:
        os.chdir(here)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield tokens
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def announce_socket(state: Path, url: str) -> None:
    announce(state, url, os.getpid())
    entry = state / "api.json"
    entry.write_text(json.dumps(json.loads(entry.read_text()) | {"socket": "api.sock"}))


@pytest.mark.parametrize("folder", ["state", "s" * 150], ids=["short", "longer than an address holds"])
def test_a_state_directory_leads_to_its_socket_and_never_to_the_port(tmp_path: Path, folder: str) -> None:
    """Whoever listens on the daemon's port, now that it is away, learns no token."""
    state = tmp_path / folder
    with socket.create_server(("127.0.0.1", 0)) as thief:
        thief.setblocking(False)
        announce_socket(state, f"http://127.0.0.1:{thief.getsockname()[1]}")
        with listening(state / "api.sock") as tokens, Client(state=state) as client:
            assert client.nodes() == []
        assert tokens == [f"Bearer {TOKEN}"]
        with Client(state=state) as client, pytest.raises(NoDaemonError, match="no daemon answers at unix://"):
            client.nodes()
        with pytest.raises(BlockingIOError):
            thief.accept()


def test_an_api_can_be_named_by_its_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(tmp_path / "api.sock") as tokens:
        monkeypatch.setenv("TRINE_API", f"unix://{tmp_path}/api.sock")
        monkeypatch.setenv("TRINE_TOKEN", "mine")
        with Client() as client:
            assert client.nodes() == []
        monkeypatch.delenv("TRINE_TOKEN")
        (tmp_path / "token").write_text("beside")
        with Client() as client:
            client.nodes()
    assert tokens == ["Bearer mine", "Bearer beside"]


@pytest.mark.parametrize("url", ["unix://api.sock", "unix://", "unix:/api.sock"])
def test_a_socket_without_its_whole_path_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="unix:///PATH/OF/SOCKET"):
        find_address(url, "abc")


def test_a_daemon_of_another_user_is_reached_with_a_token_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its announcement may not be read, but its socket can be used."""
    with listening(tmp_path / "api.sock") as tokens:
        monkeypatch.setattr(Path, "read_text", _forbidden)
        monkeypatch.setenv("TRINE_TOKEN", "mine")
        with Client(state=tmp_path) as client:
            assert client.nodes() == []
    assert tokens == ["Bearer mine"]


def _forbidden(path: Path, *_: object, **__: object) -> str:
    raise PermissionError(13, "Permission denied", str(path))


def test_a_socket_of_the_wrong_user_is_told_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        with tempfile.TemporaryDirectory() as folder:  # others can pass through its parents, unlike those of tmp_path
            Path(folder).chmod(0o777)
            _stranger_is_told_nothing(Path(folder) / "api.sock")
        return
    found = os.fstat

    def elsewhere(descriptor: int) -> os.stat_result:
        values = list(found(descriptor))
        values[4] = os.geteuid() + 1
        return os.stat_result(values)

    with listening(tmp_path / "api.sock") as tokens, Client(f"unix://{tmp_path}/api.sock", "secret") as client:
        monkeypatch.setattr(os, "fstat", elsewhere)
        with pytest.raises(UntrustedDaemonError, match="nothing was sent"):
            client.nodes()
    assert tokens == []


def _stranger_is_told_nothing(path: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", _LISTEN, str(path)], stdout=subprocess.PIPE, text=True)
    assert stranger.stdout is not None and stranger.stdout.readline() == "listens\n"
    try:
        with (
            Client(f"unix://{path}", "secret") as client,
            pytest.raises(UntrustedDaemonError, match="is served by user 65534, but its directory belongs to user 0"),
        ):
            client.nodes()
        assert stranger.stdout.readline() == "0\n"
    finally:
        stranger.kill()
        stranger.wait()
        stranger.stdout.close()


def test_an_older_daemon_without_a_socket_is_reached_by_its_url(tmp_path: Path) -> None:
    announce(tmp_path, "http://127.0.0.1:1", os.getpid())
    assert find_address(state=tmp_path).url == "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("code", "words", "told"),
    [
        (62, "Hostname mismatch", "is not valid for gpu1; use a name that it was made for"),
        (64, "IP address mismatch", "is not valid for gpu1"),
        (18, "self-signed certificate", "is not trusted here (self-signed certificate).*SSL_CERT_FILE"),
        (10, "certificate has expired", "certificate has expired"),
    ],
)
def test_what_is_wrong_with_a_certificate_is_said(code: int, words: str, told: str) -> None:
    import re

    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, words
    sentence = _tls_problem("https://gpu1:7460", error)
    assert sentence.startswith("the certificate of the daemon at https://gpu1:7460 ")
    assert re.search(told.replace("(", r"\(").replace(")", r"\)"), sentence)


def test_plain_http_where_tls_is_expected_is_said_to_be_no_tls(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as plain:
        port = plain.getsockname()[1]

        def answer() -> None:
            connection, _ = plain.accept()
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with (
            Client(f"https://127.0.0.1:{port}", "abc") as client,
            pytest.raises(DaemonError, match="no TLS connection"),
        ):
            client.nodes()
        thread.join(10)
