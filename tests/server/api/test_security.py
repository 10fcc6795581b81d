"""Hostile and broken clients: refused, nothing leaks, and the server lives on."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from tests.server.api.conftest import Running, Start, eventually, running
from tests.server.api.fake import ADMIN_TOKEN, ANNA_TOKEN, BEN_TOKEN, FakeAuth, FakeService
from trine.server.api.limits import Limits, connections_within
from trine.server.interface import Caller

JOB = {"run": "python train.py"}
PATHS = [
    "/v1/jobs",
    "/v1/jobs/1",
    "/v1/jobs/1/log",
    "/v1/nodes",
    "/v1/daemon",
    "/metrics",
    "/openapi.json",
    "/docs",
    "/",
]


@pytest.fixture(scope="module")
def short_of_time(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    limits = Limits(header_s=0.3, body_s=0.3, send_s=0.3, idle_s=1, header_bytes=8_192, connections=20)
    with running(FakeService(tmp_path_factory.mktemp("logs")), limits, FakeAuth()) as server:
        yield server


@pytest.fixture
def impatient(short_of_time: Running, tmp_path: Path) -> Running:
    return short_of_time.renewed(tmp_path)


def raw(server: Running, *parts: bytes, timeout_s: float = 10) -> bytes:
    """What the server says to these bytes until it closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout_s) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            return b"".join(iter(lambda: connection.recv(65_536), b""))
        except (BrokenPipeError, ConnectionResetError):
            return b""


def head(*headers: str, method: str = "POST", path: str = "/v1/jobs") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def assert_alive(server: Running) -> None:
    assert httpx.get(f"{server.url}/healthz").text == "ok\n"
    assert server.client(ANNA_TOKEN).post("/v1/jobs", json=JOB).status_code == 201


@pytest.mark.parametrize("path", PATHS)
def test_nothing_without_a_token(server: Running, path: str) -> None:
    answer = server.client(None).get(path)
    assert answer.status_code == 401 and answer.json()["code"] == "unauthorized"
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        f"Bearer {ANNA_TOKEN[:-1]}",
        f"Bearer {ANNA_TOKEN}x",
        f"Bearer {ANNA_TOKEN},{ADMIN_TOKEN}",
        f"Basic {ANNA_TOKEN}",
        ANNA_TOKEN,
        "Bearer " + "x" * 5_000,
        "Bearer \xff\xfe",
    ],
)
def test_nothing_with_a_wrong_token(server: Running, header: str) -> None:
    for method, path in (("POST", "/v1/jobs"), ("GET", "/v1/jobs"), ("POST", "/v1/nodes/node0/drain")):
        request = {"headers": {"Authorization": header.encode("latin-1")}, "json": JOB if method == "POST" else None}
        assert httpx.request(method, server.url + path, **request).status_code == 401  # type: ignore[arg-type]
    assert server.service.views == {} and server.service.node.state == "up"


def test_a_token_in_the_query_does_not_count(server: Running) -> None:
    assert httpx.get(f"{server.url}/v1/jobs?token={ANNA_TOKEN}").status_code == 401


def test_tokens_are_never_logged(server: Running) -> None:
    server.client(ANNA_TOKEN).get("/v1/jobs")
    server.client("deadbeef" * 8).get(f"/v1/jobs?token={ADMIN_TOKEN}")
    noted = str(server.noted(2))
    assert not [token for token in (ANNA_TOKEN, ADMIN_TOKEN, "deadbeef") if token in noted]


def test_health_says_only_ok(server: Running) -> None:
    answer = httpx.get(f"{server.url}/healthz")
    assert answer.text == "ok\n" and "server" not in answer.headers


def test_anothers_job_looks_like_no_job(anna: httpx.Client, ben: httpx.Client, admin: httpx.Client) -> None:
    anna.post("/v1/jobs", json=JOB)
    for path in ("1", "1/explain", "1/log", "1/wait"):
        assert ben.get(f"/v1/jobs/{path}").json() == {"code": "not-found", "message": "There is no job 1.", "field": ""}
    for verb in ("cancel", "hold", "release"):
        assert ben.post(f"/v1/jobs/1/{verb}").status_code == 404
    assert ben.post("/v1/jobs/1/priority", json={"priority": 1}).status_code == 404
    assert ben.get("/v1/jobs?state=all").json() == []
    assert admin.get("/v1/jobs/1").json()["state"] == "waiting"


@pytest.mark.parametrize(
    "name", ["..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "1%00", "1%0a", "1;ls", "%ff", "1%2f..%2f2"]
)
def test_ids_and_names_reach_no_file(admin: httpx.Client, name: str) -> None:
    for path in (f"/v1/jobs/{name}/log", f"/v1/jobs/{name}", f"/v1/nodes/{name}/drain"):
        method = "POST" if path.endswith("drain") else "GET"
        request = admin.build_request(method, "/")
        request.url = request.url.copy_with(raw_path=path.encode())
        assert admin.send(request).status_code in (404, 405, 422)


@pytest.mark.parametrize(
    "body",
    [
        b'{"run": "x", "workdir": "/data/../../etc"}',
        b'{"run": "x", "checkpoint": {"dir": "/a/../b"}}',
        b'{"run": "x", "name": "../../x"}',
        b'{"run": "x", "steps": NaN}',
        b'{"run": "x", "priority": -Infinity}',
        b"[" * 200_000,
        b'{"a":' * 150_000,
        b'{"env": ' + b'{"a":' * 150_000,
        b"\xff\xfe\x00",
        b"",
        b'{"run": "\\ud800"}',
        b"a: &a [lol,lol]\nb: [*a,*a]\n",
    ],
)
def test_hostile_bodies(anna: httpx.Client, server: Running, body: bytes) -> None:
    answer = anna.post("/v1/jobs", content=body)
    assert answer.status_code == 422 and answer.json()["code"] == "invalid"
    assert len(answer.text) < 1_000 and server.service.views == {}


def test_a_list_that_is_too_long(anna: httpx.Client, server: Running) -> None:
    answer = anna.post("/v1/jobs", json=[JOB] * 1_001)
    assert answer.status_code == 422 and "at most 1,000" in answer.json()["message"]
    assert server.service.views == {}


@pytest.mark.parametrize("key", ["", "a b", "x" * 129, "a\tb", "\xe9"])
def test_strange_idempotency_keys(anna: httpx.Client, key: str) -> None:
    answer = anna.post("/v1/jobs", json=JOB, headers=[(b"Idempotency-Key", key.encode("latin-1"))])
    assert answer.status_code == 422 and answer.json()["field"] == "Idempotency-Key"


def test_a_hundred_megabytes_are_refused_unread(server: Running) -> None:
    started_s = time.process_time()
    answer = raw(server, head(f"Authorization: Bearer {ANNA_TOKEN}", "Content-Length: 100000000"), b"")
    assert answer.startswith(b"HTTP/1.1 413") and b'"code":"body-too-large"' in answer
    assert time.process_time() - started_s < 2
    assert_alive(server)


def test_a_hundred_megabytes_in_chunks_are_refused_on_the_way(server: Running) -> None:
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(1_600):
            sent += 65_536
            yield b"x" * 65_536

    with suppress(httpx.WriteError):
        assert server.client(ANNA_TOKEN).post("/v1/jobs", content=chunks()).status_code == 413
    assert sent < 50_000_000
    assert_alive(server)


def test_strangers_cannot_make_the_server_read_a_body(server: Running) -> None:
    answer = raw(server, head("Content-Length: 900000"))
    assert answer.startswith(b"HTTP/1.1 401") and b"connection: close" in answer.lower()


def test_slow_headers_are_cut_off(impatient: Running) -> None:
    started_s = time.monotonic()
    assert raw(impatient) == b""
    assert raw(impatient, b"GET /v1/jobs HTT") == b""
    assert time.monotonic() - started_s < 8
    assert_alive(impatient)


def test_a_drip_of_headers_is_cut_off(impatient: Running) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port), timeout=10) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        deadline_s = time.monotonic() + 8
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while time.monotonic() < deadline_s:
                connection.sendall(b"X-A: b\r\n")
                time.sleep(0.02)
    assert_alive(impatient)


def test_a_second_request_gets_no_more_time(impatient: Running) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port), timeout=10) as connection:
        connection.sendall(head(method="GET", path="/healthz"))
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        deadline_s = time.monotonic() + 8
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while time.monotonic() < deadline_s:
                connection.sendall(b"\r\n")
                time.sleep(0.02)


def test_a_slow_body_is_given_up(impatient: Running) -> None:
    answer = raw(impatient, head(f"Authorization: Bearer {ANNA_TOKEN}", "Content-Length: 100"), b'{"run"')
    assert answer.startswith(b"HTTP/1.1 408") and b'"code":"timeout"' in answer
    assert impatient.service.views == {}
    assert_alive(impatient)


def test_endless_headers_are_cut_off(impatient: Running) -> None:
    flood = (f"X-{i}: {'y' * 1_000}\r\n".encode() for i in range(200))
    assert raw(impatient, b"GET /healthz HTTP/1.1\r\n", *flood) == b""
    assert_alive(impatient)


def test_too_many_connections_shut_nobody_else_out_for_long(impatient: Running) -> None:
    def answers() -> bool:
        try:
            return httpx.get(f"{impatient.url}/healthz").text == "ok\n"
        except httpx.TransportError:
            return False

    with ExitStack() as idle:
        for _ in range(60):
            idle.enter_context(socket.create_connection(("127.0.0.1", impatient.port)))
        eventually(answers)
        assert_alive(impatient)


@pytest.mark.parametrize(
    "bytes_sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
)
def test_broken_http(impatient: Running, bytes_sent: bytes) -> None:
    answer = raw(impatient, bytes_sent)
    assert answer == b"" or answer.split()[1] in (b"400", b"401", b"413")
    assert b"Traceback" not in answer
    assert_alive(impatient)


def test_a_client_that_goes_away_frees_its_place(start: Start) -> None:
    server = start(Limits(watches=1))
    client = server.client(ANNA_TOKEN)
    client.post("/v1/jobs", json=JOB)
    request = head(f"Authorization: Bearer {ANNA_TOKEN}", method="GET", path="/v1/jobs/1/wait?timeout_s=300")
    wait = "/v1/jobs/1/wait?timeout_s=0.01"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(request)
        eventually(lambda: server.service.watched > 0)
        assert client.get(wait).status_code == 503
    eventually(lambda: client.get(wait).status_code == 200)


def test_one_user_cannot_take_all_places_of_those_who_wait(start: Start) -> None:
    server = start(Limits(watches=2))
    anna, ben = server.client(ANNA_TOKEN), server.client(BEN_TOKEN)
    for client in (anna, ben):
        client.post("/v1/jobs", json=JOB)
    request = head(f"Authorization: Bearer {ANNA_TOKEN}", method="GET", path="/v1/jobs/1/wait?timeout_s=300")
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(request)
        eventually(lambda: server.service.watched > 0)
        assert anna.get("/v1/jobs/1/wait?timeout_s=0.01").status_code == 503
        assert ben.get("/v1/jobs/2/wait?timeout_s=0.01").status_code == 200


def test_a_client_that_stops_reading_is_given_up(impatient: Running) -> None:
    server = impatient
    server.client(ANNA_TOKEN).post("/v1/jobs", json=JOB)
    (server.service.logs / "1.log").write_bytes(b"x" * 30_000_000)
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(head(f"Authorization: Bearer {ANNA_TOKEN}", method="GET", path="/v1/jobs/1/log"))
        assert [entry["path"] for entry in server.noted(2)] == ["/v1/jobs", "/v1/jobs/1/log"]
    assert_alive(server)


def test_what_a_job_is_told_is_never_read_by_a_shell(anna: httpx.Client, server: Running) -> None:
    anna.post("/v1/jobs", json={"run": "python 'a b' $HOME `id` $(id) ~ *.py"})
    assert server.service.specs["1"].run == ("python", "a b", "$HOME", "`id`", "$(id)", "~", "*.py")


@pytest.mark.parametrize("more", [b"", b'{"run": ["true"]}' + b" " * 60_000], ids=["alone", "with a body"])
def test_large_headers_in_one_piece_are_refused_with_a_reason(server: Running, more: bytes) -> None:
    """As many bytes as a program that sends them at once puts into one segment, with their end."""
    lines = [f"X-{i}: {'x' * 1_000}" for i in range(100)]
    sent = head(f"Authorization: Bearer {ANNA_TOKEN}", f"Content-Length: {len(more)}", *lines) + more
    assert len(sent) > 100_000
    answer = raw(server, sent)
    assert answer.startswith(b"HTTP/1.1 431 ") or not answer, "hung up on while still sending"
    assert not server.service.views
    assert_alive(server)


def test_headers_just_over_the_limit_get_to_read_why(server: Running) -> None:
    answer = raw(server, head(f"Authorization: Bearer {ANNA_TOKEN}", f"X: {'x' * 33_000}", method="GET"))
    assert answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large")
    assert answer.endswith(b"The headers are larger than 32768 bytes.\n")


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "in chunks"])
def test_who_sends_two_megabytes_gets_to_read_that_they_are_too_many(server: Running, declared: bool) -> None:
    """A client that writes all of its body before it reads, as most do."""
    body = b"x" * 2_000_000
    framing = f"Content-Length: {len(body)}" if declared else "Transfer-Encoding: chunked"
    sent = body if declared else b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    answer = raw(server, head(f"Authorization: Bearer {ANNA_TOKEN}", framing), sent)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"The body is larger than 1,000,000 bytes." in answer


def test_who_asks_before_sending_too_much_is_told_at_once(server: Running) -> None:
    asked = head(f"Authorization: Bearer {ANNA_TOKEN}", "Content-Length: 2000000", "Expect: 100-continue")
    assert raw(server, asked).startswith(b"HTTP/1.1 413 ")


class Revocable(FakeAuth):
    """Anna's token can be taken back."""

    revoked = False

    def caller(self, token: str) -> Caller | None:
        return None if self.revoked and token == ANNA_TOKEN else super().caller(token)


def test_calls_that_last_end_when_their_token_is_revoked(start: Start, tmp_path: Path) -> None:
    auth, service = Revocable(), FakeService(tmp_path)
    server = start(service=service, auth=auth)
    anna = server.client(ANNA_TOKEN)
    job = anna.post("/v1/jobs", json=JOB).json()["ids"][0]
    (tmp_path / f"{job}.log").write_text("begun\n")
    waited: list[int] = []
    waiter = threading.Thread(
        target=lambda: waited.append(server.client(ANNA_TOKEN).get(f"/v1/jobs/{job}/wait?timeout_s=60").status_code)
    )
    waiter.start()
    with anna.stream("GET", f"/v1/jobs/{job}/log?follow=true") as log:
        parts = log.iter_bytes()
        assert next(parts) == b"begun\n"
        eventually(lambda: service.watched > 2)
        auth.revoked = True
        began_s = time.monotonic()
        (tmp_path / f"{job}.log").write_text("begun\nsecret\n")
        assert b"".join(parts) in (b"", b"secret\n")
    waiter.join(20)
    assert waited == [401]
    assert time.monotonic() - began_s < 10


def test_the_oldest_silent_connection_makes_room_for_one_with_a_token(impatient: Running) -> None:
    with ExitStack() as stack:
        known = impatient.client(ANNA_TOKEN)
        assert known.get("/v1/jobs").status_code == 200
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", impatient.port)))
        assert impatient.client(ANNA_TOKEN).get("/v1/jobs").status_code == 200
        assert known.get("/v1/jobs").status_code == 200


@pytest.mark.parametrize(("descriptors", "connections"), [(256, 128), (1_024, 512), (65_536, 2_048), (8, 8)])
def test_most_descriptors_are_kept_for_other_things(descriptors: int, connections: int) -> None:
    assert connections_within(descriptors) == connections
