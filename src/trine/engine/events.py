"""What goes into the engine and what comes out. Simulator and daemon exchange nothing else with it.

Decisions carry the code of their reason; ``explain.of_decision`` makes the sentence from it.
"""

from __future__ import annotations

from typing import NamedTuple

from trine.core.job import Job
from trine.core.reason import Trade, Why


class Submitted(NamedTuple):
    """A job has arrived."""

    now: float
    job: Job


class Tick(NamedTuple):
    """Time to decide: a round boundary, or a moment at which something changed."""

    now: float


class Started(NamedTuple):
    """A start decision was carried out; work begins at ``work_from_s`` at the expected rate (steps/s)."""

    now: float
    job_index: int
    rate: float
    work_from_s: float


class Stopped(NamedTuple):
    """A stop decision was carried out, the GPUs are free, ``done`` steps are safe."""

    now: float
    job_index: int
    done: float


class Finished(NamedTuple):
    """A job has done all its work and released its GPUs."""

    now: float
    job_index: int


class Fill(NamedTuple):
    """Something came free or arrived between rounds: give out GPUs that no job holds, stop none."""

    now: float


class Progressed(NamedTuple):
    """A running job said how far it is: ``done`` of ``total`` steps (``None`` = as known), at ``rate`` steps/s."""

    now: float
    job_index: int
    done: float
    total: float | None
    rate: float


class Measured(NamedTuple):
    """A running job turned out to make ``rate`` steps/s where it is; it has done ``done`` steps by ``work_from_s``."""

    now: float
    job_index: int
    done: float
    rate: float
    work_from_s: float


class CancelRequested(NamedTuple):
    """A job is to leave unfinished; once its processes are gone, ``Terminated`` follows."""

    now: float
    job_index: int


class Held(NamedTuple):
    """A job is to stay out of the order until ``Released``; if it runs it is stopped first."""

    now: float
    job_index: int


class Released(NamedTuple):
    """A held job waits again."""

    now: float
    job_index: int


class Eligible(NamedTuple):
    """What a held job had to wait for besides GPUs has happened: it waits for GPUs from now on."""

    now: float
    job_index: int


class PriorityChanged(NamedTuple):
    """A job that has not ended has another priority from now on; larger goes first."""

    now: float
    job_index: int
    priority: float


class Terminated(NamedTuple):
    """A job ended without finishing (failed, cancelled) and holds nothing any more."""

    now: float
    job_index: int


class Interrupted(NamedTuple):
    """A job stopped without an order and holds nothing any more; ``done`` steps are safe. It waits again."""

    now: float
    job_index: int
    done: float


class GpusCordoned(NamedTuple):
    """GPUs are out of service: nothing new starts there; what runs there may end there."""

    now: float
    gpus: tuple[int, ...]


class GpusUncordoned(NamedTuple):
    """GPUs are in service again."""

    now: float
    gpus: tuple[int, ...]


Event = (
    Submitted
    | Tick
    | Started
    | Stopped
    | Finished
    | Fill
    | Progressed
    | Measured
    | CancelRequested
    | Held
    | Released
    | Eligible
    | PriorityChanged
    | Terminated
    | Interrupted
    | GpusCordoned
    | GpusUncordoned
)


class Start(NamedTuple):
    """Run job ``job_index`` on ``gpus``. Idempotent on (job_index, epoch)."""

    job_index: int
    epoch: int
    gpus: tuple[int, ...]
    why: Why
    co_runner: int = -1
    """The job that is to run on the same GPUs, or -1; it may be there already, or start later."""


class Stop(NamedTuple):
    """Stop job ``job_index``; with ``moves`` it goes on elsewhere at once (a migration, not a preemption)."""

    job_index: int
    epoch: int
    moves: bool
    why: Why
    for_job: int = -1
    """The job that gets its GPUs, where the policy names the victims of each job; -1: not known, or none."""
    gain_s: float = 0.0
    """Seconds by which a job that moves for its own good is expected to end earlier; 0: not known, or none."""
    trade: Trade | None = None
    """What it was weighed by, where the policy says what jobs are worth."""


Decision = Start | Stop
