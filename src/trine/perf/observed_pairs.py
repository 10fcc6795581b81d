"""Paces of jobs next to another on the same GPUs, as observed: what two models do to each other's speed.

Kept apart from the paces of jobs alone: neither a model nor a chip is slow because somebody else was there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import exp, log
from typing import NamedTuple

from trine.core.cluster import Tier
from trine.perf.observed_evidence import LearningSettings, TierSlowdown
from trine.perf.observed_rates import Pace, PaceKey, Paces
from trine.perf.observed_stretches import Stretch
from trine.perf.throughput import ThroughputTable

MOST_PAIRS = 1000
"""Combinations that are remembered; the one unseen for longest goes first."""
MOST_STRETCHES = 4096
PRIOR_WEIGHT = 1.0
"""Runs that weigh as much as the given rate. Less than for a job alone: a pair that does badly should be known soon."""


class PairKey(NamedTuple):
    """``model`` next to ``other``."""

    model: str
    other: str
    gang: int
    gpu_type: str
    tier: Tier

    @property
    def alone(self) -> PaceKey:
        return PaceKey(self.model, self.gang, self.gpu_type, self.tier)


class PairPaces:
    """Pace of either side of a pair, most recently observed last, and the runs that are going on."""

    def __init__(self, settings: LearningSettings, serial: int = 0) -> None:
        self.settings, self.serial = settings, serial
        self.by_key: dict[PairKey, Pace] = {}
        self.stretches: dict[str, Stretch] = {}
        """The latest stretch by run: two runs are on the same GPUs."""

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

        True if the pace changed materially, ``None`` while the run is too short to say anything.
        """
        stretch = self._extend(run, gpus, key, steps, seconds)
        if stretch.seconds < self.settings.shortest_s:
            return None
        pace = self.by_key.pop(key, None) or Pace()
        self.by_key[key] = pace
        if len(self.by_key) > MOST_PAIRS:
            del self.by_key[next(iter(self.by_key))]
        pace.app_class = app_class
        log_step_s = round(log(stretch.seconds / stretch.steps) - chip, 6)
        pace.put(gpus, stretch.sample(at_s), log_step_s, self.settings.half_life_s)
        if pace.published is not None and abs(pace.log_step_s - pace.published) <= log(1 + self.settings.material):
            return False
        pace.published = pace.log_step_s
        return True

    def _extend(self, run: str, gpus: tuple[int, ...], key: PairKey, steps: float, seconds: float) -> Stretch:
        known = self.stretches.pop(run, None)
        same = known is not None and known.gpus == gpus and known.next_to == key.other
        if known is None or not same or known.seconds >= self.settings.sample_s:
            self.serial += 1
            known = Stretch(run, gpus, key.alone, self.serial, goes_on=same, next_to=key.other)
        self.stretches[run] = known
        if len(self.stretches) > MOST_STRETCHES:
            del self.stretches[next(iter(self.stretches))]
        known.add(steps, seconds)
        return known

    def table(self, base: ThroughputTable, alone: Paces, slowdown: TierSlowdown) -> ThroughputTable:
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

    def _rate(self, base: ThroughputTable, alone: Paces, slowdown: TierSlowdown, key: PairKey) -> float:
        """Steps/s on median GPUs, packed. Where jobs of the model were seen alone, relative to that: a table that is
        off for both must not look like interference.
        """
        pace, own = self.by_key[key], alone.by_key.get(key.alone)
        known = base.rate(key.model, key.gang, key.gpu_type)
        if own is not None and known:
            observed = known * exp(own.log_step_s - pace.log_step_s)
        else:
            observed = exp(-pace.log_step_s) * slowdown(*key.alone, pace.app_class)
        given = (base.pair_rate(key.model, key.other, key.gang, key.gpu_type) or (0.0, 0.0))[0]
        if not given:
            return observed
        share = pace.mass.amount / (pace.mass.amount + PRIOR_WEIGHT)
        return exp(log(given) + share * (log(observed) - log(given)))
