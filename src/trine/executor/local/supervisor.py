"""Watches over one attempt on this machine from start to end, detached from its launcher: leader and only part of it in
one process, since all nodes are this machine and share its fate. How ranks run is in ``attempt.part``.

Runs as ``supervisor RUN_DIR`` with its signals blocked from the start: TERM: read the request to stop; USR1: kill."""

# pathlib takes 5 ms to load, and every job pays for it.
# ruff: noqa: PTH100, PTH118, PTH208

from __future__ import annotations

import os
import sys
import time
from functools import partial

from trine.executor.attempt import rundir
from trine.executor.attempt.cgroup import Cgroup, make_cgroup
from trine.executor.attempt.leader import merged, unlaunched, write_end
from trine.executor.attempt.part import (
    CHECKPOINTED_EXIT,
    KILLED_RC,
    Part,
    prepare_process,
    run_part,
    stop_pending,
)
from trine.executor.attempt.processes import adopt_orphans, identity
from trine.executor.faults import describe

TYPE_CHECKING = False  # loading typing would take longer than all of this
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

READY_FD = 3


def _lead(run_dir: str, spec: dict[str, Any], cgroup: Cgroup) -> dict[str, Any]:
    """From start to end; returns the record of the end."""
    asked = stop_pending()
    if asked == "preempt":
        return {"kind": "preempted", "rc": CHECKPOINTED_EXIT, "reason": "stopped before it started"}
    if asked:
        return {"kind": "failed", "rc": KILLED_RC, "reason": "killed before it started"}
    try:
        part = Part(run_dir, spec, cgroup, 0, partial(rundir.append_status, run_dir))
    except OSError as error:
        return unlaunched(f"its supervisor could not begin: {describe(error)}", host=True)
    return merged(spec, [run_part(part, partial(_tell_start, run_dir))])


def _tell_start(run_dir: str) -> None:
    """On record first: the launcher, which may be gone by now or never have listened, looks there."""
    rundir.append_status(run_dir, t=time.time(), ev="started")
    try:
        os.write(READY_FD, b"started")
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
    prepare_process()
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
    write_end(run_dir, end)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
