"""Slurm by its command line: every call has a timeout, and an engine that does not answer is distinguished from one
that refuses. Calls block: nothing here is called from an event loop. What the answers mean is read in ``inventory``."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from trine.core.errors import InputError
from trine.executor.attempt.remote import EngineRefused, EngineUnreachable

PROGRAMS = ("sbatch", "squeue", "scancel", "scontrol", "srun")
_AWAY = (
    *("unable to contact slurm controller", "socket timed out", "connection refused", "connect failure"),
    *("zero bytes were transmitted", "communication connection failure", "unexpected message received"),
    *("munge encode failed", "munge decode failed", "protocol authentication error", "in standby mode"),
    *("resource temporarily unavailable", "slurm backup controller", "error receiving response"),
)
"""Words of Slurm's clients that say nothing about what was asked: the controller, or munge, cannot be reached now."""
_UNKNOWN_JOB = ("invalid job id specified", "job/step already completing or completed")
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ")
ACTIVE = frozenset(
    {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STAGE_OUT", "SIGNALING", "STOPPED", "RESIZING"}
)
"""States in which a job waits, runs or holds its nodes."""
_FIELDS = "%i|%T|%N|%r|%k"


class SlurmUnreachable(EngineUnreachable):
    """Slurm cannot be asked now; in a few words, why."""


class SlurmRefused(EngineRefused):
    """Slurm answered, and said no; its own words."""


class BatchJob(NamedTuple):
    """A job as ``squeue`` shows it. Parts of a heterogeneous job are jobs of their own, with ids such as ``12+1``."""

    id: str
    state: str
    nodes: str
    """As Slurm writes a list of hosts; empty while it waits."""
    reason: str
    comment: str

    @property
    def active(self) -> bool:
        return self.state in ACTIVE


@dataclass
class Slurm:
    """One Slurm cluster, as ``conf`` (a path; empty: where Slurm itself looks) describes it."""

    conf: str = ""
    timeout_s: float = 20.0
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    calls: Counter[str] = field(default_factory=Counter)
    """How often each program was called."""
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def variables(self) -> dict[str, str]:
        """The environment of Slurm's programs: little, since ``sbatch`` hands it on to the job."""
        kept = {name: self.environ[name] for name in _KEPT if name in self.environ}
        conf = self.conf or self.environ.get("SLURM_CONF", "")
        return {**kept, "SLURM_CONF": conf} if conf else kept

    def run(self, program: str, *arguments: str, stdin: str | None = None) -> str:
        """What it writes. ``SlurmUnreachable`` without an answer in time, ``SlurmRefused`` if the answer was no."""
        with self._counting:
            self.calls[program] += 1
        try:
            done = subprocess.run(
                [program, *arguments],
                env=self.variables(),
                capture_output=True,
                text=True,
                errors="replace",
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                timeout=self.timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SlurmUnreachable(f"{program} did not answer within {self.timeout_s:g} s") from None
        except OSError as error:
            raise SlurmUnreachable(f"{program} cannot be run: {error.strerror}") from None
        if done.returncode == 0:
            return done.stdout
        said = _words(done.stderr or done.stdout) or f"exit code {done.returncode}"
        if any(words in said.lower() for words in _AWAY):
            raise SlurmUnreachable(f"{program}: {said}")
        raise SlurmRefused(said)

    def jobs(self, name: str) -> list[BatchJob]:
        """All jobs of this name that Slurm still knows, ended ones too: one call, however many there are."""
        text = self.run("squeue", "--noheader", "--states=all", f"--name={name}", f"--format={_FIELDS}")
        return [BatchJob(*line.split("|", 4)) for line in text.splitlines() if line.count("|") >= 4]

    def submit(self, arguments: Sequence[str], script: str) -> str:
        """The id of the new job."""
        return self.run("sbatch", "--parsable", *arguments, stdin=script).strip().partition(";")[0]

    def cancel(self, *arguments: str) -> None:
        """``scancel``; a job that has ended already is no reason to complain."""
        try:
            self.run("scancel", *arguments)
        except SlurmRefused as refusal:
            if not any(words in str(refusal).lower() for words in _UNKNOWN_JOB):
                raise


def check_installed(conf: str, environ: Mapping[str, str]) -> None:
    """``InputError`` if Slurm's programs or the configuration that was named are not here."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=environ.get("PATH")) is None]
    if absent:
        expected = "Slurm's command line on this machine (Debian: apt-get install slurm-client)"
        raise InputError("--engine slurm", f"no {', '.join(absent)} in PATH", expected)
    if conf and not os.path.isfile(conf):  # noqa: PTH113 - relative to where the daemon was started, as given
        raise InputError("--set", f"there is no file {conf!r}", "the path of slurm.conf", "engine.conf")


def _words(text: str) -> str:
    """Slurm's own words in one line, without the name of the program before them."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line.partition("error: ")[2] or line for line in lines]
    return "; ".join(dict.fromkeys(said))[:300]
