"""How an attempt gets going on this machine: a port for its ranks, a control group, a detached supervisor. What the
attempt is and where it lies is in ``executor.attempt``."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from trine.executor.attempt import rundir
from trine.executor.attempt.part import SIGNALS
from trine.executor.attempt.rendezvous import free_port
from trine.executor.attempt.spec import DEFAULT_PATH, LaunchRefused
from trine.executor.local.supervisor import READY_FD

_SUPERVISOR = f"""
import sys
sys.path.append({str(Path(__file__).parents[3])!r})
from trine.executor.local.supervisor import main
sys.exit(main(sys.argv[1:]))
"""
"""Starts in half the time of ``python -m``: no site packages are looked through, no variables of ours obeyed."""


def port_for(run_dir: Path, taken: Collection[int]) -> int:
    """A port for the ranks to meet at, of no attempt that runs."""
    try:
        return free_port(str(run_dir), taken)
    except OSError as error:
        raise LaunchRefused(str(error), passing=True) from None


def cgroup_name(run_dir: Path) -> str:
    """Of this attempt of this state directory only: others may use the same job ids."""
    digest = hashlib.blake2b(str(run_dir).encode(), digest_size=6).hexdigest()
    return f"trine-{run_dir.parent.name}-{run_dir.name}-{digest}"


def spawn_supervisor(run_dir: Path) -> tuple[int, int]:
    """Start a supervisor that outlives this process: its pid, and a pipe on which it says that the job has started."""
    ready, report = os.pipe()
    log = str(run_dir / rundir.SUPERVISOR_LOG)
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", _SUPERVISOR, str(run_dir)],
            {"PATH": DEFAULT_PATH},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, report, READY_FD),
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            # A request to stop that comes before the supervisor is ready waits for it instead of ending it.
            setsigmask=SIGNALS,
        )
    except OSError:
        os.close(ready)
        raise
    finally:
        os.close(report)
    return pid, ready


def send_signal(pidfd: int, number: int) -> None:
    """To exactly the process that the descriptor stands for, if it still runs."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)
