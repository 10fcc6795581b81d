"""From tokens to callers: the daemon's own token, made at its first start, and further tokens of users.

A token is 32 random bytes as hex. Only digests of user tokens are kept. What a caller may do is not decided here.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import pwd
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from trine.core.atomic_file import create_private, make_private_dir, write_private
from trine.core.errors import InputError
from trine.server.interface import Caller
from trine.server.sessions import digest as _digest

TOKEN_FILE, USER_TOKENS_FILE = "token", "tokens.json"
MAX_TOKENS = 10_000
REREAD_S = 1.0
"""Tokens added or revoked by another process count after at most this long."""

_TOKEN = re.compile(r"[0-9a-f]{64}")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class UserToken:
    """A user's token, known by the first letters of its digest."""

    id: str
    user: str


class Auth:
    """Finds the caller of a token. The daemon's own token is the administrator's: the user the daemon runs as."""

    def __init__(self, state: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._admin = _digest(read_token(state))
        self._owner = Caller(user_name(os.geteuid()), admin=True)
        self._file, self._clock = state / USER_TOKENS_FILE, clock
        self._stamp: _Stamp | None = None
        self._callers: dict[str, Caller] = {}
        self._next_look_s = -float("inf")
        self._look()

    def caller(self, token: str) -> Caller | None:
        """The caller that holds ``token``; ``None`` if it is not known.

        Only digests are compared, so the time it takes says nothing about how much of a guess was right.
        """
        return self.holder(_digest(token))

    def holder(self, digest: str) -> Caller | None:
        """The caller that holds the token with this digest, for sessions that were made with it."""
        if self._clock() >= self._next_look_s:
            with suppress(InputError):
                self._look()
        if hmac.compare_digest(digest, self._admin):
            return self._owner
        return self._callers.get(digest)

    def _look(self) -> None:
        """Read the users' tokens again if the file changed; a damaged file lets no user in until it is repaired."""
        self._next_look_s = self._clock() + REREAD_S
        stamp = _stamp(self._file)
        if stamp == self._stamp:
            return
        self._stamp, self._callers = stamp, {}
        self._callers = {digest: Caller(user) for digest, user in _read_users(self._file).items()}


def open_auth(state: Path, clock: Callable[[], float] = time.monotonic) -> Auth:
    """The tokens of a state directory; the directory (mode 700) and the daemon's token (mode 600) are made if missing.

    Refuses a directory that others may change and a token that others may read.
    """
    make_private_dir(state)
    mode = state.stat().st_mode
    if mode & 0o022:
        found = f"others may write to this directory (mode {stat.S_IMODE(mode):o})"
        raise InputError(str(state), found, f"mode 700: run chmod 700 {state}")
    if os.geteuid() == 0:
        _check_above(state)
    path = state / TOKEN_FILE
    if not path.is_symlink() and not path.exists():
        create_private(path, secrets.token_hex(32) + "\n")
    return Auth(state, clock)


def _check_above(state: Path) -> None:
    """Root acts on what it finds in its state directory, so no other user may be able to put another in its place."""
    for path in (state.resolve(), *state.resolve().parents):
        found = path.stat()
        loose = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
        if found.st_uid != 0 or loose:
            problem = f"{path} can be changed by users other than root (owner {user_name(found.st_uid)})"
            raise InputError(str(state), problem, "a state directory for root such as /var/lib/trine")


def read_token(state: Path) -> str:
    """The daemon's token, for those who may read it."""
    path = state / TOKEN_FILE
    token = _read_private(path).strip()
    if not _TOKEN.fullmatch(token):
        raise InputError(str(path), "this is not a token", "64 hexadecimal digits; remove the file to get a new token")
    return token


def add_user_token(state: Path, user: str) -> str:
    """A new token for ``user``; shown now and never again."""
    if not _USER.fullmatch(user):
        raise InputError("user", f"found {user!r}", "up to 32 letters, digits and . _ -, beginning with a letter")
    token = secrets.token_hex(32)
    with _changing(state) as users:
        if len(users) >= MAX_TOKENS:
            raise InputError(str(state / USER_TOKENS_FILE), f"{len(users):,} tokens", "fewer; revoke some first")
        users[_digest(token)] = user
    return token


def user_tokens(state: Path) -> list[UserToken]:
    """The users' tokens, by user."""
    users = _read_users(state / USER_TOKENS_FILE)
    return sorted(
        (UserToken(digest[:12], user) for digest, user in users.items()), key=lambda each: (each.user, each.id)
    )


def revoke_user_tokens(state: Path, user_or_id: str) -> list[UserToken]:
    """Forget all tokens of a user, or the one with that id; returns those forgotten."""
    with _changing(state) as users:
        gone = [digest for digest, user in users.items() if user_or_id in (user, digest[:12])]
        revoked = [UserToken(digest[:12], users.pop(digest)) for digest in gone]
    if not revoked:
        raise InputError("token", f"no token of user or id {user_or_id!r}", "a user or an id that has a token")
    return revoked


def user_name(uid: int) -> str:
    """The system's name of a user id, or the number if it has none (as in some containers)."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid{uid}"


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read_private(path: Path) -> str:
    """The text of a file that belongs to us and that no other user may read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror})", "a token file of your own") from None
    with os.fdopen(descriptor, "rb") as stream:
        _check_private(path, os.fstat(stream.fileno()))
        return stream.read(4_000_000).decode("utf-8", "replace")


def _check_private(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise InputError(str(path), "this is not a plain file", "a token file")
    if found.st_uid != os.geteuid():
        raise InputError(str(path), f"belongs to user {user_name(found.st_uid)}", "a token file of your own")
    if found.st_mode & 0o077:
        mode = f"{stat.S_IMODE(found.st_mode):o}"
        raise InputError(str(path), f"others may read this token (mode {mode})", f"mode 600: run chmod 600 {path}")


def _read_users(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    try:
        users = json.loads(_read_private(path))
    except (ValueError, RecursionError):
        users = None
    if not isinstance(users, dict) or not all(_is_entry(digest, user) for digest, user in users.items()):
        raise InputError(str(path), "this is not a list of tokens", "a JSON object of SHA-256 digest: user")
    return users


def _is_entry(digest: str, user: object) -> bool:
    return bool(_TOKEN.fullmatch(digest)) and isinstance(user, str) and bool(_USER.fullmatch(user))


@contextmanager
def _changing(state: Path) -> Iterator[dict[str, str]]:
    """The users' tokens to change in place; written back in one step, one process at a time."""
    path = state / USER_TOKENS_FILE
    directory = os.open(state, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        users = _read_users(path)
        yield users
        write_private(path, json.dumps(users, indent=1, sort_keys=True) + "\n")
    finally:
        os.close(directory)
