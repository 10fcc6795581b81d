"""How long a job should wait for GPUs close together, learnt from how long others waited for them.

Waits are kept by GPU demand and tier. The timer of a tier is a high percentile of them, not their mean: a job that
gave up is missing from the mean, so that the mean stays below the timer, the timer shrinks to the mean, more jobs give
up, and in the end nothing waits. A job that gave up therefore counts with twice its wait (a censored sample).
Nothing here depends on the time of day but through new samples: between two starts a timer is a constant, which is
what lets rounds be skipped exactly.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trine.core.cluster import Tier
from trine.core.result import TimerChange

HOUR_S = 3_600.0
DEFAULT_S = {Tier.NODE: 3 * HOUR_S, Tier.RACK: 6 * HOUR_S}
"""Timers before anything is known."""
LONGEST_S = 24 * HOUR_S
"""No timer and no sample is longer."""
PERCENTILE = 0.95
FEW = 20
"""Below this many samples the percentile is the largest of them; the default counts as one of them."""
LEAST_RENOUNCED_S = 600.0
"""A renounced tier counts as at least this: twice a wait of nothing would keep a timer of nothing for ever, whereas
from here it doubles as long as more than one job in twenty gives up."""
_CHANGES_KEPT = 100_000

Demand = tuple[int, Tier]
"""Number of GPUs, and the tier waited for."""


class Sample(NamedTuple):
    """How long one job waited for a tier."""

    at_s: float
    wait_s: float
    renounced: bool
    """It took GPUs further apart in the end."""

    @property
    def value_s(self) -> float:
        """What the sample says about the wait for the tier; a lower bound is doubled."""
        told_s = max(2 * self.wait_s, LEAST_RENOUNCED_S) if self.renounced else self.wait_s
        return min(told_s, LONGEST_S)


@dataclass
class Timers:
    """Timers by GPU demand and tier."""

    rule: str = "auto"
    """``auto``, ``pays``: percentile, samples censored; ``mean``: of those that got the tier; ``fixed``: defaults."""
    window_s: float = 24 * HOUR_S
    samples: int = 50
    """At most so many, and none older than ``window_s`` when another comes."""
    changes: deque[TimerChange] = field(default_factory=lambda: deque(maxlen=_CHANGES_KEPT))
    """How the timers came to be what they are, oldest first."""
    changed: int = 0
    """Changes in all, those that are no longer kept included."""

    def __post_init__(self) -> None:
        self._history: dict[Demand, deque[Sample]] = {}
        self._timer_s: dict[Demand, float] = {}
        self._expected_s: dict[Demand, float] = {}
        """What ``expected_s`` said since the last sample of the demand."""

    def timer_s(self, gpus: int, tier: Tier) -> float:
        """How long jobs of ``gpus`` GPUs wait for the tier before they take the next one, in seconds."""
        return self._timer_s.get((gpus, tier), DEFAULT_S[tier])

    def expected_s(self, gpus: int, tier: Tier) -> float:
        """The mean wait for the tier if better offers come at random: all time waited by the number of successes.

        A third of the default counts as one success, since waiting for three mean gaps gets most of what there is.
        """
        known = self._expected_s.get((gpus, tier))
        if known is None:
            history = self._history.get((gpus, tier), ())
            got = sum(1 for sample in history if not sample.renounced)
            known = (DEFAULT_S[tier] / 3 + sum(sample.wait_s for sample in history)) / (1 + got)
            self._expected_s[gpus, tier] = known
        return known

    def observe(self, at_s: float, gpus: int, best: Tier, got: Tier, wait_s: float) -> None:
        """A job whose GPUs an empty cluster would have within one ``best`` took some within one ``got``."""
        for tier in DEFAULT_S:
            if best <= tier <= got:
                self._add((gpus, tier), Sample(at_s, wait_s, renounced=tier < got))

    def _add(self, demand: Demand, sample: Sample) -> None:
        history = self._history.setdefault(demand, deque(maxlen=self.samples))
        while history and history[0].at_s < sample.at_s - self.window_s:
            history.popleft()
        history.append(sample)
        self._expected_s.pop(demand, None)
        before = self.timer_s(*demand)
        self._timer_s[demand] = after = self._computed_s(demand)
        if after != before:
            self.changed += 1
            self.changes.append(TimerChange(sample.at_s, *demand, after))

    def _computed_s(self, demand: Demand) -> float:
        history, default_s = self._history[demand], DEFAULT_S[demand[1]]
        if self.rule == "fixed":
            return default_s
        if self.rule == "mean":
            waits = [sample.wait_s for sample in history if not sample.renounced]
            return min(sum(waits) / len(waits), LONGEST_S) if waits else default_s
        values = [sample.value_s for sample in history]
        if len(values) < FEW:
            values.append(default_s)
        return sorted(values)[math.ceil(PERCENTILE * len(values)) - 1]

    # -- across restarts -----------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All samples, by demand."""
        return {
            f"{gpus}/{tier.label}": [[s.at_s, s.wait_s, int(s.renounced)] for s in history]
            for (gpus, tier), history in self._history.items()
        }

    def restore(self, kept: dict[str, Any]) -> None:
        """Go on from what ``state`` gave."""
        self._history, self._timer_s, self._expected_s = {}, {}, {}
        for name, rows in kept.items():
            gpus, _, label = name.partition("/")
            demand = (int(gpus), Tier[label.upper()])
            known = [Sample(float(at_s), float(wait_s), bool(renounced)) for at_s, wait_s, renounced in rows]
            self._history[demand] = deque(known, maxlen=self.samples)
            self._timer_s[demand] = self._computed_s(demand)
