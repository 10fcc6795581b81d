"""A policy for one experiment, given to the simulator as a file: max-min fairness with space sharing that knows pairs
of jobs only from estimates, while the jobs run at their true rates. A pair that ran is known from then on."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from trine.config.throughputs import load_throughputs
from trine.core.params import param
from trine.perf.estimate import EstimatedPairs, References
from trine.perf.model import PerfModel
from trine.perf.throughput import ThroughputTable
from trine.policy.base import Policy, Ranking
from trine.policy.lp.max_min_fairness import MaxMinFairness
from trine.policy.rounds.share_rounds import RoundParams, ShareRounds
from trine.policy.view import View


@dataclass(frozen=True)
class Guessed(ThroughputTable):
    """Rates alone from the table, rates of pairs from the estimates: what the policy takes for the truth."""

    estimates: EstimatedPairs | None = None

    def __post_init__(self) -> None:
        if self.estimates is not None:
            # One memory of what was asked: an observation clears it.
            object.__setattr__(self, "asked", self.estimates.asked)

    def pair_rate(self, model: str, other: str, gang: int, gpu_type: str) -> tuple[float, float] | None:
        return self.estimates.pair_rate(model, other, gang, gpu_type) if self.estimates else None


@dataclass
class Guessing(Policy):
    """The round mechanism around the policy, with another idea of how fast pairs are."""

    name: ClassVar[str] = "max-min-fairness-guessing"
    title: ClassVar[str] = "max-min fairness with space sharing on estimated rates of pairs"

    table: str = param("", "measured rates to draw the references from")
    references: int = param(16, "models measured in full", minimum=1)
    profiled: float = param(0.6, "fraction of the other pairs that is measured", minimum=0)
    drawing: int = param(0, "random stream of what is measured")
    round_s: float = param(360.0, "seconds between decisions", minimum=1e-3)
    _inner: ShareRounds = field(init=False, repr=False)
    _seen: set[Any] = field(init=False, repr=False, default_factory=set)

    def __post_init__(self) -> None:
        self._inner = ShareRounds(MaxMinFairness(space_sharing=True), RoundParams(), self.round_s)

    def prepare(self, perf: PerfModel) -> None:
        known = load_throughputs(self.table)
        references = References.of(known, self.references, self.drawing)
        self._estimates = EstimatedPairs(references, self.profiled, self.drawing)
        self._truth = known
        self._types = perf.cluster.types
        alone = perf.throughputs
        guessed = Guessed(alone.rates, {}, alone.spread, self._estimates)
        self._inner.prepare(replace(perf, throughputs=guessed))

    @property
    def changes_with_time(self) -> bool:  # type: ignore[override]
        return self._inner.changes_with_time

    @property
    def wakes_s(self) -> float:
        return self._inner.wakes_s

    def ran(self, slot: int, seconds: float) -> None:
        self._inner.ran(slot, seconds)

    def rank(self, view: View) -> Ranking:
        ranking = self._inner.rank(view)
        for pair in self._pairs(view, ranking):
            self._look(*pair)
        return ranking

    def _pairs(self, view: View, ranking: Ranking) -> Iterator[tuple[str, str, int, str]]:
        """Models, gang and GPU type of the pairs that run now."""
        if ranking.partners is None or ranking.pools is None:
            return
        for at, mate in enumerate(ranking.partners.tolist()):
            if mate > at:
                one, other = view.job(int(ranking.order[at])), view.job(int(ranking.order[mate]))
                yield one.model, other.model, one.gpus, self._types[int(ranking.pools[at])]

    def _look(self, model: str, other: str, gang: int, gpu_type: str) -> None:
        """What ran is measured."""
        key = (*sorted((model, other)), gang, gpu_type)
        if key in self._seen:
            return
        self._seen.add(key)
        rates = self._truth.pair_rate(model, other, gang, gpu_type) or (0.0, 0.0)
        self._estimates.observe(model, other, gang, gpu_type, rates, weight=1.0)
