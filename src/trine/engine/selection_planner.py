"""Realises a selection: the jobs listed run in this round and no others, alone or two on the same GPUs.

Jobs that already run where they should stay there; the others are placed, larger gangs first, since small ones fit into
what those leave. Like every plan, this one is made on the index of free GPUs before anything is stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple, TypeVar

from trine.core.cluster import Tier
from trine.core.reason import Reason, Why
from trine.engine.planner import Gpus, Plan, Planner
from trine.policy.base import PolicyError, Selection

T = TypeVar("T")


class Unit(NamedTuple):
    """What gets GPUs of its own: a job, or two that share them."""

    job_index: int
    co_runner: int
    """The job that shares the GPUs, or -1."""
    wanted: int
    """Index of the GPU type, or -1 for any that suits."""

    @property
    def members(self) -> tuple[int, ...]:
        return (self.job_index,) if self.co_runner < 0 else (self.job_index, self.co_runner)


class SelectionRound:
    """One round: what it takes to go from what runs to ``selection``."""

    def __init__(self, planner: Planner, now: float, selection: Selection, changed: set[int] | None) -> None:
        self.planner, self.wanted, self.co_runners = planner, selection.wanted, selection.co_runners
        self.selection = selection
        self.changed = changed
        """The others run as selected; ``None`` where that is not known: see ``changed_jobs``."""
        planner.now = now
        planner.forget()
        self.plan = Plan()
        self.before = planner.assigned
        self.after: dict[int, Gpus] = {}
        """GPUs by job number as they are to be, of those that may change."""
        self.loose: dict[int, Gpus] = {}
        """GPUs by job number of those that run and may change."""
        self._types_of_pair: dict[Unit, list[int]] = {}

    def run(self) -> Plan:
        """The stops and starts that turn what runs into what was selected."""
        before, sticky = self.before, self.planner.placement.sticky
        self.planner.realised = self.selection if sticky else None
        changed = self._changed() if sticky else dict(self.wanted)
        leaving = self._leaving()
        if not changed and not leaving:
            return self.plan
        self.loose = _among(before, changed.keys() | leaving)
        units = self._units(changed)
        if not self.loose:
            self._place_all(units)
        elif sticky or not self._place_anew(units):
            self._keep_and_place(units)
        self.plan.lead(self.loose, self.after)
        sharing = self.planner.co_runners
        if sharing or self.co_runners:
            kept = {job_index: co_runner for job_index, co_runner in sharing.items() if job_index not in self.loose}
            self.plan.co_runners = kept | self._pairs(units)
        return self.plan

    def fill(self) -> Plan:
        """Only units that have nothing yet, on free GPUs."""
        before, co_runner_of = self.before, self.co_runners
        waiting = {
            job_index: type_index
            for job_index, type_index in self.wanted.items()
            if job_index not in before and co_runner_of.get(job_index) not in before
        }
        units = self._units(waiting)
        for unit in self._larger_first(units):
            self._place(unit)
        self.plan.starts = list(self.after.items())
        self.plan.co_runners = self.planner.co_runners | self._pairs(units)
        return self.plan

    # -- what is asked for ---------------------------------------------------------------------------------------

    def _changed(self) -> dict[int, int]:
        """The jobs that do not run as selected yet, with the types they want."""
        before, type_of, changed_of_policy = self.before, self.planner.free.type_of_gpu, self.changed
        if changed_of_policy is not None:
            return _among(self.wanted, changed_of_policy)
        changed = {
            job_index: type_index
            for job_index, type_index in self.wanted.items()
            if job_index not in before or (type_index != type_of[before[job_index][0]] and type_index >= 0)
        }
        now, then = self.planner.co_runners, self.co_runners
        if now or then:
            paired = {
                job_index for job_index in now.keys() | then.keys() if now.get(job_index, -1) != then.get(job_index, -1)
            }
            changed = {
                job_index: type_index
                for job_index, type_index in self.wanted.items()
                if job_index in changed or job_index in paired
            }
        return changed

    def _leaving(self) -> set[int]:
        """Jobs that run and were not selected, but for those the cluster can no longer hold: what runs may end."""
        types, sharing = self.planner.table.types, self.planner.co_runners
        candidates = self.before if self.changed is None else self.changed & self.before.keys()
        return {
            job_index
            for job_index in candidates
            if job_index not in self.wanted and (types[job_index] or job_index in sharing)
        }

    def _units(self, type_of: dict[int, int]) -> list[Unit]:
        """The jobs of ``type_of`` with the types they want, co-runners together."""
        if not self.co_runners:
            return [Unit(job_index, -1, type_index) for job_index, type_index in type_of.items()]
        units: list[Unit] = []
        second: set[int] = set()
        for job_index, type_index in type_of.items():
            if job_index not in second:
                co_runner = self.co_runners.get(job_index, -1)
                alone = co_runner < 0
                units.append(Unit(job_index, -1, type_index) if alone else self._pair(job_index, co_runner, type_of))
                second.add(co_runner)
        return units

    def _pair(self, job_index: int, co_runner: int, type_of: dict[int, int]) -> Unit:
        """The two as one unit; the first alone where they cannot run together."""
        one, other = self.planner.table.jobs[job_index], self.planner.table.jobs[co_runner]
        fits = job_index != co_runner and one.gpus == other.gpus and type_of[job_index] == type_of.get(co_runner)
        if not fits or self.co_runners.get(co_runner) != job_index:
            raise PolicyError(
                f"a policy wants job {one.id} ({one.gpus} GPUs) to share GPUs with job {other.id} ({other.gpus} GPUs): "
                "partners name each other, need equally many GPUs and want the same type"
            )
        unit = Unit(job_index, co_runner, type_of[job_index])
        if self._types(unit):
            return unit
        why = "the two do not fit on them together" if self.planner.space_sharing else "jobs cannot share GPUs here"
        self.plan.refusals[co_runner] = Reason(
            Why.REFUSED,
            f"job {other.id} was to share the GPUs of job {one.id}, but {why}.",
            {"needed": other.gpus},
            "It starts when it gets GPUs of its own or another partner.",
        )
        return Unit(job_index, -1, unit.wanted)

    def _types(self, unit: Unit) -> Sequence[int]:
        """Types on which the unit can run, in order of preference."""
        types = self.planner.types_for(unit.job_index, unit.wanted)
        if unit.co_runner < 0:
            return types
        known = self._types_of_pair.get(unit)
        if known is None:  # asked for when the pair is formed, kept and placed
            known = [t for t in types if may_share(self.planner, unit.job_index, unit.co_runner, t)]
            self._types_of_pair[unit] = known
        return known

    def _larger_first(self, units: Iterable[Unit]) -> list[Unit]:
        """In the order given, but larger gangs before smaller ones, and classes before both where those come first."""
        units, jobs, rank = list(units), self.planner.table.jobs, self.planner.table.class_rank
        if len(units) < 2:
            return units
        if self.planner.placement.by_class:
            return sorted(units, key=lambda unit: (rank[unit.job_index], -jobs[unit.job_index].gpus))
        return sorted(units, key=lambda unit: -jobs[unit.job_index].gpus)

    # -- where it goes -------------------------------------------------------------------------------------------

    def _keep_and_place(self, units: list[Unit]) -> None:
        """Keep what runs where it should, then place the others; what does not fit stays where it ran, if it can."""
        kept: set[int] = set()
        moving = [unit for unit in units if not self._keep(unit, kept)]
        for gpus in self._held():
            if gpus[0] not in kept:
                self.planner.free.give(gpus)
        self._place_all(moving)

    def _place_all(self, units: list[Unit]) -> None:
        """GPUs for units that have none; units that do not fit stay where they ran, if they can."""
        unplaced = [unit for unit in self._larger_first(units) if not self._place(unit)]
        for unit in unplaced:
            self._stay(unit)
        if unplaced or self.plan.refusals:
            self.planner.realised = None

    def _held(self) -> Iterable[Gpus]:
        """The GPUs of each unit that has some and may change, once."""
        return dict.fromkeys(self.loose.values())

    def _keep(self, unit: Unit, kept: set[int]) -> bool:
        """The unit goes on where one of its members runs, unless a unit before it stays there."""
        for job_index in unit.members:
            gpus = self.before.get(job_index)
            if gpus is not None and gpus[0] not in kept and self._suits(unit, gpus):
                kept.add(gpus[0])
                self._put(unit, gpus)
                return True
        return False

    def _suits(self, unit: Unit, gpus: Gpus) -> bool:
        """The type is as wanted, and a job that joins may start there and gets the shape it asked for."""
        planner = self.planner
        type_index = planner.free.type_of(gpus)
        if unit.co_runner < 0:
            return unit.wanted in (-1, type_index)
        joins = [member for member in unit.members if self.before.get(member) != gpus]
        if joins and not in_service(planner, gpus):
            return False
        return type_index in self._types(unit) and all(suits_shape(planner, member, gpus) for member in joins)

    def _place(self, unit: Unit) -> bool:
        if unit.co_runner >= 0:
            return self._place_pair(unit)
        planner, job_index = self.planner, unit.job_index
        types = planner.types_for(job_index, unit.wanted)
        gpus = planner.try_place(planner.table.jobs[job_index], types, self.plan, job_index)
        if gpus is None:
            return False
        self.after[job_index] = gpus
        return True

    def _place_pair(self, unit: Unit) -> bool:
        jobs = self.planner.table.jobs
        # A shape binds both members: the one that asks for it chooses.
        chooses = unit.co_runner if jobs[unit.co_runner].shape is not None else unit.job_index
        gpus = self.planner.try_place(jobs[chooses], self._types(unit), self.plan, chooses)
        if gpus is None:
            if chooses != unit.job_index and chooses in self.plan.refusals:
                self.plan.refusals[unit.job_index] = self.plan.refusals[chooses]
            return False
        self._put(unit, gpus)
        return True

    def _put(self, unit: Unit, gpus: Gpus) -> None:
        self.after[unit.job_index] = gpus
        if unit.co_runner >= 0:
            self.after[unit.co_runner] = gpus

    def _stay(self, unit: Unit) -> None:
        """Nothing is stopped for a place that does not exist: members stay where they ran if no unit came there."""
        taken = {gpu for gpus in self.after.values() for gpu in gpus}
        for gpus in dict.fromkeys(self.before[job_index] for job_index in unit.members if job_index in self.before):
            if taken.isdisjoint(gpus):
                self.planner.free.take(gpus)
                self.after |= {job_index: gpus for job_index in unit.members if self.before.get(job_index) == gpus}

    def _place_anew(self, units: list[Unit]) -> bool:
        """All units choose again. False, and nothing changed, if one that runs would find no room that way."""
        free = self.planner.free
        for gpus in self._held():
            free.give(gpus)
        for unit in self._larger_first(units):
            if self._place(unit):
                self._stay_if_better(unit)
            elif any(job_index in self.before for job_index in unit.members):
                break
        else:
            return True
        for gpus in dict.fromkeys(self.after.values()):
            free.give(gpus)
        for gpus in self._held():
            free.take(gpus)
        self.after.clear()
        return False

    def _stay_if_better(self, unit: Unit) -> None:
        """Where moves are weighed, a unit that runs in one place moves only if that pays."""
        old = {self.before[job_index] for job_index in unit.members if job_index in self.before}
        new = self.after[unit.job_index]
        if self.planner.moves and len(old) == 1 and new not in old:
            (gpus,) = old
            runs = next(job_index for job_index in unit.members if job_index in self.before)
            if self._suits(unit, gpus) and self.planner.better_stay(runs, gpus, new):
                self._put(unit, gpus)

    def _pairs(self, units: Iterable[Unit]) -> dict[int, int]:
        """Co-runners both ways, for the pairs that have GPUs."""
        formed = [
            u for u in units if u.co_runner >= 0 and self.after.get(u.job_index, ()) == self.after.get(u.co_runner)
        ]
        return {u.job_index: u.co_runner for u in formed} | {u.co_runner: u.job_index for u in formed}


def runs_as_selected(planner: Planner, selection: Selection, changed: set[int] | None) -> bool:
    """Nothing has to be done, as far as that is known without looking at every job; then it is realised."""
    known = planner.placement.sticky and changed is not None and not changed
    if known:
        planner.realised = selection
    return known


def changed_jobs(planner: Planner, selection: Selection) -> set[int] | None:
    """Jobs that may not run as selected yet, where no other job has to be looked at."""
    if planner.realised is selection:
        return set()
    if planner.realised is None or selection.changed is None or planner.co_runners or selection.co_runners:
        return None
    wanted, before = selection.wanted, planner.assigned
    return {job_index for job_index in selection.changed if job_index in wanted or job_index in before}


def _among(entries: Mapping[int, T], job_indices: Set[int]) -> dict[int, T]:
    """Those of ``job_indices``, in the order of ``entries``."""
    if len(job_indices) == 1:
        (job_index,) = job_indices
        return {job_index: entries[job_index]} if job_index in entries else {}
    return {job_index: value for job_index, value in entries.items() if job_index in job_indices}


# -- which jobs may share GPUs -----------------------------------------------------------------------------------


def may_share(planner: Planner, job_index: int, co_runner: int, type_index: int) -> bool:
    """Both run on the type, also together, ask for no different shapes and are of one sharing domain."""
    one, other = planner.table.jobs[job_index], planner.table.jobs[co_runner]
    if not planner.space_sharing or one.sharing_domain != other.sharing_domain:
        return False
    if one.shape is not None and other.shape is not None and one.shape != other.shape:
        return False
    types = planner.table.types
    known = type_index in types[job_index] and type_index in types[co_runner]
    return known and (planner.perf is None or planner.perf.can_share(one, other, type_index))


def suits_shape(planner: Planner, job_index: int, gpus: Gpus) -> bool:
    """GPUs that were chosen for another job have the shape that this one asks for."""
    shape = planner.table.jobs[job_index].shape
    if shape is None:
        return True
    cluster = planner.free.pools[0].cluster
    by_node = Counter(cluster.node_of[gpu] for gpu in gpus)
    if shape.nodes is not None and (len(by_node) != shape.nodes or len(set(by_node.values())) != 1):
        return False
    widest = min(shape.widest(planner.now), Tier.NETWORK if shape.required is None else shape.required)
    return cluster.tier(gpus) <= max(widest, Tier.NODE)


def in_service(planner: Planner, gpus: Gpus) -> bool:
    """None of the GPUs is cordoned: a job may start there."""
    pool = planner.free.pools[planner.free.type_of(gpus)]
    return not any(pool.cordoned.get(pool.node_of[gpu], 0) & pool.bit_of[gpu] for gpu in gpus)
