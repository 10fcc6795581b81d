"""Slowdowns of single GPUs as observed: which GPU the speed of a run belongs to, and whether a GPU left its profile.

A gang runs at the speed of its slowest chip. So a run on one GPU shows the slowdown of that GPU; the slowdown of a gang
bounds that of each member from above, and equals that of one member only where all others have lately run clearly
faster. Slowdowns here are natural logarithms: factors add up, and twice as slow is as far from 1 as twice as fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import exp, log, sqrt

from trine.perf.learning.evidence import EvidenceWeight, LearningSettings, SampleId, Window, median, robust_sd
from trine.perf.variability import VariabilityTable

OWN_RUNS = 16
"""Runs remembered that show the slowdown of this GPU alone."""
BOUNDS = 6
"""Runs remembered of any kind: the GPU is at least as fast as the second fastest of them (the fastest may be luck)."""
RECENT, RECENT_AT_LEAST, RECENT_RUNS = 8, 6, 3
"""Drift is judged by the latest 8 samples, of which there must be 6; those that depart must be of 3 runs."""
DRIFT_SHARE = 0.75
"""Share of them that must lie on the same side, so that single slow runs on a good GPU raise no flag."""
DRIFT_Z = 4.0
"""Standard errors of the departure: a GPU is judged after each run, so that lower limits would flag healthy ones."""
NOISE_FLOOR = 0.02
"""Runs are never taken to be less noisy than this: the noise of real training runs is 1 to 3 %."""
INCOMPARABLE = log(10.0)
"""Beyond a factor of ten it was not the same work, whatever its name."""
_MEDIAN_TO_MEAN_ERROR = 1.2533  # standard error of a median in those of a mean: sqrt(pi / 2), normal distribution


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


class DriftFlag:
    """A raised flag: since when the GPU departs from its profile, and in how many runs."""

    __slots__ = ("runs", "since_s")

    def __init__(self, since_s: float, runs: int) -> None:
        self.since_s, self.runs = since_s, runs


class ChipEstimate:
    """The evidence on one GPU in one class."""

    __slots__ = ("bounds", "flag", "observed", "own", "published", "runs", "weak_runs", "weight")

    def __init__(self, published: float) -> None:
        self.own, self.bounds = Window(), Window()
        self.weight = EvidenceWeight()
        self.runs = 0
        self.weak_runs = 0
        """Slow gangs of which this GPU was one of several possible causes."""
        self.observed = 0.0
        """Faded median of the runs in ``own``."""
        self.published = published
        """The estimate at the last change that was reported as material."""
        self.flag: DriftFlag | None = None

    def put(self, sample: SampleId, value: float, half_life_s: float) -> None:
        """Learn from a run whose slowdown ``value`` is that of this GPU."""
        if self.own.put(sample, value, OWN_RUNS) and not sample.goes_on:
            self.runs += 1
            self.weight.add(sample.at_s, half_life_s)
            if self.flag:
                self.flag.runs += 1
        self.observed = self.own.faded_median(half_life_s)

    def blended(self, given: float, settings: LearningSettings) -> float:
        """The given value, drawn towards the observed one by the weight of the evidence."""
        if self.runs < settings.min_runs:
            return given
        return given + self.weight.share(settings.prior_weight) * (self.observed - given)

    def ran_faster_than(self, value: float) -> bool:
        """Whether at least two recent runs, alone or in a gang, were faster than ``value``."""
        return sum(v < value for v in self.bounds.values) >= 2

    def update_flag(self, given: float, margin: float) -> bool:
        """Raise or lower the flag by the recent runs; true if that changed it.

        It is lowered at half of the margin that raises it, so that a GPU near the margin does not change state with
        every run.
        """
        recent = [v - given for v in self.own.values[-RECENT:]]
        if not recent:
            changed, self.flag = self.flag is not None, None
            return changed
        if self.flag:
            if abs(median(recent)) >= log(1 + margin) / 2:
                return False
            self.flag = None
            return True
        if not has_departed(recent, margin):
            return False
        slower, first = median(recent) > 0, len(self.own) - len(recent)
        departing = [first + i for i, v in enumerate(recent) if _beyond(v, margin, slower)]
        runs = len({self.own.runs[i] for i in departing})
        if runs < RECENT_RUNS:
            return False
        self.flag = DriftFlag(self.own.times_s[departing[0]], runs)
        return True


def has_departed(recent: Sequence[float], margin: float) -> bool:
    """Whether departures from the profile (logarithms) are no chance: size, agreement and certainty."""
    middle = median(recent)
    agreeing = sum(_beyond(v, margin, middle > 0) for v in recent)
    large = abs(middle) > log(1 + margin)
    return large and len(recent) >= RECENT_AT_LEAST and agreeing >= DRIFT_SHARE * len(recent) and z_of(recent) > DRIFT_Z


def _beyond(departure: float, margin: float, slower: bool) -> bool:
    return (departure if slower else -departure) > log(1 + margin) / 2


def z_of(recent: Sequence[float]) -> float:
    """The median in its own standard errors, from a spread that single wild runs cannot move."""
    error = _MEDIAN_TO_MEAN_ERROR * max(robust_sd(recent), NOISE_FLOOR) / sqrt(len(recent))
    return abs(median(recent)) / error


class ChipEstimates:
    """All GPUs that were observed, by class; ``base`` is the given profile."""

    def __init__(self, base: VariabilityTable, settings: LearningSettings) -> None:
        self.base, self.settings = base, settings
        self.by_class: dict[str, dict[int, ChipEstimate]] = {}

    def class_of(self, app_class: str) -> str:
        """The class whose slowdowns apply to a job of ``app_class``."""
        return self.base.class_of(app_class) or app_class

    def log_slowdown(self, app_class: str, gpu: int) -> float:
        """Profile and observations together."""
        given = log(self.base.slowdown(app_class)[gpu])
        chip = self.by_class.get(app_class, {}).get(gpu)
        return given if chip is None else chip.blended(given, self.settings)

    def learn(self, sample: SampleId, app_class: str, gpus: Sequence[int], slowdown: float) -> bool:
        """A run on ``gpus`` was ``exp(slowdown)`` times slower than on median GPUs; true on a material change."""
        if abs(slowdown) > INCOMPARABLE:
            return False
        chips = self.by_class.setdefault(app_class, {})
        for gpu in gpus:
            if gpu not in chips:
                chips[gpu] = ChipEstimate(log(self.base.slowdown(app_class)[gpu]))
        own, suspects = ({gpus[0]: slowdown}, []) if len(gpus) == 1 else self._attribute(app_class, gpus, slowdown)
        new = [gpu for gpu in gpus if chips[gpu].bounds.put(sample, slowdown, BOUNDS) and not sample.goes_on]
        for gpu in suspects:
            chips[gpu].weak_runs += gpu in new
        for gpu, value in own.items():
            chips[gpu].put(sample, value, self.settings.half_life_s)
        changed = [self._publish(app_class, gpu) for gpu in own]
        return any(changed)

    def _attribute(self, app_class: str, gpus: Sequence[int], slowdown: float) -> tuple[dict[int, float], list[int]]:
        """Members whose own slowdown a gang's slowdown reveals, and members that may have caused it.

        A gang is as slow as its slowest member, a maximum, so one run is one equation for many unknowns:

        - If all members but one have run faster than this gang elsewhere, the remaining one is the cause, and the
          gang's slowdown is its own.
        - Otherwise the gang still bounds each member from above. A member whose estimate lies far above that bound is
          faster than thought: it gets its profile's value, or the bound where that is less.
        - That a chip is faster than the median is never learnt from a gang (``bound`` is at least 0): a fast gang has
          fast members throughout, and crediting them would make estimates of all drift below the median.
        - A gang slower than any member's estimate explains makes all possible causes suspects, which is counted only.
        """
        chips, margin = self.by_class[app_class], log(1 + self.settings.attribution_margin)
        causes = [gpu for gpu in gpus if not chips[gpu].ran_faster_than(slowdown - margin)]
        if len(causes) == 1:
            return {causes[0]: slowdown}, []
        estimates = {gpu: self.log_slowdown(app_class, gpu) for gpu in gpus}
        given = self.base.slowdown(app_class)
        far = log(1 + self.settings.drift_margin)
        bound = max(slowdown, 0.0)
        outrun = [g for g in gpus if estimates[g] > bound + (far / 2 if chips[g].flag else far)]
        unexplained = slowdown > max(estimates.values()) + margin
        return {gpu: min(bound, log(given[gpu])) for gpu in outrun}, causes if unexplained else []

    def _publish(self, app_class: str, gpu: int) -> bool:
        """Bring flag and published value up to date; true if either changed."""
        chip = self.by_class[app_class][gpu]
        given = log(self.base.slowdown(app_class)[gpu])
        changed = chip.update_flag(given, self.settings.drift_margin)
        estimate = chip.blended(given, self.settings)
        if abs(estimate - chip.published) <= log(1 + self.settings.material):
            return changed
        chip.published = estimate
        return True

    def rebase(self, base: VariabilityTable) -> bool:
        """Use another profile from now on; true if that is a material change. Classes it does not know are dropped."""
        known = {c: chips for c, chips in self.by_class.items() if not base.classes or c in base.classes}
        dropped = len(known) < len(self.by_class)
        self.base, self.by_class = base, known
        return any([dropped, *(self._publish(c, gpu) for c, chips in known.items() for gpu in chips)])

    def refined(self, base: VariabilityTable) -> VariabilityTable:
        """``base`` with what was observed on top of it; ``base`` itself if nothing departs from it."""
        slowdowns = {name: list(base.slowdown(name)) for name in base.classes}
        for name, chips in self.by_class.items():
            enough = {gpu: chip for gpu, chip in chips.items() if chip.runs >= self.settings.min_runs}
            if not enough or (base.classes and name not in slowdowns):
                continue
            values = slowdowns.setdefault(name, list(base.slowdown(name)))
            for gpu, chip in enough.items():
                values[gpu] = exp(chip.blended(log(values[gpu]), self.settings))
        same = all(list(base.slowdown(name)) == values for name, values in slowdowns.items())
        return base if same else VariabilityTable(base.gpu_count, slowdowns)

    def drifts(self) -> Iterator[Drift]:
        """Raised flags, by class and GPU."""
        for name in sorted(self.by_class):
            profile = self.base.slowdown(name)
            for gpu, chip in sorted(self.by_class[name].items()):
                if chip.flag:
                    recent = chip.own.values[-RECENT:]
                    z = z_of([v - log(profile[gpu]) for v in recent])
                    yield Drift(gpu, name, exp(median(recent)), profile[gpu], chip.flag.runs, chip.flag.since_s, z)
