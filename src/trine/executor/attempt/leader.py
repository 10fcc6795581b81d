"""Merges what the parts of an attempt say into one start and one end: ``merged`` for those that have all of it in hand,
``python -m trine.executor.attempt.leader RUN_DIR -- COMMAND...`` for engines whose parts run elsewhere. The command
starts all parts (as one ``srun`` does); of the parts themselves only the files are seen. Standard library only."""

# pathlib takes 5 ms to load, and every job pays for it.
# ruff: noqa: PTH100, PTH118

from __future__ import annotations

import os
import signal
import sys
import time

from trine.executor.attempt import rundir
from trine.executor.attempt.heartbeat import Silence, silence_limit_s
from trine.executor.attempt.part import (
    CHECKPOINTED_EXIT,
    KILLED_RC,
    SIGNALS,
    TERMINATED_RC,
    parts_of,
    prepare_process,
    stop_pending,
)
from trine.executor.attempt.processes import adopt_orphans, descendants, identity, send

TYPE_CHECKING = False  # loading typing would take longer than all of this
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_LOOK_S = 0.1
_LEFT_TOGETHER = frozenset({0, CHECKPOINTED_EXIT, TERMINATED_RC})
_SETTLE_S = 5.0
"""How long a file that was written on another machine may take to be seen here."""
_KILL_S = 5.0
"""How long KILL may take to end all of a part, after its grace."""
_UNKNOWN = float("inf")
"""When a failure was that bears no time, as one of the engine's does: after those that do."""
_COMMAND_S, _COMMAND_GRACE_S = 5.0, 2.0
"""How long the command that started the parts has to end by itself when they have, and then on SIGTERM."""


def unlaunched(reason: str, host: bool) -> dict[str, Any]:
    """The record of the end of an attempt that never ran."""
    return {"kind": "unlaunched", "rc": 126, "reason": reason, "host": host}


def merged(spec: dict[str, Any], ends: Sequence[dict[str, Any]], halt: dict[str, Any] | None = None) -> dict[str, Any]:
    """How an attempt ended, by the ends of all its parts: their ranks' exit codes and what they were asked for.

    ``halt``: the failure that was reported first, where there are several parts; see ``_first_failure``."""
    graces = [end["grace_s"] for end in ends if end.get("grace_s") is not None]
    return _verdict(spec, ends, halt) | ({"grace_s": min(graces)} if graces else {})


def _verdict(spec: dict[str, Any], ends: Sequence[dict[str, Any]], halt: dict[str, Any] | None) -> dict[str, Any]:
    problems = [end["unlaunched"] for end in ends if end.get("unlaunched")]
    if problems:
        # What the job itself got wrong would go wrong again, whatever the machine lacked besides.
        found = next((problem for problem in problems if not problem["host"]), problems[0])
        return unlaunched(found["reason"], found["host"])
    codes = _codes(ends)
    # A halt of rank -1 stands for a part that is missing, not for a rank that failed.
    given_up = halt is not None and halt["rank"] < 0
    if given_up and not all(code in (0, CHECKPOINTED_EXIT) for code in codes):
        return {"kind": "lost", "rc": KILLED_RC, "reason": "its engine gave up a part of it"}
    asked = next((end["asked"] for kind in ("kill", "preempt") for end in ends if end.get("asked") == kind), "")
    failure = _first_failure(ends, halt)
    if len(codes) < len(spec["ranks"]):
        return _end_without_all(codes, asked, failure)
    if all(code == 0 for code in codes):
        return {"kind": "done", "rc": 0}
    fenced = {"reason": "its lease was not renewed in time"} if any(end.get("fenced") for end in ends) else {}
    if all(code in (0, CHECKPOINTED_EXIT) for code in codes) or _saved(codes, asked, len(ends)):
        return {"kind": "preempted", "rc": CHECKPOINTED_EXIT, **fenced}
    if failure is not None:
        return {"kind": "failed", "rc": failure[1], "reason": _blame(spec, *failure)}
    forced = _forced(codes)
    if asked == "preempt" or fenced:
        return {"kind": "preempted", "rc": forced, "killed": any(end.get("killed") for end in ends), **fenced}
    return {"kind": "failed", "rc": forced, "reason": "killed on request"}


def _first_failure(ends: Sequence[dict[str, Any]], halt: dict[str, Any] | None) -> tuple[int, int] | None:
    """Rank and exit code of the rank that failed first. By the times at which ranks ended, on the clock that the parts
    share: when one is heard of depends on who looks, and those that miss a peer fail a moment after it."""
    failures = [(int(halt["rank"]), int(halt["rc"]), float(halt.get("t", _UNKNOWN)))] if halt else []
    for rank, code, *when in (end["failure"] for end in ends if end.get("failure")):
        failures.append((int(rank), int(code), float(when[0]) if when else _UNKNOWN))
    return min(failures, key=lambda failure: failure[2])[:2] if failures else None


def _codes(ends: Sequence[dict[str, Any]]) -> list[int]:
    """Of all ranks that ran, by rank."""
    by_rank = {int(rank): int(code) for end in ends for rank, code in end["codes"].items()}
    return [by_rank[rank] for rank in sorted(by_rank)]


def _end_without_all(codes: list[int], asked: str, failure: tuple[int, int] | None) -> dict[str, Any]:
    """Some ranks were never started: the attempt was to stop before all of it ran."""
    if asked == "kill":
        return {"kind": "failed", "rc": KILLED_RC, "reason": "killed before it started"}
    if failure is not None:
        return {"kind": "failed", "rc": failure[1], "reason": f"rank {failure[0]} ended before all had started"}
    rc = next((code for code in codes if code not in (0, CHECKPOINTED_EXIT)), CHECKPOINTED_EXIT)
    return {"kind": "preempted", "rc": rc, "reason": "stopped before it started"}


def _saved(codes: list[int], asked: str, parts: int) -> bool:
    """The gang left with its work saved, although some ranks ended by SIGTERM.

    Parts see an order to stop at different moments. Ranks that leave together at the first one's word may get the TERM
    of their own part while their interpreter winds down and has no handler any more. Had one ended before they agreed,
    no other would say that it saved."""
    return asked == "preempt" and parts > 1 and CHECKPOINTED_EXIT in codes and {*codes} <= _LEFT_TOGETHER


def _forced(codes: list[int]) -> int:
    """The code of an attempt that was ended: a rank that failed because its peers were gone says less than they do."""
    left = [code for code in codes if code not in (0, CHECKPOINTED_EXIT)]
    return next((code for code in left if code == KILLED_RC), next((c for c in left if c == TERMINATED_RC), left[0]))


def _blame(spec: dict[str, Any], rank: int, code: int) -> str:
    return f"rank {rank} of {len(spec['ranks'])} ended with exit code {code}"


def conclude(run_dir: str, spec: dict[str, Any], why: str) -> dict[str, Any] | None:
    """The end of an attempt whose parts are started no more, by their files; ``None`` while a part may still run.

    Parts that have not begun are claimed, so that they never do. Not to be called before their engine has given them
    up: ``why`` says how, in a few words. OSError if the files cannot be seen."""
    count = len(parts_of(spec))
    never = sum(rundir.claim(run_dir, {"revoked": why}, rundir.part_file(index)) for index in range(count))
    if never == count:
        return unlaunched(f"none of its parts was started: {why}", host=True)
    ends = [_read(run_dir, index, "end") for index in range(count)]
    revoked = [bool((_read(run_dir, index) or {}).get("revoked")) for index in range(count)]
    if any(end is None and not gone for end, gone in zip(ends, revoked, strict=True)):
        return None
    known = [end for end in ends if end is not None]
    if any(revoked) and not any(end.get("unlaunched") for end in known):
        known.append({"codes": {}, "unlaunched": {"reason": f"a part was never started: {why}", "host": True}})
    return merged(spec, known, rundir.read_json(os.path.join(run_dir, rundir.HALT)))


def all_up(run_dir: str, spec: dict[str, Any]) -> bool:
    """All ranks of all parts run, or have run."""
    return all(_read(run_dir, index, "up") for index in range(len(parts_of(spec))))


def merged_end(run_dir: str, spec: dict[str, Any]) -> dict[str, Any] | None:
    """The end of an attempt all of whose parts have ended; ``None`` before."""
    ends = []
    for index in range(len(parts_of(spec))):
        if (end := _read(run_dir, index, "end")) is None:
            return None
        ends.append(end)
    return merged(spec, ends, rundir.read_json(os.path.join(run_dir, rundir.HALT)))


def write_end(run_dir: str, end: dict[str, Any]) -> None:
    """Put the end of the attempt on record: nothing of it is left."""
    rundir.append_status(run_dir, t=time.time(), ev="exit", **end)
    rundir.write_exit(run_dir, {**end, "t": time.time(), "step": rundir.last_step(run_dir)})


def _read(run_dir: str, index: int, what: str = "") -> dict[str, Any] | None:
    return rundir.read_json(os.path.join(run_dir, rundir.part_file(index, what)))


class Leader:
    """Follows the parts of one attempt until all have ended, or none of those left can still run."""

    def __init__(self, run_dir: str, spec: dict[str, Any], pid: int) -> None:
        self.run_dir, self.spec, self.pid = run_dir, spec, pid
        self.started = False
        self.silence = Silence(run_dir, len(parts_of(spec)))
        self.ended_s: float | None = None
        """When the command that starts the parts had ended, on the monotonic clock."""
        self.given_up = ""
        """Why the parts that are left are waited for no longer than they can still run."""
        self.halted_s: float | None = None
        """When the parts were asked to halt, on the monotonic clock."""

    def follow(self) -> dict[str, Any]:
        """The end of the attempt."""
        while True:
            number = signal.sigtimedwait(SIGNALS, _LOOK_S)
            if number is not None and stop_pending_after(number.si_signo):
                self._pass_on_stop()
            self._reap()
            self._look_at_starts()
            if (end := merged_end(self.run_dir, self.spec)) is not None:
                return end
            self.given_up = self.given_up or self._why_give_up()
            if self.given_up and (end := self._without_engine()) is not None:
                return end

    def _look_at_starts(self) -> None:
        if not self.started and all_up(self.run_dir, self.spec):
            self.started = True
            rundir.append_status(self.run_dir, t=time.time(), ev="started")

    def _pass_on_stop(self) -> None:
        """The attempt is ended through the engine: its parts read of it in a file, once, with all of their grace."""
        rundir.claim(self.run_dir, {"grace_s": self.spec["grace_s"]}, rundir.STOP)

    def _reap(self) -> None:
        if self.ended_s is None and os.waitpid(self.pid, os.WNOHANG)[0]:
            self.ended_s = time.monotonic()

    def _lease_s(self) -> float | None:
        return (rundir.read_json(os.path.join(self.run_dir, rundir.LEASE)) or {}).get("lease_s")

    def _why_give_up(self) -> str:
        """The command has ended, and what the parts wrote had time to be seen; or it goes on, and a part does not."""
        if self.ended_s is not None:
            return "the command that starts its parts has ended" if time.monotonic() >= self.ended_s + _SETTLE_S else ""
        return why_silent(self.silence, self._lease_s())

    def _without_engine(self) -> dict[str, Any] | None:
        """Not all parts have ended: wait for their files, then for the end of the lease."""
        if (end := conclude(self.run_dir, self.spec, self.given_up)) is not None:
            return end
        if self.halted_s is None:
            rundir.claim(self.run_dir, {"rank": -1, "rc": KILLED_RC}, rundir.HALT)
            self.halted_s = time.monotonic()
        lease_s, since_s = self._lease_s(), time.monotonic() - self.halted_s
        # A part that sees neither this nor any renewal ends itself when the last one it saw is over.
        if lease_s is None or since_s < lease_s + self.spec["grace_s"] + _KILL_S:
            return None
        return {"kind": "lost", "rc": KILLED_RC, "reason": "a part of it was not heard of until its lease was over"}


def end_command() -> None:
    """End what is left of the command: an ``srun`` whose step is no longer supervised would wait for it for ever. All
    that it started is below this process, and nothing else is."""
    began_s = time.monotonic()
    while _any_child():
        signal.sigtimedwait((signal.SIGCHLD,), _LOOK_S)
        waited_s = time.monotonic() - began_s
        if waited_s > _COMMAND_S:
            killing = waited_s > _COMMAND_S + _COMMAND_GRACE_S
            for pid in descendants(os.getpid()):
                send(pid, signal.SIGKILL if killing else signal.SIGTERM)


def _any_child() -> bool:
    """Collect the dead; whether any child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return False
    return True


def why_silent(silence: Silence, lease_s: float | None) -> str:
    """Why parts are given up that were not heard of for too long; empty: they were, or can still run for ever."""
    if lease_s is None:
        return ""
    try:
        silent_s = silence.longest_s()
    except OSError:
        return ""  # the fault is on this side
    return f"a part of it was not heard of for {silent_s:.0f} s" if silent_s > silence_limit_s(lease_s) else ""


def stop_pending_after(number: int) -> bool:
    """The signal, or one that waits behind it, asks for a stop."""
    return number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) or bool(stop_pending())


def main(arguments: Sequence[str]) -> int:
    """``RUN_DIR -- COMMAND...``: lead the attempt, unless another process does or did."""
    prepare_process()
    run_dir, command = os.path.abspath(arguments[0]), list(arguments[2:])
    spec = rundir.read_json(os.path.join(run_dir, rundir.SPEC)) if rundir.is_own_dir(run_dir) else None
    me = identity(os.getpid())
    if spec is None or me is None or not command:
        print(f"{run_dir}: no lease to run, or no command to start its parts", file=sys.stderr)
        return 1
    if rundir.read_json(os.path.join(run_dir, rundir.EXIT)) is not None or not rundir.claim(run_dir, me):
        return 0
    adopt_orphans()
    try:
        pid = os.posix_spawnp(command[0], command, os.environ, setsigmask=())
    except OSError as error:
        write_end(run_dir, unlaunched(f"cannot be started: {command[0]}: {error.strerror}", host=True))
        return 0
    try:
        write_end(run_dir, Leader(run_dir, spec, pid).follow())
    finally:
        end_command()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
