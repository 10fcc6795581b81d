"""Watches over one job from start to end, detached from its launcher: starts the ranks, forwards requests to
stop, kills what stays, and records the end when nothing is left. Standard library only.

Runs as ``supervisor RUN_DIR`` with its signals blocked from birth: TERM means preempt, USR1 kill."""

# pathlib takes 5 ms to load, and every job pays for it.
# ruff: noqa: PTH100, PTH118, PTH120, PTH208

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

from trine.executor.accounts import find_user
from trine.executor.attempt import rundir
from trine.executor.attempt.cgroup import Cgroup, make_cgroup
from trine.executor.attempt.processes import adopt_orphans, descendants, identity, parents, send
from trine.executor.attempt.rank import STALE_EXIT, StaleLease, become, stay_with
from trine.executor.faults import describe, is_host_fault

TYPE_CHECKING = False  # loading typing would take longer than all of this
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

READY_FD = 3
SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
CHECKPOINTED_EXIT = 85
KILLED_RC, TERMINATED_RC = 128 + signal.SIGKILL, 128 + signal.SIGTERM
_FAILED_GRACE_S = 5.0
"""How long the other ranks have to leave when one has failed: their collectives hang, most cannot."""
_LEFTOVER_GRACE_S = 2.0
"""How long background processes have after the ranks left by themselves."""
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.01, 0.5


class Supervisor:
    """The life of one attempt. Every process of it is a descendant of this one, so none left means no child left."""

    def __init__(self, run_dir: str, spec: dict[str, Any], cgroup: Cgroup) -> None:
        self.run_dir, self.spec, self.cgroup = run_dir, spec, cgroup
        self.rank_of: dict[int, int] = {}
        self._pid_by_fd: dict[int, int] = {}
        self._deaths = select.epoll()
        self.codes: dict[int, int] = {}
        self.failure: int | None = None
        self.asked = ""
        self.grace_s: float | None = None
        self.kill_at: float | None = None
        self.killed = False
        self.signalled: set[int] = set()
        self._look_s = _FIRST_LOOK_S

    def start(self) -> dict[str, Any] | None:
        """Start all ranks; the record of the end if one could not be started."""
        reports, report = os.pipe()
        # Known before the fork: a rank that asks for its parent later may see another, if this one is gone.
        me = os.getpid()
        try:
            for rank in range(len(self.spec["ranks"])):
                pid = os.fork()
                if pid == 0:
                    self._run_rank(rank, report, me)
                self._note_rank(pid, rank)
        except OSError as error:
            _report(report, f"no process for rank {rank}: {error.strerror}", host=True)
        os.close(report)
        problems = rundir.objects(_read_all(reports))
        # What the job itself got wrong would go wrong again, whatever the machine lacked besides.
        found = next((problem for problem in problems if not problem["host"]), problems[0] if problems else None)
        return None if found is None else _unlaunched(found["reason"], found["host"])

    def _note_rank(self, pid: int, rank: int) -> None:
        descriptor = os.pidfd_open(pid)
        self._deaths.register(descriptor, select.EPOLLIN)
        self._pid_by_fd[descriptor] = pid
        self.rank_of[pid] = rank

    def _run_rank(self, rank: int, report: int, parent: int) -> NoReturn:
        """In the child: never returns into the code of the parent."""
        try:
            stay_with(parent)
            os.setsid()
            self._enter_cgroup()
            log = _log_of(self.run_dir, rank)
            _make_log(log, self.spec["run_as"])
            become(self.spec, rank, self.run_dir, log, parent)
        except StaleLease as error:
            _report(report, str(error), host=False)
            os._exit(STALE_EXIT)
        except BaseException as error:
            own_dir = os.path.dirname(os.path.dirname(self.run_dir))
            _report(report, describe(error), is_host_fault(error, own_dir))
        os._exit(126)

    def _enter_cgroup(self) -> None:
        try:
            self.cgroup.enter()
        except OSError:
            return  # rights to make a group need not be rights to move there

    def watch(self) -> None:
        """Until nothing is left."""
        while self._reap():
            self._escalate()
            number = self._next_signal()
            if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                self._preempt()
            elif number == signal.SIGUSR1:
                self.kill()

    def _next_signal(self) -> int | None:
        if self.kill_at is None:
            return signal.sigwaitinfo(SIGNALS).si_signo
        timeout_s = self._look_s if self.killed else max(self.kill_at - time.monotonic(), 0.0)
        found = signal.sigtimedwait(SIGNALS, timeout_s)
        return found.si_signo if found else None

    def _reap(self) -> bool:
        """Collect the dead; False when no child is left."""
        self._reap_ranks()
        while True:
            # Look first, collect then: a rank that ends just now must go through the queue, too.
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return False
            if found is None:
                self._after_deaths()
                return True
            if found.si_pid in self.rank_of:
                self._reap_ranks()
            else:
                os.waitpid(found.si_pid, 0)

    def _reap_ranks(self) -> None:
        """Ranks in the order in which they ended: the first one that fails takes the others along and is to blame."""
        for descriptor, _ in self._deaths.poll(0, max(len(self._pid_by_fd), 1)):
            self._deaths.unregister(descriptor)
            os.close(descriptor)
            pid = self._pid_by_fd.pop(descriptor)
            self._rank_ended(pid, os.waitpid(pid, 0)[1])

    def _rank_ended(self, pid: int, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        code = 128 - code if code < 0 else code
        rank = self.rank_of[pid]
        self.codes[rank] = code
        rundir.append_status(self.run_dir, t=time.time(), ev="rank", rank=rank, rc=code)
        if code in (0, CHECKPOINTED_EXIT) or self._ended_by_us(code):
            return
        if self.failure is None:
            self.failure = code
            self._stop_within(min(_FAILED_GRACE_S, self.spec["grace_s"]))

    def _ended_by_us(self, code: int) -> bool:
        if self.asked == "preempt" and self.spec.get("launcher"):
            return True  # torchrun passes the request on to its workers and then ends with 1, whatever they end with
        return (self.kill_at is not None and code == TERMINATED_RC) or (self.killed and code == KILLED_RC)

    def _after_deaths(self) -> None:
        """Pass the request to stop on to what the dead left behind."""
        if len(self.codes) == len(self.rank_of) and not self.killed:
            left_by_themselves = TERMINATED_RC not in self.codes.values()
            if left_by_themselves or self.kill_at is None:
                self._kill_within(_LEFTOVER_GRACE_S)
        if self.kill_at is not None and not self.killed:
            self._signal_orphans()

    def _signal_orphans(self) -> None:
        """TERM for those whose rank is gone: a shell that ran the training, say, which must still save its work.

        Children of a rank that lives are its own business; many a loader dies of a TERM that its master survives."""
        everyone_left = len(self.codes) == len(self.rank_of)
        gone = {pid for pid, rank in self.rank_of.items() if rank in self.codes}
        try:
            children = _children(os.getpid())
        except OSError:  # no descriptor left to look with; the end of the grace is the same
            return
        for pid in children:
            if pid not in self.rank_of and pid not in self.signalled and (everyone_left or _session(pid) in gone):
                self.signalled.add(pid)
                send(pid, signal.SIGTERM)

    def _preempt(self) -> None:
        request = rundir.read_json(os.path.join(self.run_dir, rundir.STOP)) or {}
        grace_s = float(request.get("grace_s", self.spec["grace_s"]))
        if not self.asked:
            self.asked = "preempt"
            if not request:
                rundir.request_stop(self.run_dir)
            rundir.append_status(self.run_dir, t=time.time(), ev="stop", grace_s=grace_s)
        self.grace_s = grace_s if self.grace_s is None else min(grace_s, self.grace_s)
        self._stop_within(grace_s)

    def _stop_within(self, grace_s: float) -> None:
        """TERM to every rank that runs, once, and KILL to all of it after the grace."""
        self._kill_within(grace_s)
        for pid, rank in self.rank_of.items():
            if rank not in self.codes and pid not in self.signalled:
                self.signalled.add(pid)
                send(pid, signal.SIGTERM)

    def _kill_within(self, grace_s: float) -> None:
        at = time.monotonic() + max(grace_s, 0.0)
        self.kill_at = at if self.kill_at is None else min(at, self.kill_at)

    def kill(self) -> None:
        self.asked = "kill"
        self._kill_within(0.0)

    def _escalate(self) -> None:
        if self.kill_at is None or time.monotonic() < self.kill_at:
            return
        if self.killed:
            self._look_s = min(2 * self._look_s, _LONGEST_LOOK_S)
        else:
            rundir.append_status(self.run_dir, t=time.time(), ev="kill")
        self.killed = True
        try:
            self.cgroup.kill()
            for pid in descendants(os.getpid()):
                send(pid, signal.SIGKILL)
        except OSError:
            return  # no descriptor left to look with; looked again soon

    def verdict(self) -> dict[str, Any]:
        """How it ended, by the ranks' exit codes and what was asked for; with the grace it had, if it was asked to."""
        end = self._verdict()
        return end if self.grace_s is None else {**end, "grace_s": self.grace_s}

    def _verdict(self) -> dict[str, Any]:
        codes = [self.codes[rank] for rank in sorted(self.codes)]
        if all(code == 0 for code in codes):
            return {"kind": "done", "rc": 0}
        if all(code in (0, CHECKPOINTED_EXIT) for code in codes):
            return {"kind": "preempted", "rc": CHECKPOINTED_EXIT}
        if self.failure is not None:
            return {"kind": "failed", "rc": self.failure, "reason": self._blame()}
        forced = next(code for code in codes if code not in (0, CHECKPOINTED_EXIT))
        if self.asked == "preempt":
            return {"kind": "preempted", "rc": forced, "killed": self.killed}
        return {"kind": "failed", "rc": forced, "reason": "killed on request"}

    def _blame(self) -> str:
        rank = next(rank for rank, code in self.codes.items() if code == self.failure)
        return f"rank {rank} of {len(self.rank_of)} ended with exit code {self.failure}"


def _unlaunched(reason: str, host: bool) -> dict[str, Any]:
    return {"kind": "unlaunched", "rc": 126, "reason": reason, "host": host}


def _report(descriptor: int, reason: str, host: bool) -> None:
    """One line to the supervisor, short enough to arrive as a whole."""
    os.write(descriptor, json.dumps({"reason": " ".join(reason.split())[:300], "host": host}).encode() + b"\n")


def _read_all(descriptor: int) -> bytes:
    """What the ranks report until all of them run. One that hangs, on a dead file system say, can still be stopped."""
    data = b""
    while True:
        if select.select([descriptor], [], [], _LONGEST_LOOK_S)[0]:
            part = os.read(descriptor, 1 << 16)
            data += part
            if part:
                continue
        elif not _stop_pending():
            continue
        os.close(descriptor)
        return data


def _children(root: int) -> list[int]:
    return [pid for pid, parent in parents().items() if parent == root]


def _session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def _log_of(run_dir: str, rank: int) -> str:
    """Rank 0 writes to the log of the job, the others to one each; later attempts append."""
    name = rundir.LOG if rank == 0 else f"{rundir.LOG}.{rank}"
    return os.path.join(os.path.dirname(run_dir), name)


def _make_log(log: str, user: str | None) -> None:
    """An empty log that belongs to the user, since many scripts open /dev/stdout again; made once, written as the user.

    The directory is the daemon's: no other user can put anything in the place of the log."""
    try:
        made = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return
    try:
        if user and os.geteuid() == 0:
            os.fchown(made, find_user(user).pw_uid, -1)
    finally:
        os.close(made)


def _stop_pending() -> str:
    pending = signal.sigpending()
    if signal.SIGUSR1 in pending:
        return "kill"
    return "preempt" if pending & {signal.SIGTERM, signal.SIGINT, signal.SIGHUP} else ""


def _lead(run_dir: str, spec: dict[str, Any], cgroup: Cgroup) -> dict[str, Any]:
    """From start to end; returns the record of the end."""
    asked = _stop_pending()
    if asked == "preempt":
        return {"kind": "preempted", "rc": CHECKPOINTED_EXIT, "reason": "stopped before it started"}
    if asked:
        return {"kind": "failed", "rc": KILLED_RC, "reason": "killed before it started"}
    try:
        supervisor = Supervisor(run_dir, spec, cgroup)
    except OSError as error:
        return _unlaunched(f"its supervisor could not begin: {describe(error)}", host=True)
    try:
        problem = supervisor.start()
    except Exception as error:  # of ours or the machine's, not the job's
        sys.excepthook(*sys.exc_info())
        problem = _unlaunched(f"its supervisor failed: {describe(error)}", host=True)
    if problem:
        supervisor.kill()
    else:
        rundir.append_status(run_dir, t=time.time(), ev="started")
        _notify_launcher(b"started")
    supervisor.watch()
    return problem or supervisor.verdict()


def _notify_launcher(word: bytes) -> None:
    """The launcher may be gone by now, or never have listened."""
    try:
        os.write(READY_FD, word)
        os.close(READY_FD)
    except OSError:
        return


def _close_inherited() -> None:
    """Whatever else the launcher had open: a job that kept the daemon's socket would keep its port, too."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > READY_FD:
                os.close(int(name))
            elif int(name) == READY_FD:
                os.set_inheritable(READY_FD, False)
        except OSError:
            continue


def main(arguments: Sequence[str]) -> int:
    """Supervise the attempt in a run directory, unless another process does or did."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a launcher that ignores its children must not make us do so
    _close_inherited()
    run_dir = os.path.abspath(arguments[0])
    if not rundir.is_own_dir(run_dir):
        print(f"{run_dir}: belongs to another user, so nothing in it is run", file=sys.stderr)
        return 1
    spec = rundir.read_json(os.path.join(run_dir, rundir.SPEC))
    me = identity(os.getpid())
    if rundir.read_json(os.path.join(run_dir, rundir.EXIT)) is not None:
        return 0
    if spec is None or me is None:
        print(f"{run_dir}: no lease to run", file=sys.stderr)
        return 1
    cgroup = make_cgroup(spec["cgroup"]) if spec["cgroup"] else Cgroup("")
    if not rundir.claim(run_dir, {**me, "cgroup": cgroup.path}):
        return 0
    os.chdir("/")
    adopt_orphans()
    end = _lead(run_dir, spec, cgroup)
    cgroup.remove()
    rundir.append_status(run_dir, t=time.time(), ev="exit", **end)
    rundir.write_exit(run_dir, {**end, "t": time.time(), "step": rundir.last_step(run_dir)})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
