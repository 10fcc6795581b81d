"""Where the daemon is and how to prove an identity: arguments, then the environment, then the state directory."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from trine.client.errors import NoDaemonError
from trine.core.errors import InputError

_URL = "http://HOST:PORT, https://HOST:PORT or unix:///PATH/OF/SOCKET"
_UNIX = "unix://"
SOCKET = "api.sock"
"""The daemon's socket in its state directory."""


@dataclass(frozen=True, slots=True)
class Address:
    """A daemon's URL and the token for it; ``source`` says for people where they came from."""

    url: str
    token: str = field(repr=False)
    source: str

    @property
    def socket(self) -> str:
        """Path of the unix socket; empty for a daemon that is reached over TCP."""
        return self.url.removeprefix(_UNIX) if self.url.startswith(_UNIX) else ""


def state_directory(state: str | Path | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """The directory a daemon of this user keeps its state in, unless ``state`` or ``TRINE_STATE`` names another."""
    if state is not None or environ.get("TRINE_STATE"):
        return Path(state if state is not None else environ["TRINE_STATE"])
    base = environ.get("XDG_STATE_HOME") or Path(environ.get("HOME") or Path.home()) / ".local" / "state"
    return Path(base) / "trine"


def find_address(
    api: str | None = None,
    token: str | None = None,
    state: str | Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Address:
    """The daemon to talk to; an explicit ``state`` goes before ``TRINE_API``, and its token before ``TRINE_TOKEN``."""
    from_environment = api is None and state is None and bool(environ.get("TRINE_API"))
    if api is None and not from_environment:
        # The directory was not named, so that it says where the daemon is, not who asks.
        own = token or (_token_of(environ) if state is None else "")
        return _of_state(state_directory(state, environ), own, environ)
    url = _checked("TRINE_API" if api is None else "api", environ["TRINE_API"] if api is None else api)
    beside = Path(url.removeprefix(_UNIX)).parent if url.startswith(_UNIX) else state_directory(state, environ)
    found = token or _token_of(environ) or _token_beside(url, beside)
    if not found:
        raise InputError("TRINE_TOKEN", f"no token for {url}", "a token in TRINE_TOKEN or a file in TRINE_TOKEN_FILE")
    return Address(url, _visible("token", found), "TRINE_API" if from_environment else "api")


def _checked(where: str, url: str) -> str:
    if url.startswith(_UNIX):
        if not url.removeprefix(_UNIX).startswith("/") or "\0" in url:
            raise InputError(where, repr(url), _URL)
        return url
    try:
        parts = urlsplit(url)
        well_formed = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        well_formed = False
    if not well_formed:
        raise InputError(where, repr(url), _URL)
    return url.rstrip("/")


def _visible(where: str, text: str) -> str:
    """``text``, which is a secret and not shown, if a header can hold it."""
    if not all("!" <= letter <= "~" for letter in text):
        raise InputError(where, "it holds spaces or other characters that cannot be sent", "visible ASCII characters")
    return text


def _token_of(environ: Mapping[str, str]) -> str:
    if environ.get("TRINE_TOKEN"):
        return environ["TRINE_TOKEN"].strip()
    path = environ.get("TRINE_TOKEN_FILE")
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("TRINE_TOKEN_FILE", f"{path} cannot be read ({error})", "a file holding the token") from None


def _of_state(state: Path, token: str, environ: Mapping[str, str]) -> Address:
    """The daemon of a state directory: by its unix socket, which no other program can be behind, if it has one."""
    state = state.absolute()
    entry = _read_entry(state)
    if entry is None:
        return Address(f"{_UNIX}{state / SOCKET}", _visible("token", token or _required(state, environ)), str(state))
    url = _checked(f"{state / 'api.json'}", str(entry.get("url", "")))
    if entry.get("socket"):
        url = f"{_UNIX}{state / str(entry['socket'])}"
    pid = entry.get("pid")
    # Looked at before anything is sent: another program may have taken the port, and would get the token.
    if isinstance(pid, int) and not _alive(pid):
        raise NoDaemonError(
            f"the daemon of {state} is gone (process {pid} does not exist, {state / 'api.json'} is stale); "
            "start it again with `trine up`"
        )
    found = token or _token_in(state) or _required(state, environ)
    return Address(url, _visible("token", found), str(state))


def _read_entry(state: Path) -> dict[str, object] | None:
    """What the daemon wrote down; ``None`` if it is another user's, whose socket may be used all the same."""
    path = state / "api.json"
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise NoDaemonError(
            f"no daemon at {state} (there is no api.json); start one with `trine up`, or say where it is with --state, "
            "TRINE_STATE, or TRINE_API and TRINE_TOKEN"
        ) from None
    except PermissionError:
        if (state / SOCKET).is_socket():
            return None
        raise NoDaemonError(
            f"{path} may not be read: the daemon belongs to another user; ask for a token and set TRINE_API "
            "and TRINE_TOKEN"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(str(path), f"cannot be read ({error})", "the file `trine up` writes") from None
    if not isinstance(entry, dict):
        raise InputError(str(path), f"a {type(entry).__name__}", "an object with url and pid")
    return entry


def _alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _token_in(state: Path) -> str:
    try:
        return (state / "token").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _required(state: Path, environ: Mapping[str, str]) -> str:
    token = _token_of(environ)
    if not token:
        raise InputError(str(state / "token"), "cannot be read or is empty", "the token, there or in TRINE_TOKEN")
    return token


def _token_beside(url: str, state: Path) -> str:
    """The token of the state directory, if that daemon is the one at ``url``."""
    if url == f"{_UNIX}{state / SOCKET}":
        return _token_in(state)
    try:
        return _token_in(state) if (_read_entry(state) or {}).get("url") == url else ""
    except (NoDaemonError, InputError):
        return ""
