"""Ways to a real daemon: its unix socket, TLS on all addresses, and more idle connections than it has descriptors."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.live import daemon, entry
from trine.client import Client
from trine.client.errors import UntrustedDaemonError

pytestmark = pytest.mark.slow
FEW = 256
"""Descriptors of a daemon that has few."""


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """For localhost and others, signed by itself."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=trine"]
    names = ["-addext", "subjectAltName=DNS:*.example.org,DNS:localhost"]
    subprocess.run([*command, *names, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


@pytest.mark.parametrize("folder", ["state", "s" * 120], ids=["short", "longer than an address holds"])
def test_the_daemon_serves_a_socket_beside_its_port(tmp_path: Path, folder: str) -> None:
    state = tmp_path / folder
    with daemon(state, "--gpus", "1x1") as site:
        site.up()
        url = str(entry(state)["url"])
        token = (state / "token").read_text().strip()
        for way in (Client(state=state), Client(f"unix://{state}/api.sock", token), Client(url, token)):
            with way as client:
                assert client.daemon()["gpus"] == 1
        job = site.client.submit({"run": ["sh", "-c", "echo $TRINE_API"]})[0] if site.client else ""
        with Client(state=state) as client:
            assert client.wait(job, 60)["state"] == "done"
            assert list(client.logs(job)) == [url], "a URL, which every program can use"
        assert site.stop() == 0
        assert not (state / "api.sock").exists()


def test_a_socket_that_a_killed_daemon_left_is_replaced(tmp_path: Path) -> None:
    with daemon(tmp_path / "state", "--gpus", "1x1") as site:
        site.up()
        site.kill()
        assert (tmp_path / "state" / "api.sock").is_socket()
        assert site.up().daemon()["gpus"] == 1


def test_all_addresses_with_tls_and_local_commands_still_work(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = certificate
    state = tmp_path / "state"
    options = ("--gpus", "1x1", "--host", "0.0.0.0", "--tls-cert", str(cert), "--tls-key", str(key))
    with daemon(state, *options) as site:
        assert site.up().daemon()["gpus"] == 1, "over the socket, without any certificate"
        url, token = str(entry(state)["url"]), (state / "token").read_text().strip()
        assert url.startswith("https://localhost:"), "a name that the certificate is valid for"
        with Client(url, token) as client, pytest.raises(UntrustedDaemonError, match=r"self.signed.*SSL_CERT_FILE"):
            client.daemon()
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        with Client(url, token) as client:
            assert client.daemon()["gpus"] == 1
        elsewhere = url.replace("localhost", "127.0.0.1")
        with (
            Client(elsewhere, token) as client,
            pytest.raises(UntrustedDaemonError, match=r"the certificate .* is not valid for 127\.0\.0\.1"),
        ):
            client.daemon()


def test_idle_connections_keep_neither_jobs_nor_clients_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More connections without a token than the daemon has descriptors."""
    state, python = tmp_path / "state", tmp_path / "python"
    python.write_text(f'#!/bin/sh\nulimit -n {FEW}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with daemon(state, "--gpus", "1x4") as site, ExitStack() as stack:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", str(python))
            site.up()
        port, token = int(str(entry(state)["url"]).rpartition(":")[2]), (state / "token").read_text().strip()
        for _ in range(2 * FEW):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        client = stack.enter_context(Client(f"http://127.0.0.1:{port}", token))
        jobs = client.submit([{"run": ["true"]}] * 8)
        assert [client.wait(job, 60)["state"] for job in jobs] == ["done"] * 8
