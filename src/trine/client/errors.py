"""What can go wrong between a client and the daemon, each as one sentence for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trine.core.errors import TrineError

if TYPE_CHECKING:
    from trine.client.answers import JobAnswer

_USAGE = frozenset({400, 413, 422})


class DaemonError(TrineError):
    """Base of what a client raises besides ``InputError``."""


class NoDaemonError(DaemonError):
    """No program answers where the daemon should be."""


class UntrustedDaemonError(DaemonError):
    """What answers has not shown to be the daemon (certificate, owner of the socket): nothing was sent to it."""


class ConnectionBrokenError(DaemonError):
    """The daemon was reached, but the connection ended before its answer: the request may have been carried out."""


class NoAnswerError(DaemonError):
    """The daemon did not answer in time: the request may have been carried out, or still be."""


class RefusedError(DaemonError):
    """The daemon's own sentence; ``code`` is a stable name, ``field`` the key concerned, if any."""

    def __init__(self, status: int, code: str, message: str, field: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.field = status, code, field

    @property
    def usage(self) -> bool:
        """Whether what was asked for is wrong in itself, rather than not possible now or not allowed."""
        return self.status in _USAGE

    @property
    def outcome_unknown(self) -> bool:
        """Whether the daemon itself cannot say if the request was carried out."""
        return self.code == "unknown"


class WaitTimeoutError(DaemonError):
    """The job had not ended in time; ``job`` is how it stood then."""

    def __init__(self, job: JobAnswer, timeout_s: float) -> None:
        super().__init__(f"job {job['id']} is {job['state']} after {timeout_s:g} s")
        self.job, self.timeout_s = job, timeout_s
