"""Python client of a running daemon: ``Client`` with the verbs of the command line. It imports ``trine.core`` only."""

from __future__ import annotations

from trine.client.answers import (
    ENDED,
    DaemonAnswer,
    ExplanationAnswer,
    HistoryAnswer,
    JobAnswer,
    NodeAnswer,
    QuotaAnswer,
)
from trine.client.client import Client
from trine.client.errors import (
    ConnectionBrokenError,
    DaemonError,
    NoAnswerError,
    NoDaemonError,
    RefusedError,
    UntrustedDaemonError,
    WaitTimeoutError,
)

__all__ = [
    "ENDED",
    "Client",
    "ConnectionBrokenError",
    "DaemonAnswer",
    "DaemonError",
    "ExplanationAnswer",
    "HistoryAnswer",
    "JobAnswer",
    "NoAnswerError",
    "NoDaemonError",
    "NodeAnswer",
    "QuotaAnswer",
    "RefusedError",
    "UntrustedDaemonError",
    "WaitTimeoutError",
]
