"""What a request of a browser must show: it comes from our own pages, to a name of ours, within a session.

A page of another site, a name that was bent to this address (rebinding) and a frame around our pages get nothing.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.types import Scope

from trine.server.api.errors import ApiError
from trine.server.interface import Caller
from trine.server.sessions import Sessions

PROOF_HEADER = "trine-proof"
LONGEST_SECRET = 256


class Browsers:
    """The rules for browsers of one server; ``names`` are the host names it may be asked by, besides its addresses."""

    def __init__(self, sessions: Sessions, names: Collection[str] = ()) -> None:
        self.sessions = sessions
        self._names = frozenset(name.lower() for name in names)

    def caller(self, scope: Scope) -> Caller:
        """The caller of a request with a session, or ``ApiError``."""
        self.check_origin(scope)
        cookie, proof = session_cookie(scope), header(scope, PROOF_HEADER)
        caller = self.sessions.caller(cookie, proof) if cookie and len(proof) <= LONGEST_SECRET else None
        if caller is None:
            raise ApiError("unauthorized", "This session is over, or was never begun: log in.", "Cookie")
        return caller

    def check_host(self, scope: Scope) -> None:
        """An attacker's name that leads here is refused; an address that was typed cannot be bent."""
        host = host_name(header(scope, "host"))
        if not (_is_address(host) or host == "localhost" or host.endswith(".localhost") or self._is_ours(host)):
            message = (
                f"This server is not called {host[:80]!a}; use its address, or the name of its machine. Where that is "
                "the name of a proxy in front of it: trine up --allow-host NAME."
            )
            raise ApiError("misdirected", message, "Host")

    def check_origin(self, scope: Scope) -> None:
        """Browsers say from where a request comes; what does not come from our own pages is refused."""
        self.check_host(scope)
        site, origin = header(scope, "sec-fetch-site"), header(scope, "origin")
        foreign = site != "same-origin" if site else bool(origin) and urlsplit(origin).netloc != header(scope, "host")
        if foreign:
            raise ApiError("forbidden", "This request comes from another site.", "Origin")

    def _is_ours(self, host: str) -> bool:
        return host in self._names or f"*.{host.partition('.')[2]}" in self._names


def cookie_name(scope: Scope) -> str:
    """With the port: the cookies of two servers on one host must not replace each other."""
    server = scope.get("server")
    port = server[1] if server and server[1] else 0
    return f"__Host-trine-{port}" if scope.get("scheme") == "https" else f"trine-{port}"


def session_cookie(scope: Scope) -> str:
    """The session's cookie; empty if there is none."""
    wanted = cookie_name(scope)
    for part in header(scope, "cookie").split(";"):
        name, _, value = part.strip().partition("=")
        if name == wanted:
            return value if len(value) <= LONGEST_SECRET else ""
    return ""


def set_cookie(scope: Scope, value: str, seconds: float) -> str:
    """The header that gives a browser its cookie; with 0 seconds it takes it away."""
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    return f"{cookie_name(scope)}={value}; Path=/; Max-Age={seconds:.0f}; HttpOnly; SameSite=Strict{secure}"


def header(scope: Scope, name: str) -> str:
    wanted = name.encode()
    for key, value in scope["headers"]:
        if key == wanted:
            return bytes(value).decode("latin-1")
    return ""


def host_name(host: str) -> str:
    """Without the port and the brackets of an IPv6 address."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
