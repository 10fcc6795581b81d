"""Realises a selection: the jobs listed run in this round and no others, alone or two on the same GPUs.

Who already runs where it should stays there; the others are placed, larger gangs first. Like every plan, this one is
made on the index of free GPUs before anything is stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple, TypeVar

from trine.core.reason import Reason, Why
from trine.engine.plan import Gpus, Plan, Planner
from trine.engine.sharing import in_service, may_share, suits_shape
from trine.policy.base import PolicyError, Selection

T = TypeVar("T")


class Unit(NamedTuple):
    """What gets GPUs of its own: a job, or two that share them."""

    slot: int
    mate: int
    """The job that shares the GPUs, or -1."""
    wanted: int
    """Index of the GPU type, or -1 for any that suits."""

    @property
    def members(self) -> tuple[int, ...]:
        return (self.slot,) if self.mate < 0 else (self.slot, self.mate)


class ExactRound:
    """One round: what it takes to go from what runs to ``selection``."""

    def __init__(self, planner: Planner, now: float, selection: Selection) -> None:
        self.planner, self.wanted, self.partners = planner, selection.wanted, selection.partners
        self.selection = selection
        self.changed = _changed(planner, selection)
        """The others run as selected; ``None`` where that is not known."""
        planner.now = now
        planner.forget()
        self.plan = Plan()
        self.before = planner.assigned
        self.after: dict[int, Gpus] = {}
        """GPUs by job number as they are to be, of those that may change."""
        self.loose: dict[int, Gpus] = {}
        """GPUs by job number of those that run and may change."""

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
        after = self.after
        self.plan.stops = [slot for slot, gpus in self.loose.items() if after.get(slot) != gpus]
        self.plan.starts = [(slot, gpus) for slot, gpus in after.items() if before.get(slot) != gpus]
        sharing = self.planner.partners
        if sharing or self.partners:
            kept = {slot: mate for slot, mate in sharing.items() if slot not in self.loose}
            self.plan.partners = kept | self._pairs(units)
        return self.plan

    def fill(self) -> Plan:
        """Only units that have nothing yet, on GPUs that nobody has."""
        before, mate_of = self.before, self.partners
        waiting = {s: pool for s, pool in self.wanted.items() if s not in before and mate_of.get(s) not in before}
        units = self._units(waiting)
        for unit in self._larger_first(units):
            self._place(unit)
        self.plan.starts = list(self.after.items())
        self.plan.partners = self.planner.partners | self._pairs(units)
        return self.plan

    # -- what is asked for ---------------------------------------------------------------------------------------

    def _changed(self) -> dict[int, int]:
        """The jobs that do not run as selected yet, with the types they want."""
        before, pool_of, told = self.before, self.planner.free.pool_of_gpu, self.changed
        if told is not None:
            return _among(self.wanted, told)
        changed = {
            slot: pool
            for slot, pool in self.wanted.items()
            if slot not in before or (pool != pool_of[before[slot][0]] and pool >= 0)
        }
        now, then = self.planner.partners, self.partners
        if now or then:
            paired = {slot for slot in now.keys() | then.keys() if now.get(slot, -1) != then.get(slot, -1)}
            changed = {slot: pool for slot, pool in self.wanted.items() if slot in changed or slot in paired}
        return changed

    def _leaving(self) -> set[int]:
        """Jobs that run and were not selected, but for those the cluster can no longer hold: what runs may end."""
        types, sharing = self.planner.table.types, self.planner.partners
        candidates = self.before if self.changed is None else self.changed & self.before.keys()
        return {slot for slot in candidates if slot not in self.wanted and (types[slot] or slot in sharing)}

    def _units(self, pool_of: dict[int, int]) -> list[Unit]:
        """The jobs of ``pool_of`` with the types they want, partners together."""
        if not self.partners:
            return [Unit(slot, -1, pool) for slot, pool in pool_of.items()]
        units: list[Unit] = []
        second: set[int] = set()
        for slot, pool in pool_of.items():
            if slot not in second:
                mate = self.partners.get(slot, -1)
                units.append(Unit(slot, -1, pool) if mate < 0 else self._pair(slot, mate, pool_of))
                second.add(mate)
        return units

    def _pair(self, slot: int, mate: int, pool_of: dict[int, int]) -> Unit:
        """The two as one unit; the first alone where they cannot run together."""
        one, other = self.planner.table.jobs[slot], self.planner.table.jobs[mate]
        fits = slot != mate and one.gpus == other.gpus and pool_of[slot] == pool_of.get(mate)
        if not fits or self.partners.get(mate) != slot:
            raise PolicyError(
                f"a policy wants job {one.id} ({one.gpus} GPUs) to share GPUs with job {other.id} ({other.gpus} GPUs): "
                "partners name each other, need equally many GPUs and want the same type"
            )
        unit = Unit(slot, mate, pool_of[slot])
        if self._pools(unit):
            return unit
        why = "the two do not fit on them together" if self.planner.space_sharing else "jobs cannot share GPUs here"
        self.plan.refusals[mate] = Reason(
            Why.REFUSED,
            f"job {other.id} was to share the GPUs of job {one.id}, but {why}.",
            {"needed": other.gpus},
            "It starts when it gets GPUs of its own or another partner.",
        )
        return Unit(slot, -1, unit.wanted)

    def _pools(self, unit: Unit) -> Sequence[int]:
        """Types on which the unit can run, in order of preference."""
        pools = self.planner.pools_for(unit.slot, unit.wanted)
        if unit.mate < 0:
            return pools
        return [pool for pool in pools if may_share(self.planner, unit.slot, unit.mate, pool)]

    def _larger_first(self, units: Iterable[Unit]) -> list[Unit]:
        """In the order given, but larger gangs before smaller ones, and classes before both where those come first."""
        units, jobs, rank = list(units), self.planner.table.jobs, self.planner.table.class_rank
        if len(units) < 2:
            return units
        if self.planner.placement.by_class:
            return sorted(units, key=lambda unit: (rank[unit.slot], -jobs[unit.slot].gpus))
        return sorted(units, key=lambda unit: -jobs[unit.slot].gpus)

    # -- where it goes -------------------------------------------------------------------------------------------

    def _keep_and_place(self, units: list[Unit]) -> None:
        """Keep what runs where it should, then place the others; who does not fit stays where it ran, if it can."""
        kept: set[int] = set()
        moving = [unit for unit in units if not self._keep(unit, kept)]
        for gpus in self._held():
            if gpus[0] not in kept:
                self.planner.free.give(gpus)
        self._place_all(moving)

    def _place_all(self, units: list[Unit]) -> None:
        """GPUs for units that have none; who does not fit stays where it ran, if it can."""
        homeless = [unit for unit in self._larger_first(units) if not self._place(unit)]
        for unit in homeless:
            self._stay(unit)
        if homeless or self.plan.refusals:
            self.planner.realised = None

    def _held(self) -> Iterable[Gpus]:
        """The GPUs of each unit that has some and may change, once."""
        return dict.fromkeys(self.loose.values())

    def _keep(self, unit: Unit, kept: set[int]) -> bool:
        """The unit goes on where one of its members runs, unless a unit before it stays there."""
        for slot in unit.members:
            gpus = self.before.get(slot)
            if gpus is not None and gpus[0] not in kept and self._suits(unit, gpus):
                kept.add(gpus[0])
                self._put(unit, gpus)
                return True
        return False

    def _suits(self, unit: Unit, gpus: Gpus) -> bool:
        """The type is as wanted, and who joins may start there and gets the shape it asked for."""
        planner = self.planner
        pool = planner.free.type_of(gpus)
        if unit.mate < 0:
            return unit.wanted in (-1, pool)
        joins = [member for member in unit.members if self.before.get(member) != gpus]
        if joins and not in_service(planner, gpus):
            return False
        return pool in self._pools(unit) and all(suits_shape(planner, member, gpus) for member in joins)

    def _place(self, unit: Unit) -> bool:
        jobs = self.planner.table.jobs
        # A shape binds both members: the one that asks for it chooses.
        chooses = unit.mate if unit.mate >= 0 and jobs[unit.mate].shape is not None else unit.slot
        gpus = self.planner.try_place(jobs[chooses], self._pools(unit), self.plan, chooses)
        if gpus is None:
            if chooses != unit.slot and chooses in self.plan.refusals:
                self.plan.refusals[unit.slot] = self.plan.refusals[chooses]
            return False
        self._put(unit, gpus)
        return True

    def _put(self, unit: Unit, gpus: Gpus) -> None:
        for slot in unit.members:
            self.after[slot] = gpus

    def _stay(self, unit: Unit) -> None:
        """Nothing is stopped for a place that does not exist: members stay where they ran if nobody came there."""
        taken = {gpu for gpus in self.after.values() for gpu in gpus}
        for gpus in dict.fromkeys(self.before[slot] for slot in unit.members if slot in self.before):
            if taken.isdisjoint(gpus):
                self.planner.free.take(gpus)
                self.after |= {slot: gpus for slot in unit.members if self.before.get(slot) == gpus}

    def _place_anew(self, units: list[Unit]) -> bool:
        """Everybody chooses again. False, and nothing changed, if one that runs would find no room that way."""
        free = self.planner.free
        for gpus in self._held():
            free.give(gpus)
        for unit in self._larger_first(units):
            if self._place(unit):
                self._stay_if_better(unit)
            elif any(slot in self.before for slot in unit.members):
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
        old = {self.before[slot] for slot in unit.members if slot in self.before}
        new = self.after[unit.slot]
        if self.planner.moves and len(old) == 1 and new not in old:
            (gpus,) = old
            runs = next(slot for slot in unit.members if slot in self.before)
            if self._suits(unit, gpus) and self.planner.better_stay(runs, gpus, new):
                self._put(unit, gpus)

    def _pairs(self, units: Iterable[Unit]) -> dict[int, int]:
        """Partners both ways, for the pairs that have GPUs."""
        formed = [u for u in units if u.mate >= 0 and self.after.get(u.slot, ()) == self.after.get(u.mate)]
        return {u.slot: u.mate for u in formed} | {u.mate: u.slot for u in formed}


def runs_as_selected(planner: Planner, selection: Selection) -> bool:
    """Nothing has to be done, as far as that can be told without looking at everybody; then it is realised."""
    known = planner.placement.sticky and _changed(planner, selection) == set()
    if known:
        planner.realised = selection
    return known


def _changed(planner: Planner, selection: Selection) -> set[int] | None:
    """Jobs that may not run as selected yet, where nobody else has to be looked at."""
    if planner.realised is selection:
        return set()
    if planner.realised is None or selection.changed is None or planner.partners or selection.partners:
        return None
    wanted, before = selection.wanted, planner.assigned
    return {slot for slot in selection.changed if slot in wanted or slot in before}


def _among(book: Mapping[int, T], slots: Set[int]) -> dict[int, T]:
    """The entries of ``slots``, in the order of the book."""
    if len(slots) == 1:
        (slot,) = slots
        return {slot: book[slot]} if slot in book else {}
    return {slot: value for slot, value in book.items() if slot in slots}
