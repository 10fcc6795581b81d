"""Slowdown of single GPUs as observed: what a run says about which GPU, and whether a GPU left its profile.

A gang runs at the pace of its slowest chip. So a single-GPU run shows the pace of its GPU; a gang's pace bounds each
member from above, and is that of one member only where all others have lately run clearly faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp, log, sqrt

from trine.perf.observed_evidence import ChipEstimate, Drift, LearningSettings
from trine.perf.observed_window import Mass, Sample, Window, median, robust_sd
from trine.perf.variability import VariabilityTable

OWN_RUNS = 16
"""Runs remembered that say how fast this very GPU is."""
BOUNDS = 6
"""Runs remembered of any kind: the GPU is at least as fast as the second fastest of them (the fastest may be luck)."""
RECENT, RECENT_AT_LEAST, RECENT_RUNS = 8, 6, 3
"""Drift is judged by the latest 8 samples, of which there must be 6; those that depart must be of 3 runs."""
DRIFT_SHARE = 0.75
"""Share of them that must lie on the same side, so that one-off slow runs on a good GPU raise no flag."""
DRIFT_Z = 4.0
NOISE_FLOOR = 0.02
"""Runs are never taken to be less noisy than this: the noise of real training runs is 1 to 3 %."""
INCOMPARABLE = log(10.0)
"""Beyond a factor of ten it was not the same work, whatever its name."""
_MEDIAN_TO_MEAN_ERROR = 1.2533  # standard error of a median in those of a mean, normal distribution


class Departure:
    """A flag that is up: since when, and how many runs."""

    __slots__ = ("runs", "since_s")

    def __init__(self, since_s: float, runs: int) -> None:
        self.since_s, self.runs = since_s, runs


class Chip:
    """What is known of one GPU in one class; logarithms of slowdowns."""

    __slots__ = ("bounds", "departure", "mass", "middle", "own", "published", "runs", "weak_runs")

    def __init__(self, published: float) -> None:
        self.own, self.bounds = Window(), Window()
        self.mass = Mass()
        self.runs = self.weak_runs = 0
        self.middle = 0.0
        self.published = published
        """The belief that the caller was last told to take notice of."""
        self.departure: Departure | None = None

    def put(self, sample: Sample, value: float, half_life_s: float) -> None:
        """A run whose pace is that of this GPU."""
        if self.own.put(sample, value, OWN_RUNS) and not sample.goes_on:
            self.runs += 1
            self.mass.add(sample.at_s, half_life_s)
            if self.departure:
                self.departure.runs += 1
        self.middle = self.own.faded_median(half_life_s)

    def believed(self, given: float, settings: LearningSettings) -> float:
        """The given value, drawn towards the observed one by the weight of the evidence."""
        if self.runs < settings.min_runs:
            return given
        return given + self.mass.amount / (self.mass.amount + settings.prior_weight) * (self.middle - given)

    def ran_faster_than(self, value: float) -> bool:
        """Whether at least two recent runs, alone or in a gang, were faster than ``value``."""
        return sum(v < value for v in self.bounds.values) >= 2

    def depart_or_return(self, given: float, margin: float) -> bool:
        """Raise or lower the flag by the recent runs; true if that changed it."""
        recent = [v - given for v in self.own.values[-RECENT:]]
        if not recent:
            changed, self.departure = self.departure is not None, None
            return changed
        if self.departure:
            if abs(median(recent)) >= log(1 + margin) / 2:
                return False
            self.departure = None
            return True
        if not has_departed(recent, margin):
            return False
        slower, first = median(recent) > 0, len(self.own) - len(recent)
        gone = [first + i for i, v in enumerate(recent) if _beyond(v, margin, slower)]
        runs = len({self.own.runs[i] for i in gone})
        if runs < RECENT_RUNS:
            return False
        self.departure = Departure(self.own.times_s[gone[0]], runs)
        return True


def has_departed(recent: Sequence[float], margin: float) -> bool:
    """Whether logarithms of departures from the profile are no chance: size, agreement and certainty."""
    middle = median(recent)
    agreeing = sum(_beyond(v, margin, middle > 0) for v in recent)
    large = abs(middle) > log(1 + margin)
    return large and len(recent) >= RECENT_AT_LEAST and agreeing >= DRIFT_SHARE * len(recent) and z_of(recent) > DRIFT_Z


def _beyond(departure: float, margin: float, slower: bool) -> bool:
    return (departure if slower else -departure) > log(1 + margin) / 2


def z_of(recent: Sequence[float]) -> float:
    """The median in its own standard errors, from a spread that one-off runs cannot move."""
    error = _MEDIAN_TO_MEAN_ERROR * max(robust_sd(recent), NOISE_FLOOR) / sqrt(len(recent))
    return abs(median(recent)) / error


class Chips:
    """All GPUs that were observed, by class; ``base`` is the given profile."""

    def __init__(self, base: VariabilityTable, settings: LearningSettings) -> None:
        self.base, self.settings = base, settings
        self.by_class: dict[str, dict[int, Chip]] = {}

    def class_of(self, app_class: str) -> str:
        """The class whose slowdowns a job of ``app_class`` is reckoned with."""
        return self.base.class_of(app_class) or app_class

    def believed(self, app_class: str, gpu: int) -> float:
        """Logarithm of the slowdown to reckon with."""
        given = log(self.base.slowdown(app_class)[gpu])
        chip = self.by_class.get(app_class, {}).get(gpu)
        return given if chip is None else chip.believed(given, self.settings)

    def learn(self, sample: Sample, app_class: str, gpus: Sequence[int], slowdown: float) -> bool:
        """A run on ``gpus`` was ``exp(slowdown)`` times slower than on median GPUs; true if that changes much."""
        if abs(slowdown) > INCOMPARABLE:
            return False
        chips = self.by_class.setdefault(app_class, {})
        for gpu in gpus:
            if gpu not in chips:
                chips[gpu] = Chip(log(self.base.slowdown(app_class)[gpu]))
        told, weak = ({gpus[0]: slowdown}, []) if len(gpus) == 1 else self._told(app_class, gpus, slowdown)
        new = [gpu for gpu in gpus if chips[gpu].bounds.put(sample, slowdown, BOUNDS) and not sample.goes_on]
        for gpu in weak:
            chips[gpu].weak_runs += gpu in new
        for gpu, value in told.items():
            chips[gpu].put(sample, value, self.settings.half_life_s)
        changed = [self._settle(app_class, gpu) for gpu in told]
        return any(changed)

    def _told(self, app_class: str, gpus: Sequence[int], slowdown: float) -> tuple[dict[int, float], list[int]]:
        """Members whose own slowdown a gang's pace tells, and members it throws suspicion on.

        It tells that of the one possible cause. Else members believed to be far slower than the gang ran are not:
        their profile stands, or what the gang allows. That chips are faster than the median is not learnt from gangs.
        """
        chips, margin = self.by_class[app_class], log(1 + self.settings.attribution_margin)
        causes = [gpu for gpu in gpus if not chips[gpu].ran_faster_than(slowdown - margin)]
        if len(causes) == 1:
            return {causes[0]: slowdown}, []
        beliefs = {gpu: self.believed(app_class, gpu) for gpu in gpus}
        given = self.base.slowdown(app_class)
        far = log(1 + self.settings.drift_margin)
        bound = max(slowdown, 0.0)
        outrun = [g for g in gpus if beliefs[g] > bound + (far / 2 if chips[g].departure else far)]
        unexplained = slowdown > max(beliefs.values()) + margin
        return {gpu: min(bound, log(given[gpu])) for gpu in outrun}, causes if unexplained else []

    def _settle(self, app_class: str, gpu: int) -> bool:
        """Bring flag and published value up to date; true if either changed."""
        chip = self.by_class[app_class][gpu]
        given = log(self.base.slowdown(app_class)[gpu])
        changed = chip.depart_or_return(given, self.settings.drift_margin)
        belief = chip.believed(given, self.settings)
        if abs(belief - chip.published) <= log(1 + self.settings.material):
            return changed
        chip.published = belief
        return True

    def rebase(self, base: VariabilityTable) -> bool:
        """Reckon with another profile from now on; true if that changes much. Classes it does not know are dropped."""
        known = {c: chips for c, chips in self.by_class.items() if not base.classes or c in base.classes}
        dropped = len(known) < len(self.by_class)
        self.base, self.by_class = base, known
        return any([dropped, *(self._settle(c, gpu) for c, chips in known.items() for gpu in chips)])

    def refined(self, base: VariabilityTable) -> VariabilityTable:
        """``base`` with what was observed on top of it; ``base`` itself if nothing departs from it."""
        slowdowns = {name: list(base.slowdown(name)) for name in base.classes}
        for name, chips in self.by_class.items():
            enough = {gpu: chip for gpu, chip in chips.items() if chip.runs >= self.settings.min_runs}
            if not enough or (base.classes and name not in slowdowns):
                continue
            values = slowdowns.setdefault(name, list(base.slowdown(name)))
            for gpu, chip in enough.items():
                values[gpu] = exp(chip.believed(log(values[gpu]), self.settings))
        same = all(list(base.slowdown(name)) == values for name, values in slowdowns.items())
        return base if same else VariabilityTable(base.gpu_count, slowdowns)

    def estimate(self, gpu: int, app_class: str) -> ChipEstimate:
        name = self.class_of(app_class)
        profile = self.base.slowdown(name)[gpu]
        chip = self.by_class.get(name, {}).get(gpu)
        if chip is None:
            return ChipEstimate(gpu, name, profile, profile, None, 0, 0, None)
        observed = exp(chip.middle) if chip.own else None
        spread = robust_sd(chip.own.values) if len(chip.own) > 1 else None
        believed = exp(chip.believed(log(profile), self.settings))
        return ChipEstimate(gpu, name, believed, profile, observed, chip.runs, chip.weak_runs, spread)

    def drifts(self) -> Iterator[Drift]:
        """Flags that are up, by class and GPU."""
        for name in sorted(self.by_class):
            profile = self.base.slowdown(name)
            for gpu, chip in sorted(self.by_class[name].items()):
                if chip.departure:
                    recent = chip.own.values[-RECENT:]
                    z = z_of([v - log(profile[gpu]) for v in recent])
                    runs, since_s = chip.departure.runs, chip.departure.since_s
                    yield Drift(gpu, name, exp(median(recent)), profile[gpu], runs, since_s, z)
