"""The directory of one attempt: which files it holds and how they are written. Light: every supervisor loads this.

``spec.json`` what to run; ``lease.json`` what the job may read of its lease; ``pid.json`` the leader that owns it;
``status`` what happened, one JSON object per line; ``stop.json`` how to stop; ``exit.json`` the end; ``progress/``.
Where an attempt has several parts: ``part-N.json`` the process that owns part N, ``part-N.up.json`` its ranks run,
``part-N.end.json`` how they ended, ``part-N.beat`` that it goes on; ``halt.json`` the failure reported first,
which ends all parts; ``port.json`` where the ranks meet."""

# pathlib takes 5 ms to load, and every job pays for it.
# ruff: noqa: PTH105, PTH108, PTH116, PTH118, PTH123

from __future__ import annotations

import json
import os
import stat

from trine.executor.faults import is_host_fault

TYPE_CHECKING = False  # loading typing would take longer than all of this
if TYPE_CHECKING:
    from typing import Any

SPEC, LEASE, PID, STATUS, STOP, EXIT = "spec.json", "lease.json", "pid.json", "status", "stop.json", "exit.json"
PROGRESS, SUPERVISOR_LOG, LOG = "progress", "supervisor.log", "log"
HALT, PORT = "halt.json", "port.json"
_RESERVED_BYTES = 1024
_LONGEST_BYTES = 4 << 20
_LONGEST_JOB_BYTES = 16 << 10
"""Of a file that the job writes, which takes a few hundred bytes: reading megabytes of it every second, for every job,
would leave the daemon no time for anything else."""


def write_json(path: str, value: dict[str, Any], mode: int = 0o600) -> None:
    """Replace a file as a whole, so that no reader sees half of it."""
    # Not core.atomic_file: that loads pathlib, and this module must load in a millisecond.
    aside = f"{path}.{os.getpid()}.tmp"
    try:
        _write(aside, json.dumps(value).encode(), os.O_CREAT | os.O_TRUNC, mode)
        os.replace(aside, path)
    except OSError:
        _remove(aside)
        raise


def read_json(path: str, *, raising: bool = False) -> dict[str, Any] | None:
    """The object in a file that only this user or root can have written; ``None`` if there is none.

    A privileged daemon acts on these files, so one that belongs to another user counts as absent. So does one that the
    machine cannot open now, unless ``raising``: then that is an OSError, for callers that act on absence."""
    return _read(path, trusted=True, raising=raising)


def read_job_json(path: str) -> dict[str, Any] | None:
    """As ``read_json`` for a file that the job itself writes.

    Nothing that it may put there instead (a pipe, a link, a million brackets) may hold up or harm the reader. One that
    is larger than 16 kB counts as absent."""
    return _read(path, trusted=False)


def is_own_dir(path: str) -> bool:
    """A directory, not a link, that belongs to this user or root and that no other user may write to."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and _is_own(found)


def _read(path: str, trusted: bool, raising: bool = False) -> dict[str, Any] | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            found = os.fstat(descriptor)
            fit = stat.S_ISREG(found.st_mode) and (_is_own(found) if trusted else found.st_size <= _LONGEST_JOB_BYTES)
            data = os.read(descriptor, _LONGEST_BYTES if trusted else _LONGEST_JOB_BYTES) if fit else b""
        finally:
            os.close(descriptor)
    except OSError as error:
        if raising and is_host_fault(error):
            raise
        return None
    return _object(data)


def _is_own(found: os.stat_result) -> bool:
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


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
            return objects(file.read())
    except OSError:
        return []


def objects(data: bytes) -> list[dict[str, Any]]:
    """JSON objects, one per line; whatever else there is, is left out."""
    return [value for line in data.splitlines() if (value := _object(line))]


def claim(run_dir: str, identity: dict[str, Any], name: str = PID) -> bool:
    """Become the one owner of an attempt, or of the part that ``name`` stands for; False if it has, or had, another.

    Also for any other file that only the first may write: a link is made by one, on file servers, too."""
    aside = os.path.join(run_dir, f"{name}.{os.getpid()}.tmp")
    try:
        _write(aside, json.dumps(identity).encode(), os.O_CREAT | os.O_TRUNC, 0o600)
        os.link(aside, os.path.join(run_dir, name))
    except FileExistsError:
        return False
    finally:
        _remove(aside)
    return True


def part_file(index: int, what: str = "") -> str:
    """The name of a file of part ``index``: its claim, or what it says when its ranks are ``up``, at their ``end``."""
    return f"part-{index}.{what}.json" if what else f"part-{index}.json"


def beat_file(index: int) -> str:
    """The name of the file that changes while part ``index`` goes on."""
    return f"part-{index}.beat"


def write_beat(path: str, count: int) -> None:
    """Change it, in place: a disk that is full has room for that."""
    try:
        _write(path, b"%020d\n" % count, os.O_CREAT, 0o600)
    except OSError:
        os.utime(path)


def read_beat(path: str) -> object:
    """A mark that is another one whenever the file was changed, ``None`` without a file; OSError if it cannot be
    read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        return os.read(descriptor, _RESERVED_BYTES), os.fstat(descriptor).st_mtime_ns
    finally:
        os.close(descriptor)


def reserve_exit(run_dir: str, at_s: float) -> None:
    """Take the disk space for the record of the end now: a disk that is full later must not turn done into lost.

    It holds an end already, for ``write_unlaunched``."""
    first = {"kind": "unlaunched", "rc": 126, "host": True, "reason": "the machine could not start it", "t": at_s}
    reserve(run_dir, EXIT, first)


def write_unlaunched(run_dir: str) -> None:
    """Record that it was never started, if nothing was recorded yet: needs neither space nor a descriptor."""
    os.replace(os.path.join(run_dir, f"{EXIT}.tmp"), os.path.join(run_dir, EXIT))


def write_exit(run_dir: str, record: dict[str, Any]) -> None:
    """Record the end, in the space that was reserved for it."""
    write_reserved(run_dir, EXIT, {**record, "reason": str(record.get("reason", ""))[:300]})


def reserve(run_dir: str, name: str, first: dict[str, Any]) -> str:
    """Take the disk space for a record that is written at the end; the path of the file that holds it until then."""
    aside = os.path.join(run_dir, f"{name}.tmp")
    _write(aside, json.dumps(first).encode().ljust(_RESERVED_BYTES), os.O_CREAT | os.O_TRUNC, 0o600)
    return aside


def write_reserved(run_dir: str, name: str, record: dict[str, Any]) -> None:
    """Write a record, in the space that was reserved for it."""
    aside = os.path.join(run_dir, f"{name}.tmp")
    _write(aside, json.dumps(record).encode().ljust(_RESERVED_BYTES), os.O_CREAT, 0o600)
    os.replace(aside, os.path.join(run_dir, name))


def lease_time(lease_s: float | None, renewal: int, now_s: float) -> dict[str, Any]:
    """How long a lease holds, as it stands in its file. ``deadline_s`` (Unix seconds) is for people and for programs
    without the SDK; the SDK times ``lease_s`` by a clock that cannot be set."""
    return {"lease_s": lease_s, "renewal": renewal, "deadline_s": None if lease_s is None else now_s + lease_s}


def touch_lease(run_dir: str) -> None:
    """Renew a lease where there is no room to write it anew: its parts see that the file was touched."""
    os.utime(os.path.join(run_dir, LEASE))


def read_lease(run_dir: str) -> tuple[dict[str, Any], tuple[object, int]]:
    """The lease, and a mark that changes whenever it is renewed. OSError if it cannot be read now."""
    path = os.path.join(run_dir, LEASE)
    lease = read_json(path, raising=True) or {}
    return lease, (lease.get("renewal"), os.stat(path).st_mtime_ns)


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
    """The step that rank 0 last reported."""
    step = (read_job_json(progress_file(run_dir)) or {}).get("step")
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
