"""Realises a selection whose policy says what speed is worth to each job (``JobValues``), and uses what that leaves.

The steps of a round: keep what runs as selected; place the other selected jobs, those most sensitive to chips and the
widest first; make room where only a bad place is free; give what is left to waiting jobs; move jobs off bad places.
All of it happens on the index of free GPUs before anything is stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trine.core.reason import Trade
from trine.engine.make_room import RoomSearch
from trine.engine.planner import Gpus, Plan, Planner
from trine.engine.relocation import Relocations
from trine.policy.base import JobValues, MakeRoom, Selection

_MIN_GAIN = 1.05
"""Speed with room over that without, below which no job is stopped for it: the rest may be noise."""


class ValueRound:
    """What it takes to go from what runs to the selection, and on to the best use of what that leaves."""

    def __init__(
        self, planner: Planner, now: float, selection: Selection, values: JobValues, relocations: Relocations | None
    ) -> None:
        assert planner.quotes is not None
        assert planner.perf is not None
        planner.now = now
        planner.forget()
        self.planner, self.wanted, self.values, self.relocations = planner, selection.wanted, values, relocations
        self.table, self.free, self.perf, self.quotes = planner.table, planner.free, planner.perf, planner.quotes
        self.plan = Plan()
        self.before = planner.assigned
        self.after: dict[int, Gpus] = {}
        """GPUs by job index as they are to be."""
        self._rooms: dict[int, RoomSearch] = {}
        """By index of the GPU type, where room was looked for in this round."""

    def run(self) -> Plan:
        """The stops and starts of a whole round."""
        self._place_selected(self._keep_or_release())
        for search in self._rooms.values():
            search.close()
        self._use_what_is_left()
        self._relocate()
        self._forget_refusals_of_placed()
        plan = self.plan.lead(self.before, self.after)
        self._name_takers(plan)
        return plan

    def _name_takers(self, plan: Plan) -> None:
        """For which job each stopped one makes way: the one that gets most of its GPUs."""
        taker = {gpu: job_index for job_index, gpus in plan.starts for gpu in gpus}
        goes_on = {job_index for job_index, _ in plan.starts}
        for job_index in plan.stops:
            got = [taker[gpu] for gpu in self.before[job_index] if gpu in taker]
            if got and job_index not in goes_on:
                plan.stopped_for.setdefault(job_index, max(dict.fromkeys(got), key=got.count))

    def fill(self) -> Plan:
        """Only jobs that have nothing yet, on free GPUs: no job is stopped or moved."""
        self.after = dict(self.before)
        for job_index in self._in_order(i for i in self.wanted if i not in self.before):
            self._place(job_index, self.wanted[job_index])
        self._use_what_is_left()
        self._forget_refusals_of_placed()
        self.plan.starts = [(i, gpus) for i, gpus in self.after.items() if i not in self.before]
        return self.plan

    def _forget_refusals_of_placed(self) -> None:
        for job_index in self.plan.refusals.keys() & self.after.keys():
            del self.plan.refusals[job_index]

    # -- the selection -------------------------------------------------------------------------------------------

    def _keep_or_release(self) -> list[int]:
        """Keep the jobs that run as selected, release the GPUs of the others; returns the selected jobs to place.

        Jobs that the cluster can no longer hold may end where they run, and pairs of another policy are dissolved.
        """
        released: set[Gpus] = set()
        for job_index, gpus in self.before.items():
            want = self.wanted.get(job_index)
            as_selected = want is not None and want in (-1, self.free.type_of_gpu[gpus[0]])
            if not self.table.types[job_index] or (as_selected and job_index not in self.planner.co_runners):
                self.after[job_index] = gpus
            elif gpus not in released:  # co-runners have the same GPUs, which are given back once
                released.add(gpus)
                self.free.give(gpus)
        if self.planner.co_runners:
            self.plan.co_runners = {}
        return [job_index for job_index in self.wanted if job_index not in self.after]

    def _in_order(self, job_indices: Iterable[int]) -> list[int]:
        """Classes that suffer most from slow chips first, then wide gangs, then those that are worth most."""
        table, worth = self.table, self.values.worth
        return sorted(job_indices, key=lambda i: (table.class_rank[i], -table.jobs[i].gpus, -worth[i]))

    def _place_selected(self, job_indices: Iterable[int]) -> None:
        # Evicted jobs come after all selected ones and make no room themselves: stops do not start a chain of stops.
        evicted: list[int] = []
        for job_index in self._in_order(job_indices):
            evicted += self._serve(job_index, self.wanted[job_index])
        for job_index in evicted:
            self._place(job_index, self.wanted.get(job_index, -1))

    def _serve(self, job_index: int, type_index: int) -> list[int]:
        """Place a selected job; returns the jobs that made room for it."""
        gpus, rule = self._place(job_index, type_index), self.values.make_room
        # Room is made so that gangs need not be split: a job on one GPU takes a free chip, and moves to a better one
        # when that comes free.
        if rule is None or self.table.gpus[job_index] < 2 or type_index < 0:
            return []
        best_speed = self._best_speed(job_index, type_index)
        speed = 0.0 if gpus is None else self._speed(job_index, gpus)
        if speed >= rule.slower_than * best_speed:
            return []
        return self._make_room(job_index, type_index, best_speed, speed, rule)

    def _place(self, job_index: int, wanted: int) -> Gpus | None:
        types = self.planner.types_for(job_index, wanted)
        gpus = self.planner.try_place(self.table.jobs[job_index], types, self.plan, job_index)
        if gpus is not None:
            self.after[job_index] = gpus
        return gpus

    # -- speeds, over that on median GPUs of the best type ---------------------------------------------------------

    def _speed(self, job_index: int, gpus: Gpus) -> float:
        table = self.table
        return float(self.quotes.quote(job_index, gpus) * table.ideal_s[job_index] / table.steps[job_index])

    def _best_speed(self, job_index: int, type_index: int) -> float:
        """On median chips in the best place of an empty cluster."""
        step_s = self.table.step_s[job_index]
        return step_s[self.table.types[job_index][0]] / step_s[type_index]

    # -- making room -----------------------------------------------------------------------------------------------

    def _make_room(
        self, job_index: int, type_index: int, best_speed: float, speed_without: float, rule: MakeRoom
    ) -> list[int]:
        """Stop cheaper jobs for a gang that would be split or get slow chips; undo all of it if it gains too little.

        Returns the jobs that lost their GPUs. ``speed_without``: on the best free place, 0 if there is none.
        """
        # Gain and cost in one currency, worth x speed x seconds; gains beyond the horizon are too uncertain to count.
        per_speed = self.values.worth[job_index] * min(rule.horizon_s, self.values.left_s[job_index] / best_speed)
        limit = per_speed * (best_speed - speed_without)
        old = self._give_back(job_index)
        stopped = {victim: self.after[victim] for victim in self._victims(job_index, type_index, limit, rule)}
        for victim in stopped:
            self._give_back(victim)
        new = self._place(job_index, type_index) if stopped else None
        if new is None or self._speed(job_index, new) < _MIN_GAIN * speed_without:
            self._give_back(job_index)
            for victim, gpus in stopped.items():
                self._take(victim, gpus)
            if old is not None:
                self._take(job_index, old)
            return []
        for victim, gpus in stopped.items():
            if set(gpus).isdisjoint(new):  # the gang found a place without it
                self._take(victim, gpus)
        victims = [victim for victim in stopped if victim not in self.after]
        speed = self._speed(job_index, new)
        gain, now, otherwise = per_speed * (speed - speed_without), speed / best_speed, speed_without / best_speed
        self._note_trade(victims, job_index, gain, now, otherwise, rule)
        return victims

    def _note_trade(
        self, victims: list[int], job_index: int, gain: float, now: float, otherwise: float, rule: MakeRoom
    ) -> None:
        """For which job others are stopped, what that gains and costs; speeds as shares of the best on the type."""
        cost = sum(self._stop_cost(victim, rule) for victim in victims)
        others = f"{len(victims)} job{'s' if len(victims) != 1 else ''} to stop"
        sentence = f"That one runs at {now:.0%} of its best speed there, and at {otherwise:.0%} without room"
        sentence = f"{sentence}: {gain / cost:.2g} times what it costs {others}." if cost > 0 else f"{sentence}."
        for victim in victims:
            self.plan.stopped_for[victim] = job_index
            self.plan.trades[victim] = Trade(gain, cost, sentence=sentence)

    def _victims(self, job_index: int, type_index: int, limit: float, rule: MakeRoom) -> list[int]:
        job, search = self.table.jobs[job_index], self._rooms.get(type_index)
        if search is None:
            search = self._rooms[type_index] = self._room_search(type_index, rule)
        return search.cheapest(job.gpus, limit, self.perf.variability.slowdown(job.app_class))

    def _room_search(self, type_index: int, rule: MakeRoom) -> RoomSearch:
        type_of, before, after = self.free.type_of_gpu, self.before, self.after
        worth = self.values.worth
        running = {i: g for i, g in after.items() if before.get(i) == g and i in worth and type_of[g[0]] == type_index}
        return RoomSearch(
            self.free.pools[type_index],
            running,
            lambda i: after.get(i) == before[i],
            lambda i: self._stop_cost(i, rule),
            rule.slow_chip,
        )

    def _stop_cost(self, job_index: int, rule: MakeRoom) -> float:
        """Worth x speed x seconds without work."""
        table = self.table
        speed = table.rate[job_index] * table.ideal_s[job_index] / table.steps[job_index]
        lost_s = self.quotes.cost_s(table, job_index) + rule.wait_s
        return float(self.values.worth[job_index] * speed * lost_s)

    def _give_back(self, job_index: int) -> Gpus | None:
        gpus = self.after.pop(job_index, None)
        if gpus is not None:
            self.free.give(gpus)
        return gpus

    def _take(self, job_index: int, gpus: Gpus) -> None:
        self.free.take(gpus)
        self.after[job_index] = gpus

    # -- what is left ----------------------------------------------------------------------------------------------

    def _use_what_is_left(self) -> None:
        """No GPU idles while a waiting job fits: in the policy's order, each takes the fastest place of any type.

        A job that was to leave and still finds its GPUs free stays: a stop would gain nothing.
        """
        for job_index in self.values.order:
            if not self.free.total:
                break
            if job_index in self.after or self.table.gpus[job_index] > self.free.total:
                continue
            old = self.before.get(job_index)
            gpus = old if old is not None and self.free.all_free(old) else self._fastest(job_index)
            if gpus is not None:
                self._take(job_index, gpus)

    def _relocate(self) -> None:
        """Move running jobs to better GPUs; those that they leave are for waiting jobs again."""
        rule = self.values.relocation
        if rule is None or self.relocations is None or not self.free.total:
            return
        plan = self.plan.lead(self.before, self.after)
        self.relocations.run(self.planner, list(self.values.worth), rule, plan, values=self.values)
        if plan.gains_s:
            self.after.update(plan.starts)
            self._use_what_is_left()

    def _fastest(self, job_index: int) -> Gpus | None:
        """The fastest place among the free GPUs of all types; nothing is taken."""
        types: Sequence[int] = self.table.types[job_index]
        fastest, best_speed = None, 0.0
        for type_index in types:
            if best_speed >= self._best_speed(job_index, type_index):  # no median GPU of this type is faster
                continue
            gpus = self.planner.try_place(self.table.jobs[job_index], (type_index,), self.plan, job_index)
            if gpus is None:
                continue
            self.free.give(gpus)
            speed = self._speed(job_index, gpus)
            if speed > best_speed:
                fastest, best_speed = gpus, speed
        return fastest
