"""Turns an order of jobs into GPU assignments: the modes in which a policy ranks.

With a sticky placement the jobs that run stay, and one walk down the order fits in those that wait; where the policy
preempts, ``preemption`` makes room for them. With the other placements every round places all jobs anew, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop
from itertools import accumulate, compress, count
from operator import ne

from trine.engine.planner import Gpus, LastOrder, Plan, Planner
from trine.engine.preemption import LowestRanks, NamedVictims, RoomMaker
from trine.engine.relocation import Relocations
from trine.policy.base import Ranking
from trine.policy.view import Ints


class RankingPlanner:
    """Plans the rounds in which a policy ranks jobs; one per engine."""

    def __init__(self, planner: Planner, relocations: Relocations | None = None) -> None:
        self.planner = planner
        self.relocations = relocations
        """Moves running jobs to better GPUs, under policies that want it."""

    def plan(self, now: float, job_indices: Ints, ranking: Ranking) -> Plan:
        """``job_indices`` are in order of rank; the columns of ``ranking`` are aligned with them."""
        planner = self.planner
        planner.now = now
        if planner.co_runners and (planner.preemptive or not planner.placement.sticky):
            return self._without_pairs(job_indices, ranking)
        return self._plan(job_indices, ranking)

    def fill(self, now: float, job_indices: Ints, type_indices: Ints | None) -> Plan:
        """Only what can be had without stopping or moving a job."""
        self.planner.now = now
        self.planner.forget()
        return WaitingWalk(self.planner, job_indices, type_indices, Plan(), None).run()

    def _plan(self, job_indices: Ints, ranking: Ranking) -> Plan:
        planner = self.planner
        planner.realised = None
        if not planner.placement.sticky:
            return self._replace_all(job_indices, ranking.type_indices)
        plan = Plan()
        walk = WaitingWalk(planner, job_indices, ranking.type_indices, plan, self._room(job_indices, ranking, plan))
        walk.stops_for_better = ranking.stops_for_better
        walk.run()
        if ranking.relocation is not None and self.relocations is not None:
            self.relocations.run(planner, job_indices, ranking.relocation, plan, ranking.type_indices)
        return plan

    def _room(self, job_indices: Ints, ranking: Ranking, plan: Plan) -> RoomMaker | None:
        """How room is made for jobs that do not fit; ``None``: not at all."""
        if not self.planner.preemptive:
            return None
        if ranking.names_victims:
            return NamedVictims(self.planner, job_indices, ranking, plan)
        return LowestRanks(self.planner, job_indices, plan)

    def _without_pairs(self, job_indices: Ints, ranking: Ranking) -> Plan:
        """An order that knows no pairs dissolves them: the job that ranks first keeps the GPUs, the other one waits."""
        planner = self.planner
        planner.forget()
        rank = {job_index: i for i, job_index in enumerate(job_indices.tolist())}
        last = len(rank)
        second = [
            job_index
            for job_index, co_runner in planner.co_runners.items()
            if (rank.get(job_index, last), job_index) > (rank.get(co_runner, last), co_runner)
        ]
        dropped = {job_index: planner.assigned.pop(job_index) for job_index in second}
        planner.table.assigned[second] = False
        plan = self._plan(job_indices, ranking)
        planner.assigned.update(dropped)
        planner.table.assigned[second] = True
        unchanged = {job_index for job_index, gpus in plan.starts if dropped.get(job_index) == gpus}
        plan.starts = [(job_index, gpus) for job_index, gpus in plan.starts if job_index not in unchanged]
        plan.stops += [job_index for job_index in dropped if job_index not in unchanged]
        plan.co_runners = {}
        return plan

    # -- all jobs placed anew ------------------------------------------------------------------------------------

    def _replace_all(self, job_indices: Ints, type_indices: Ints | None) -> Plan:
        """Drop all assignments on paper, place the jobs in order, and keep those whose GPUs came out the same.

        Placing is a function of the order: where the order begins as it did last time, so do the assignments.
        """
        planner, plan = self.planner, Plan()
        order: list[int] = job_indices.tolist()
        wanted: list[int] | None = None if type_indices is None else type_indices.tolist()
        if planner.placement.by_class:
            order, wanted = self._by_class(order, wanted)
        same = self._same_as_last(order, wanted)
        kept = set(order[:same])
        before = {job_index: gpus for job_index, gpus in planner.assigned.items() if job_index not in kept}
        for gpus in before.values():
            planner.free.give(gpus)
        after = self._place_in_order(order, wanted, same, before, plan)
        return plan.lead(before, after)

    def _same_as_last(self, order: list[int], wanted: list[int] | None) -> int:
        """How many positions from the start are as in the round before, up to the job at which that round ended."""
        last = self.planner.last_order
        if last is None or not self.planner.placement.repeatable or (wanted is None) != (last.wanted is None):
            return 0
        same = min(_common(order, last.order), last.ended_at)
        return same if wanted is None or last.wanted is None else min(same, _common(wanted, last.wanted))

    def _by_class(self, order: list[int], wanted: list[int] | None) -> tuple[list[int], list[int] | None]:
        """The longest head of the order that fits the cluster, most sensitive classes first; then the rest.

        PAL (SC'24): among jobs that run anyway, those that suffer most from slow chips choose theirs first.
        """
        rank, head = self.planner.table.class_rank, self._head_that_fits(order)
        if wanted is None:
            return sorted(order[:head], key=rank.__getitem__) + order[head:], None
        positions = sorted(range(head), key=lambda i: rank[order[i]])
        return [order[i] for i in positions] + order[head:], [wanted[i] for i in positions] + wanted[head:]

    def _head_that_fits(self, order: list[int]) -> int:
        """How many jobs from the start fit an empty cluster together."""
        jobs, left = self.planner.table.jobs, self.planner.capacity
        for position, job_index in enumerate(order):
            left -= jobs[job_index].gpus
            if left < 0:
                return position
        return len(order)

    def _place_in_order(
        self, order: list[int], wanted: list[int] | None, same: int, before: dict[int, Gpus], plan: Plan
    ) -> dict[int, Gpus]:
        """GPUs for the jobs from position ``same`` on."""
        planner = self.planner
        jobs, strict, ended_at = planner.table.jobs, planner.strict, len(order)
        after: dict[int, Gpus] = {}
        # A strict order ends at the first job that does not fit; otherwise smaller ones behind it may still fit.
        smallest = [] if strict else _smallest_behind([jobs[job_index].gpus for job_index in order[same:]])
        left = 0 if strict else planner.free.total
        for position in range(same, len(order)):
            job_index = order[position]
            if not strict and left < smallest[position - same]:
                ended_at = position
                break
            types = planner.types_for(job_index, wanted[position] if wanted else -1)
            gpus = planner.try_place(jobs[job_index], types, plan, job_index)
            if gpus is not None:
                old = before.get(job_index)
                if planner.moves and old is not None and old != gpus and planner.better_stay(job_index, old, gpus):
                    gpus = old
                after[job_index] = gpus
                left -= len(gpus)
            elif strict and not plan.waits(job_index):
                plan.blocked_by, ended_at = job_index, position
                break
        planner.last_order = LastOrder(order, wanted, ended_at)
        return after


def _common(one: list[int], other: list[int]) -> int:
    """Length of the common beginning."""
    return next(compress(count(), map(ne, one, other)), min(len(one), len(other)))


def _smallest_behind(gpus: list[int]) -> list[int]:
    """For each position the smallest gang from there on."""
    return [*accumulate(reversed(gpus), min)][::-1]


class WaitingWalk:
    """One round of a sticky placement: a walk down the order over the jobs that wait.

    A job for which there is no place may get the GPUs of running jobs (``room``). Those that are stopped for it wait
    from then on, and are served when the walk reaches their own position.
    """

    def __init__(
        self, planner: Planner, job_indices: Ints, type_indices: Ints | None, plan: Plan, room: RoomMaker | None
    ) -> None:
        self.planner, self.job_indices, self.plan, self.room = planner, job_indices, plan, room
        self.wanted: list[int] | None = None if type_indices is None else type_indices.tolist()
        self.stops_for_better = False
        """A job that refuses free GPUs because it waits for better ones may stop others for those."""
        self._stopped: list[int] = [] if room is None else room.positions
        """Heap of positions of the jobs stopped so far that were not reached yet."""

    def run(self) -> Plan:
        """The plan, with the stops in the order in which they were found to be needed."""
        table, plan = self.planner.table, self.plan
        waiting = (~table.assigned[self.job_indices]).nonzero()[0]
        if not len(waiting):
            return plan
        gpus = table.gpus[self.job_indices[waiting]]
        at, unserved = 0, False
        while True:
            at = self._next_that_may_fit(gpus, waiting, at)
            first = int(waiting[at]) if at < len(waiting) else -1
            was_stopped = bool(self._stopped) and (first < 0 or self._stopped[0] < first)
            if was_stopped:
                position = heappop(self._stopped)
            elif first >= 0:
                position, at = first, at + 1
            else:
                break
            if self._serve(position, was_stopped):
                continue
            unserved = True
            job_index = int(self.job_indices[position])
            if self.planner.strict and not plan.waits(job_index):
                plan.blocked_by = job_index
                break
        if self.room is not None:
            if self.room.stopped:
                plan.lead(self.room.stopped, dict(plan.starts))
            plan.provisional = unserved and self.room.young
        return plan

    def _next_that_may_fit(self, gpus: Ints, waiting: Ints, at: int) -> int:
        """Skip waiting jobs that are larger than all they could get; exact, since that only shrinks down the order."""
        if self.planner.strict or at >= len(waiting):
            return at
        room = self.room
        if room is None:
            most: float = max([pool.total for pool in self.planner.free.pools])
        else:
            most = room.most_obtainable(int(waiting[at]))
        if gpus[at] <= most:
            return at
        fitting = gpus[at:] <= most
        step = int(fitting.argmax())
        return at + step if fitting[step] else len(waiting)

    def _serve(self, position: int, was_stopped: bool) -> bool:
        """Place the job at ``position``, stopping others if that is what it takes and the policy allows it."""
        planner, plan, room, job_index = self.planner, self.plan, self.room, int(self.job_indices[position])
        types = planner.types_for(job_index, self.wanted[position] if self.wanted else -1)
        gpus = planner.try_place(planner.table.jobs[job_index], types, plan, job_index)
        if gpus is None and room is not None and (room.stopped_may_stop or not was_stopped):
            gpus = self._make_room(room, job_index, position, types)
        if gpus is None:
            return False
        if room is not None:
            room.placed()
        if plan.refusals:
            plan.refusals.pop(job_index, None)
        plan.starts.append((job_index, gpus))
        return True

    def _make_room(self, room: RoomMaker, job_index: int, position: int, types: Sequence[int]) -> Gpus | None:
        """GPUs of jobs that are stopped for this one, unless it waits by choice."""
        plan = self.plan
        if not self.stops_for_better and plan.waits(job_index):
            return None
        refusal = plan.refusals.get(job_index)
        gpus = room.make(job_index, position, types)
        if gpus is None and plan.waits(job_index):  # what it was offered on paper are the GPUs of others
            plan.put_back(job_index, refusal)
        return gpus
