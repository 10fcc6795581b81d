"""HTTP with one daemon over the standard library: requests, answers, streams. Knows nothing of jobs.

httpx would add twice the start-up time of the whole command.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from trine.client.address import Address
from trine.client.errors import (
    ConnectionBrokenError,
    DaemonError,
    NoAnswerError,
    NoDaemonError,
    RefusedError,
    UntrustedDaemonError,
)

_AGAIN_AFTER_S = (0.1, 0.5, 2.0)
_CHUNK_BYTES = 65536
_NOT_NOW = 503
_LONGEST_PATH = 107
"""Bytes that the address of a unix socket can hold; a longer path goes by way of its open directory."""
_OTHER_NAME = (62, 64)
"""OpenSSL's codes for a certificate of another name, or of another address."""

Query = Mapping[str, str | int | list[str]]


class Transport:
    """Talks to one address; one request at a time."""

    def __init__(self, address: Address, timeout_s: float, sleep: Callable[[float], None] = time.sleep) -> None:
        self._address, self._timeout_s, self._sleep = address, timeout_s, sleep
        self._kept: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def get(self, path: str, query: Query | None = None, timeout_s: float | None = None) -> Any:
        return self._persistently("GET", _target(path, query), None, {}, timeout_s or self._timeout_s)

    def post(self, path: str, body: str = "", request_id: str = "", timeout_s: float | None = None) -> Any:
        """Only a request with an id is sent again, when the connection breaks or the daemon cannot tell its outcome."""
        content = body.encode()
        headers = {"Content-Type": "application/json"}
        if request_id:
            return self._persistently("POST", path, content, headers | {"Idempotency-Key": request_id}, self._timeout_s)
        self.close()  # a kept connection may have been closed by the other side, and this request is sent only once
        return self._once("POST", path, content, headers, timeout_s or self._timeout_s)

    def stream(self, path: str, query: Query | None = None, timeout_s: float | None = None) -> Iterator[bytes]:
        """The body as it arrives, over a connection of its own; ``TimeoutError`` if none does for ``timeout_s``."""
        with closing(self._open(timeout_s or self._timeout_s)) as connection:
            try:
                connection.request("GET", self._prefix + _target(path, query), headers=self._headers({}))
                response = connection.getresponse()
                if response.status >= 400:
                    raise _refusal(response.status, response.read())
                while chunk := response.read1(_CHUNK_BYTES):
                    yield chunk
            except TimeoutError:
                raise
            except (OSError, http.client.HTTPException) as error:
                raise self._broke(error) from None

    def _persistently(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str], timeout_s: float
    ) -> Any:
        failure: DaemonError | None = None
        for pause_s in (0.0, *_AGAIN_AFTER_S):
            if failure is not None:
                self._sleep(pause_s)
            try:
                return self._once(method, path, content, headers, timeout_s)
            except ConnectionBrokenError as error:
                failure = error
            except NoDaemonError:
                if failure is None:
                    raise
            except RefusedError as error:
                # Once it is open whether the request was carried out, "not now" does not close it.
                if error.outcome_unknown:
                    failure = error
                elif failure is None or error.status != _NOT_NOW:
                    raise
        raise failure or NoDaemonError(self._nobody())

    def _once(self, method: str, path: str, content: bytes | None, headers: dict[str, str], timeout_s: float) -> Any:
        connection = self._connection(timeout_s)
        try:
            status, answer = self._exchange(connection, method, path, content, headers)
        except TimeoutError:
            self.close()
            raise NoAnswerError(f"the daemon at {self._address.url} did not answer within {timeout_s:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._broke(error) from None
        except BaseException:
            self.close()
            raise
        return self._value(status, answer)

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        content: bytes | None,
        headers: dict[str, str],
    ) -> tuple[int, bytes]:
        try:
            connection.request(method, self._prefix + path, body=content, headers=self._headers(headers))
        except (BrokenPipeError, ConnectionResetError):
            # Too large a body is refused before it was read; the refusal can still be waiting for us.
            if not content:
                raise
        response = connection.getresponse()
        answer = response.read()
        if response.will_close:
            self.close()
        return response.status, answer

    def _value(self, status: int, answer: bytes) -> Any:
        if status >= 400:
            raise _refusal(status, answer)
        try:
            return json.loads(answer)
        except ValueError:
            raise DaemonError(
                f"{self._address.url} answered something that is no JSON: is it a trine daemon?"
            ) from None

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._kept is None:
            self._kept = self._open(timeout_s)
        if self._kept.sock is not None:
            self._kept.sock.settimeout(timeout_s)
        return self._kept

    def _open(self, timeout_s: float) -> http.client.HTTPConnection:
        connection = _connection_to(self._address, timeout_s)
        try:
            connection.connect()
        except UntrustedDaemonError:
            connection.close()
            raise
        except ssl.SSLError as error:
            connection.close()
            raise UntrustedDaemonError(_tls_problem(self._address.url, error)) from None
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise NoDaemonError(f"{self._nobody()} ({_words(error)})") from None
        return connection

    def _nobody(self) -> str:
        where = "" if self._address.source == "api" else f", known from {self._address.source}"
        return f"no daemon answers at {self._address.url}{where}; start one with `trine up`"

    def _broke(self, error: Exception) -> ConnectionBrokenError:
        return ConnectionBrokenError(f"the connection to the daemon at {self._address.url} broke ({_words(error)})")

    @property
    def _prefix(self) -> str:
        return "" if self._address.socket else urlsplit(self._address.url).path

    def _headers(self, more: dict[str, str]) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._address.token}", "Accept": "application/json", **more}


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket, after a check of the process that listens there."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        directory = os.open(Path(self._path).parent, os.O_PATH | os.O_DIRECTORY)
        try:
            owner = os.fstat(directory).st_uid
            long_way = f"/proc/self/fd/{directory}/{Path(self._path).name}"
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path if len(os.fsencode(self._path)) <= _LONGEST_PATH else long_way)
        finally:
            os.close(directory)
        _, uid, _ = struct.unpack("3i", self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid not in (owner, 0):
            raise UntrustedDaemonError(
                f"{self._path} is served by user {uid}, but its directory belongs to user {owner}: nothing was sent"
            )


def _connection_to(address: Address, timeout_s: float) -> http.client.HTTPConnection:
    if address.socket:
        return _UnixConnection(address.socket, timeout_s)
    parts = urlsplit(address.url)
    if parts.scheme != "https":
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=timeout_s)


def _tls_problem(url: str, error: ssl.SSLError) -> str:
    """What is wrong with the other side's certificate, and what to do."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return f"no TLS connection with {url} ({_words(error)}); does the daemon serve https there?"
    host = urlsplit(url).hostname
    if error.verify_code in _OTHER_NAME:
        return f"the certificate of the daemon at {url} is not valid for {host}; use a name that it was made for"
    return (
        f"the certificate of the daemon at {url} is not trusted here ({error.verify_message}); if it is from an "
        "authority of your own, name that one's certificate with SSL_CERT_FILE=/path/to/ca.pem"
    )


def _target(path: str, query: Query | None) -> str:
    return f"{path}?{urlencode(query, doseq=True)}" if query else path


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _refusal(status: int, answer: bytes) -> RefusedError:
    try:
        error = json.loads(answer)
    except ValueError:
        error = None
    if not isinstance(error, dict) or not isinstance(error.get("message"), str):
        reason = http.client.responses.get(status, "an unknown status")
        return RefusedError(status, "http", f"the daemon answered {status} ({reason})")
    return RefusedError(status, str(error.get("code", "")), error["message"], str(error.get("field") or ""))
