"""What learning from observed jobs is set by, and the values it answers with. No arithmetic of estimates here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from trine.core.cluster import Tier
from trine.core.errors import InputError

TierSlowdown = Callable[[str, int, str, Tier, str], float]
"""What is assumed of gangs of a model, so many GPUs of a type, in a tier, of an application class: the slowdown against
the best place."""


@dataclass(frozen=True, slots=True)
class LearningSettings:
    """How quickly observations replace what was given."""

    half_life_s: float = 7 * 86400.0
    """Age at which an observation counts half, seen from the latest one of the same thing."""
    prior_weight: float = 3.0
    """Number of runs that weigh as much as the given profile or throughput table."""
    min_runs: int = 3
    """Runs before an estimate departs from what was given."""
    min_peers: int = 3
    """Different GPUs (or gangs) that must have run a model before one of them can be called slow."""
    shortest_s: float = 5.0
    """Anything observed for less is left out."""
    sample_s: float = 6 * 3600.0
    """A run longer than this counts once more per such stretch."""
    attribution_margin: float = 0.05
    """How much faster than its gang a GPU must have run to be cleared of the gang's slowness."""
    drift_margin: float = 0.10
    """Departure from the profile that is flagged; the flag goes at half of it."""
    material: float = 0.03
    """Change of an estimate after which tables built from it should be built again."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise InputError("learning", f"found {getattr(self, name)}", "a number greater than 0", name)


@dataclass(frozen=True, slots=True)
class ThroughputEstimate:
    """Pace of a model on median GPUs of a type, as observed at one tier."""

    model: str
    gang: int
    gpu_type: str
    tier: Tier
    steps_per_s: float
    runs: int
    spread: float
    """Robust standard deviation of the runs, as a share of the pace."""


@dataclass(frozen=True, slots=True)
class ChipEstimate:
    """One GPU in one class: 1.0 is the median GPU of its type, larger is slower."""

    gpu: int
    app_class: str
    slowdown: float
    """What to reckon with: profile and observations together."""
    profile: float
    observed: float | None
    """The observations alone; ``None`` if none says anything about this very GPU."""
    runs: int
    """Runs whose pace is known to be that of this GPU."""
    weak_runs: int
    """Slow gangs of which this GPU was one of several possible causes."""
    spread: float | None


@dataclass(frozen=True, slots=True)
class Drift:
    """A GPU that no longer runs as its profile says, with the evidence. Times are Unix seconds."""

    gpu: int
    app_class: str
    slowdown: float
    """Median of the recent runs, relative to the median GPU of the type."""
    profile: float
    runs: int
    """Runs since the departure began."""
    since_s: float
    z: float
    """Departure of the median in its own standard errors."""

    @property
    def slower(self) -> bool:
        return self.slowdown > self.profile

    def sentence(self, gpu_name: str) -> str:
        """The flag in one sentence, with its numbers."""
        times, than = (self.slowdown, "slower") if self.slowdown >= 1 else (1 / self.slowdown, "faster")
        since = datetime.fromtimestamp(self.since_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
        of_class = f" of class {self.app_class}" if self.app_class else ""
        return (
            f"GPU {gpu_name} ran {self.runs} jobs{of_class} {times:.2f}x {than} than its type's median since {since}, "
            f"profile says {self.profile:.2f}"
        )


@dataclass(frozen=True, slots=True)
class NetworkEstimate:
    """How much slower a gang runs spread over ``tier`` than packed into ``against``, all else equal."""

    model: str
    gang: int
    gpu_type: str
    tier: Tier
    against: Tier
    slowdown: float
    runs: int
    against_runs: int
