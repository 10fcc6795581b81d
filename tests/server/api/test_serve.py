"""Where the API listens."""

from __future__ import annotations

import socket

import pytest

from tests.server.api.conftest import Running
from trine.core.errors import InputError
from trine.server.api.serve import bind, is_loopback, url_of


def test_only_this_machine_can_connect_unless_told_otherwise(server: Running) -> None:
    assert server.url.startswith("http://127.0.0.1:") and server.port > 0


def test_a_port_in_use_is_said_in_one_sentence(server: Running) -> None:
    with pytest.raises(InputError, match=rf"127.0.0.1:{server.port}: cannot listen there \(.*in use.*a free port"):
        bind("127.0.0.1", server.port)


@pytest.mark.parametrize(("host", "port"), [("203.0.113.7", 0), ("no such host", 0), ("127.0.0.1", 70_000)])
def test_addresses_that_are_not_ours_are_refused(host: str, port: int) -> None:
    with pytest.raises(InputError, match="cannot listen there"):
        bind(host, port)


def test_urls_name_the_port_that_was_found() -> None:
    with bind("127.0.0.1", 0) as listener:
        assert url_of(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert url_of(listener, secure=True).startswith("https://")
        with socket.create_connection(listener.getsockname()):
            pass


def test_what_counts_as_this_machine() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.1.2.3", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "")))
