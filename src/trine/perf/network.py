"""The network model: what a placement costs a job in communication, alone and next to others on the same links.

The GPUs of a gang add up gradients inside each node and then between nodes (hierarchical all-reduce), embedding models
also exchange activations (all-to-all); compute and communication overlap as a p-norm. Answers are ratios to the step
time that a trace or a throughput table states, which holds packed, on median GPUs, with the links to itself.
How concurrent jobs divide a link is in ``link_sharing``, what models send in ``model_traffic``, places in ``routes``.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

from trine.core.cluster import Cluster, Links
from trine.core.job import Job
from trine.perf.collectives import FREE, Algorithm, CommCost, all_reduce, other_part, p_norm
from trine.perf.model_traffic import ModelTraffic, TrafficTable, shipped_table
from trine.perf.routes import Route, Routes
from trine.perf.throughput import ThroughputTable

_LEAST_COMPUTE = 0.05
"""Compute is at least this share of a stated step, where the communication of the formula would leave less."""


class Baseline(NamedTuple):
    """A gang on one GPU type at its best: packed, median GPUs, links to itself; in the seconds of ``ModelTraffic``."""

    traffic: ModelTraffic
    compute_s: float
    iteration_s: float
    """What the stated step time stands for."""
    nodes: int
    """Nodes of the best route."""
    spread_ratio: float | None = None
    """Measured slowdown of a gang that is spread over more nodes than necessary."""


class NetworkStep(NamedTuple):
    """One iteration of a job on a route."""

    ratio: float
    """Its duration over that of the baseline."""
    compute_s: float
    comm_s: float
    iteration_s: float

    @property
    def exposed(self) -> float:
        """Share of the iteration in which GPUs wait for communication."""
        return 1.0 - self.compute_s / self.iteration_s if self.iteration_s > 0 else 0.0


class Placed(NamedTuple):
    """A gang on its GPUs: all that its step time follows from but the bandwidth that others leave."""

    base: Baseline
    cost: CommCost
    chip: float
    """Slowdown by the slowest chip."""
    route: Route
    base_s: float
    """Seconds of the stated step."""

    def step(self, bandwidth: float) -> NetworkStep:
        """One iteration with ``bandwidth`` bytes per second between nodes."""
        return step_at(self.base, self.cost, self.chip, bandwidth)


class Network(Routes):
    """Communication and step times on the routes of a cluster."""

    def __init__(
        self,
        cluster: Cluster,
        links: Links | None = None,
        traffic: TrafficTable | None = None,
        algorithm: Algorithm = "ring",
        three_level: bool = False,
    ) -> None:
        """``links`` takes the place of those that the cluster describes, also of those by GPU type.

        ``three_level`` adds up gradients inside racks before they leave them.
        """
        super().__init__(cluster, links)
        self.algorithm, self.three_level = algorithm, three_level
        self.traffic = shipped_table() if traffic is None else traffic
        spelled = {t.lower(): t for t in cluster.types}
        self._reference_type = spelled.get(self.traffic.reference_type)
        self._baselines: dict[tuple[str, int | None, int, str], Baseline] = {}

    def with_traffic(self, traffic: TrafficTable) -> Network:
        """The same links, with other figures of what models compute and send."""
        found = copy(self)
        found.traffic, found._baselines = traffic, {}
        return found

    # Communication

    def comm_cost(self, traffic: ModelTraffic, route: Route) -> CommCost:
        """Communication per iteration, as a function of the bandwidth between nodes."""
        if route.gpus < 2:
            return FREE
        inside = self._all_reduce(route.per_node, traffic, self.links.node_latency_s, route.intra_bytes_per_s)
        cost = CommCost(inside.at(route.intra_bytes_per_s), 0.0)
        if len(route.nodes) > 1:
            cost = cost.plus(self._between_nodes(traffic, route))
        if traffic.all_to_all_bytes:
            cost = cost.plus(self._all_to_all(traffic.all_to_all_bytes, route))
        return cost

    def comm_s(self, traffic: ModelTraffic, route: Route, bandwidth: float | None = None) -> float:
        """Seconds of communication per iteration; ``bandwidth`` is the route's share of its links, all if ``None``."""
        return self.comm_cost(traffic, route).at(route.bandwidth if bandwidth is None else bandwidth)

    def _all_reduce(
        self, members: int, traffic: ModelTraffic, latency_s: float, bytes_per_s: float, streams: int = 1
    ) -> CommCost:
        return all_reduce(members, streams * traffic.gradient_bytes, latency_s, self.algorithm, bytes_per_s)

    def _latency_s(self, route: Route) -> float:
        return self.links.rack_latency_s if len(route.racks) == 1 else self.links.network_latency_s

    def _between_nodes(self, traffic: ModelTraffic, route: Route) -> CommCost:
        """The all-reduce between nodes.

        Where every GPU sends a stream of its own (``Links.unreduced``: parameter servers, rings that do not know the
        nodes), a node sends ``per_node`` times what each member of one flat ring sends. A NIC then carries 3 S with 2+2
        GPUs and 1.5 S with 1+1+1+1: four NICs beat two. Reduced in the node first, it is S against 1.5 S.
        """
        if self.three_level and len(route.racks) > 1:
            return self._three_level(traffic, route)
        latency_s, part = self._latency_s(route), self.links.unreduced
        reduced = self._all_reduce(len(route.nodes), traffic, latency_s, route.bandwidth)
        if part == 0.0 or route.per_node == 1:
            return reduced
        own = self._all_reduce(route.gpus, traffic, latency_s, route.bandwidth, route.per_node)
        return reduced.times(1.0 - part).plus(own.times(part))

    def _three_level(self, traffic: ModelTraffic, route: Route) -> CommCost:
        """Between the nodes of each rack at the speed of the NICs, then between racks."""
        nic, links = self.nic_bytes_per_s(route), self.links
        inside = self._all_reduce(route.nodes_per_rack, traffic, links.rack_latency_s, nic)
        across = self._all_reduce(len(route.racks), traffic, links.network_latency_s, route.bandwidth)
        return across.plus(CommCost(inside.at(nic), 0.0))

    def _all_to_all(self, size: float, route: Route) -> CommCost:
        """Forward and backward exchange of ``size`` bytes of each GPU with all GPUs of the gang.

        What leaves a node is divided by its NIC, what leaves a rack by its uplink; the slower of both counts, in bytes
        over the route's own bandwidth.
        """
        p, c, r = route.gpus, route.per_node, route.per_rack
        inside = (c - 1) / p * size / route.intra_bytes_per_s + (c - 1) * self.links.node_latency_s
        if len(route.nodes) == 1:
            return CommCost(2.0 * inside, 0.0)
        fixed = inside + (len(route.nodes) - 1) * self._latency_s(route)
        if not route.links:
            return CommCost(2.0 * fixed, 0.0)
        leaving_s = c * (p - c) / p * size / self.nic_bytes_per_s(route)
        if len(route.racks) > 1:
            leaving_s = max(leaving_s, r * (p - r) / p * size / self.uplink_bytes_per_s(route))
        return CommCost(2.0 * fixed, 2.0 * leaving_s * route.bandwidth)

    # Steps

    def baseline(
        self,
        traffic: ModelTraffic,
        gpus: int,
        gpu_type: str | None = None,
        stated_s: float | None = None,
        spread_ratio: float | None = None,
    ) -> Baseline:
        """A gang at its best on ``gpu_type``, where an iteration is known to take ``stated_s``.

        Compute follows by solving the p-norm: whole steps are measured, not compute. Without ``stated_s`` it is that of
        ``traffic``.
        """
        best = self.best_route(gpus, gpu_type)
        comm = self.comm_s(traffic, best)
        compute = traffic.compute_s
        if stated_s is not None:
            compute = max(other_part(stated_s, comm, traffic.overlap), _LEAST_COMPUTE * stated_s)
        return Baseline(traffic, compute, p_norm(compute, comm, traffic.overlap), len(best.nodes), spread_ratio)

    def baseline_of(self, job: Job, gpu_type: str, throughputs: ThroughputTable) -> Baseline:
        """The baseline of ``job`` on ``gpu_type``, whose rates come from ``throughputs`` where that knows the model."""
        key = (job.model, job.batch_size, job.gpus, gpu_type)
        known = self._baselines.get(key)
        if known is None:
            known = self._baselines[key] = self._baseline_of(job, gpu_type, throughputs)
        return known

    def _baseline_of(self, job: Job, gpu_type: str, throughputs: ThroughputTable) -> Baseline:
        """Rates of two types say how their step times compare; what a trace calls a step may be any amount of work."""
        traffic = self.traffic.of(job.model, job.batch_size)
        spread = measured_spread_ratio(throughputs, job.model, job.gpus, gpu_type)
        here = throughputs.rate(job.model, job.gpus, gpu_type)
        there = throughputs.rate(job.model, job.gpus, self.traffic.reference_type)
        if not here or not there or here == there:
            return self.baseline(traffic, job.gpus, gpu_type, None, spread)
        reference = self.baseline(traffic, job.gpus, self._reference_type)
        return self.baseline(traffic, job.gpus, gpu_type, reference.iteration_s * there / here, spread)

    def cost(self, base: Baseline, route: Route) -> CommCost:
        """Communication of a job on ``route``: as measured where that was measured, by the formula otherwise.

        A caller that rates a running job again as its bandwidth changes keeps the cost and asks ``step_at``.
        """
        cost = self.comm_cost(base.traffic, route)
        if base.spread_ratio is not None and len(route.nodes) > base.nodes:
            return cost.times(self._measured_factor(base, base.spread_ratio, route))
        return cost

    def _measured_factor(self, base: Baseline, spread_ratio: float, route: Route) -> float:
        """What makes the formula agree with the measured slowdown where that was measured: in one rack, alone."""
        measured = other_part(base.iteration_s * spread_ratio, base.compute_s, base.traffic.overlap)
        in_rack = route
        if len(route.racks) > 1:
            in_rack = route._replace(racks=route.racks[:1], bandwidth=self.nic_bytes_per_s(route))
        formula = self.comm_s(base.traffic, in_rack)
        return measured / formula if formula > 0 else 1.0

    def step(self, base: Baseline, route: Route, chip: float = 1.0, bandwidth: float | None = None) -> NetworkStep:
        """One iteration on ``route`` with a slowest chip that takes ``chip`` times as long as a median one.

        ``ratio`` is 1 on the best route with median chips and links to itself. It is below 1 where a gang is faster on
        more nodes than on the fewest, as with 1+1+1+1 against 2+2 on unreduced links.
        """
        return step_at(base, self.cost(base, route), chip, route.bandwidth if bandwidth is None else bandwidth)

    def demand(self, base: Baseline, route: Route, chip: float = 1.0) -> float:
        """Bytes per second over the links on average, alone on them: the demand of ``link_sharing.Flow``."""
        cost = self.cost(base, route)
        return cost.sent_bytes / step_at(base, cost, chip, route.bandwidth).iteration_s if cost.sent_bytes else 0.0


def step_at(base: Baseline, cost: CommCost, chip: float, bandwidth: float) -> NetworkStep:
    """One iteration with ``bandwidth`` bytes per second between nodes."""
    compute, comm = base.compute_s * chip, cost.at(bandwidth)
    iteration = p_norm(compute, comm, base.traffic.overlap)
    return NetworkStep(iteration / base.iteration_s, compute, comm, iteration)


def measured_spread_ratio(table: ThroughputTable, model: str, gpus: int, gpu_type: str) -> float | None:
    """Measured slowdown of a gang that does not lie together, at least 1; ``None`` where it was not measured."""
    if table.spread is None:
        return None
    gpu_type = gpu_type.lower()
    packed = table.rates.get((model, gpus), {}).get(gpu_type, 0.0)
    spread = table.spread.rates.get((model, gpus), {}).get(gpu_type, 0.0)
    return max(1.0, packed / spread) if packed > 0 and spread > 0 else None
