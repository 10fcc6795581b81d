"""One round of a selection that says what a unit of speed is worth to each job.

Selected jobs that run on the wanted type stay; the others are placed, those most sensitive to chips and the widest
first. Where only a bad place is free, cheaper jobs make room; GPUs that are left go to the jobs that wait, of any type;
then running jobs that sit badly move. All of it happens on the index of free GPUs before anything is stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil

from trine.core.cluster import Tier
from trine.engine.plan import Gpus, Plan, Planner
from trine.engine.table import State
from trine.policy.base import MakeRoom, Relocation, Selection


class WorthRound:
    """What it takes to go from what runs to ``selection``, and on to the best use of what that leaves."""

    def __init__(self, planner: Planner, now: float, selection: Selection) -> None:
        self.planner, self.selection = planner, selection
        self.table, self.free = planner.table, planner.free
        planner.now = now
        planner.forget()
        self.plan = Plan()
        self.before = planner.assigned
        self.after: dict[int, Gpus] = {}
        assert planner.quotes is not None
        self.quotes = planner.quotes

    def run(self) -> Plan:
        changing = self._release_those_that_change()
        self._place_selected(changing)
        self._use_what_is_left()
        if self.selection.relocation is not None:
            self._relocate(self.selection.relocation)
        before, after, plan = self.before, self.after, self.plan
        plan.stops = [i for i, gpus in before.items() if after.get(i) != gpus]
        plan.starts = [(i, gpus) for i, gpus in after.items() if before.get(i) != gpus]
        for i in after:
            plan.refusals.pop(i, None)
        return plan

    # -- the selection -------------------------------------------------------------------------------------------

    def _release_those_that_change(self) -> list[int]:
        """Keep the jobs that run as selected; returns the selected jobs that do not."""
        wanted, type_of, types = self.selection.wanted, self.free.type_of_gpu, self.table.types
        for job_index, gpus in self.before.items():
            want = wanted.get(job_index)
            if not types[job_index] or (want is not None and want in (-1, type_of[gpus[0]])):
                self.after[job_index] = gpus
            else:
                self.free.give(gpus)
        return [job_index for job_index in wanted if job_index not in self.after]

    def _place_selected(self, job_indices: Iterable[int]) -> None:
        """Classes that suffer most from slow chips first, then wide gangs, then those that are worth most."""
        table, worth = self.table, self.selection.worth
        order = sorted(job_indices, key=lambda i: (table.class_rank[i], -table.jobs[i].gpus, -worth[i]))
        evicted: list[int] = []
        for job_index in order:
            evicted += self._serve(job_index, self.selection.wanted[job_index])
        for job_index in evicted:
            self._place(job_index, (int(self.selection.wanted.get(job_index, -1)),))

    def _serve(self, job_index: int, type_index: int) -> list[int]:
        """Place a selected job; returns the jobs that made room for it."""
        job, rule = self.table.jobs[job_index], self.selection.make_room
        gpus = self._place(job_index, (type_index,))
        if rule is None or job.gpus < 2 or type_index < 0:
            return []
        best = self._best_speed(job_index, type_index)
        found = 0.0 if gpus is None else self._speed(job_index, gpus)
        if found >= rule.slower_than * best:
            return []
        return self._make_room(job_index, type_index, best, found, rule)

    def _place(self, job_index: int, types: Sequence[int]) -> Gpus | None:
        planner = self.planner
        if types == (-1,):
            types = self.table.types[job_index]
        gpus = planner.try_place(self.table.jobs[job_index], types, self.plan, job_index)
        if gpus is not None:
            self.after[job_index] = gpus
        return gpus

    def _take_back(self, job_index: int) -> Gpus | None:
        gpus = self.after.pop(job_index, None)
        if gpus is not None:
            self.free.give(gpus)
        return gpus

    # -- speeds, over that on median GPUs of the best type ---------------------------------------------------------

    def _speed(self, job_index: int, gpus: Gpus) -> float:
        table = self.table
        return float(self.quotes.quote(job_index, gpus) * table.ideal_s[job_index] / table.steps[job_index])

    def _best_speed(self, job_index: int, type_index: int) -> float:
        step_s = self.table.step_s[job_index]
        return step_s[self.table.types[job_index][0]] / step_s[type_index]

    def _running_speed(self, job_index: int) -> float:
        table = self.table
        return float(table.rate[job_index] * table.ideal_s[job_index] / table.steps[job_index])

    # -- making room -----------------------------------------------------------------------------------------------

    def _make_room(self, job_index: int, type_index: int, best: float, found: float, rule: MakeRoom) -> list[int]:
        """Stop cheaper jobs for a gang that would be split or sit on slow chips, if that gains more than it costs."""
        worth, left_s = self.selection.worth[job_index], self.selection.left_s[job_index]
        limit = worth * (best - found) * min(rule.horizon_s, left_s / best)
        old = self._take_back(job_index)
        victims = self._victims(job_index, type_index, rule, limit)
        if victims:
            held = {v: self.after[v] for v in victims}
            for v in victims:
                self._take_back(v)
            new = self._place(job_index, (type_index,))
            if new is not None and self._speed(job_index, new) > 1.05 * found:
                for v in victims:
                    self.plan.stopped_for[v] = job_index
                    if set(held[v]).isdisjoint(new):  # not needed after all
                        self.free.take(held[v])
                        self.after[v] = held[v]
                        del self.plan.stopped_for[v]
                return [v for v in victims if v not in self.after]
            self._take_back(job_index)
            for v, gpus in held.items():
                self.free.take(gpus)
                self.after[v] = gpus
        if old is not None:
            self.free.take(old)
            self.after[job_index] = old
        return []

    def _victims(self, job_index: int, type_index: int, rule: MakeRoom, limit: float) -> list[int]:
        """The cheapest jobs whose GPUs, with free ones, hold the gang on one node or in one rack; none: too dear."""
        pool, job = self.free.pools[type_index], self.table.jobs[job_index]
        cluster, gangs = pool.cluster, self.table.gpus
        on_node: dict[int, list[int]] = {}
        for i, gpus in self.after.items():
            if i in self.before and self.free.type_of_gpu[gpus[0]] == type_index:
                for node in {cluster.node_of[g] for g in gpus}:
                    on_node.setdefault(node, []).append(i)
        assert self.planner.perf is not None
        slowdown = self.planner.perf.variability.slowdown(job.app_class)
        cost = {i: self._stop_cost(i, rule) for jobs in on_node.values() for i in jobs if gangs[i] < job.gpus}
        if job.gpus <= pool.largest_node:
            return self._victims_on_node(job.gpus, type_index, on_node, cost, slowdown, rule, limit)
        return self._victims_in_rack(job.gpus, type_index, on_node, cost, slowdown, rule, limit)

    def _stop_cost(self, job_index: int, rule: MakeRoom) -> float:
        lost_s = self.quotes.cost_s(self.table, job_index) + rule.wait_s
        return self.selection.worth.get(job_index, 0.0) * self._running_speed(job_index) * lost_s

    def _victims_on_node(
        self,
        count: int,
        type_index: int,
        on_node: dict[int, list[int]],
        cost: dict[int, float],
        slowdown: Sequence[float],
        rule: MakeRoom,
        limit: float,
    ) -> list[int]:
        pool = self.free.pools[type_index]
        best: list[int] = []
        for node, jobs in on_node.items():
            free = [g for g in _gpus_of(pool, node) if slowdown[g] < rule.slow_chip]
            have, price, chosen = len(free), 0.0, []
            single = [i for i in jobs if i in cost and len({pool.cluster.node_of[g] for g in self.after[i]}) == 1]
            for i in sorted(single, key=lambda i: cost[i] / len(self.after[i])):
                if have >= count or price >= limit:
                    break
                good = sum(slowdown[g] < rule.slow_chip for g in self.after[i])
                if good:
                    chosen.append(i)
                    have, price = have + good, price + cost[i]
            if have >= count and price < limit:
                best, limit = chosen, price
        return best

    def _victims_in_rack(
        self,
        count: int,
        type_index: int,
        on_node: dict[int, list[int]],
        cost: dict[int, float],
        slowdown: Sequence[float],
        rule: MakeRoom,
        limit: float,
    ) -> list[int]:
        pool = self.free.pools[type_index]
        cluster, size = pool.cluster, pool.largest_node
        by_rack: dict[int, list[tuple[float, int]]] = {}
        for node, entry in enumerate(cluster.nodes):
            if entry.gpu_type != pool.gpu_type or entry.gpus < size or node in pool.cordoned:
                continue
            first = pool.first_gpu[node]
            if any(slowdown[g] >= rule.slow_chip for g in range(first, first + entry.gpus)):
                continue
            jobs = on_node.get(node, [])
            free = pool.free_on[node].bit_count()
            used = sum(1 for i in jobs for g in self.after[i] if cluster.node_of[g] == node)
            if any(i not in cost for i in jobs) or free + used < entry.gpus:
                continue
            by_rack.setdefault(cluster.rack_of[node], []).append((sum(cost[i] for i in jobs), node))
        best: list[int] = []
        for nodes in by_rack.values():
            if len(nodes) < ceil(count / size):
                continue
            chosen = dict.fromkeys(i for _, n in sorted(nodes)[: ceil(count / size)] for i in on_node.get(n, []))
            price = sum(cost[i] for i in chosen)
            if price < limit:
                best, limit = list(chosen), price
        return best

    # -- what is left ----------------------------------------------------------------------------------------------

    def _use_what_is_left(self) -> None:
        """No GPU idles while a waiting job fits: in the policy's order, the fastest place of any type."""
        for job_index in self.selection.spare:
            if not self.free.total:
                break
            if job_index in self.after or self.table.gpus[job_index] > self.free.total:
                continue
            old = self.before.get(job_index)
            if old is not None and self.free.all_free(old):
                self.free.take(old)
                self.after[job_index] = old
                continue
            found = self._fastest(job_index)
            if found is not None:
                self.free.take(found[1])
                self.after[job_index] = found[1]

    def _fastest(self, job_index: int) -> tuple[float, Gpus] | None:
        """The fastest place among the free GPUs of all types; nothing is taken."""
        best: tuple[float, Gpus] | None = None
        for type_index in self.table.types[job_index]:
            if best is not None and best[0] >= self._best_speed(job_index, type_index):
                continue
            gpus = self.planner.try_place(self.table.jobs[job_index], (type_index,), self.plan, job_index)
            if gpus is None:
                continue
            self.free.give(gpus)
            speed = self._speed(job_index, gpus)
            if best is None or speed > best[0]:
                best = speed, gpus
        return best

    # -- moves -----------------------------------------------------------------------------------------------------

    def _relocate(self, rule: Relocation) -> None:
        table, worth, now = self.table, self.selection.worth, self.planner.now
        candidates = []
        for job_index, gpus in self.after.items():
            if self.before.get(job_index) != gpus or table.state[job_index] is not State.RUNNING:
                continue
            if now - table.run_from_s[job_index] < rule.quantum_s or job_index not in worth:
                continue
            speed = self._running_speed(job_index)
            if speed * rule.slower_than < 1.0:
                candidates.append((-worth[job_index] * (1.0 - speed), job_index, speed))
        for _, job_index, speed in sorted(candidates)[: rule.tries]:
            old = self.after[job_index]
            self.free.give(old)
            found = self._fastest(job_index)
            if found is not None and self._pays(job_index, speed, found[0], rule):
                self.free.take(found[1])
                self.after[job_index] = found[1]
                left_s = self.selection.left_s[job_index]
                self.plan.gains_s[job_index] = left_s / speed - left_s / found[0]
            else:
                self.free.take(old)

    def _pays(self, job_index: int, before: float, after: float, rule: Relocation) -> bool:
        if after <= rule.min_speedup * before:
            return False
        held_s = min(rule.horizon_s, self.selection.left_s[job_index] / before)
        return (after - before) * held_s > rule.cost_factor * self.quotes.cost_s(self.table, job_index) * after


def _gpus_of(pool: object, node: int) -> list[int]:
    from trine.placement.free import FreePool, positions

    assert isinstance(pool, FreePool)
    first = pool.first_gpu[node]
    return [first + i for i in positions(pool.free_on[node])]


_ = Tier
