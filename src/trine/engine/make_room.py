"""Which running jobs are the cheapest to stop so that a wider gang gets GPUs close together, on chips that are fast.

Works on the index of free GPUs and on the jobs of one GPU type as a round finds them; nothing is changed here. What is
known of a node is kept until one of its jobs is stopped or taken back: a round asks many times and changes little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from trine.engine.planner import Gpus
from trine.placement.free_index import FreePool, positions


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


class RoomSearch:
    """Victims on one GPU type, for one round. Costs are in the currency of ``JobValues``: worth x speed x seconds."""

    def __init__(
        self,
        pool: FreePool,
        running: Mapping[int, Gpus],
        stays: Callable[[int], bool],
        stop_cost: Callable[[int], float],
    ) -> None:
        """``running``: jobs of the type that may be stopped as the round begins; ``stays``: so far one keeps them."""
        self._pool, self._running, self._stays, self._stop_cost = pool, running, stays, stop_cost
        self._jobs_on: dict[int, list[int]] = {}
        for job_index, gpus in running.items():
            for node in dict.fromkeys([pool.node_of[gpu] for gpu in gpus]):
                self._jobs_on.setdefault(node, []).append(job_index)
        self._costs: dict[int, float] = {}
        self._nodes: dict[int, _Node] = {}
        self._fast: dict[int, list[int]] = {}
        """Chips that are fast enough by node and class, the class by the identity of its slowdowns."""

    def changed(self, gpus: Gpus) -> None:
        """The job on ``gpus`` was stopped, or has them back."""
        for gpu in gpus:
            self._nodes.pop(self._pool.node_of[gpu], None)

    def cheapest(self, gpus: int, limit: float, slowdown: Sequence[float], slow_chip: float) -> list[int]:
        """The jobs to stop for a gang of ``gpus``, for less than ``limit`` in all; empty: there are none so cheap.

        ``slowdown``: of chips, for the class of the gang; room is made of chips below ``slow_chip`` only.
        """
        fast = self._fast_chips(slowdown, slow_chip)
        if gpus <= self._pool.largest_node:
            return self._on_one_node(gpus, limit, fast)
        return self._in_one_rack(gpus, limit, fast)

    def _on_one_node(self, gpus: int, limit: float, fast: list[int]) -> list[int]:
        """Narrower jobs inside one node, cheapest per GPU first, until the good chips are enough."""
        best: list[int] = []
        for number in self._jobs_on:
            node = self._node(number)
            good, price, chosen = (self._pool.free_on[number] & fast[number]).bit_count(), 0.0, list[int]()
            for job_index in node.inside:
                if good >= gpus or price >= limit:
                    break
                gained = self._good_chips(self._running[job_index], fast)
                if gained and len(self._running[job_index]) < gpus:
                    chosen.append(job_index)
                    good, price = good + gained, price + self._cost(job_index)
            if good >= gpus and price < limit:
                best, limit = chosen, price
        return best

    def _in_one_rack(self, gpus: int, limit: float, fast: list[int]) -> list[int]:
        """As many whole nodes of one rack as the gang needs, the cheapest ones; jobs as wide as the gang stay."""
        needed = ceil(gpus / self._pool.largest_node)
        best: list[int] = []
        for nodes in self._racks():
            clear = [(self._node(n).price, n) for n in nodes if self._can_be_cleared(n, gpus, fast)]
            if len(clear) < needed:
                continue
            chosen = dict.fromkeys(i for _, number in sorted(clear)[:needed] for i in self._node(number).jobs)
            price = sum(map(self._cost, chosen))
            if price < limit:
                best, limit = list(chosen), price
        return best

    def _can_be_cleared(self, number: int, gpus: int, fast: list[int]) -> bool:
        """A whole node without slow chips, on which only narrower jobs run."""
        pool = self._pool
        size = pool.cluster.nodes[number].gpus
        if fast[number].bit_count() < size or size < pool.largest_node or number in pool.cordoned:
            return False
        node = self._node(number)
        # GPUs that are neither free nor of ``running`` belong to jobs that may not be stopped.
        return node.widest < gpus and pool.free_on[number].bit_count() + node.used == size

    def _racks(self) -> list[tuple[int, ...]]:
        return [positions(nodes) for nodes in self._pool.rack_nodes]

    # -- what is known of nodes and chips ------------------------------------------------------------------------------

    def _node(self, number: int) -> _Node:
        found = self._nodes.get(number)
        if found is None:
            jobs = [i for i in self._jobs_on.get(number, ()) if self._stays(i)]
            of_job = {i: self._running[i] for i in jobs}
            used = {i: sum([self._pool.node_of[gpu] == number for gpu in gpus]) for i, gpus in of_job.items()}
            inside = [i for i in jobs if used[i] == len(of_job[i])]
            inside.sort(key=lambda i: self._cost(i) / len(of_job[i]))
            widest = max([len(gpus) for gpus in of_job.values()], default=0)
            found = _Node(jobs, inside, widest, sum(used.values()), sum(map(self._cost, jobs)))
            self._nodes[number] = found
        return found

    def _cost(self, job_index: int) -> float:
        found = self._costs.get(job_index)
        if found is None:
            found = self._costs[job_index] = self._stop_cost(job_index)
        return found

    def _fast_chips(self, slowdown: Sequence[float], slow_chip: float) -> list[int]:
        """Mask of the chips below ``slow_chip`` by node."""
        found = self._fast.get(id(slowdown))
        if found is None:
            pool = self._pool
            found = self._fast[id(slowdown)] = [0] * len(pool.free_on)
            for nodes in self._racks():
                for node in nodes:
                    first, size = pool.first_gpu[node], pool.cluster.nodes[node].gpus
                    found[node] = sum([1 << i for i in range(size) if slowdown[first + i] < slow_chip])
        return found

    def _good_chips(self, gpus: Gpus, fast: list[int]) -> int:
        pool = self._pool
        return sum([bool(fast[pool.node_of[gpu]] & pool.bit_of[gpu]) for gpu in gpus])
