"""What a client may cost the daemon. Times are seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of requests. Quotas of users are in ``server.access``."""

    body_bytes: int = 1_000_000
    header_bytes: int = 32_768
    header_s: float = 10.0
    """From the first byte (or from the connection) to the end of the headers."""
    body_s: float = 20.0
    """From the headers to the end of the body."""
    send_s: float = 60.0
    """How long a client may leave a part of a streamed answer unread."""
    requests: int = 512
    """Requests worked on at once."""
    watches: int = 512
    """Calls at once that last (wait, and log with follow)."""
    connections: int = 2_048
    idle_s: float = 30.0
    """A connection without a request is closed after this."""
    wait_s: float = 300.0
    """Longest a wait lasts; the client asks again."""
    shutdown_s: float = 5.0
    """Time that open requests have to end when the daemon stops."""


DEFAULT = Limits()
