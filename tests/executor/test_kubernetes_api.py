"""Requests to an API server whose answers are cut: silence of the engine, and never an error that nothing expects."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from trine.executor.attempt.remote import EngineUnreachable
from trine.executor.kubernetes.api import ApiRefused, KubernetesApi

pytest.importorskip("urllib3", reason="comes with the extra trine[kubernetes]")


class Server(socketserver.ThreadingTCPServer):
    """Gives the same answer to every request, and hangs up."""

    daemon_threads = True
    answer = b""


class Hangup(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while self.rfile.readline() not in (b"\r\n", b""):
            pass
        assert isinstance(self.server, Server)
        self.wfile.write(self.server.answer)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Hangup) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture
def api(server: Server) -> Iterator[KubernetesApi]:
    known = {"verify_ssl": False, "ssl_ca_cert": None, "cert_file": None, "key_file": None, "tls_server_name": None}
    host = f"http://127.0.0.1:{server.server_address[1]}"
    found = KubernetesApi(SimpleNamespace(host=host, auth_settings=dict, **known), 5.0)
    yield found
    found.close()


@pytest.mark.parametrize("status", [b"403 Forbidden", b"503 Service Unavailable"])
def test_a_refusal_that_is_cut_is_as_good_as_silence(server: Server, api: KubernetesApi, status: bytes) -> None:
    server.answer = b"HTTP/1.1 " + status + b'\r\nContent-Length: 1000\r\n\r\n{"message": "pods is forb'
    with pytest.raises(EngineUnreachable):
        next(api.watch("/api/v1/pods", 5.0))
    with pytest.raises(EngineUnreachable):
        api.get("/api/v1/pods")


def test_a_refusal_that_is_whole_says_why(server: Server, api: KubernetesApi) -> None:
    body = b'{"message": "pods is forbidden"}'
    server.answer = b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with pytest.raises(ApiRefused, match="pods is forbidden"):
        next(api.watch("/api/v1/pods", 5.0))
