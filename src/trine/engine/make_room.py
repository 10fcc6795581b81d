"""Which running jobs are the cheapest to stop so that a wider gang gets GPUs close together, on chips that are fast.

Works on the index of free GPUs and on an assignment as it is planned so far; nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil

from trine.engine.planner import Gpus
from trine.placement.free_index import FreePool, positions


class RoomSearch:
    """Victims for one gang on one GPU type. Costs are in the currency of ``JobValues``: worth x speed x seconds."""

    def __init__(
        self,
        pool: FreePool,
        assigned: Mapping[int, Gpus],
        slowdown: Sequence[float],
        slow_chip: float,
        stop_cost: Callable[[int], float],
    ) -> None:
        """``assigned``: jobs of the type that may be stopped; ``slowdown``: of chips, for the class of the gang."""
        self._pool, self._assigned = pool, assigned
        self._slowdown, self._slow_chip, self._stop_cost = slowdown, slow_chip, stop_cost
        self._on_node: dict[int, list[int]] = {}
        for job_index, gpus in assigned.items():
            for node in dict.fromkeys(pool.node_of[gpu] for gpu in gpus):
                self._on_node.setdefault(node, []).append(job_index)

    def cheapest(self, gpus: int, limit: float) -> list[int]:
        """The jobs to stop for a gang of ``gpus``, for less than ``limit`` in all; empty: there are none so cheap."""
        if gpus <= self._pool.largest_node:
            return self._on_one_node(gpus, limit)
        return self._in_one_rack(gpus, limit)

    def _on_one_node(self, gpus: int, limit: float) -> list[int]:
        """Narrower jobs inside one node, cheapest per GPU first, until the good chips are enough."""
        best: list[int] = []
        for node, jobs in self._on_node.items():
            good, price, chosen = self._good_chips(self._free_gpus(node)), 0.0, []
            inside = [i for i in jobs if len(self._assigned[i]) < gpus and self._is_inside(i, node)]
            costs = {i: self._stop_cost(i) for i in inside}
            for job_index in sorted(inside, key=lambda i: costs[i] / len(self._assigned[i])):
                if good >= gpus or price >= limit:
                    break
                gained = self._good_chips(self._assigned[job_index])
                if gained:
                    chosen.append(job_index)
                    good, price = good + gained, price + costs[job_index]
            if good >= gpus and price < limit:
                best, limit = chosen, price
        return best

    def _in_one_rack(self, gpus: int, limit: float) -> list[int]:
        """As many whole nodes of one rack as the gang needs, the cheapest ones; jobs as wide as the gang stay."""
        needed = ceil(gpus / self._pool.largest_node)
        by_rack: dict[int, list[tuple[float, int]]] = {}
        for node, spec in enumerate(self._pool.cluster.nodes):
            jobs = self._on_node.get(node, [])
            if spec.gpu_type == self._pool.gpu_type and self._can_be_cleared(node, jobs, gpus):
                price = sum(map(self._stop_cost, jobs))
                by_rack.setdefault(self._pool.cluster.rack_of[node], []).append((price, node))
        best: list[int] = []
        for nodes in by_rack.values():
            if len(nodes) < needed:
                continue
            chosen = dict.fromkeys(i for _, node in sorted(nodes)[:needed] for i in self._on_node.get(node, []))
            price = sum(map(self._stop_cost, chosen))
            if price < limit:
                best, limit = list(chosen), price
        return best

    def _can_be_cleared(self, node: int, jobs: list[int], gpus: int) -> bool:
        """A whole node without slow chips, on which only narrower jobs run."""
        pool = self._pool
        first, size = pool.first_gpu[node], pool.cluster.nodes[node].gpus
        if size < pool.largest_node or node in pool.cordoned or any(len(self._assigned[i]) >= gpus for i in jobs):
            return False
        used = sum(pool.node_of[gpu] == node for i in jobs for gpu in self._assigned[i])
        # GPUs that are neither free nor in ``assigned`` belong to jobs that may not be stopped.
        return pool.free_on[node].bit_count() + used == size and self._good_chips(range(first, first + size)) == size

    def _good_chips(self, gpus: Sequence[int]) -> int:
        return sum(self._slowdown[gpu] < self._slow_chip for gpu in gpus)

    def _free_gpus(self, node: int) -> list[int]:
        first = self._pool.first_gpu[node]
        return [first + i for i in positions(self._pool.free_on[node])]

    def _is_inside(self, job_index: int, node: int) -> bool:
        return all(self._pool.node_of[gpu] == node for gpu in self._assigned[job_index])
