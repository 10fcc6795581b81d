"""The daemon's API as the ranks of a gang use it where their nodes share no files: after which step do all of us leave?

Standard library only; one connection per process, opened when it is first needed.
"""

from __future__ import annotations

import http.client
import json
import ssl
from urllib.parse import urlsplit

_ANSWER_S = 2.0
"""How long the daemon may take to answer: the training stands still meanwhile."""


class AttemptApi:
    """Calls of one attempt, with its token. ``authorities``: certificates (PEM) that the daemon is checked by."""

    def __init__(self, url: str, token: str, authorities: str = "") -> None:
        self._url, self._token, self._authorities = urlsplit(url), token, authorities
        self._connection: http.client.HTTPConnection | None = None

    def agree(self, rank: int, done: int, ahead: int, asked: bool) -> int | None:
        """The step after which all ranks leave, or ``None`` while that is not decided; OSError without an answer."""
        body = json.dumps({"rank": rank, "done": done, "ahead": ahead, "asked": asked}).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            self._connection = self._connection or self._connect()
            self._connection.request("POST", f"{self._url.path.rstrip('/')}/v1/attempt/agree", body, headers)
            answer = self._connection.getresponse()
            found = json.loads(answer.read())
            if answer.status != http.client.OK:
                raise OSError(f"the daemon answers {answer.status}")
        except (http.client.HTTPException, ValueError) as error:
            self._close()
            raise OSError(str(error)) from None
        except OSError:
            self._close()
            raise
        stop_at = found.get("stop_at")
        return stop_at if isinstance(stop_at, int) else None

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme != "https":
            return http.client.HTTPConnection(host, port, timeout=_ANSWER_S)
        context = ssl.create_default_context(cadata=self._authorities or None)
        return http.client.HTTPSConnection(host, port, timeout=_ANSWER_S, context=context)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
