"""Paces of models as observed: seconds per step by gang size, GPU type and tier, freed of the slowness of chips.

They are the yardstick for single GPUs, the observed throughputs, and the evidence on the network.
"""

from __future__ import annotations

import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import exp, log
from typing import NamedTuple

from trine.core.cluster import Tier
from trine.perf.observed_evidence import LearningSettings, NetworkEstimate, ThroughputEstimate, TierSlowdown
from trine.perf.observed_window import Mass, Sample, Window, faded_median, median, robust_sd, weighted_median
from trine.perf.throughput import ThroughputTable

MOST_PACES = 1000
"""Combinations of model, gang, type and tier that are remembered; the one unseen for longest goes first."""
MOST_GANGS = 48
RUNS_PER_GANG = 3
"""Per pace the latest runs of the latest gangs: a median over gangs, so that a busy GPU counts no more than others."""
SHIFT, SHIFT_GANGS, SHIFT_AGREEING = 0.10, 5, 4
"""Where 4 of the latest 5 gangs are off by more than 10 % to the same side, and 3 without any one GPU, the pace itself
has changed."""


def gang_mark(gpus: tuple[int, ...]) -> int:
    """A number that tells gangs of one size apart: the GPU itself, or a checksum of the members."""
    return gpus[0] if len(gpus) == 1 else zlib.crc32(array("q", gpus).tobytes())


class PaceKey(NamedTuple):
    """What must be equal for two runs to be comparable."""

    model: str
    gang: int
    gpu_type: str
    tier: Tier


class Pace:
    """Logarithm of the seconds per step of one key on median GPUs."""

    __slots__ = ("app_class", "gangs", "latest", "log_step_s", "mass", "middles", "published", "runs")

    def __init__(self, app_class: str = "") -> None:
        self.app_class = app_class
        self.gangs: dict[int, Window] = {}
        self.middles: dict[int, tuple[float, float]] = {}
        """Median and time of the latest run by gang."""
        self.latest: dict[int, tuple[int, ...]] = {}
        """Members of the latest gangs."""
        self.log_step_s = 0.0
        self.runs = 0
        self.mass = Mass()
        self.published: float | None = None
        """The value that the caller was last told to take notice of."""

    def put(self, gpus: tuple[int, ...], sample: Sample, log_step_s: float, half_life_s: float) -> None:
        """One run of the gang ``gpus``, its time already divided by the slowdown of its slowest chip."""
        gang = gang_mark(gpus)
        window = self.gangs.pop(gang, None) or Window()
        if window.put(sample, log_step_s, RUNS_PER_GANG) and not sample.goes_on:
            self.runs += 1
            self.mass.add(sample.at_s, half_life_s)
        self.gangs[gang] = window
        self._remember(gang, gpus)
        self.summarise(gang)
        self.settle(half_life_s)
        if self.shifted():
            self.restart(half_life_s)

    def _remember(self, gang: int, gpus: tuple[int, ...]) -> None:
        """Put ``gang`` last among those whose members are known, and let the oldest go."""
        self.latest.pop(gang, None)
        self.latest[gang] = gpus
        if len(self.latest) > SHIFT_GANGS:
            del self.latest[next(iter(self.latest))]
        if len(self.gangs) > MOST_GANGS:
            oldest = next(iter(self.gangs))
            del self.gangs[oldest], self.middles[oldest]

    def summarise(self, gang: int) -> None:
        window = self.gangs[gang]
        self.middles[gang] = (median(window.values), max(window.times_s))

    def settle(self, half_life_s: float) -> None:
        self.log_step_s = faded_median(list(self.middles.values()), half_life_s)

    def shifted(self) -> bool:
        """Whether the latest gangs agree on another pace, and no single GPU explains it: the software changed."""
        limit = log(1 + SHIFT)
        off = {gpus: self.gangs[gang].values[-1] - self.log_step_s for gang, gpus in self.latest.items()}
        slower, faster = [g for g, v in off.items() if v > limit], [g for g, v in off.items() if v < -limit]
        agreeing = max(slower, faster, key=len)
        if len(agreeing) < SHIFT_AGREEING:
            return False
        commonest = max(Counter(gpu for gpus in agreeing for gpu in gpus).values())
        return len(agreeing) - commonest >= SHIFT_AGREEING - 1

    def restart(self, half_life_s: float) -> None:
        """Forget all but the latest run of the latest gangs."""
        self.gangs = {gang: self.gangs[gang] for gang in self.latest}
        self.middles = {}
        for gang, window in self.gangs.items():
            window.keep_latest()
            self.summarise(gang)
        self.settle(half_life_s)

    @property
    def spread(self) -> float:
        return robust_sd([v for window in self.gangs.values() for v in window.values])


class Paces:
    """All paces, most recently observed last."""

    def __init__(self, settings: LearningSettings) -> None:
        self.settings = settings
        self.by_key: dict[PaceKey, Pace] = {}

    def put(self, key: PaceKey, app_class: str, gpus: tuple[int, ...], sample: Sample, log_step_s: float) -> bool:
        """Learn from one run; true if the pace changed materially."""
        pace = self.by_key.pop(key, None) or Pace()
        self.by_key[key] = pace
        if len(self.by_key) > MOST_PACES:
            del self.by_key[next(iter(self.by_key))]
        pace.app_class, few = app_class, pace.runs < self.settings.min_runs
        pace.put(gpus, sample, log_step_s, self.settings.half_life_s)
        # From here on what tiers cost this gang may count as measured.
        enough = few and key.gang > 1 and pace.runs >= self.settings.min_runs and self._in_other_tiers(key)
        return self._publish(pace) or enough

    def _in_other_tiers(self, key: PaceKey) -> bool:
        """Gangs alike in all else were seen in another tier."""
        return any(key._replace(tier=tier) in self.by_key for tier in Tier if tier != key.tier)

    def _publish(self, pace: Pace) -> bool:
        if pace.published is not None and abs(pace.log_step_s - pace.published) <= log(1 + self.settings.material):
            return False
        pace.published = pace.log_step_s
        return True

    def yardstick(self, key: PaceKey) -> float | None:
        """Logarithm of the seconds per step to compare one run with; ``None`` while too few gangs have run."""
        pace = self.by_key.get(key)
        return pace.log_step_s if pace and len(pace.gangs) >= self.settings.min_peers else None

    def estimates(self) -> list[ThroughputEstimate]:
        return [
            ThroughputEstimate(*key, steps_per_s=exp(-pace.log_step_s), runs=pace.runs, spread=pace.spread)
            for key, pace in sorted(self.by_key.items(), key=lambda item: item[0])
        ]

    def table(self, base: ThroughputTable, types: Iterable[str], slowdown: TierSlowdown) -> ThroughputTable:
        """``base`` with what was observed on top of it, freed of the slowdown of the tier it was observed in."""
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

        A missing type would mean that the model does not fit there, which nobody has observed.
        """
        if gpu_type in observed:
            return observed[gpu_type]
        given = base.rate(model, gang, gpu_type)
        return min(observed.values()) if given is None else given

    def _rates(
        self, base: ThroughputTable, slowdown: TierSlowdown
    ) -> Iterator[tuple[tuple[str, int], dict[str, float]]]:
        by_entry: dict[tuple[str, int], dict[str, float]] = {}
        for (model, gang, gpu_type), tiers in self._by_place().items():
            key, pace = self._best_known(tiers)
            packed = exp(-pace.log_step_s) * slowdown(*key, pace.app_class)
            rate = self._blended(base.rate(model, gang, gpu_type), packed, pace)
            if rate is not None:
                by_entry.setdefault((model, gang), {})[gpu_type] = rate
        yield from by_entry.items()

    def _best_known(self, tiers: list[tuple[PaceKey, Pace]]) -> tuple[PaceKey, Pace]:
        """The narrowest tier with enough runs, as the table is about packed gangs; else the one with most runs."""
        enough = [(key, pace) for key, pace in tiers if pace.runs >= self.settings.min_runs]
        return enough[0] if enough else max(tiers, key=lambda known: known[1].runs)

    def _blended(self, given: float | None, observed: float, pace: Pace) -> float | None:
        """Given and observed rate by their weights; ``None`` where the given one stands as it is."""
        if not given:  # unknown model, or said not to fit although it ran
            return observed
        if pace.runs < self.settings.min_runs:
            return None
        share = pace.mass.amount / (pace.mass.amount + self.settings.prior_weight)
        return exp(log(given) + share * (log(observed) - log(given)))

    def network(self) -> list[NetworkEstimate]:
        """Wider tiers against the narrowest one seen, for gangs alike in all else."""
        found = []
        for (model, gang, gpu_type), ((narrow, packed), *wider) in self._by_place().items():
            for key, pace in wider:
                slowdown = exp(pace.log_step_s - packed.log_step_s)
                found.append(
                    NetworkEstimate(model, gang, gpu_type, key.tier, narrow.tier, slowdown, pace.runs, packed.runs)
                )
        return found

    def network_slowdown(self, model: str, tier: Tier) -> float | None:
        """Of all gangs of ``model`` across ``tier`` against packed into a node; ``None`` without evidence."""
        return self.network_slowdowns().get((model, tier))

    def network_slowdowns(self) -> dict[tuple[str, Tier], float]:
        """The same for all models and tiers with evidence: enough runs of like gangs in the tier and in one node."""
        known: dict[tuple[str, Tier], list[tuple[float, float]]] = {}
        for n in self.network():
            runs = min(n.runs, n.against_runs)
            if n.against == Tier.NODE and runs >= self.settings.min_runs:
                known.setdefault((n.model, n.tier), []).append((n.slowdown, float(runs)))
        return {key: weighted_median(slowdowns) for key, slowdowns in known.items()}

    def _by_place(self) -> dict[tuple[str, int, str], list[tuple[PaceKey, Pace]]]:
        """Paces by all but the tier, narrowest tier first."""
        found: dict[tuple[str, int, str], list[tuple[PaceKey, Pace]]] = {}
        for key in sorted(self.by_key):
            found.setdefault(key[:3], []).append((key, self.by_key[key]))
        return found
