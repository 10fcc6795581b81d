"""The directory of one attempt: which files it holds and how they are written. Light: every supervisor loads this.

``spec.json`` what to run; ``lease.json`` what the job may read of its lease; ``pid.json`` the supervisor that owns it;
``status`` what happened, one JSON object per line; ``stop.json`` how to stop; ``exit.json`` the end; ``progress/``."""

# pathlib takes 5 ms to load, and every job pays for it.
# ruff: noqa: PTH105, PTH108, PTH118, PTH123

from __future__ import annotations

import json
import os
import stat

TYPE_CHECKING = False  # loading typing would take longer than all of this
if TYPE_CHECKING:
    from typing import Any

SPEC, LEASE, PID, STATUS, STOP, EXIT = "spec.json", "lease.json", "pid.json", "status", "stop.json", "exit.json"
PROGRESS, SUPERVISOR_LOG, LOG = "progress", "supervisor.log", "log"
_RESERVED_BYTES = 1024
_LONGEST_BYTES = 4 << 20


def write_json(path: str, value: dict[str, Any], mode: int = 0o600) -> None:
    """Replace a file as a whole, so that no reader sees half of it."""
    aside = f"{path}.{os.getpid()}.tmp"
    try:
        _write(aside, json.dumps(value).encode(), os.O_CREAT | os.O_TRUNC, mode)
        os.replace(aside, path)
    except OSError:
        _remove(aside)
        raise


def read_json(path: str) -> dict[str, Any] | None:
    """The object in a file; ``None`` if there is no file or no object in it.

    Jobs write some of these files, so nothing that they may put there instead (a pipe, a link, a million brackets) may
    hold up or harm the reader."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            data = os.read(descriptor, _LONGEST_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
        finally:
            os.close(descriptor)
    except OSError:
        return None
    return _object(data)


def append_status(run_dir: str, **line: Any) -> None:
    """One more line on what happened. A full disk loses the line, not the job."""
    try:
        _write(os.path.join(run_dir, STATUS), json.dumps(line).encode() + b"\n", os.O_CREAT | os.O_APPEND, 0o600)
    except OSError:
        return


def read_status(run_dir: str) -> list[dict[str, Any]]:
    """What happened so far; a line that was cut short by a full disk is left out."""
    try:
        with open(os.path.join(run_dir, STATUS), "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    return [value for line in lines if (value := _object(line))]


def claim(run_dir: str, identity: dict[str, Any]) -> bool:
    """Become the one owner of an attempt; False if it has, or had, another."""
    aside = os.path.join(run_dir, f"pid.{os.getpid()}.tmp")
    _write(aside, json.dumps(identity).encode(), os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.link(aside, os.path.join(run_dir, PID))
    except FileExistsError:
        return False
    finally:
        os.unlink(aside)
    return True


def reserve_exit(run_dir: str) -> None:
    """Take the disk space for the record of the end now: a disk that is full later must not turn done into lost."""
    _write(os.path.join(run_dir, f"{EXIT}.tmp"), b" " * _RESERVED_BYTES, os.O_CREAT | os.O_TRUNC, 0o600)


def write_exit(run_dir: str, record: dict[str, Any]) -> None:
    """Record the end, in the space that was reserved for it."""
    text = json.dumps({**record, "reason": str(record.get("reason", ""))[:300]}).encode()
    aside = os.path.join(run_dir, f"{EXIT}.tmp")
    _write(aside, text.ljust(_RESERVED_BYTES), os.O_CREAT, 0o600)
    os.replace(aside, os.path.join(run_dir, EXIT))


def request_stop(run_dir: str) -> None:
    """Let the job see in its lease that it shall leave. On a full disk the signal that goes with it must do."""
    path = os.path.join(run_dir, LEASE)
    try:
        write_json(path, {**(read_json(path) or {}), "stop": True}, 0o644)
    except OSError:
        return


def progress_file(run_dir: str, rank: int = 0) -> str:
    return os.path.join(run_dir, PROGRESS, f"progress-{rank}.json")


def last_step(run_dir: str) -> int | None:
    """The step that rank 0 last told."""
    step = (read_json(progress_file(run_dir)) or {}).get("step")
    return step if isinstance(step, int) else None


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def _write(path: str, data: bytes, flags: int, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | flags, mode)
    try:
        os.fchmod(descriptor, mode)
        while data:
            data = data[os.write(descriptor, data) :]
    finally:
        os.close(descriptor)
