"""Makes a fresh process one rank of a job: checks the lease, sets the environment, drops to the user, runs the
command. Standard library only; a part calls it after a fork, and ``python -m trine.executor.attempt.rank RUN_DIR RANK
EPOCH`` runs one rank in the foreground."""

# pathlib takes 5 ms to load, and every job pays for it.
# ruff: noqa: PTH103, PTH118, PTH120, PTH208

from __future__ import annotations

import os
import signal
import stat
import sys
import time
import warnings  # noqa: F401 - exec needs it, and the job's user may not be able to read Python's files

from trine.executor.accounts import find_user
from trine.executor.attempt import rendezvous, rundir
from trine.executor.attempt.processes import die_with_parent

TYPE_CHECKING = False  # loading typing would take longer than all of this
if TYPE_CHECKING:
    from typing import Any, NoReturn

STALE_EXIT = 83
_CANNOT_RUN_EXIT = 126


class StaleLease(Exception):  # noqa: N818 - a state, not an error of ours
    """The lease that this rank was started for is not the current one."""


def environment(spec: dict[str, Any], rank: int, run_dir: str, lease: dict[str, Any]) -> dict[str, str]:
    """All variables of one rank. What places it goes over what the job asked for."""
    ranks = spec["ranks"]
    mine = ranks[rank]
    local = [other for other in range(len(ranks)) if ranks[other]["node"] == mine["node"]]
    nodes = list(dict.fromkeys(other["node"] for other in ranks))
    return {
        **rendezvous.interface(spec),
        "TRINE_API": spec["api"],
        **(_for_torchrun(spec, mine, nodes) if len(nodes) == len(ranks) else {}),
        **spec["env"],
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(_visible(spec, mine)),
        "RANK": str(rank),
        "LOCAL_RANK": str(local.index(rank)),
        "WORLD_SIZE": str(len(ranks)),
        "LOCAL_WORLD_SIZE": str(len(local)),
        "GROUP_RANK": str(nodes.index(mine["node"])),
        "MASTER_ADDR": rendezvous.address(spec),
        "MASTER_PORT": str(spec["port"]),
        "TRINE_JOB_ID": spec["job"],
        "TRINE_ATTEMPT": str(spec["epoch"]),
        "TRINE_NODE": mine["node"],
        "TRINE_CHECKPOINT_DIR": spec["checkpoint_dir"],
        "TRINE_LEASE_S": _text(lease.get("lease_s")),
        "TRINE_LEASE_DEADLINE": _text(lease.get("deadline_s")),
        "TRINE_RUN_DIR": run_dir,
        "TRINE_PROGRESS_DIR": os.path.join(run_dir, rundir.PROGRESS),
    }


def _visible(spec: dict[str, Any], mine: dict[str, Any]) -> list[str]:
    """How this machine calls the GPUs of a rank. An engine that shows a job only the GPUs that it holds there
    (``held``) may number them anew: then its own variable lists all of them, in the order of their indices."""
    held = spec.get("held", {}).get(mine["node"], [])
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    known = dict(zip(held, shown, strict=True)) if held and len(held) == len(shown) else {}
    return [known.get(gpu, str(gpu)) for gpu in mine["gpus"]]


def _for_torchrun(spec: dict[str, Any], mine: dict[str, Any], nodes: list[str]) -> dict[str, str]:
    """Options that torchrun takes from variables where its command line does not give them.

    By itself it would start one worker however many GPUs there are, and jobs on one machine would share its port.
    """
    return {
        "PET_NNODES": str(len(nodes)),
        "PET_NODE_RANK": str(nodes.index(mine["node"])),
        "PET_NPROC_PER_NODE": str(len(mine["gpus"])),
        "PET_MASTER_ADDR": rendezvous.address(spec),
        "PET_MASTER_PORT": str(spec["port"]),
        "PET_SHUTDOWN_TIMEOUT": str(-int(-spec["grace_s"] // 1)),  # rounded up: the workers have all of the grace
    }


def _text(value: float | None) -> str:
    return "" if value is None else str(value)


def check_lease(run_dir: str, epoch: int) -> dict[str, Any]:
    """The lease as it is now. Refuses one of another epoch, and one that a later attempt at the job has replaced."""
    lease = rundir.read_json(os.path.join(run_dir, rundir.LEASE), raising=True)
    if lease is None or lease.get("epoch") != epoch:
        raise StaleLease(f"the lease is of epoch {(lease or {}).get('epoch')}, not {epoch}")
    newest = newest_epoch(os.path.dirname(run_dir))
    if newest > epoch:
        raise StaleLease(f"epoch {epoch} was replaced by epoch {newest}")
    return lease


def newest_epoch(job_dir: str) -> int:
    """The highest epoch that was ever launched of a job, -1 if none was. OSError if that cannot be known."""
    try:
        return max((int(name) for name in os.listdir(job_dir) if name.isdigit()), default=-1)
    except FileNotFoundError:
        return -1


def become(spec: dict[str, Any], rank: int, run_dir: str, log: str = "", parent: int = 0) -> NoReturn:
    """Replace this process by the command, with its output in ``log`` if that is given.

    ``parent`` is the supervisor: if it is gone, nothing would end the command, and its GPUs may be given on by now.

    Raises OSError, or LookupError for an unknown user, if it cannot be run. Whatever the user named (log, directories,
    command) is touched only after the rights of the daemon are gone."""
    parent = parent or os.getppid()
    lease = check_lease(run_dir, int(spec["epoch"]))
    variables = environment(spec, rank, run_dir, lease)
    if spec["run_as"]:
        variables |= drop_to(spec["run_as"])
    stay_with(parent)  # a change of user ends what was agreed on before
    if log:
        _redirect(log)
    make_checkpoint_dir(spec["checkpoint_dir"])
    os.chdir(spec["workdir"])
    _mark_attempt(int(spec["epoch"]))
    _reset_signals()
    _execute(spec["command"], variables)


def stay_with(parent: int) -> None:
    """End with the supervisor ``parent`` from now on, however it ends; raises StaleLease if it has ended already."""
    die_with_parent()
    if os.getppid() != parent:
        raise StaleLease("its supervisor is gone")


def log_of(run_dir: str, rank: int) -> str:
    """Rank 0 writes to the log of the job, the others to one each; later attempts append."""
    name = rundir.LOG if rank == 0 else f"{rundir.LOG}.{rank}"
    return os.path.join(os.path.dirname(run_dir), name)


def make_log(log: str, user: str | None) -> None:
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


def _redirect(log: str) -> None:
    """Output to the log, nothing to read."""
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
    for source, target in ((null, 0), (out, 1), (out, 2)):
        os.dup2(source, target)


def _mark_attempt(epoch: int) -> None:
    """A line in the log between what earlier attempts wrote and what comes. The log is the descriptor that is open."""
    try:
        out = os.fstat(1)
        if stat.S_ISREG(out.st_mode) and out.st_size:
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            os.write(1, f"\n--- attempt {epoch}, {at} ---\n".encode())
    except OSError:
        return  # a full disk loses the line, not the job


def _execute(command: list[str], variables: dict[str, str]) -> NoReturn:
    try:
        os.execvpe(command[0], command, variables)
    except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
        # What went wrong with one of the directories says little about a command that is in none of them.
        problem = error.strerror if "/" in command[0] else "not found in PATH"
        raise OSError(error.errno, problem, command[0]) from None


def drop_to(user: str) -> dict[str, str]:
    """Become ``user`` for good, with its groups and nothing of what this process was; returns its variables."""
    entry = find_user(user)
    if os.geteuid() == 0:
        os.initgroups(user, entry.pw_gid)
        os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
        os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
    if set(os.getresuid()) != {entry.pw_uid}:
        raise PermissionError(f"only root can run a job as {user}")
    return {"HOME": entry.pw_dir, "USER": user, "LOGNAME": user, "SHELL": entry.pw_shell or "/bin/sh"}


def make_checkpoint_dir(path: str) -> None:
    """Make it as the user whose job it is, so that it can lie only where that user may write."""
    if path:
        os.makedirs(path, exist_ok=True)


def _reset_signals() -> None:
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def main(arguments: list[str]) -> int:
    """``RUN_DIR RANK EPOCH``: run that rank here, if the lease is still of that epoch."""
    run_dir, rank, epoch = arguments[0], int(arguments[1]), int(arguments[2])
    spec = rundir.read_json(os.path.join(run_dir, rundir.SPEC))
    if spec is None:
        print(f"{run_dir}: no lease to run", file=sys.stderr)
        return _CANNOT_RUN_EXIT
    try:
        become({**spec, "epoch": epoch}, rank, run_dir)
    except StaleLease as error:
        print(f"{spec['job']}: not started: {error}", file=sys.stderr)
        return STALE_EXIT
    except (OSError, LookupError) as error:
        print(f"{spec['job']}: not started: {error}", file=sys.stderr)
        return _CANNOT_RUN_EXIT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
