"""HTTP with one daemon over the standard library: requests, answers, streams. Knows nothing of jobs.

httpx would add twice the start-up time of the whole command.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import urlencode, urlsplit

from trine.client.address import Address
from trine.client.errors import ConnectionBrokenError, DaemonError, NoDaemonError, RefusedError

_AGAIN_AFTER_S = (0.1, 0.5, 2.0)
_CHUNK_BYTES = 65536

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

    def post(self, path: str, body: str = "", request_id: str = "") -> Any:
        """Only a request with an id is sent again when the connection breaks."""
        content = body.encode()
        headers = {"Content-Type": "application/json"}
        if request_id:
            return self._persistently("POST", path, content, headers | {"Idempotency-Key": request_id}, self._timeout_s)
        self.close()  # a kept connection may have been closed by the other side, and this request is sent only once
        return self._once("POST", path, content, headers, self._timeout_s)

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
        raise failure or NoDaemonError(self._nobody())

    def _once(self, method: str, path: str, content: bytes | None, headers: dict[str, str], timeout_s: float) -> Any:
        connection = self._connection(timeout_s)
        try:
            status, answer = self._exchange(connection, method, path, content, headers)
        except TimeoutError:
            self.close()
            raise DaemonError(f"the daemon at {self._address.url} did not answer within {timeout_s:g} s") from None
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
        parts = urlsplit(self._address.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
        try:
            connection.connect()
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
        return urlsplit(self._address.url).path

    def _headers(self, more: dict[str, str]) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._address.token}", "Accept": "application/json", **more}


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
