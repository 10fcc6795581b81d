"""Which running jobs are the cheapest to stop so that a wider gang gets GPUs close together, on chips that are fast.

Works on the index of free GPUs and on the jobs of one GPU type as a round finds them; nothing is changed here. What is
known of a node is kept until its GPUs change hands: a round asks many times and changes little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from trine.engine.planner import Gpus
from trine.placement.free_index import FreePool, bits


class _Node(NamedTuple):
    """The jobs on one node that may be stopped."""

    jobs: list[int]
    inside: list[int]
    """Those that are on no other node, cheapest per GPU first."""
    widest: int
    """GPUs of the largest gang."""
    used: int
    """GPUs of the node that they have."""
    price: float
    """What it costs to stop all of them."""


Offer = tuple[float, list[int]]
"""What room costs, and the jobs to stop for it."""


class RoomSearch:
    """Victims on one GPU type, for one round. Costs are in the currency of ``JobValues``: worth x speed x seconds."""

    def __init__(
        self,
        pool: FreePool,
        running: Mapping[int, Gpus],
        stays: Callable[[int], bool],
        stop_cost: Callable[[int], float],
        slow_chip: float,
    ) -> None:
        """``running``: jobs of the type that may be stopped, as the round begins; ``stays``: so far one keeps its GPUs.

        Jobs that this round has placed are no victims: they would be stopped before they ran.
        Room is made of chips whose slowdown is below ``slow_chip``.
        """
        self._pool, self._running, self._stays = pool, running, stays
        self._stop_cost, self._slow_chip = stop_cost, slow_chip
        self._jobs_on: dict[int, list[int]] = {}
        for job_index, gpus in running.items():
            for node in dict.fromkeys([pool.node_of[gpu] for gpu in gpus]):
                self._jobs_on.setdefault(node, []).append(job_index)
        self._racks = [tuple(bits(nodes)) for nodes in pool.rack_nodes]
        self._rack_of = {node: rack for rack, nodes in enumerate(self._racks) for node in nodes}
        self._costs: dict[int, float] = {}
        self._nodes: dict[int, _Node] = {}
        self._fast: dict[int, list[int]] = {}
        """Masks of the chips that are fast enough by node; by class, which is the identity of its slowdowns."""
        self._offers: dict[tuple[int, int], dict[int, Offer | None]] = {}
        """By size of the gang and class: what each node (rack, for gangs that no node holds) offers."""
        self._touched: set[int] = set()
        pool.watchers.append(self._touched)

    def close(self) -> None:
        """The round is over: follow the index no longer."""
        self._pool.unwatch(self._touched)

    def cheapest(self, gpus: int, limit: float, slowdown: Sequence[float]) -> list[int]:
        """The jobs to stop for a gang of ``gpus``, for less than ``limit`` in all; empty: there are none so cheap.

        ``slowdown``: of chips, for the class of the gang.
        """
        self._forget_touched()
        narrow = gpus <= self._pool.largest_node
        offers = self._offers.setdefault((gpus, id(slowdown)), {})
        fast, best = self._fast_chips(slowdown), list[int]()
        for unit in self._jobs_on if narrow else range(len(self._racks)):
            if unit not in offers:
                offers[unit] = self._on_node(unit, gpus, fast) if narrow else self._in_rack(unit, gpus, fast)
            offer = offers[unit]
            if offer is not None and offer[0] < limit:
                limit, best = offer
        return best

    def _forget_touched(self) -> None:
        """What nodes offer whose GPUs were taken or given back since."""
        largest = self._pool.largest_node
        for node in self._touched:
            self._nodes.pop(node, None)
            for (gpus, _), offers in self._offers.items():
                offers.pop(node if gpus <= largest else self._rack_of[node], None)
        self._touched.clear()

    def _on_node(self, number: int, gpus: int, fast: list[int]) -> Offer | None:
        """Narrower jobs inside the node, cheapest per GPU first, until the good chips are enough.

        Greedy, where the cheapest cover would be a knapsack problem: it may name a job too many, which gets its GPUs
        back when the gang turns out not to need them (``ValueRound._make_room``).
        """
        good, price, chosen = (self._pool.free_on[number] & fast[number]).bit_count(), 0.0, list[int]()
        for job_index in self._node(number).inside:
            if good >= gpus:
                break
            gained = self._good_chips(self._running[job_index], fast)
            if gained and len(self._running[job_index]) < gpus:
                chosen.append(job_index)
                good, price = good + gained, price + self._cost(job_index)
        return (price, chosen) if good >= gpus else None

    def _in_rack(self, rack: int, gpus: int, fast: list[int]) -> Offer | None:
        """As many whole nodes of the rack as the gang needs, the cheapest ones.

        Jobs as wide as the gang stay: stopping one to place another of its size would only pass the problem on.
        """
        needed = ceil(gpus / self._pool.largest_node)
        clear = [(self._node(n).price, n) for n in self._racks[rack] if self._can_be_cleared(n, gpus, fast)]
        if len(clear) < needed:
            return None
        # A gang on two of the nodes is in the price of both, which matters to their order only: it is paid for once.
        chosen = dict.fromkeys(i for _, number in sorted(clear)[:needed] for i in self._node(number).jobs)
        return sum(map(self._cost, chosen)), list(chosen)

    def _can_be_cleared(self, number: int, gpus: int, fast: list[int]) -> bool:
        """A whole node without slow chips, on which only narrower jobs run."""
        pool = self._pool
        size = pool.cluster.nodes[number].gpus
        if fast[number].bit_count() < size or size < pool.largest_node or number in pool.cordoned:
            return False
        node = self._node(number)
        # GPUs that are neither free nor of ``running`` belong to jobs that may not be stopped.
        return node.widest < gpus and pool.free_on[number].bit_count() + node.used == size

    # -- what is known of nodes and chips ------------------------------------------------------------------------------

    def _node(self, number: int) -> _Node:
        node = self._nodes.get(number)
        if node is None:
            jobs = [i for i in self._jobs_on.get(number, ()) if self._stays(i)]
            of_job = {i: self._running[i] for i in jobs}
            used = {i: sum([self._pool.node_of[gpu] == number for gpu in gpus]) for i, gpus in of_job.items()}
            inside = [i for i in jobs if used[i] == len(of_job[i])]
            inside.sort(key=lambda i: self._cost(i) / len(of_job[i]))
            widest = max([len(gpus) for gpus in of_job.values()], default=0)
            node = _Node(jobs, inside, widest, sum(used.values()), sum(map(self._cost, jobs)))
            self._nodes[number] = node
        return node

    def _cost(self, job_index: int) -> float:
        cost = self._costs.get(job_index)
        if cost is None:
            cost = self._costs[job_index] = self._stop_cost(job_index)
        return cost

    def _fast_chips(self, slowdown: Sequence[float]) -> list[int]:
        fast = self._fast.get(id(slowdown))
        if fast is None:
            pool, slow_chip = self._pool, self._slow_chip
            fast = self._fast[id(slowdown)] = [0] * len(pool.free_on)
            for node in self._rack_of:
                first, size = pool.first_gpu[node], pool.cluster.nodes[node].gpus
                fast[node] = sum([1 << i for i in range(size) if slowdown[first + i] < slow_chip])
        return fast

    def _good_chips(self, gpus: Gpus, fast: list[int]) -> int:
        pool = self._pool
        return sum([bool(fast[pool.node_of[gpu]] & pool.bit_of[gpu]) for gpu in gpus])
