"""The performance model: how fast a job runs on a concrete set of GPUs, and which GPU types suit it.

The simulator advances jobs with it, placements choose with it, explanations and estimates quote it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal, NamedTuple

from trine.core.cluster import Cluster, Largest, Tier
from trine.core.job import Job
from trine.perf.network import Baseline, Network, Placed
from trine.perf.throughput import SpeedFactors, ThroughputTable
from trine.perf.variability import VariabilityTable

_KEPT_PLACES = 100_000
"""Gangs on their GPUs remembered; more are forgotten together, to bound the memory of long runs."""
LinkSharing = Literal["max-min", "duty", "none"]


class Speed(NamedTuple):
    """Speed of a job on a set of GPUs."""

    steps_per_s: float
    chip: float
    """Slowdown by the slowest chip, 1 on a median GPU."""
    network: float
    """Slowdown by place and traffic, 1 at the best place with links to itself; below 1 where communication hides the
    slowness of the chip."""
    tier: Tier
    sharing: float = 1.0
    """Slowdown by another job on the same GPUs, 1 alone."""
    exposed: float = 0.0
    """Share of the time spent in communication that compute does not hide."""


class Neighbours(NamedTuple):
    """What other running jobs leave to one."""

    co_runner: Job | None = None
    """The job on the same GPUs."""
    bandwidth: float | None = None
    """Bytes/s between its nodes; ``None``: all that its route has."""


ALONE = Neighbours()


@dataclass(frozen=True)
class LocalityPenalty:
    """Slowdown of a gang by tier: inside a node, across nodes of a rack, across racks."""

    node: float = 1.0
    rack: float = 1.0
    network: float = 1.0
    by_class: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Across nodes and across racks, for application classes that have penalties of their own."""

    def by_tier(self, app_class: str = "") -> tuple[float, float, float, float]:
        """Penalty by tier for a class."""
        across = self.by_class.get(app_class, (self.rack, self.network))
        return (1.0, self.node, *across)

    def of_gang(self, _model: str, _gpus: int, _gpu_type: str, tier: Tier, app_class: str) -> float:
        """Penalty of a gang; see ``learning.rates.TierSlowdown``."""
        return self.by_tier(app_class)[tier]


@dataclass
class PerfModel:
    """Rate = base(type, gang, job on the same GPUs) / slowdown by the slowest chip for the job's class and the network.

    The network is either a penalty per tier, which multiplies the chip's, or a model of links: then a step is the
    p-norm of compute, which the chip slows, and communication, which place and traffic slow.
    """

    cluster: Cluster
    variability: VariabilityTable
    penalty: LocalityPenalty = field(default_factory=LocalityPenalty)
    throughputs: ThroughputTable = field(default_factory=ThroughputTable)
    network: Network | None = None
    """In place of ``penalty``."""
    link_sharing: LinkSharing = "max-min"
    """How gangs share links; ``none``: each has them to itself."""
    measured_slowdowns: Mapping[tuple[str, Tier], float] = field(default_factory=dict)
    """Of models across a tier against inside one node, where that was observed: wins over links and penalties wherever
    tiers are weighed against each other (``tier_slowdowns``)."""
    speed_factors: SpeedFactors | None = None
    """What measured speeds have added to the tables; ``None``: nothing."""
    _types: dict[tuple[object, ...], tuple[int, ...]] = field(default_factory=dict, init=False)
    _step_s: dict[tuple[str, int, float | None], tuple[float, ...]] = field(default_factory=dict, init=False)
    _next_to: dict[tuple[str, int, float | None, str, int], float] = field(default_factory=dict, init=False)
    _tiers: dict[tuple[str, int | None, int, int], tuple[float, ...]] = field(default_factory=dict, init=False)
    _typical: dict[tuple[str, int], float] = field(default_factory=dict, init=False, repr=False)
    _largest: dict[int, Largest] = field(default_factory=dict, init=False)
    """By index of the GPU type."""

    _placed: dict[tuple[str, int | None, str, float | None, tuple[int, ...]], Placed] = field(
        default_factory=dict, init=False, repr=False
    )

    _places: dict[tuple[int, ...], tuple[Tier, tuple[int, ...]]] = field(default_factory=dict, init=False, repr=False)

    _shared: dict[tuple[str, str, float | None, str, tuple[int, ...], float | None], Speed] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        self._by_tier = self.penalty.by_tier()
        self._by_class = {name: self.penalty.by_tier(name) for name in self.penalty.by_class}
        type_index = {t: i for i, t in enumerate(self.cluster.types)}
        self._type_of_node = [type_index[n.gpu_type] for n in self.cluster.nodes]

    def speed(self, job: Job, gpus: Sequence[int], neighbours: Neighbours = ALONE) -> Speed:
        """Speed on ``gpus`` with what the neighbours leave to it (``perf.neighbours`` knows which jobs those are).

        A gang over several types runs at the pace of the slowest.
        """
        if neighbours.co_runner is not None:
            return self._shared_speed(job, gpus, neighbours)
        node_of = self.cluster.node_of
        slowdowns = self.variability.slowdown(job.app_class)
        step_s = self.step_s_by_type(job)
        if len(gpus) == 1:
            chip = slowdowns[gpus[0]]
            return Speed(1.0 / (step_s[self._type_of_node[node_of[gpus[0]]]] * chip), chip, 1.0, Tier.GPU)
        if self.network is not None:
            return self._network_speed(job, gpus, neighbours.bandwidth)
        chip = max(map(slowdowns.__getitem__, gpus))
        tier, types = self._place_of(tuple(gpus))
        by_class = self._by_class
        network = (by_class.get(job.app_class, self._by_tier) if by_class else self._by_tier)[tier]
        base_s = step_s[types[0]] if len(types) == 1 else max([step_s[type_index] for type_index in types])
        if network == 1.0:
            return Speed(1.0 / (base_s * chip), chip, 1.0, tier)
        return Speed(1.0 / (base_s * chip * network), chip, network, tier, exposed=1.0 - 1.0 / network)

    def _place_of(self, gpus: tuple[int, ...]) -> tuple[Tier, tuple[int, ...]]:
        """Tier and GPU types of a gang on ``gpus``; remembered, since gangs come back to the same GPUs."""
        known = self._places.get(gpus)
        if known is None:
            if len(self._places) >= _KEPT_PLACES:
                self._places.clear()
            nodes = set(map(self.cluster.node_of.__getitem__, gpus))
            tier = Tier.NODE if len(nodes) == 1 else self.cluster.tier_of_nodes(nodes)
            types = dict.fromkeys([self._type_of_node[node] for node in nodes])
            known = self._places[gpus] = tier, tuple(types)
        return known

    # -- the network ---------------------------------------------------------------------------------------------

    def _network_speed(self, job: Job, gpus: Sequence[int], bandwidth: float | None) -> Speed:
        placed = self.placed(job, tuple(gpus))
        step = placed.step(placed.route.bandwidth if bandwidth is None else bandwidth)
        ratio, chip = step.ratio, placed.chip
        return Speed(1.0 / (placed.base_s * ratio), chip, ratio / chip, placed.route.tier, exposed=step.exposed)

    def placed(self, job: Job, gpus: tuple[int, ...]) -> Placed:
        """What the steps of the job on ``gpus`` follow from; asked for again whenever traffic changes."""
        key = (job.model, job.batch_size, job.app_class, job.step_s, gpus)
        known = self._placed.get(key)
        if known is None:
            assert self.network is not None
            if len(self._placed) >= _KEPT_PLACES:
                self._placed.clear()
            base, chip = self.network_baseline(job, gpus)
            route, base_s = self.network.route(gpus), self.step_s_by_type(job)[self._slowest_type(job, gpus)]
            known = self._placed[key] = Placed(base, self.network.cost(base, route), chip, route, base_s)
        return known

    def _slowest_type(self, job: Job, gpus: Sequence[int]) -> int:
        """Index of the slowest type among ``gpus``."""
        step_s = self.step_s_by_type(job)
        if len(step_s) == 1:
            return 0
        types = {self._type_of_node[self.cluster.node_of[gpu]] for gpu in gpus}
        return max(types, key=lambda index: (step_s[index], index))

    def network_baseline(self, job: Job, gpus: Sequence[int]) -> tuple[Baseline, float]:
        """What the stated step of the job stands for on the type of ``gpus``, and the slowdown of its slowest chip."""
        slowdowns = self.variability.slowdown(job.app_class)
        return self._baseline(job, self._slowest_type(job, gpus)), max(map(slowdowns.__getitem__, gpus))

    def _baseline(self, job: Job, type_index: int) -> Baseline:
        assert self.network is not None
        return self.network.baseline_of(job, self.cluster.types[type_index], self.throughputs)

    def tier_slowdowns(self, job: Job, type_index: int | None = None) -> tuple[float, ...]:
        """Slowdown of the gang by tier, median chips, links to itself: what placements and timers weigh.

        ``type_index`` ``None`` stands for the type that suits the job best.
        """
        if self.network is None:
            by_class = self._by_class
            assumed = by_class.get(job.app_class, self._by_tier) if by_class else self._by_tier
            return self._as_measured(job, type_index, assumed) if self.measured_slowdowns else assumed
        if type_index is None:
            type_index = self.types_for(job)[0]
        key = (job.model, job.batch_size, job.gpus, type_index)
        known = self._tiers.get(key)
        if known is None:
            known = self._as_measured(job, type_index, self._network_tiers(self.network, job, type_index))
            self._tiers[key] = known
        return known

    def _as_measured(self, job: Job, type_index: int | None, assumed: tuple[float, ...]) -> tuple[float, ...]:
        """``assumed`` with what was measured of wider tiers than the best one that can hold the gang.

        What was measured is relative to one node; a gang that no node holds takes the ratio of two measured tiers.
        """
        if job.gpus == 1 or not self.measured_slowdowns:
            return assumed
        if type_index is None:
            type_index = next(iter(self.types_for(job)), 0)
        best, measured = self.best_tier(job.gpus, type_index), self.measured_slowdowns
        base = 1.0 if best == Tier.NODE else measured.get((job.model, best))
        found = list(assumed)
        for tier in (Tier.RACK, Tier.NETWORK):
            slowdown = measured.get((job.model, tier))
            if tier > best and base is not None and slowdown is not None:
                found[tier] = found[best] * slowdown / base
            found[tier] = max(found[tier - 1], found[tier])
        return tuple(found)

    def gang_slowdown(self, model: str, gpus: int, gpu_type: str, tier: Tier, app_class: str) -> float:
        """What links or penalties say of gangs of ``model`` in ``tier``, over the same at the best place.

        1 for a GPU type that the cluster does not have.
        """
        if self.network is None:
            return self.penalty.of_gang(model, gpus, gpu_type, tier, app_class)
        type_index = next((i for i, t in enumerate(self.cluster.types) if t.lower() == gpu_type.lower()), None)
        if type_index is None or gpus > self.cluster.gpus_by_type[self.cluster.types[type_index]]:
            return 1.0
        return self._network_tiers(self.network, Job("", 0.0, gpus, 1.0, 1.0, model), type_index)[tier]

    def _network_tiers(self, network: Network, job: Job, type_index: int) -> tuple[float, ...]:
        """A tier that cannot hold the gang counts as the one below it, and no tier as faster than the one below it.

        Monotone, because placements and timers compare tiers: fitted links may make a rack look faster than a node,
        and a gang would then be spread on purpose.
        """
        if job.gpus == 1:
            return (1.0, 1.0, 1.0, 1.0)
        base, gpu_type = self._baseline(job, type_index), self.cluster.types[type_index]
        found = [1.0]
        for tier in (Tier.NODE, Tier.RACK, Tier.NETWORK):
            route = network.tier_route(job.gpus, gpu_type, tier)
            found.append(found[-1] if route is None else max(found[-1], network.step(base, route).ratio))
        return tuple(found)

    # -- pairs ---------------------------------------------------------------------------------------------------

    def _shared_speed(self, job: Job, gpus: Sequence[int], neighbours: Neighbours) -> Speed:
        """Chip and network slow a job next to another as they slow it alone.

        Remembered: when co-runners change, the speeds before and after are asked for several times.
        """
        co_runner, bandwidth = neighbours
        assert co_runner is not None
        key = (job.model, job.app_class, job.step_s, co_runner.model, tuple(gpus), bandwidth)
        known = self._shared.get(key)
        if known is None:
            if len(self._shared) >= _KEPT_PLACES:
                self._shared.clear()
            known = self._shared[key] = self._compute_shared(job, gpus, neighbours)
        return known

    def _compute_shared(self, job: Job, gpus: Sequence[int], neighbours: Neighbours) -> Speed:
        alone = self.speed(job, gpus, Neighbours(None, neighbours.bandwidth))
        assert neighbours.co_runner is not None
        rate = self.rate_next_to(job, neighbours.co_runner, self._type_of_node[self.cluster.node_of[gpus[0]]])
        steps_per_s = rate / (alone.chip * alone.network)
        sharing = alone.steps_per_s / steps_per_s if steps_per_s > 0 else float("inf")
        return alone._replace(steps_per_s=steps_per_s, sharing=sharing)

    def rate_next_to(self, job: Job, co_runner: Job, type_index: int) -> float:
        """Steps/s on median GPUs of the type while ``co_runner`` runs there too; 0 = does not fit.

        Two jobs whose pair was never measured are taken to share the GPU in time: half the speed each.
        """
        key = (job.model, job.gpus, job.step_s, co_runner.model, type_index)
        known = self._next_to.get(key)
        if known is None:
            pair = self.throughputs.pair_rate(job.model, co_runner.model, job.gpus, self.cluster.types[type_index])
            known = self._next_to[key] = 0.5 / self.step_s_by_type(job)[type_index] if pair is None else pair[0]
        return known

    def forget_pairs(self) -> None:
        """Read rates of pairs from the table again: estimates change with every observation."""
        self._next_to.clear()
        self._shared.clear()

    def can_share(self, one: Job, other: Job, type_index: int) -> bool:
        """Both make progress on the same GPUs of the type."""
        return self.rate_next_to(one, other, type_index) > 0 and self.rate_next_to(other, one, type_index) > 0

    def gain(self, one: Job, other: Job, gpus: Sequence[int]) -> float:
        """Work done on ``gpus`` by the two together, where 1 is what one of them does alone."""
        pair = ((one, other), (other, one))
        return sum([1.0 / self.speed(job, gpus, Neighbours(co_runner)).sharing for job, co_runner in pair])

    def step_s_by_type(self, job: Job) -> tuple[float, ...]:
        """Seconds per step on a median GPU, packed, for each type of the cluster; ``inf`` where it does not fit."""
        key = (job.model, job.gpus, job.step_s)
        known = self._step_s.get(key)
        if known is None:
            known = self._step_s[key] = tuple(self._base_step_s(job, t) for t in self.cluster.types)
        return known

    def _base_step_s(self, job: Job, gpu_type: str) -> float:
        rate = self.throughputs.rate(job.model, job.gpus, gpu_type)
        factor = 1.0 if self.speed_factors is None else self.speed_factors.of(job.model, job.gpus, gpu_type)
        if rate is None:
            return float("inf") if job.step_s is None else job.step_s / factor
        return 1.0 / (rate * factor) if rate > 0 else float("inf")

    def types_for(self, job: Job) -> tuple[int, ...]:
        """Indices of the GPU types that can ever hold the job, fastest first (ties: order of the cluster)."""
        shape = None if job.shape is None else (job.shape.nodes, job.shape.required)
        key = (job.model, job.gpus, job.step_s, job.gpu_types, shape)
        known = self._types.get(key)
        if known is None:
            known = self._types[key] = self._rank_types(job)
        return known

    def _rank_types(self, job: Job) -> tuple[int, ...]:
        step_s = self.step_s_by_type(job)
        gpus_by_type = self.cluster.gpus_by_type
        wanted = {t.lower() for t in job.gpu_types}
        fits = [
            i
            for i, t in enumerate(self.cluster.types)
            if gpus_by_type[t] >= job.gpus and step_s[i] != float("inf") and (not wanted or t.lower() in wanted)
        ]
        if (shape := job.shape) is not None:
            # A policy that chose a type without the shape would choose it for ever. Where no type has it, all stay:
            # what is wrong with such a job is its shape, and that is what is said of it.
            widest = Tier.NETWORK if shape.required is None else shape.required
            types = self.cluster.types
            fits = [i for i in fits if self.cluster.holds(types[i], job.gpus, shape.nodes, widest)] or fits
        return tuple(sorted(fits, key=lambda i: step_s[i]))

    def typical_slowdown(self, app_class: str, type_index: int) -> float:
        """Median slowdown of the chips of a GPU type for a class; 1 where chips are measured against that median."""
        key = (self.variability.class_of(app_class), type_index)
        known = self._typical.get(key)
        if known is None:
            slowdown, nodes = self.variability.slowdown(app_class), self.cluster.node_of
            mine = [v for gpu, v in enumerate(slowdown) if self._type_of_node[nodes[gpu]] == type_index]
            known = self._typical[key] = median(mine)
        return known

    def best_tier(self, gpus: int, type_index: int) -> Tier:
        """The lowest tier at which the GPUs of a type, were all of them free, hold a gang of ``gpus``."""
        largest = self._largest.get(type_index)
        if largest is None:
            largest = self._largest[type_index] = self.cluster.largest(self.cluster.types[type_index])
        return largest.tier_of(gpus)

    def best_slowdown(self, job: Job) -> float:
        """Slowdown by the network in the best place that an empty cluster has for the job: 1 inside a node."""
        types = self.types_for(job)
        if not types or job.gpus == 1:
            return 1.0
        return self.tier_slowdowns(job)[self.best_tier(job.gpus, types[0])]

    def sensitivity(self, job: Job) -> float:
        """How many times slower the job is in the worst tier it could get than in the best one; at least 1."""
        if job.gpus == 1:
            return 1.0
        worst = Tier.NETWORK if len(self.cluster.racks) > 1 else Tier.RACK if len(self.cluster.nodes) > 1 else Tier.NODE
        return max(1.0, self.tier_slowdowns(job)[worst] / self.best_slowdown(job))

    def ideal_s(self, job: Job) -> float:
        """Run time on median GPUs of the best type of this cluster, packed, seconds; ``inf`` if it can never run."""
        types = self.types_for(job)
        return job.steps * self.step_s_by_type(job)[types[0]] if types else float("inf")
