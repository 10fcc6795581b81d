"""Python client of a running daemon: ``Client`` with the verbs of the command line. It imports ``trine.core`` only."""

from __future__ import annotations

from trine.client.answers import ENDED, DaemonAnswer, ExplanationAnswer, JobAnswer, NodeAnswer
from trine.client.client import Client
from trine.client.errors import ConnectionBrokenError, DaemonError, NoDaemonError, RefusedError, WaitTimeoutError

__all__ = [
    "ENDED",
    "Client",
    "ConnectionBrokenError",
    "DaemonAnswer",
    "DaemonError",
    "ExplanationAnswer",
    "JobAnswer",
    "NoDaemonError",
    "NodeAnswer",
    "RefusedError",
    "WaitTimeoutError",
]
