"""The performance model: how fast a job runs on a concrete set of GPUs, and which GPU types suit it.

The simulator advances jobs with it, placements choose with it, explanations and estimates quote it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from trine.core.cluster import Cluster, Tier
from trine.core.job import Job
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable


class Speed(NamedTuple):
    """Speed of a job on a set of GPUs."""

    steps_per_s: float
    chip: float
    """Slowdown by the slowest chip, 1 on a median GPU."""
    network: float
    """Slowdown by the tier, 1 inside a node."""
    tier: Tier
    sharing: float = 1.0
    """Slowdown by another job on the same GPUs, 1 alone."""


@dataclass(frozen=True)
class LocalityPenalty:
    """Slowdown of a gang by tier: inside a node, across nodes of a rack, across racks."""

    node: float = 1.0
    rack: float = 1.0
    network: float = 1.0
    by_class: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Across nodes and across racks, for application classes that have penalties of their own."""

    @classmethod
    def across_nodes(cls, penalty: float) -> LocalityPenalty:
        """One penalty as soon as a gang spans two nodes, wherever they are."""
        return cls(1.0, penalty, penalty)

    def by_tier(self, app_class: str = "") -> tuple[float, float, float, float]:
        """Penalty by tier for a class."""
        across = self.by_class.get(app_class, (self.rack, self.network))
        return (1.0, self.node, *across)


@dataclass
class PerfModel:
    """Rate = base(type, gang, job on the same GPUs) / (slowest chip for the job's class x penalty of the tier)."""

    cluster: Cluster
    variability: VariabilityTable
    penalty: LocalityPenalty = field(default_factory=LocalityPenalty)
    throughputs: ThroughputTable = field(default_factory=ThroughputTable)
    _types: dict[tuple[str, int, float | None, tuple[str, ...]], tuple[int, ...]] = field(
        default_factory=dict, init=False
    )
    _step_s: dict[tuple[str, int, float | None], tuple[float, ...]] = field(default_factory=dict, init=False)
    _next_to: dict[tuple[str, int, float | None, str, int], float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._by_tier = self.penalty.by_tier()
        self._by_class = {name: self.penalty.by_tier(name) for name in self.penalty.by_class}
        type_index = {t: i for i, t in enumerate(self.cluster.types)}
        self._type_of_node = [type_index[n.gpu_type] for n in self.cluster.nodes]

    def speed(self, job: Job, gpus: Sequence[int], partner: Job | None = None) -> Speed:
        """Speed on ``gpus``, next to ``partner`` if that runs there too.

        A gang over several types runs at the pace of the slowest.
        """
        if partner is not None:
            return self._shared_speed(job, gpus, partner)
        node_of = self.cluster.node_of
        slowdowns = self.variability.slowdown(job.app_class)
        step_s = self.step_s_by_type(job)
        if len(gpus) == 1:
            chip = slowdowns[gpus[0]]
            return Speed(1.0 / (step_s[self._type_of_node[node_of[gpus[0]]]] * chip), chip, 1.0, Tier.GPU)
        chip = max(map(slowdowns.__getitem__, gpus))
        nodes = set(map(node_of.__getitem__, gpus))
        tier = Tier.NODE if len(nodes) == 1 else self.cluster.tier_of_nodes(nodes)
        by_class = self._by_class
        network = (by_class.get(job.app_class, self._by_tier) if by_class else self._by_tier)[tier]
        base_s = step_s[0] if len(step_s) == 1 else max([step_s[self._type_of_node[n]] for n in nodes])
        return Speed(1.0 / (base_s * chip * network), chip, network, tier)

    def _shared_speed(self, job: Job, gpus: Sequence[int], partner: Job) -> Speed:
        """Chip and network slow a job next to another as they slow it alone."""
        alone = self.speed(job, gpus)
        rate = self.rate_next_to(job, partner, self._type_of_node[self.cluster.node_of[gpus[0]]])
        steps_per_s = rate / (alone.chip * alone.network)
        sharing = alone.steps_per_s / steps_per_s if steps_per_s > 0 else float("inf")
        return alone._replace(steps_per_s=steps_per_s, sharing=sharing)

    def rate_next_to(self, job: Job, partner: Job, pool: int) -> float:
        """Steps/s on median GPUs of the type with index ``pool`` while ``partner`` runs there too; 0 = does not fit.

        Two jobs of which nobody measured the pair are taken to take turns: half the speed each.
        """
        key = (job.model, job.gpus, job.step_s, partner.model, pool)
        known = self._next_to.get(key)
        if known is None:
            pair = self.throughputs.pair_rate(job.model, partner.model, job.gpus, self.cluster.types[pool])
            known = self._next_to[key] = 0.5 / self.step_s_by_type(job)[pool] if pair is None else pair[0]
        return known

    def forget_pairs(self) -> None:
        """The table tells other rates of pairs from now on, as estimates do after an observation."""
        self._next_to.clear()

    def can_share(self, one: Job, other: Job, pool: int) -> bool:
        """Both get on with their work on the same GPUs of the type with index ``pool``."""
        return self.rate_next_to(one, other, pool) > 0 and self.rate_next_to(other, one, pool) > 0

    def gain(self, one: Job, other: Job, gpus: Sequence[int]) -> float:
        """Work done on ``gpus`` by the two together, where 1 is what one of them does alone."""
        return 1.0 / self.speed(one, gpus, other).sharing + 1.0 / self.speed(other, gpus, one).sharing

    def step_s_by_type(self, job: Job) -> tuple[float, ...]:
        """Seconds per step on a median GPU, packed, for each type of the cluster; ``inf`` where it does not fit."""
        key = (job.model, job.gpus, job.step_s)
        known = self._step_s.get(key)
        if known is None:
            known = self._step_s[key] = tuple(self._base_step_s(job, t) for t in self.cluster.types)
        return known

    def _base_step_s(self, job: Job, gpu_type: str) -> float:
        rate = self.throughputs.rate(job.model, job.gpus, gpu_type)
        if rate is None:
            return float("inf") if job.step_s is None else job.step_s
        return 1.0 / rate if rate > 0 else float("inf")

    def types_for(self, job: Job) -> tuple[int, ...]:
        """Indices of the GPU types that can ever hold the job, fastest first (ties: order of the cluster)."""
        key = (job.model, job.gpus, job.step_s, job.gpu_types)
        known = self._types.get(key)
        if known is None:
            known = self._types[key] = self._rank_types(job)
        return known

    def _rank_types(self, job: Job) -> tuple[int, ...]:
        step_s = self.step_s_by_type(job)
        pools = self.cluster.gpus_by_type
        wanted = {t.lower() for t in job.gpu_types}
        fits = [
            i
            for i, t in enumerate(self.cluster.types)
            if pools[t] >= job.gpus and step_s[i] != float("inf") and (not wanted or t.lower() in wanted)
        ]
        return tuple(sorted(fits, key=lambda i: step_s[i]))

    def ideal_s(self, job: Job) -> float:
        """Run time on median GPUs of the best type of this cluster, packed, seconds; ``inf`` if it can never run."""
        types = self.types_for(job)
        return job.steps * self.step_s_by_type(job)[types[0]] if types else float("inf")
