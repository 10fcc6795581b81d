"""Step rates of models as observed: seconds per step by gang size, GPU type and tier, without the slowness of chips.

Rates of jobs alone are the reference that single GPUs are compared with, the observed throughputs, and the evidence on
the network. Rates of jobs that share their GPUs are kept apart: no model and no chip is slow because of a co-runner.
"""

from __future__ import annotations

import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import exp, log
from typing import NamedTuple, TypeVar

from trine.core.cluster import Tier
from trine.perf.learning.evidence import (
    EvidenceWeight,
    LearningSettings,
    SampleId,
    Window,
    faded_median,
    median,
    weighted_median,
)
from trine.perf.throughput import ThroughputTable

MOST_KEYS = 1000
"""Combinations of model, gang, type and tier (and co-runner) remembered; the one unseen for longest goes first."""
MOST_GANGS = 48
RUNS_PER_GANG = 3
"""Per key the latest runs of the latest gangs: a median over gangs, so that a busy GPU counts no more than others."""
SHIFT, SHIFT_GANGS, SHIFT_AGREEING = 0.10, 5, 4
"""Where 4 of the latest 5 gangs are off by more than 10 % to the same side, and 3 without any one GPU, the rate itself
has changed."""
MOST_PAIR_SEGMENTS = 4096
PAIR_PRIOR_WEIGHT = 1.0
"""Runs that weigh as much as the given rate of a pair. Less than for a job alone: a bad pair should be known soon."""
LOG_DIGITS = 6
"""Of logarithms of step times: a millionth is far below any noise, and keeps snapshots short."""

TierSlowdown = Callable[[str, int, str, Tier, str], float]
"""What is assumed of gangs of a model, so many GPUs of a type, in a tier, of an application class: the slowdown against
the best place."""


class RateKey(NamedTuple):
    """What must be equal for two runs to be comparable."""

    model: str
    gang: int
    gpu_type: str
    tier: Tier


class PairKey(NamedTuple):
    """``model`` next to ``other``."""

    model: str
    other: str
    gang: int
    gpu_type: str
    tier: Tier

    @property
    def alone(self) -> RateKey:
        return RateKey(self.model, self.gang, self.gpu_type, self.tier)


# -- runs that are reported piece by piece ---------------------------------------------------------------------------


class RunSegment:
    """A part of a run: its reports so far, added up. A run counts as one observation until it has become long."""

    __slots__ = ("co_runner", "goes_on", "gpus", "key", "run", "seconds", "serial", "steps")

    def __init__(
        self, run: str, gpus: tuple[int, ...], key: RateKey, serial: int, goes_on: bool, co_runner: str = ""
    ) -> None:
        self.run, self.gpus, self.key, self.serial, self.goes_on = run, gpus, key, serial, goes_on
        self.co_runner = co_runner
        """Model of the job on the same GPUs, for parts of a run that was not alone."""
        self.seconds = self.steps = 0.0

    def add(self, steps: float, seconds: float) -> None:
        self.seconds += seconds
        self.steps += steps

    def sample(self, at_s: float) -> SampleId:
        return SampleId(round(at_s, 3), self.serial, self.goes_on)


class RunSegments:
    """The latest segment by first GPU of its gang; GPUs are ascending.

    One GPU is key enough for jobs that do not share theirs: whatever ran there before is over.
    """

    def __init__(self, settings: LearningSettings, serial: int = 0, latest: Iterable[RunSegment] = ()) -> None:
        self.settings, self.serial = settings, serial
        self.latest = {segment.gpus[0]: segment for segment in latest}

    def extend(self, run: str, gpus: tuple[int, ...], key: RateKey, steps: float, seconds: float) -> RunSegment:
        """The segment of a report, with the report in it. Without a name of the run every report is its own run."""
        known = self.latest.get(gpus[0]) if run else None
        same_run = known is not None and (known.run, known.gpus, known.key) == (run, gpus, key)
        if known is None or not same_run or known.seconds >= self.settings.sample_s:
            self.serial += 1
            known = RunSegment(run, gpus, key, self.serial, goes_on=same_run)
        if run:
            self.latest[gpus[0]] = known
        known.add(steps, seconds)
        return known


# -- the estimate of one key -----------------------------------------------------------------------------------------


def gang_id(gpus: tuple[int, ...]) -> int:
    """Identifies a gang among those of its size: the GPU itself, or a checksum of the members."""
    return gpus[0] if len(gpus) == 1 else zlib.crc32(array("q", gpus).tobytes())


class RateEstimate:
    """Logarithm of the seconds per step of one key on median GPUs."""

    __slots__ = ("app_class", "gangs", "latest", "log_step_s", "medians", "published", "runs", "weight")

    def __init__(self, app_class: str = "") -> None:
        self.app_class = app_class
        self.gangs: dict[int, Window] = {}
        self.medians: dict[int, tuple[float, float]] = {}
        """Median and time of the latest run by gang."""
        self.latest: dict[int, tuple[int, ...]] = {}
        """Members of the latest gangs."""
        self.log_step_s = 0.0
        self.runs = 0
        self.weight = EvidenceWeight()
        self.published: float | None = None
        """The estimate at the last change that was reported as material."""

    def put(self, gpus: tuple[int, ...], sample: SampleId, log_step_s: float, half_life_s: float) -> None:
        """One run of the gang ``gpus``, its time already divided by the slowdown of its slowest chip."""
        gang = gang_id(gpus)
        window = self.gangs.pop(gang, None) or Window()
        if window.put(sample, log_step_s, RUNS_PER_GANG) and not sample.goes_on:
            self.runs += 1
            self.weight.add(sample.at_s, half_life_s)
        self.gangs[gang] = window
        self._remember(gang, gpus)
        self.summarise(gang)
        self.update(half_life_s)
        if self._shifted():
            self._restart(half_life_s)

    def _remember(self, gang: int, gpus: tuple[int, ...]) -> None:
        """Put ``gang`` last among those whose members are known, and forget the oldest."""
        self.latest.pop(gang, None)
        self.latest[gang] = gpus
        if len(self.latest) > SHIFT_GANGS:
            del self.latest[next(iter(self.latest))]
        if len(self.gangs) > MOST_GANGS:
            oldest = next(iter(self.gangs))
            del self.gangs[oldest], self.medians[oldest]

    def summarise(self, gang: int) -> None:
        """Bring the median of one gang up to date."""
        window = self.gangs[gang]
        self.medians[gang] = (median(window.values), max(window.times_s))

    def update(self, half_life_s: float) -> None:
        """Bring the estimate up to date: the median over gangs, each with the weight of its age."""
        self.log_step_s = faded_median(list(self.medians.values()), half_life_s)

    def _shifted(self) -> bool:
        """Whether the latest gangs agree on another rate, and no single GPU explains it: the software changed.

        Without this a new version of a framework would make every GPU look slow (or fast) until the window of gangs has
        been replaced. Taking away the GPU that most of the agreeing gangs have in common must leave enough of them:
        else that GPU is the simpler explanation.
        """
        limit = log(1 + SHIFT)
        off = {gpus: self.gangs[gang].values[-1] - self.log_step_s for gang, gpus in self.latest.items()}
        slower, faster = [g for g, v in off.items() if v > limit], [g for g, v in off.items() if v < -limit]
        agreeing = max(slower, faster, key=len)
        if len(agreeing) < SHIFT_AGREEING:
            return False
        commonest = max(Counter(gpu for gpus in agreeing for gpu in gpus).values())
        return len(agreeing) - commonest >= SHIFT_AGREEING - 1

    def _restart(self, half_life_s: float) -> None:
        """Forget all but the latest run of the latest gangs."""
        self.gangs = {gang: self.gangs[gang] for gang in self.latest}
        self.medians = {}
        for gang, window in self.gangs.items():
            window.keep_latest()
            self.summarise(gang)
        self.update(half_life_s)

    def publish(self, material: float) -> bool:
        """Whether the estimate moved by more than the share ``material`` since it was last published."""
        if self.published is not None and abs(self.log_step_s - self.published) <= log(1 + material):
            return False
        self.published = self.log_step_s
        return True

    def blended(self, given: float, observed: float, prior_weight: float) -> float:
        """Given and observed rate, steps/s, by their weights; geometric, as errors of rates are factors."""
        share = self.weight.share(prior_weight)
        return exp(log(given) + share * (log(observed) - log(given)))


Key = TypeVar("Key", RateKey, PairKey)


def _lru_estimate(by_key: dict[Key, RateEstimate], key: Key) -> RateEstimate:
    """The estimate of ``key``, made if need be and moved to the end; the key unseen for longest goes."""
    estimate = by_key.pop(key, None) or RateEstimate()
    by_key[key] = estimate
    if len(by_key) > MOST_KEYS:
        del by_key[next(iter(by_key))]
    return estimate


# -- jobs alone ------------------------------------------------------------------------------------------------------


class RateEstimates:
    """Rates of jobs alone on their GPUs, most recently observed last."""

    def __init__(self, settings: LearningSettings) -> None:
        self.settings = settings
        self.by_key: dict[RateKey, RateEstimate] = {}

    def put(self, key: RateKey, app_class: str, gpus: tuple[int, ...], sample: SampleId, log_step_s: float) -> bool:
        """Learn from one run; true if the rate changed materially."""
        estimate = _lru_estimate(self.by_key, key)
        estimate.app_class, few = app_class, estimate.runs < self.settings.min_runs
        estimate.put(gpus, sample, log_step_s, self.settings.half_life_s)
        # From here on what tiers cost this gang may count as measured.
        enough = few and key.gang > 1 and estimate.runs >= self.settings.min_runs and self._in_other_tiers(key)
        return estimate.publish(self.settings.material) or enough

    def _in_other_tiers(self, key: RateKey) -> bool:
        """Gangs alike in all else were seen in another tier."""
        return any(key._replace(tier=tier) in self.by_key for tier in Tier if tier != key.tier)

    def reference_log_step_s(self, key: RateKey) -> float | None:
        """Logarithm of the seconds per step to compare one run with; ``None`` while too few gangs have run."""
        estimate = self.by_key.get(key)
        return estimate.log_step_s if estimate and len(estimate.gangs) >= self.settings.min_peers else None

    def table(self, base: ThroughputTable, types: Iterable[str], slowdown: TierSlowdown) -> ThroughputTable:
        """``base`` with what was observed on top of it, without the slowdown of the tier it was observed in."""
        found = dict(self._rates(base, slowdown))
        if not found:
            return base
        every_type = dict.fromkeys([*(t.lower() for t in types), *(t for rates in found.values() for t in rates)])
        rates = {entry: dict(known) for entry, known in base.rates.items()}
        for (model, gang), observed in found.items():
            rates[model, gang] = {t: self._filled(base, model, gang, t, observed) for t in every_type}
            rates[model, gang].update({t: r for t, r in base.rates.get((model, gang), {}).items() if t not in observed})
        return replace(base, rates=rates)

    @staticmethod
    def _filled(base: ThroughputTable, model: str, gang: int, gpu_type: str, observed: dict[str, float]) -> float:
        """Types never tried keep the given rate; where none is given they count as the slowest type tried.

        A missing type would mean that the model does not fit there, for which there is no evidence.
        """
        if gpu_type in observed:
            return observed[gpu_type]
        given = base.rate(model, gang, gpu_type)
        return min(observed.values()) if given is None else given

    def _rates(
        self, base: ThroughputTable, slowdown: TierSlowdown
    ) -> Iterator[tuple[tuple[str, int], dict[str, float]]]:
        by_entry: dict[tuple[str, int], dict[str, float]] = {}
        for (model, gang, gpu_type), tiers in self._by_tier().items():
            key, estimate = self._best_known(tiers)
            packed = exp(-estimate.log_step_s) * slowdown(*key, estimate.app_class)
            rate = self._refined(base.rate(model, gang, gpu_type), packed, estimate)
            if rate is not None:
                by_entry.setdefault((model, gang), {})[gpu_type] = rate
        yield from by_entry.items()

    def _best_known(self, tiers: list[tuple[RateKey, RateEstimate]]) -> tuple[RateKey, RateEstimate]:
        """The narrowest tier with enough runs, as the table is about packed gangs; else the one with most runs."""
        enough = [(key, estimate) for key, estimate in tiers if estimate.runs >= self.settings.min_runs]
        return enough[0] if enough else max(tiers, key=lambda known: known[1].runs)

    def _refined(self, given: float | None, observed: float, estimate: RateEstimate) -> float | None:
        """Given and observed rate together; ``None`` where the given one stays as it is."""
        if not given:  # unknown model, or said not to fit although it ran
            return observed
        if estimate.runs < self.settings.min_runs:
            return None
        return estimate.blended(given, observed, self.settings.prior_weight)

    def network_slowdowns(self) -> dict[tuple[str, Tier], float]:
        """Slowdown of a model across a tier against packed into one node, for all models and tiers with evidence.

        Only gangs alike in size and type are compared, with enough runs in the tier and in one node; several such
        comparisons of a model count by their runs.
        """
        known: dict[tuple[str, Tier], list[tuple[float, float]]] = {}
        for (model, _, _), ((narrow, packed), *wider) in self._by_tier().items():
            if narrow.tier != Tier.NODE:
                continue
            for key, spread in wider:
                runs = min(spread.runs, packed.runs)
                if runs >= self.settings.min_runs:
                    slowdown = exp(spread.log_step_s - packed.log_step_s)
                    known.setdefault((model, key.tier), []).append((slowdown, float(runs)))
        return {key: weighted_median(slowdowns) for key, slowdowns in known.items()}

    def _by_tier(self) -> dict[tuple[str, int, str], list[tuple[RateKey, RateEstimate]]]:
        """Estimates of keys that differ in their tier only, narrowest tier first."""
        found: dict[tuple[str, int, str], list[tuple[RateKey, RateEstimate]]] = {}
        for key in sorted(self.by_key):
            found.setdefault(key[:3], []).append((key, self.by_key[key]))
        return found


# -- jobs that share their GPUs --------------------------------------------------------------------------------------


class PairRateEstimates:
    """Rate of either job of a pair, most recently observed last, and the runs that are going on."""

    def __init__(self, settings: LearningSettings, serial: int = 0) -> None:
        self.settings, self.serial = settings, serial
        self.by_key: dict[PairKey, RateEstimate] = {}
        self.segments: dict[str, RunSegment] = {}
        """The latest segment by run, as two runs are on the same GPUs."""

    def observe(
        self,
        at_s: float,
        key: PairKey,
        app_class: str,
        run: str,
        gpus: tuple[int, ...],
        steps: float,
        seconds: float,
        chip: float,
    ) -> bool | None:
        """Learn from a piece of a run: ``steps`` in ``seconds``, ``chip`` the log slowdown of its slowest GPU.

        True if the rate changed materially, ``None`` while the run is too short to say anything.
        """
        segment = self._extend(run, gpus, key, steps, seconds)
        if segment.seconds < self.settings.shortest_s:
            return None
        estimate = _lru_estimate(self.by_key, key)
        estimate.app_class = app_class
        log_step_s = round(log(segment.seconds / segment.steps) - chip, LOG_DIGITS)
        estimate.put(gpus, segment.sample(at_s), log_step_s, self.settings.half_life_s)
        return estimate.publish(self.settings.material)

    def _extend(self, run: str, gpus: tuple[int, ...], key: PairKey, steps: float, seconds: float) -> RunSegment:
        known = self.segments.pop(run, None)
        same = known is not None and known.gpus == gpus and known.co_runner == key.other
        if known is None or not same or known.seconds >= self.settings.sample_s:
            self.serial += 1
            known = RunSegment(run, gpus, key.alone, self.serial, goes_on=same, co_runner=key.other)
        self.segments[run] = known
        if len(self.segments) > MOST_PAIR_SEGMENTS:
            del self.segments[next(iter(self.segments))]
        known.add(steps, seconds)
        return known

    def table(self, base: ThroughputTable, alone: RateEstimates, slowdown: TierSlowdown) -> ThroughputTable:
        """``base`` with the pairs that were observed on both sides, or on one where the other is known."""
        rates = {
            (k.model, k.other, k.gang, k.gpu_type): self._rate(base, alone, slowdown, k) for k in self._narrowest()
        }
        pairs = {entry: dict(known) for entry, known in base.pairs.items()}
        for (model, other, gang, gpu_type), one in rates.items():
            given = base.pair_rate(model, other, gang, gpu_type) or (None, None)
            two = one if model == other else rates.get((other, model, gang, gpu_type), given[1])
            if two is not None:
                entry = (other, model, gang) if (other, model, gang) in pairs else (model, other, gang)
                ours = (one, two) if entry[0] == model else (two, one)
                pairs.setdefault(entry, {})[gpu_type] = ours
        return replace(base, pairs=pairs) if rates else base

    def _narrowest(self) -> Iterable[PairKey]:
        """Of keys that differ in their tier only, the one packed closest: the table is about packed gangs."""
        found: dict[tuple[str, str, int, str], PairKey] = {}
        for key in sorted(self.by_key):
            found.setdefault(key[:4], key)
        return found.values()

    def _rate(self, base: ThroughputTable, alone: RateEstimates, slowdown: TierSlowdown, key: PairKey) -> float:
        """Steps/s on median GPUs, packed. Where jobs of the model were seen alone, relative to that: a table that is
        off for both must not look like interference.
        """
        estimate, own = self.by_key[key], alone.by_key.get(key.alone)
        known = base.rate(key.model, key.gang, key.gpu_type)
        if own is not None and known:
            observed = known * exp(own.log_step_s - estimate.log_step_s)
        else:
            observed = exp(-estimate.log_step_s) * slowdown(*key.alone, estimate.app_class)
        given = (base.pair_rate(key.model, key.other, key.gang, key.gpu_type) or (0.0, 0.0))[0]
        return estimate.blended(given, observed, PAIR_PRIOR_WEIGHT) if given else observed
