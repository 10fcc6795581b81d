"""What is to run: a lease, checked, as the ``spec.json`` of its attempt, and the command line of what runs it. Refused
is what no engine could run; which GPUs are free is asked elsewhere."""

from __future__ import annotations

import os
import pwd
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trine.executor.accounts import find_user
from trine.executor.base import JobLease
from trine.inputs.job_rules import launcher_of

JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"),
    *("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV"),
)
"""What a job sees of the environment of the daemon where it brings none. No more: there may be secrets in it."""
_ONLY_TOGETHER = ("PATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
"""Of one environment: a job with its own PATH gets none of the daemon's; libraries of one break programs of another."""

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
SOURCE = str(Path(__file__).parents[3])
"""Where trine lies; the processes of an attempt load it from there."""


class LaunchRefused(Exception):  # noqa: N818 - an outcome, not an error of ours
    """Why an attempt cannot be launched, in a sentence, and whether that is the machine's fault."""

    def __init__(self, reason: str, *, passing: bool = False) -> None:
        super().__init__(reason)
        self.passing = passing


@dataclass(frozen=True, slots=True)
class Site:
    """What an engine says of the machines that an attempt runs on. As it stands: all nodes are this machine."""

    addresses: Mapping[str, str] = field(default_factory=dict)
    """How other nodes reach a node; of nodes that are not named: loopback."""
    interface: str = "lo"
    """Over which collectives go; empty: the libraries choose."""
    part_per_node: bool = False
    """Every node has a part of its own; else one part runs all ranks."""
    look_s: float | None = None
    """Seconds between two looks for requests to stop; ``None``: a signal says when to look."""
    ends_with_parent: bool = False
    """A part stops when the process that started it is gone: the engine has given up its machine. Needs ``look_s``."""


def make_spec(
    lease: JobLease, environ: Mapping[str, str], port: int, api_url: str, cgroup: str, site: Site | None = None
) -> dict[str, Any]:
    """All that the parts of an attempt must know. ``port`` 0: the first part finds one."""
    site = site or Site()
    kept = {**_account(), **{name: environ[name] for name in INHERITED if name in environ}}
    if "PATH" in lease.env:
        kept = {name: value for name, value in kept.items() if name not in _ONLY_TOGETHER}
    return {
        "job": lease.job_id,
        "epoch": lease.epoch,
        "command": list(lease.command),
        "launcher": launcher_of(lease.command),
        "env": {"PATH": DEFAULT_PATH, **kept, **lease.env},
        "workdir": lease.workdir or "/",
        "checkpoint_dir": lease.checkpoint_dir,
        "run_as": lease.run_as,
        "grace_s": lease.grace_s,
        "placement": [[node, list(gpus)] for node, gpus in lease.placement],
        "ranks": _ranks(lease),
        "port": port,
        "api": api_url,
        "cgroup": cgroup,
        "addresses": dict(site.addresses),
        "interface": site.interface,
        "parts": [[node] for node, _ in lease.placement] if site.part_per_node else [],
        "look_s": site.look_s,
        "ends_with_parent": site.ends_with_parent,
    }


def _account() -> dict[str, str]:
    """Whose processes these are, for a daemon that was started with few variables. ``rank`` replaces it for others."""
    try:
        entry = pwd.getpwuid(os.geteuid())
    except KeyError:
        return {}
    return {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name, "SHELL": entry.pw_shell or "/bin/sh"}


def _ranks(lease: JobLease) -> list[dict[str, Any]]:
    """Every rank sees all GPUs of the job on its node and picks the one of its local rank, as under torchrun."""
    return [
        {"node": node, "gpus": list(gpus)}
        for node, gpus in lease.placement
        for _ in range(len(gpus) if lease.ranks == "gpu" else 1)
    ]


def check_user(user: str | None) -> None:
    """Refuse a user that does not exist or that this process cannot become."""
    if user is None:
        return
    try:
        entry = find_user(user)
    except (KeyError, ValueError):
        raise LaunchRefused(f"there is no user {user!r} on this machine") from None
    if os.geteuid() not in (0, entry.pw_uid):
        raise LaunchRefused(f"the daemon runs as another user and is not root, so it cannot run a job as {user}")


def check_form(lease: JobLease) -> None:
    """Refuse what no executor could run."""
    if not JOB_ID.fullmatch(lease.job_id):
        raise LaunchRefused(f"job id {lease.job_id[:40]!r} cannot be the name of a directory")
    if lease.epoch < 0:
        raise LaunchRefused(f"epoch {lease.epoch} is negative")
    if not lease.command or not lease.command[0]:
        raise LaunchRefused("there is no command to run")
    if not lease.placement or not all(gpus for _, gpus in lease.placement):
        raise LaunchRefused("there is no GPU in the placement")
    if len({node for node, _ in lease.placement}) < len(lease.placement):
        raise LaunchRefused("a node is named twice in the placement")


def boot(module: str, python: str = "", *arguments: str) -> list[str]:
    """A command line that runs ``main`` of a module of ours wherever the source is visible under the same path.

    No site packages are looked through and no variables of ours obeyed, so it starts in half the time."""
    code = f"import sys; sys.path.append({SOURCE!r}); from {module} import main; sys.exit(main(sys.argv[1:]))"
    return [python or sys.executable, "-I", "-S", "-c", code, *arguments]
