"""Logins of browsers: a token, or a code that is good once, becomes a session that is short and can be ended.

A session is two secrets: one in a cookie that scripts cannot read, one (the proof) that only the pages of this very
address can read. Cookies are shared by all ports of a host, so on a machine with several users the cookie alone would
be sent to any other program that listens there. Only digests are kept. Who may do what is not decided here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from trine.core.atomic_file import write_private
from trine.server.interface import Caller

SESSIONS_FILE = "sessions.json"
LONGEST_S = 12 * 3_600.0
"""A session ends so long after its login, whatever happens."""
IDLE_S = 3_600.0
"""And so long after its last request."""
CODE_S = 300.0
_KEPT_EVERY_S = 600.0
"""How much of the time since the last request a restart may forget."""
MAX_SESSIONS, MAX_CODES, MAX_GUESSES = 2_000, 100, 50
MAX_OF_ONE_TOKEN = 20
"""Who logs in again and again loses the oldest of their own sessions, and of no other user."""
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
"""No letters that look like digits: codes are typed."""
_CODE_LETTERS = 12
MAX_CODES_OF_ONE_TOKEN = 10
"""Who asks for code after code loses the oldest of their own, and none of another user."""


@dataclass(frozen=True, slots=True)
class Login:
    """The two secrets of a new session, shown once; ``ends_s`` is Unix time."""

    cookie: str
    proof: str
    ends_s: float


@dataclass(slots=True)
class _Session:
    """What is kept of a session: digests, and until when it lasts (Unix seconds)."""

    proof: str
    token: str
    """Digest of the token it was made with: a token that is revoked ends its sessions."""
    ends_s: float
    used_s: float


class Sessions:
    """The sessions of one server. With ``path`` they outlive a restart; ``holder`` finds the caller of a digest."""

    def __init__(
        self, holder: Callable[[str], Caller | None], path: Path | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._holder, self._path, self._clock = holder, path, clock
        self._sessions: dict[str, _Session] = _read(path, clock()) if path else {}
        self._codes: dict[str, tuple[str, float]] = {}
        """Digest of a code to that of the token it stands for, and until when."""
        self._guesses, self._kept_s = 0, clock()

    def login(self, secret: str) -> Login | None:
        """A session for a token, or for a code that was made from one; ``None`` if it is neither."""
        token = digest(secret) if self._holder(digest(secret)) else self._redeem(secret)
        if token is None or self._holder(token) is None:
            return None
        now = self._clock()
        self._make_room(token, now)
        made = Login(secrets.token_hex(32), secrets.token_hex(16), now + LONGEST_S)
        self._sessions[digest(made.cookie)] = _Session(digest(made.proof), token, made.ends_s, now)
        self._keep()
        return made

    def caller(self, cookie: str, proof: str) -> Caller | None:
        """Whose session it is; ``None`` if there is none, it is over, or its token was revoked."""
        found, now = self._sessions.get(digest(cookie)), self._clock()
        if found is None or not secrets.compare_digest(found.proof, digest(proof)) or _is_over(found, now):
            return None
        found.used_s = now
        if now >= self._kept_s + _KEPT_EVERY_S:
            self._keep()
        return self._holder(found.token)

    def ends_s(self, cookie: str) -> float | None:
        """When a session ends at the latest, Unix seconds."""
        found = self._sessions.get(digest(cookie))
        return found.ends_s if found else None

    def end(self, cookie: str) -> None:
        if self._sessions.pop(digest(cookie), None) is not None:
            self._keep()

    def end_all(self, caller: Caller) -> int:
        """End all sessions of a caller; returns how many there were."""
        gone = [key for key, session in self._sessions.items() if self._holder(session.token) == caller]
        for key in gone:
            del self._sessions[key]
        self._keep()
        return len(gone)

    def new_code(self, token: str) -> tuple[str, float]:
        """A code that logs the holder of the token with this digest in, once, and until when (Unix seconds)."""
        now = self._clock()
        self._codes = {code: found for code, found in self._codes.items() if found[1] > now}
        own = [code for code, found in self._codes.items() if found[0] == token]
        if len(own) >= MAX_CODES_OF_ONE_TOKEN:
            del self._codes[own[0]]
        while len(self._codes) >= MAX_CODES:
            del self._codes[next(iter(self._codes))]
        code = "".join(secrets.choice(_LETTERS) for _ in range(_CODE_LETTERS))
        self._codes[digest(code)] = (token, now + CODE_S)
        self._guesses = 0
        return "-".join((code[:4], code[4:8], code[8:])), now + CODE_S

    def token_of(self, cookie: str) -> str | None:
        """Digest of the token that a session was made with."""
        found = self._sessions.get(digest(cookie))
        return found.token if found else None

    def _redeem(self, text: str) -> str | None:
        """The token digest of a code, which is used up; too many wrong guesses void all codes."""
        found = self._codes.pop(digest(text.replace("-", "").replace(" ", "").upper()), None)
        if found is not None and found[1] > self._clock():
            return found[0]
        self._guesses += 1
        if self._guesses >= MAX_GUESSES:
            self._codes.clear()
        return None

    def _make_room(self, token: str, now: float) -> None:
        self._sessions = {key: each for key, each in self._sessions.items() if not _is_over(each, now)}
        own = [key for key, each in self._sessions.items() if each.token == token]
        oldest = own[:1] if len(own) >= MAX_OF_ONE_TOKEN else list(self._sessions)[:1]
        if len(own) >= MAX_OF_ONE_TOKEN or len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[oldest[0]]

    def _keep(self) -> None:
        self._kept_s = self._clock()
        if self._path is None:
            return
        with contextlib.suppress(OSError):  # a full disk costs a login after the next restart, and no request now
            write_private(self._path, json.dumps({key: asdict(each) for key, each in self._sessions.items()}))


def digest(secret: str) -> str:
    """Of a token, cookie, proof or code; as ``server.auth`` keeps those of users."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _is_over(session: _Session, now: float) -> bool:
    return now >= session.ends_s or now >= session.used_s + IDLE_S


def _read(path: Path, now: float) -> dict[str, _Session]:
    """The sessions of the daemon before; one that cannot be read costs a login, no more."""
    try:
        found = json.loads(path.read_text())
        sessions = {str(key): _Session(**value) for key, value in found.items()}
        return {key: each for key, each in sessions.items() if not _is_over(each, now)}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
