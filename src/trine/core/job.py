"""A job: a gang of GPUs, an amount of work, and what is known of it. All times are seconds, as floats."""

from __future__ import annotations

from dataclasses import dataclass

from trine.core.cluster import Tier


@dataclass(frozen=True, slots=True)
class Shape:
    """How the GPUs of a gang must lie."""

    nodes: int | None = None
    """Spread evenly over exactly this many nodes; ``None`` leaves it to the placement."""
    required: Tier | None = None
    """No further apart than this."""
    preferred: Tier | None = None
    """No further apart than this until ``prefer_until_s``."""
    prefer_until_s: float = float("inf")

    def widest(self, now: float) -> Tier:
        """The tier that may not be exceeded at ``now``."""
        wanted = self.preferred if self.preferred is not None and now < self.prefer_until_s else self.required
        return Tier.NETWORK if wanted is None else wanted


@dataclass(frozen=True, slots=True)
class Job:
    """A training job that needs ``gpus`` GPUs at once for ``steps`` steps.

    ``step_s`` is the time of one step of the whole gang on a median GPU of the reference type, packed; it does not
    depend on where the job runs (the performance model does). ``None`` means that only a throughput table can tell.
    """

    id: str
    submit_s: float
    gpus: int
    steps: float
    step_s: float | None = 1.0
    model: str = ""
    user: str = ""
    group: str = ""
    """Virtual cluster, queue or entity the job is charged to."""
    app_class: str = ""
    """Variability class ('A' is the most sensitive); empty means unknown."""
    batch_size: int | None = None
    priority: float = 0.0
    """Larger goes first, before any policy's own order."""
    weight: float = 1.0
    deadline_s: float | None = None
    """Absolute time, on the same clock as ``submit_s``."""
    gpu_types: tuple[str, ...] = ()
    """GPU types the job may use; empty means any."""
    restore_s: float | None = None
    """Seconds before work goes on after a stop; ``None`` takes the run's setting."""
    migration_s: float | None = None
    """As ``restore_s`` when the job is moved to other GPUs; ``None`` takes the run's setting."""
    checkpoint_every_s: float | None = None
    """Work since the last multiple is lost at a stop; 0 means a checkpoint is taken at the stop itself."""
    tracked: bool = True
    """Background jobs load the cluster but appear in no metric."""
    shape: Shape | None = None
    """How its GPUs must lie, where the user said so."""
    min_run_s: float = 0.0
    """A start is not stopped or moved for other jobs before it has run so long; infinity: never."""
    sharing_domain: str = ""
    """Two jobs share GPUs only if this is the same for both."""
    open_ended: bool = False
    """Its duration was not stated: ``steps`` is a guess."""
    after: tuple[str, ...] = ()
    """Ids of jobs that have to end before it may start; those that are not part of a run count as ended."""
    array: str = ""
    """``sweep%3``: at most three of the jobs that say the same are under way at once; the next starts as one ends."""
    line: int = 0
    """Line of the input file, for error messages; 0 when there is none."""

    @property
    def ideal_s(self) -> float | None:
        """Run time alone on reference GPUs, seconds; ``None`` if it takes a throughput table to know."""
        return None if self.step_s is None else self.steps * self.step_s

    @property
    def gpu_time_s(self) -> float | None:
        """GPU-seconds the job takes on reference GPUs."""
        return None if self.step_s is None else self.steps * self.step_s * self.gpus
