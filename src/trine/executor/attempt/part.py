"""One part of an attempt: the ranks of one or more nodes, on the machine where this runs. Starts them, ends them when
requested or when the lease is over, kills what stays, and reports how they ended. Standard library only.

``python -m trine.executor.attempt.part RUN_DIR NODE`` runs the part of a node, wherever the directory can be read;
``RUN_DIR --node-from NAME`` takes the node from a variable of the environment, ``RUN_DIR NODE --kept-by PID`` stops
when that process is gone, and is no child of it. The files are described in ``rundir``.
Requests to stop come by file. A signal (TERM, INT, HUP) means only: read the files now, and stop if there is none.
The lease is a duration on the clock of this machine: when it was not renewed in time, the ranks get TERM, their grace
and KILL, whatever other processes are still alive."""

# pathlib takes 5 ms to load, and every job pays for it.
# ruff: noqa: PTH100, PTH118, PTH120

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

from trine.executor.attempt import rendezvous, rundir
from trine.executor.attempt.cgroup import Cgroup, make_cgroup
from trine.executor.attempt.clocks import SharedClock
from trine.executor.attempt.heartbeat import Heartbeat
from trine.executor.attempt.mailbox import Mailbox
from trine.executor.attempt.processes import adopt_orphans, children, descendants, identity, send, session, uptime_s
from trine.executor.attempt.rank import STALE_EXIT, StaleLease, become, check_lease, log_of, make_log, stay_with
from trine.executor.faults import describe, is_host_fault

TYPE_CHECKING = False  # loading typing would take longer than all of this
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Blocked from the start and waited for: TERM, INT, HUP read the requests, USR1 kill, USR2 the mailbox has news."""
CHECKPOINTED_EXIT = 85
KILLED_RC, TERMINATED_RC = 128 + signal.SIGKILL, 128 + signal.SIGTERM
_STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_FAILED_GRACE_S = 5.0
"""How long the other ranks have to leave when one has failed: their collectives hang, most cannot."""
_LEFTOVER_GRACE_S = 2.0
"""How long background processes have after the ranks left by themselves."""
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.01, 0.5


class Part:
    """Some ranks from start to end. Every process of them is a descendant of this one, which adopts orphans: no child
    left means that none of them is."""

    def __init__(
        self,
        run_dir: str,
        spec: dict[str, Any],
        cgroup: Cgroup,
        index: int = 0,
        note: Callable[..., None] | None = None,
        beat: Callable[[], None] | None = None,
        clock: SharedClock | None = None,
    ) -> None:
        self.run_dir, self.spec, self.cgroup, self.index = run_dir, spec, cgroup, index
        self._clock = clock or SharedClock()
        self.nodes = parts_of(spec)[index]
        self.ranks = [rank for rank, placed in enumerate(spec["ranks"]) if placed["node"] in self.nodes]
        parent = os.getppid() if spec.get("ends_with_parent") else 0
        self.mail = Mailbox(run_dir, _wake_main, spec.get("look_s"), parent, spec.get("keeper"), beat)
        self.mail.read()
        self._note = note
        self.rank_of: dict[int, int] = {}
        self._pid_by_fd: dict[int, int] = {}
        self._deaths = select.epoll()
        self.codes: dict[int, int] = {}
        self.failure: tuple[int, int, float] | None = None
        """Rank, exit code and time of the first of these ranks that failed before anything was to end it."""
        self.asked = ""
        self.grace_s: float | None = None
        self.fenced = False
        """The lease was over."""
        self.kill_at: float | None = None
        self.killed = False
        self.signalled: set[int] = set()
        self._look_s = _FIRST_LOOK_S

    # -- start -------------------------------------------------------------------------------------------------------

    def start(self) -> dict[str, Any] | None:
        """Start all ranks; what went wrong (``reason``, ``host``) if one could not be started."""
        reports, report = os.pipe()
        # Known before the fork: a rank that asks for its parent later may see another, if this one is gone.
        me = os.getpid()
        try:
            for rank in self.ranks:
                pid = os.fork()
                if pid == 0:
                    self._run_rank(rank, report, me)
                self._note_rank(pid, rank)
        except OSError as error:
            _report(report, f"no process for rank {rank}: {error.strerror}", host=True)
        os.close(report)
        self.mail.start()
        problems = rundir.objects(self._read_all(reports))
        # What the job itself got wrong would go wrong again, whatever the machine lacked besides.
        return next((problem for problem in problems if not problem["host"]), problems[0] if problems else None)

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
            log = log_of(self.run_dir, rank)
            make_log(log, self.spec["run_as"])
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

    def _read_all(self, descriptor: int) -> bytes:
        """What the ranks report until all of them run. One that hangs, on a dead file server say, can be ended."""
        data = b""
        while True:
            if select.select([descriptor], [], [], _LONGEST_LOOK_S)[0]:
                part = os.read(descriptor, 1 << 16)
                data += part
                if part:
                    continue
            elif not (stop_pending() or self.mail.stop or self.mail.halt or self._lease_over()):
                continue
            os.close(descriptor)
            return data

    # -- until nothing is left ---------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Until no process of the part is left."""
        while self._reap():
            self._obey()
            self._escalate()
            number = self._next_signal()
            if number in _STOP_SIGNALS:
                self.mail.look_now()
            elif number == signal.SIGUSR1:
                self.kill()

    def _next_signal(self) -> int | None:
        times = [at for at in (self.kill_at, None if self.fenced else self.mail.deadline) if at is not None]
        if not times:
            return signal.sigwaitinfo(SIGNALS).si_signo
        timeout_s = self._look_s if self.killed else max(min(times) - uptime_s(), 0.0)
        found = signal.sigtimedwait(SIGNALS, timeout_s)
        return found.si_signo if found else None

    def _obey(self) -> None:
        """What the files say, or the clock."""
        stop = self.mail.stop
        if stop is None and self.mail.answers:
            stop = {}  # a signal without a request on file
        if stop is not None and stop.get("kill"):
            self.kill()
        elif stop is not None:
            self._preempt(float(stop.get("grace_s", self.spec["grace_s"])))
        if self.mail.halt is not None:
            self._stop_within(min(_FAILED_GRACE_S, self.spec["grace_s"]))
        if self._lease_over() and not self.fenced:
            self.fenced = True
            self._tell(ev="lease over")
            self._stop_within(self.spec["grace_s"])

    def _lease_over(self) -> bool:
        deadline = self.mail.deadline
        return deadline is not None and uptime_s() >= deadline

    def _reap(self) -> bool:
        """Collect the processes that ended; False when no child is left."""
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
        self._tell(ev="rank", rank=rank, rc=code)
        if code in (0, CHECKPOINTED_EXIT) or self._ended_by_us(code):
            return
        # A failure elsewhere may be known here already, and still have come later than this one.
        if self.failure is None and (self.mail.halt is None or pid not in self.signalled):
            self.failure = (rank, code, self._clock.now_s())
            self.mail.post(self._confirm_failure)
            self._stop_within(min(_FAILED_GRACE_S, self.spec["grace_s"]))

    def _ended_by_us(self, code: int) -> bool:
        if self.asked == "preempt" and (self.spec.get("launcher") or len(self.spec["ranks"]) > 1):
            # torchrun passes the request on to its workers and then ends with 1, whatever they end with; and among
            # several ranks those that leave first let the others fail.
            return True
        return (self.kill_at is not None and code == TERMINATED_RC) or (self.killed and code == KILLED_RC)

    def _confirm_failure(self) -> None:
        """In the thread of the mailbox: a failure is one unless a stop was ordered before this part saw it, in which
        case its peers have left. The first to say so ends all parts; which one is to blame is decided by the times."""
        assert self.failure is not None
        rank, code, at_s = self.failure
        ordered = rundir.read_json(os.path.join(self.run_dir, rundir.STOP)) is not None
        if ordered and len(self.spec["ranks"]) > 1:
            self.failure = None
        elif len(parts_of(self.spec)) > 1:
            rundir.claim(self.run_dir, {"rank": rank, "rc": code, "t": at_s}, rundir.HALT)

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
            below = children(os.getpid())
        except OSError:  # no descriptor left to look with; the end of the grace is the same
            return
        for pid in below:
            if pid not in self.rank_of and pid not in self.signalled and (everyone_left or session(pid) in gone):
                self.signalled.add(pid)
                send(pid, signal.SIGTERM)

    # -- ending it ---------------------------------------------------------------------------------------------------

    def _preempt(self, grace_s: float) -> None:
        if not self.asked:
            self.asked = "preempt"
            self.mail.post(self._show_stop)
            self._tell(ev="stop", grace_s=grace_s)
        self.grace_s = grace_s if self.grace_s is None else min(grace_s, self.grace_s)
        self._stop_within(grace_s)

    def _show_stop(self) -> None:
        """A job that was stopped by a signal alone reads in its lease that it shall leave, too."""
        if self.mail.stop is None:
            rundir.request_stop(self.run_dir)

    def _stop_within(self, grace_s: float) -> None:
        """TERM to every rank that runs, once, and KILL to all of it after the grace."""
        self._kill_within(grace_s)
        for pid, rank in self.rank_of.items():
            if rank not in self.codes and pid not in self.signalled:
                self.signalled.add(pid)
                send(pid, signal.SIGTERM)

    def _kill_within(self, grace_s: float) -> None:
        at = uptime_s() + max(grace_s, 0.0)
        self.kill_at = at if self.kill_at is None else min(at, self.kill_at)

    def kill(self) -> None:
        self.asked = "kill"
        self._kill_within(0.0)

    def _escalate(self) -> None:
        if self.kill_at is None or uptime_s() < self.kill_at:
            return
        if self.killed:
            self._look_s = min(2 * self._look_s, _LONGEST_LOOK_S)
        else:
            self._tell(ev="kill")
        self.killed = True
        try:
            self.cgroup.kill()
            for pid in descendants(os.getpid()):
                send(pid, signal.SIGKILL)
        except OSError:
            return  # no descriptor left to look with; looked again soon

    # -- what it says ------------------------------------------------------------------------------------------------

    def _tell(self, **line: Any) -> None:
        """One more line on what happened, if a reader was given."""
        if self._note is not None:
            at_s, note = time.time(), self._note
            self.mail.post(lambda: note(t=at_s, **line))

    def end(self) -> dict[str, Any]:
        """How the part ended, for ``leader.merged``, when nothing of it is left. Waits for the files."""
        self.mail.flush()
        found = {"codes": {str(rank): code for rank, code in self.codes.items()}, "asked": self.asked}
        more = {"grace_s": self.grace_s, "killed": self.killed, "fenced": self.fenced, "failure": self.failure}
        return found | {name: value for name, value in more.items() if value}


def run_part(part: Part, started: Callable[[], None]) -> dict[str, Any]:
    """From start to end; ``started`` is called, by the mailbox, when all ranks run."""
    try:
        problem = part.start()
    except Exception as error:  # of ours or the machine's, not the job's
        sys.excepthook(*sys.exc_info())
        problem = {"reason": f"its supervisor failed: {describe(error)}", "host": True}
    if problem is None:
        part.mail.post(started)
    else:
        part.kill()
    part.watch()
    return part.end() | ({} if problem is None else {"unlaunched": problem})


def parts_of(spec: dict[str, Any]) -> list[list[str]]:
    """The nodes of every part; without a division there is one part for all."""
    divided: list[list[str]] = spec.get("parts") or [[node for node, _ in spec["placement"]]]
    return divided


def stop_pending() -> str:
    """What a signal asks for that came before anything was started: ``kill``, ``preempt`` or nothing."""
    pending = signal.sigpending()
    if signal.SIGUSR1 in pending:
        return "kill"
    return "preempt" if pending & _STOP_SIGNALS else ""


def prepare_process() -> None:
    """Signals wait until they are asked for, whatever the parent process set."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a launcher that ignores its children must not make us do so


def _wake_main() -> None:
    os.kill(os.getpid(), signal.SIGUSR2)


def _report(descriptor: int, reason: str, host: bool) -> None:
    """One line to the part, short enough to arrive as a whole."""
    os.write(descriptor, json.dumps({"reason": " ".join(reason.split())[:300], "host": host}).encode() + b"\n")


def _end_before_start(
    run_dir: str, spec: dict[str, Any], index: int, beat: Callable[[], None]
) -> dict[str, Any] | None:
    """The end of a part that is to stop before it began, or whose ranks have nowhere to meet."""
    stop = rundir.read_json(os.path.join(run_dir, rundir.STOP))
    if stop is not None or stop_pending():
        killed = stop_pending() == "kill" or bool(stop and stop.get("kill"))
        return {"codes": {}, "asked": "kill" if killed else "preempt"}
    if rundir.read_json(os.path.join(run_dir, rundir.HALT)) is not None:
        return {"codes": {}, "asked": ""}

    def is_stopped() -> str:
        beat()
        return stop_pending()

    spec["port"] = rendezvous.port(run_dir, spec, index, is_stopped)
    return None if spec["port"] else {"codes": {}, "asked": "preempt"}


def _live(run_dir: str, spec: dict[str, Any], index: int, cgroup: Cgroup, clock: SharedClock) -> dict[str, Any]:
    """The part, from its claim to its end."""
    beat = Heartbeat(os.path.join(run_dir, rundir.beat_file(index))).beat
    try:
        end = _end_before_start(run_dir, spec, index, beat)
        if end is not None:
            return end
        check_lease(run_dir, int(spec["epoch"]))
        part = Part(run_dir, spec, cgroup, index, beat=beat, clock=clock)
    except StaleLease as error:
        return {"codes": {}, "unlaunched": {"reason": str(error), "host": False}}
    except OSError as error:
        return {"codes": {}, "unlaunched": {"reason": f"its part could not begin: {describe(error)}", "host": True}}
    up = os.path.join(run_dir, rundir.part_file(index, "up"))
    return run_part(part, lambda: rundir.write_json(up, {"t": time.time()}))


def main(arguments: Sequence[str]) -> int:
    """``RUN_DIR NODE``: run the part of that node here, unless another process does or did."""
    prepare_process()
    keeper = identity(int(arguments[3])) if "--kept-by" in arguments else None
    if keeper is not None and os.fork():
        return 0  # an engine that ends its process kills the children of it first, without a grace
    run_dir = os.path.abspath(arguments[0])
    node = os.environ.get(arguments[2], "") if arguments[1] == "--node-from" else arguments[1]
    spec = rundir.read_json(os.path.join(run_dir, rundir.SPEC)) if rundir.is_own_dir(run_dir) else None
    index = next((i for i, nodes in enumerate(parts_of(spec)) if node in nodes), None) if spec else None
    me = identity(os.getpid())
    if spec is None or index is None or me is None or ("--kept-by" in arguments and keeper is None):
        print(f"{run_dir}: nothing to run for node {node!r}", file=sys.stderr)
        return 1
    if rundir.read_json(os.path.join(run_dir, rundir.EXIT)) is not None:
        return 0
    cgroup = make_cgroup(f"{spec['cgroup']}-{index}") if spec["cgroup"] else Cgroup("")
    if not rundir.claim(run_dir, {**me, "node": node, "cgroup": cgroup.path}, rundir.part_file(index)):
        return 0
    spec["keeper"] = keeper
    before_s, end_file = time.time(), rundir.part_file(index, "end")
    clock = SharedClock(rundir.reserve(run_dir, end_file, {}), before_s)
    os.chdir("/")
    adopt_orphans()
    end = _live(run_dir, spec, index, cgroup, clock)
    cgroup.remove()
    if end.get("unlaunched"):  # ranks of other parts would wait for these for ever
        rundir.claim(run_dir, {"rank": -1, "rc": 126}, rundir.HALT)
    rundir.write_reserved(run_dir, end_file, {**end, "t": time.time()})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
