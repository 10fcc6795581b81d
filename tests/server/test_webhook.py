"""The webhook: signed notices in order, retries, a bounded queue, and a receiver whose faults stay its own."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.server.site import OWNER, Site, spec
from trine.core.errors import InputError
from trine.server import scheduler, webhook
from trine.server.access import read_access
from trine.server.configuration import read_configuration
from trine.server.notices import Notices
from trine.server.scheduler import Scheduler
from trine.server.webhook import InternalAddressError, Webhook, WebhookSettings, post, signature

SECRET = b"0123456789abcdef"
PATIENCE_S = 30.0


class Receiver:
    """Answers with the statuses it is given, then with 200; keeps what it got."""

    def __init__(self, *statuses: int) -> None:
        self.statuses, self.got = list(statuses), list[tuple[dict[str, str], bytes]]()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.got.append((dict(self.headers), body))
                self.send_response(outer.statuses.pop(0) if outer.statuses else 200)
                self.send_header("Location", "http://127.0.0.1:1/")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?team=a"

    @property
    def notices(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.got]


@contextmanager
def receiving(*statuses: int, tls: tuple[Path, Path] | None = None) -> Iterator[Receiver]:
    receiver = Receiver(*statuses)
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        receiver.server.socket = context.wrap_socket(receiver.server.socket, server_side=True)
        receiver.url = receiver.url.replace("http://127.0.0.1", "https://localhost")
    thread = threading.Thread(target=receiver.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield receiver
    finally:
        receiver.server.shutdown()
        receiver.server.server_close()
        thread.join()


def settings(url: str, internal: bool = True, states: tuple[str, ...] = webhook.ENDED) -> WebhookSettings:
    return WebhookSettings(url, SECRET, frozenset(states), internal)


def until(true: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline_s, f"waited in vain for {what}"
        time.sleep(0.005)


def test_notices_are_signed_and_arrive_in_order_over_failures_of_the_receiver() -> None:
    counts: Counter[str] = Counter()
    with receiving(503, 500, 429) as receiver:
        hook = Webhook(settings(receiver.url), lambda result: counts.update([result]), first_pause_s=0.001)
        for number in range(3):
            hook.add(f"n{number}", {"number": number})
        until(lambda: counts["delivered"] == 3, "three notices")
        hook.close()
    assert [notice["number"] for notice in receiver.notices] == [0, 0, 0, 0, 1, 2]
    assert counts == {"retried": 3, "delivered": 3}
    headers, body = receiver.got[-1]
    assert headers["X-Trine-Signature"] == signature(SECRET, headers["X-Trine-Timestamp"], body)
    # As docs/operations.md tells receivers to check it, and without a word of ours.
    stamped = headers["X-Trine-Timestamp"].encode() + b"." + body
    assert headers["X-Trine-Signature"] == f"sha256={hmac.new(SECRET, stamped, hashlib.sha256).hexdigest()}"
    assert headers["X-Trine-Signature"] != signature(SECRET, headers["X-Trine-Timestamp"], body + b" ")
    assert headers["X-Trine-Delivery"] == "n2"


def self_made(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate for ``name`` that nobody but its holder vouches for, and its key."""
    paths = folder / f"{name}.pem", folder / f"{name}.key"
    words = f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={name}".split()
    options = ["-addext", f"subjectAltName=DNS:{name}", "-out", str(paths[0]), "-keyout", str(paths[1])]
    subprocess.run(["openssl", *words, *options], check=True, capture_output=True)
    return paths


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_over_tls_a_receiver_gets_notices_only_if_its_certificate_is_trusted_and_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, foreign = self_made(tmp_path, "localhost"), self_made(tmp_path, "other.example")
    sent = (b'{"job":"1"}', "1893456000")
    with receiving(tls=own) as receiver:
        with pytest.raises(ssl.SSLCertVerificationError, match="self-signed"):
            post(settings(receiver.url), "n1", *sent)
        monkeypatch.setenv("SSL_CERT_FILE", str(own[0]))
        assert post(settings(receiver.url), "n1", *sent) == 200
        assert receiver.notices == [{"job": "1"}]
    monkeypatch.setenv("SSL_CERT_FILE", str(foreign[0]))
    with receiving(tls=foreign) as receiver:
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            post(settings(receiver.url), "n1", *sent)
        assert receiver.got == []


def test_a_notice_that_is_refused_is_not_tried_again_and_redirects_are_not_followed() -> None:
    counts: Counter[str] = Counter()
    with receiving(410, 302) as receiver:
        hook = Webhook(settings(receiver.url), lambda result: counts.update([result]), first_pause_s=0.001)
        hook.add("gone", {})
        hook.add("moved", {})
        until(lambda: counts["delivered"] == 1, "the second notice")
        hook.close()
    assert counts == {"given up": 1, "retried": 1, "delivered": 1}


def test_a_dead_receiver_costs_the_oldest_notices_and_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "MAX_QUEUE", 10)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # not listening: every connection is refused
        counts: Counter[str] = Counter()
        hook = Webhook(settings(f"http://127.0.0.1:{nobody.getsockname()[1]}/"), lambda result: counts.update([result]))
        before = time.process_time()
        for number in range(1000):
            hook.add(str(number), {"number": number})
        assert time.process_time() - before < 2.0
        assert (len(hook), counts["dropped"]) == (10, 990)
        until(lambda: counts["retried"] > 0, "the first failure")
        began_s = time.monotonic()
        hook.close(flush_s=2 * PATIENCE_S)
        assert time.monotonic() - began_s < PATIENCE_S, "a daemon that stops does not wait for a dead receiver"


def test_a_receiver_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sends a byte now and then, each within the timeout of a read, and never ends its answer."""
    monkeypatch.setattr(webhook, "TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        over = threading.Event()

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                while not over.wait(0.05):
                    try:
                        connection.sendall(b"H" if over.is_set() else b"X")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with pytest.raises((OSError, HTTPException)):
                post(settings(f"http://127.0.0.1:{server.getsockname()[1]}/"), "n", b"{}", "0")
        finally:
            over.set()
            thread.join()


def test_a_receiver_with_an_address_that_does_not_answer_is_reached_at_its_other_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with receiving() as receiver:
        port = receiver.server.server_port  # of 127.0.0.1; at 127.0.0.2 nothing listens there
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in ("127.0.0.2", "127.0.0.1")]
        monkeypatch.setattr(socket, "getaddrinfo", _first(socket.getaddrinfo, "hooks.example.org", found))
        assert post(settings(f"http://hooks.example.org:{port}/"), "n", b'{"job":"1"}', "0") == 200
        assert receiver.notices == [{"job": "1"}]


def _first(otherwise: Callable[..., Any], host: str, found: list[Any]) -> Callable[..., Any]:
    """What a name stands for, of one name."""
    return lambda name, *more, **options: found if name == host else otherwise(name, *more, **options)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "10.1.2.3", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1", "[::1]"),
        *("[::ffff:10.0.0.1]", "[64:ff9b::a00:1]", "[2002:a00:1::1]", "[fe80::1]", "[fd00::1]", "[ff02::1]", "[::]"),
    ],
)
def test_internal_addresses_are_refused_unless_the_administrator_allows_them(host: str) -> None:
    with pytest.raises(InternalAddressError, match="not public"):
        post(settings(f"http://{host}:1/", internal=False), "n", b"{}", "0")


def configuration(home: Path, text: str, secret: str = SECRET.decode(), mode: int = 0o600) -> Path:
    key = home / "secret"
    key.write_text(secret)
    key.chmod(mode)
    file = home / "trine.yaml"
    file.write_text(f"webhook:\n  secret_file: {key}\n{text}")
    return file


def test_the_configuration_says_where_notices_go(tmp_path: Path) -> None:
    file = configuration(tmp_path, "  url: https://hooks.example.org/trine\n  states: [running, failed]\n")
    access, found = read_configuration(file, runs_as_user=False)
    expected = WebhookSettings("https://hooks.example.org/trine", SECRET, frozenset(["running", "failed"]))
    assert found == expected
    assert read_access(file) == access, "a replay reads the same file"
    assert read_configuration(None, runs_as_user=False)[1] is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("  url: ftp://example.org/\n", "expected an address such as https"),
        ("  url: https://user:pw@example.org/\n", "expected an address such as https"),
        ("  url: http://127.0.0.1:8000/\n", "internal: true"),
        ("  url: https://example.org/\n  states: [starting]\n", "unknown state 'starting'"),
        ("  url: https://example.org/\n  secrt: x\n", "unknown key 'secrt'"),
        ("  internal: true\n", "webhook.url"),
    ],
)
def test_a_wrong_configuration_is_refused_in_a_sentence(tmp_path: Path, text: str, found: str) -> None:
    with pytest.raises(InputError, match=found):
        read_configuration(configuration(tmp_path, text), runs_as_user=False)


@pytest.mark.parametrize(("secret", "mode", "found"), [("short", 0o600, "openssl"), ("x" * 32, 0o644, "mode 644")])
def test_a_weak_or_public_secret_is_refused(tmp_path: Path, secret: str, mode: int, found: str) -> None:
    with pytest.raises(InputError, match=found):
        read_configuration(configuration(tmp_path, "  url: https://example.org/\n", secret, mode), runs_as_user=False)


class Kept:
    """A receiver in memory."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str | None]] = []

    def add(self, notice_id: str, notice: dict[str, Any]) -> None:
        self.told.append((notice["job"]["id"], notice["job"]["state"], notice["before"]))


def test_changes_are_told_once_also_of_jobs_that_end_with_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "_FILL_AFTER_S", 0.0)

    async def script() -> list[tuple[str, str, str | None]]:
        site, kept = Site(tmp_path), Kept()
        daemon = await site.up()
        daemon._notices = Notices(kept, frozenset(webhook.STATES), daemon.controller.state)
        await daemon.submit([spec(1), spec(1, after=["1"]), spec(1, after=["2"])], OWNER)
        await site.quiet()
        await daemon.hold("3", OWNER)
        await daemon.set_priority("3", 5.0, OWNER)  # a record about it that leaves its state as it is
        site.world.end("1", "failed", 1)
        await site.quiet()
        await site.crash()
        restarted = await site.up()
        restarted._notices = Notices(kept, frozenset(webhook.STATES), restarted.controller.state)
        await site.quiet()
        await site.crash()
        return kept.told

    told = asyncio.run(script())
    assert [one for one in told if one[0] == "1"][-1] == ("1", "failed", "running")
    assert [one[1] for one in told if one[0] == "2"] == ["waiting", "cancelled"]
    assert [one[1] for one in told if one[0] == "3"] == ["waiting", "held", "cancelled"]
    assert len(told) == len(set(told)), "nothing is told twice, also not after a restart"
    assert all(state != before for _, state, before in told), "only what changed is told"


def test_a_daemon_tells_a_real_receiver_and_counts_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_FILL_AFTER_S", 0.0)

    async def script(receiver: Receiver) -> str:
        site = Site(tmp_path)
        daemon: Scheduler = await site.up()
        hook = Webhook(settings(receiver.url), daemon.observed.notified)
        daemon.use_webhook(hook)
        await daemon.submit([spec(2, name="train")], OWNER)
        await site.quiet()
        site.world.end("1", "failed", 3)
        await site.quiet()
        await asyncio.to_thread(hook.close)
        text = daemon.metrics().decode()
        await site.crash()
        return text

    with receiving() as receiver:
        text = asyncio.run(script(receiver))
    [notice] = receiver.notices
    assert (notice["event"], notice["before"]) == ("job.state", "running")
    told = notice["job"]
    assert (told["id"], told["name"], told["state"], told["gpus"], told["exit_code"]) == ("1", "train", "failed", 2, 3)
    assert 'trine_webhook_deliveries_total{result="delivered"} 1.0' in text
