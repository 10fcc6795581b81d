"""The flows of running gangs: which of them send over which links, and what bandwidth that leaves to each of them.

``perf.neighbours`` enters a gang when it takes its GPUs and removes it when it releases them; ``settle`` then returns
the jobs whose bandwidth changed. Jobs are job indices. Only gangs over several nodes have a flow: inside a node no link
is shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import fsum, inf
from typing import NamedTuple

import numpy as np

from trine.core.job import Job
from trine.perf.collectives import p_norm
from trine.perf.link_sharing import DutyFlow, DutyShare, Flow, LinkLoad, burst_bandwidth, duty, duty_of_one, max_min
from trine.perf.model import Neighbours, PerfModel, Speed
from trine.perf.network import Network, Placed

_QUOTED = -1
"""Stands for the job index of a gang that is only asked about."""

_ROUNDING = 1.0 + 1e-9
"""Makes a bound hold in whatever order a sum was rounded."""

_ALL = 1.0 - 1e-9
"""From this share of a bandwidth on it counts as all of it."""


class Changed(NamedTuple):
    """Bandwidth of a job in bytes per second, before and after others came or left."""

    job_index: int
    before: float
    after: float


class UsedLink(NamedTuple):
    """A link that gangs send over: the share of it that they use on average, bytes per second that it carries."""

    name: str
    load: float
    capacity: float
    jobs: int


class _Gang(NamedTuple):
    """What a gang sends, as ``link_sharing`` wants it."""

    flow: Flow
    placed: Placed

    def by_duty(self) -> DutyFlow:
        """Asked for its duty very often, and for nothing else of the step."""
        base, (fixed_s, sent_bytes) = self.placed.base, self.placed.cost
        compute_s, overlap = base.compute_s * self.placed.chip, base.traffic.overlap

        root = 1.0 / overlap

        def duty_at(bandwidth: float) -> float:
            comm_s = fixed_s + sent_bytes / bandwidth
            if 0.0 < comm_s <= compute_s and overlap != 1.0:  # ``p_norm``, without its call
                return comm_s / float(compute_s * (1.0 + (comm_s / compute_s) ** overlap) ** root)
            return comm_s / p_norm(compute_s, comm_s, overlap)

        return DutyFlow(self.flow.links, duty_at, duty_at(self.placed.route.bandwidth))


class Traffic:
    """Flows of the running gangs over the NICs and uplinks of one cluster.

    A link is tight if its users want more than it carries. Only tight links hold rates down, so that the gangs that a
    change can reach are found over tight links alone. Sums over the users of a link are exact (``fsum``): bandwidths
    depend on what runs and not on the order in which it came.
    """

    def __init__(self, perf: PerfModel, network: Network) -> None:
        self._perf, self._network = perf, network
        self._capacities = np.array(network.capacity, np.float64)
        self._gangs: dict[int, _Gang] = {}
        self._duty_flows: dict[int, DutyFlow] = {}
        self._on_link: dict[int, dict[int, None]] = {}
        """Jobs by link."""
        self._bandwidth: dict[int, float] = {}
        self._connected: dict[int, list[int]] = {}
        """Jobs that shared links connect to a link; the same list for all links of such a set."""
        self._duties: dict[int, float] = {}
        """Of jobs, as of the last ``settle``, where links are shared by duty."""
        self._rates: dict[int, float] = {}
        """Average bytes per second as of the last ``settle``."""
        self._tight: dict[int, bool] = {}
        """By link, where it is known."""
        self._touched: dict[int, None] = {}
        """Links whose users changed since the last ``settle``."""
        self._quoted: dict[tuple[int, Placed], Speed] = {}
        """Quotes since a flow last came or left, by job that would not send and by place."""
        self._left_out: dict[int, dict[int, float]] = {}
        """Duties by job as they would be without one job, since a flow last came or left."""
        self._duty_sums: dict[int, float] = {}
        """Duties of all users of a link, since a flow last came or left."""

    @classmethod
    def of(cls, perf: PerfModel) -> Traffic | None:
        """No flows yet, over the links that the model knows; ``None`` if it knows none, or none is shared."""
        return None if perf.network is None or perf.link_sharing == "none" else cls(perf, perf.network)

    def __contains__(self, job_index: int) -> bool:
        return job_index in self._gangs

    def use_model(self, perf: PerfModel) -> None:
        """Quotes follow another model of the same links; gangs that run keep their present flow until they leave."""
        self._perf = perf
        self._forget_quotes()

    @property
    def unsettled(self) -> bool:
        """Gangs came or left since the last ``settle``."""
        return bool(self._touched)

    def join(self, job_index: int, job: Job, gpus: tuple[int, ...]) -> None:
        """The job begins to send. Until ``settle`` it is taken to have its links to itself."""
        gang = self._gang(job, gpus)
        if gang is None:
            return
        self._enter(job_index, gang)
        self._bandwidth[job_index] = gang.placed.route.bandwidth
        self._forget_quotes()
        self._touched.update(dict.fromkeys(gang.flow.links))

    def leave(self, job_index: int) -> None:
        """The job sends no more; one without a flow changes nothing."""
        if job_index not in self._gangs:
            return
        gang = self._remove(job_index)
        del self._bandwidth[job_index]
        self._rates.pop(job_index, None)
        self._duties.pop(job_index, None)
        self._forget_quotes()
        self._touched.update(dict.fromkeys(gang.flow.links))

    def settle(self) -> list[Changed]:
        """Share the links whose users changed anew; returns the jobs whose bandwidth is another now, by index.

        Only jobs that are connected to such a link, through shared links, can be affected.
        """
        if not self._touched:
            return []
        touched, self._touched = self._touched, {}
        self._forget_quotes()
        shares = self._settle_duties(touched) if self._perf.link_sharing == "duty" else self._by_max_min(touched)
        changed = [
            Changed(job, self._bandwidth[job], new) for job, new in shares.items() if new != self._bandwidth[job]
        ]
        self._bandwidth.update(shares)
        return sorted(changed)

    def bandwidth(self, job_index: int) -> float | None:
        """Bytes per second between the nodes of a job as of the last ``settle``; ``None`` for a job inside a node."""
        return self._bandwidth.get(job_index)

    def link_share(self, job_index: int) -> float:
        """Bandwidth of a job as of the last ``settle`` over what it has alone: 1 if others take nothing from it."""
        gang = self._gangs.get(job_index)
        return 1.0 if gang is None else self._bandwidth[job_index] / gang.placed.route.bandwidth

    def slowed_jobs(self) -> list[int]:
        """Jobs that get less bandwidth than they have alone, in the order in which they came."""
        return [job for job, gang in self._gangs.items() if self._bandwidth[job] < gang.placed.route.bandwidth * _ALL]

    def quote(self, job: Job, gpus: tuple[int, ...], without: int = -1, least: float = 0.0) -> Speed:
        """How fast the job would run on ``gpus`` now, next to what runs; ``without``: a job that would not send then.

        A job that considers a move is quoted without its own present flow. A speed below ``least`` steps/s may be any
        between the true one and ``least``: sharing is expensive to compute, and a bound on it is not.
        """
        gang = self._gang(job, gpus)
        if gang is None:
            return self._perf.speed(job, gpus)
        if gang == self._gangs.get(without) and not self._touched:  # where it runs already, which is settled
            return self._perf.speed(job, gpus, Neighbours(bandwidth=self._bandwidth[without]))
        known = self._quoted.get((without, gang.placed))
        if known is None:
            if least > 0.0 and self._perf.link_sharing == "duty":
                most = Neighbours(bandwidth=self._most_by_duty(gang.flow.links, without))
                bound = self._perf.speed(job, gpus, most)
                if bound.steps_per_s < least:
                    return bound
            known = self._quoted[without, gang.placed] = self._shared_speed(job, gpus, gang, without)
        return known

    def _shared_speed(self, job: Job, gpus: tuple[int, ...], gang: _Gang, without: int) -> Speed:
        by_duty = self._perf.link_sharing == "duty"
        near = self._near(gang.flow.links) if by_duty else []
        with self._instead_of(without, gang):
            if all(len(self._on_link[link]) == 1 for link in gang.flow.links):
                return self._perf.speed(job, gpus)
            if by_duty:
                flows = {index: self._duty_flows[index] for index in (_QUOTED, *near) if index != without}
                left = duty_of_one(_QUOTED, flows, self._capacities)
                return self._perf.speed(job, gpus, Neighbours(bandwidth=left))
            rates = self._average_rates(self._users(gang.flow.links))
            return self._perf.speed(job, gpus, Neighbours(bandwidth=self._burst(_QUOTED, rates, {})))

    def load(self) -> dict[int, float]:
        """Share of its capacity that each link in use carries on average, by link number."""
        capacity, used = self._network.capacity, dict.fromkeys(self._on_link, 0.0)
        for index, gang in self._gangs.items():
            rate = gang.placed.cost.sent_bytes / gang.placed.step(self._bandwidth[index]).iteration_s
            for link in gang.flow.links:
                used[link] += rate
        return {link: rate / capacity[link] for link, rate in sorted(used.items()) if self._on_link[link]}

    def used_links(self) -> list[UsedLink]:
        """The links in use, the fullest first."""
        network, loads = self._network, self.load()
        found = [
            UsedLink(network.link_name(link), load, network.capacity[link], len(self._on_link[link]))
            for link, load in loads.items()
        ]
        return sorted(found, key=lambda each: (-each.load, each.name))

    # -- entries -------------------------------------------------------------------------------------------------

    def _gang(self, job: Job, gpus: tuple[int, ...]) -> _Gang | None:
        """``None`` for a gang inside one node, or over links that are not modelled."""
        if len(gpus) < 2:
            return None
        placed = self._perf.placed(job, gpus)
        route, sent = placed.route, placed.cost.sent_bytes
        if not route.links or sent <= 0:
            return None
        return _Gang(Flow(route.links, sent / placed.step(route.bandwidth).iteration_s), placed)

    def _enter(self, job_index: int, gang: _Gang) -> None:
        self._gangs[job_index] = gang
        self._duty_flows[job_index] = gang.by_duty()
        for link in gang.flow.links:
            self._on_link.setdefault(link, {})[job_index] = None
            self._tight.pop(link, None)

    def _remove(self, job_index: int) -> _Gang:
        gang = self._gangs.pop(job_index)
        del self._duty_flows[job_index]
        for link in gang.flow.links:
            del self._on_link[link][job_index]
            self._tight.pop(link, None)
        return gang

    @contextmanager
    def _instead_of(self, without: int, gang: _Gang) -> Iterator[None]:
        """With the flow of ``gang``, and without that of another job, for the time of a quote."""
        left = self._remove(without) if without in self._gangs else None
        self._enter(_QUOTED, gang)
        try:
            yield
        finally:
            self._remove(_QUOTED)
            if left is not None:
                self._enter(without, left)

    # -- sharing -------------------------------------------------------------------------------------------------

    def _users(self, links: Iterable[int]) -> set[int]:
        return {job for link in links for job in self._on_link[link]}

    def _by_max_min(self, touched: Iterable[int]) -> dict[int, float]:
        """New bandwidths of the jobs whose links carry more or less than before."""
        # Average rates change only as far as tight links connect; bursts change on every link of a flow whose average
        # did, tight or not, since the average of one is what it leaves to the bursts of the others.
        rates = self._average_rates(self._users(touched))
        others = [job for job, rate in rates.items() if rate != self._rates.get(job)]
        self._rates.update(rates)
        links = {*touched, *(link for job in others for link in self._gangs[job].flow.links)}
        loads: dict[int, LinkLoad] = {}
        return {job: self._burst(job, self._rates, loads) for job in self._users(links)}

    def _average_rates(self, seeds: Iterable[int]) -> dict[int, float]:
        """Max-min fair rates of ``seeds`` and of all that tight links connect to them.

        Each connected set is filled by itself: its rates are the same numbers whatever else is asked for.
        """
        rates: dict[int, float] = {}
        for seed in seeds:
            if seed not in rates:
                flows = self._connected_flows(seed)
                rates.update(max_min({job: flows[job] for job in sorted(flows)}, self._network.capacity))
        return rates

    def _connected_flows(self, seed: int) -> dict[int, Flow]:
        """The flows that share a tight link with one that shares ... one with ``seed``; each with its tight links."""
        found: dict[int, Flow] = {}
        crossed = set[int]()
        seen, waiting = {seed}, [seed]
        while waiting:
            job = waiting.pop()
            flow = self._gangs[job].flow
            tight = tuple([link for link in flow.links if self._is_tight(link)])
            found[job] = Flow(tight, flow.demand)
            for link in tight:
                if link not in crossed:
                    crossed.add(link)
                    new = self._on_link[link].keys() - seen
                    seen |= new
                    waiting += new
        return found

    def _is_tight(self, link: int) -> bool:
        known = self._tight.get(link)
        if known is None:
            wanted = fsum([self._gangs[job].flow.demand for job in self._on_link[link]])
            known = self._tight[link] = wanted > self._network.capacity[link]
        return known

    def _burst(self, job_index: int, rates: Mapping[int, float], loads: dict[int, LinkLoad]) -> float:
        """Bandwidth of a gang while it sends; ``loads`` keeps the average rates by link for the next gang."""
        links = self._gangs[job_index].flow.links
        for link in links:
            if link not in loads:
                loads[link] = LinkLoad([rates[job] for job in self._on_link[link]], self._network.capacity[link])
        return burst_bandwidth(links, rates[job_index], loads)

    def _settle_duties(self, touched: Iterable[int]) -> dict[int, float]:
        """New bandwidths of all jobs that shared links connect to these."""
        shares = self._by_duty(touched)
        self._duties.update({job: share.duty for job, share in shares.items()})
        return {job: share.bandwidth for job, share in shares.items()}

    def _most_by_duty(self, links: Iterable[int], without: int) -> float:
        """A bound on the bandwidth of the quoted gang: the duties of others are no less than they are without it.

        The fixed point is approached from what each has alone, and duties only grow on the way: more duty leaves less
        bandwidth to all others, and less bandwidth makes for more duty; a gang that comes adds to that.
        """
        capacity, flows, settled = self._network.capacity, self._duty_flows, self._duties_without(without)
        sums = {} if without in self._gangs else self._duty_sums
        found = inf
        for link in links:
            if link not in sums:
                users = self._on_link.get(link, ())
                sums[link] = sum([settled.get(job, flows[job].alone) for job in users if job != without])
            found = min(found, capacity[link] / (1.0 + sums[link]))
        return found * _ROUNDING if found < inf else found

    def _duties_without(self, job_index: int) -> Mapping[int, float]:
        """Duties as they would be if the job left. Before ``settle`` none is known: what each has alone is certain."""
        if self._touched:
            return {}
        if job_index not in self._gangs:
            return self._duties
        if job_index not in self._left_out:
            left = self._remove(job_index)
            shares = self._by_duty(left.flow.links)
            self._enter(job_index, left)
            self._left_out[job_index] = {**self._duties, **{job: share.duty for job, share in shares.items()}}
        return self._left_out[job_index]

    def _near(self, links: Iterable[int]) -> list[int]:
        """Running jobs that shared links connect to ``links``, ascending; kept from quote to quote.

        More than these does no harm: a flow counts for nothing where no link leads to it.
        """
        near = {id(known): known for link in links if (known := self._connected.get(link)) is not None}
        for link in links:
            if link not in self._connected and self._on_link.get(link):
                known = list(self._connected_duties((link,)))
                near[id(known)] = known
                for reached in {other for job in known for other in self._gangs[job].flow.links}:
                    self._connected[reached] = known
        sets = list(near.values())
        return sets[0] if len(sets) == 1 else sorted({job for known in sets for job in known})

    def _forget_quotes(self) -> None:
        self._connected.clear()
        self._quoted.clear()
        self._left_out.clear()
        self._duty_sums.clear()

    def _by_duty(self, links: Iterable[int]) -> dict[int, DutyShare]:
        """Shares of all gangs that shared links connect to ``links``: there, every user slows every other."""
        return duty(self._connected_duties(links), self._capacities)

    def _connected_duties(self, links: Iterable[int]) -> dict[int, DutyFlow]:
        found, waiting, seen = set[int](), self._users(links), set(links)
        while waiting:
            found |= waiting
            wider = {link for job in waiting for link in self._gangs[job].flow.links} - seen
            seen |= wider
            waiting = self._users(wider) - found
        return {job: self._duty_flows[job] for job in sorted(found)}
