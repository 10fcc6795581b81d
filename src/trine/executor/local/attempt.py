"""One attempt at a job as the local executor follows it: its supervisor, and what that left behind. What its directory
says is in ``attempt.files``."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

from trine.executor.attempt import rundir
from trine.executor.attempt.cgroup import Cgroup
from trine.executor.attempt.files import AttemptFiles
from trine.executor.attempt.processes import marked, send

_LOOKS, _LOOK_S = 10, 0.02


@dataclass
class Attempt(AttemptFiles):
    """An attempt with its supervisor."""

    pid: int = 0
    child: bool = False
    """The supervisor is a child of this process, so its number stays its own until it is waited for."""
    pidfd: int = -1
    ready: int = -1
    requested_signal: int = 0
    """The signal that was last sent to the supervisor."""
    gone: bool = False
    """Its supervisor has ended; how, and what it left, is still to be found out."""
    status: int = 0
    """How its supervisor ended, as ``waitpid`` tells."""
    fenced: bool = False
    """Its supervisor was killed because it did not end the attempt when the lease was over."""
    traceless: bool = False
    """Its directory says nothing of it; what is left of its processes is being ended."""

    def why_lost(self) -> str:
        if self.traceless:
            return "its processes left no trace"
        return "its supervisor did not end it when its lease was over" if self.fenced else "its supervisor was killed"

    def why_no_supervisor(self) -> str:
        """What is known of a supervisor that ended before it began."""
        if os.WIFSIGNALED(self.status):
            return f"its supervisor was killed before it began (signal {os.WTERMSIG(self.status)})"
        said = self.log_tail() or f"exit code {os.waitstatus_to_exitcode(self.status)}"
        return f"its supervisor did not start: {said}"

    def log_tail(self) -> str:
        """The last line of what the supervisor itself had to say."""
        try:
            lines = (self.run_dir / rundir.SUPERVISOR_LOG).read_text(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line for line in reversed(lines) if line.strip()), "")[:200]

    def sweep(self) -> bool:
        """Kill what a dead supervisor left behind; True if nothing is left."""
        cgroup = Cgroup(str((self.read(rundir.PID) or {}).get("cgroup", "")))
        for _ in range(_LOOKS):
            left = {*cgroup.pids(), *marked(f"TRINE_RUN_DIR={self.run_dir}")}
            if not left:
                cgroup.remove()
                return True
            cgroup.kill()
            for pid in left:
                send(pid, signal.SIGKILL)
            time.sleep(_LOOK_S)
        return False
