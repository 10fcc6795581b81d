"""What a client may cost the daemon. Times are seconds."""

from __future__ import annotations

import resource
from dataclasses import dataclass

MOST_CONNECTIONS = 2_048
_MOST_DESCRIPTORS = 65_536
"""More are not asked for: jobs inherit the limit, and some programs go through all descriptors they could have."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of requests. Quotas of users are in ``server.access``."""

    body_bytes: int = 1_000_000
    header_bytes: int = 32_768
    header_s: float = 10.0
    """From the first byte (or from the connection) to the end of the headers."""
    body_s: float = 20.0
    """From the headers to the end of the body."""
    discard_bytes: int = 16_000_000
    """How much of a body that is too large is read and thrown away, so that the client gets to read the answer."""
    send_s: float = 60.0
    """How long a client may leave a part of a streamed answer unread."""
    requests: int = 512
    """Requests worked on at once."""
    watches: int = 512
    """Calls at once that last (wait, and log with follow)."""
    connections: int = MOST_CONNECTIONS
    """Beyond these the oldest one that has shown no token and asks for nothing is closed."""
    idle_s: float = 30.0
    """A connection without a request is closed after this."""
    wait_s: float = 300.0
    """Longest a wait lasts; the client asks again."""
    shutdown_s: float = 5.0
    """Time that open requests have to end when the daemon stops."""


DEFAULT = Limits()


def raise_descriptor_limit() -> int:
    """Let this process have as many open files as it may ask for; returns how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def connections_within(descriptors: int) -> int:
    """How many connections to accept: half of the descriptors at most, the rest is for the journal and for jobs.

    Another quarter may be taken for a moment by connections that are accepted only to be closed (the backlog).
    """
    return max(8, min(MOST_CONNECTIONS, descriptors // 2))
