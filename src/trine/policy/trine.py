"""The trine policy: one index for type, chip and place. Jobs are weighed by 1 / remaining time, GPU types have prices.

``remaining`` estimates the work left where no job states it, ``prices`` finds the type that serves each job best,
``guard`` keeps jobs from falling behind a fair share, ``common_end`` weighs them where the last to end counts.
Which GPUs of a type, by chip and network, the placement says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from trine.core.job import Job
from trine.core.params import param
from trine.core.reason import Trade
from trine.core.sums import rows_times
from trine.perf.model import PerfModel
from trine.policy.base import FinishedJob, JobValues, MakeRoom, Policy, Relocation, Selection
from trine.policy.common_end import CommonEnd
from trine.policy.guard import FairShareGuard, fair_speed
from trine.policy.prices import TypePrices, assign_types
from trine.policy.remaining import JobSet, WorkDistribution, shrunk
from trine.policy.view import Flags, Floats, Ints, View

_FIT_EVERY = 20
"""Rounds between two fits of the distribution of work: it changes slowly."""
_HOLDS_S = (60.0, 3600.0)
"""For how long a choice of type is expected to hold, at least and at most: a restart is weighed against it."""
_LEAST_LEFT_S = 1.0
_FULL_MARGIN_S = 30.0
"""Restarts that take so long get the whole of the margin in favour of staying; where they are free, there is none."""
_HISTORIES = ("all", "gpus", "user", "model")
"""What jobs must have in common to be taken for alike; each of these includes those before it."""
_NO_PRICE = 1e-4
"""Price over offer below which a type is said to have room for all: what is left of a price when a queue is gone."""
_LATE = 8.0
"""Most that a deadline raises the weight of a job."""


class JobFigures:
    """What does not change while a job is active, looked up once: rows of growing arrays, by job index."""

    def __init__(self) -> None:
        self._revision = -1
        self._known = np.zeros(0, dtype=np.bool_)
        self._rows = np.zeros((0, 0))
        self._types = 0
        self.rows = self._rows

    def of(self, view: View, perf: PerfModel) -> JobFigures:
        """The figures of the jobs of ``view``, in its order."""
        types = len(view.gpus_by_type)
        if view.revision != self._revision or types != self._types:
            self._known[:] = False  # jobs have turned out to be faster or slower than thought
            self._revision, self._types = view.revision, types
        job_indices = view.job_indices
        if len(job_indices) and (job_indices[-1] >= len(self._known) or self._rows.shape[1] != types + 3):
            self._grow(int(job_indices[-1]) + 1, types)
        for job_index in job_indices[~self._known[job_indices]].tolist():
            self._rows[job_index] = self._row(view, perf, job_index)
            self._known[job_index] = True
        self.rows = self._rows[job_indices] if len(job_indices) else np.zeros((0, types + 3))
        return self

    def _grow(self, least: int, types: int) -> None:
        size = max(least, 2 * len(self._known), 1024)
        rows = np.zeros((size, types + 3))
        if self._rows.shape[1] == types + 3:
            rows[: len(self._rows)] = self._rows
        else:
            self._known[:] = False
        self._rows, self._known = rows, np.pad(self._known, (0, size - len(self._known)))

    def _row(self, view: View, perf: PerfModel, job_index: int) -> Floats:
        _, types, step_s = view.of(job_index)
        job, row = view.job_of(job_index), np.zeros(len(view.gpus_by_type) + 3)
        # On chips as the type has them: where all are slow, those who wait must not expect more than those who run get.
        row[list(types)] = [step_s[types[0]] / step_s[t] / perf.typical_slowdown(job.app_class, t) for t in types]
        row[-3:] = job.weight, np.inf if job.deadline_s is None else job.deadline_s, view.restart_cost(job)
        return row

    @property
    def speed(self) -> Floats:
        """Speed of each job (row) on each type (column) at the best place, over that on the best type with chips of
        slowdown 1; 0 where it cannot run."""
        return self.rows[:, :-3]

    @property
    def weight(self) -> Floats:
        return self.rows[:, -3]

    @property
    def deadline_s(self) -> Floats:
        """Infinity: none."""
        return self.rows[:, -2]

    @property
    def restart_s(self) -> Floats:
        """What a stop or move costs, seconds."""
        return self.rows[:, -1]


class Bids(NamedTuple):
    """What jobs offered in a round, and at which prices."""

    job_indices: Ints
    offers: Floats
    """Of each job (row) for a GPU of each type (column)."""
    gangs: Ints
    prices: Floats
    """Per GPU, by type."""
    guessed_s: Floats
    """Seconds of work that the job is taken to have left, where that was learned from others; else 0."""

    @classmethod
    def none(cls) -> Bids:
        indices = np.zeros(0, dtype=np.int64)
        return cls(indices, np.zeros((0, 0)), indices, np.zeros(0), np.zeros(0))


@dataclass
class Trine(Policy):
    """Maximises the sum of weight x speed over all jobs, round by round: weight = remaining time ** -alpha x guard.

    ``alpha`` is the objective: 1 for mean completion time, 0 for throughput, -1 for the makespan of a batch, where the
    weights are prices of the makespan program (``common_end``), to the power of -alpha in between. Running jobs keep
    their GPUs unless another job is worth more there by a margin and by what a stop costs. Use it with
    ``--placement trine``.
    """

    name: ClassVar[str] = "trine"
    title: ClassVar[str] = "weights by remaining time, prices for GPU types, a guard for fair shares"
    paper: ClassVar[str] = "this project (docs/trine.md)"
    goes_with: ClassVar[str] = "trine"

    alpha: float = param(
        1.0, "objective: 1 mean completion time, 0 throughput, -1 makespan of a batch", minimum=-1, maximum=2
    )
    guard: float = param(1.0, "exponent of the fair-share guard; 0 = none", minimum=0, maximum=8)
    durations: str = param(
        "known",
        "remaining work as jobs state it (learned for those that do not), or learned for all from jobs that ended",
        ("known", "learned"),
    )
    history: str = param(
        "user",
        "jobs whose run times are taken for alike: all, those of as many GPUs, of these those of the same user, of "
        "these those of the same model",
        _HISTORIES,
    )
    hysteresis: float = param(
        0.2,
        "a running job counts as this much faster where it runs, if a restart takes 30 s or more",
        minimum=0,
        maximum=10,
    )
    make_room: bool = param(True, "narrow jobs are stopped where a wider one would otherwise be split or slow")
    relocate: bool = param(True, "running jobs move to better GPUs if that gains twice what the move costs")
    calibrate: bool = param(True, "predicted speeds are put right by measured ones: by model and type, and by chip")
    use_prices: bool = param(True, "prices decide which job gets which type; false: each takes its fastest with room")
    _work: WorkDistribution = field(default_factory=WorkDistribution, init=False, repr=False)
    _sets: dict[int, int] = field(default_factory=dict, init=False, repr=False)
    """Row of the set of jobs alike in the distribution of work, by job index."""
    _prices: TypePrices = field(default_factory=TypePrices, init=False, repr=False)
    _type_prices: TypePrices = field(default_factory=TypePrices, init=False, repr=False)
    """Prices among jobs that all run; see ``_types_alone``."""
    _guard: FairShareGuard = field(init=False, repr=False)
    _end: CommonEnd = field(default_factory=CommonEnd, init=False, repr=False)
    _rounds: int = field(default=0, init=False, repr=False)
    _figures: JobFigures = field(default_factory=JobFigures, init=False, repr=False)
    _bids: Bids = field(default_factory=Bids.none, init=False, repr=False)
    """Of the last round, for explanations."""

    def __post_init__(self) -> None:
        self._guard = FairShareGuard(self.guard)

    @property
    def calibrates(self) -> bool:
        return self.calibrate

    def prepare(self, perf: PerfModel) -> None:
        self._types = perf.cluster.types
        self._perf = perf

    def use_model(self, perf: PerfModel) -> None:
        self._perf = perf

    def finished(self, ended: FinishedJob) -> None:
        self._work.add(ended.work_s, self._work.row_of(self._set_of(ended.job)))

    def rank(self, view: View) -> Selection:
        figures = self._figures.of(view, self._perf)
        speed = figures.speed
        mean_speed = rows_times(speed, view.capacity / max(1, int(view.capacity.sum())))
        left_s = self._left_s(view)
        urgency_s = self._urgency_s(view, left_s)
        weight = self._weights(view, figures, left_s, urgency_s, mean_speed)
        value = weight[:, None] * self._effective_speed(view, figures, left_s, mean_speed)
        if self.alpha < 0:
            weight, value = self._all_together(view, speed, left_s, weight, value)
        price = self._prices.update(value, view.gpus, view.capacity) if self.use_prices else np.zeros(value.shape[1])
        # At the prices of the makespan program nearly all jobs are worth the same: there exchanges gain nothing.
        types = assign_types(value, view.gpus, view.capacity, price, exchanges=self.alpha >= 0)
        if self.use_prices and self.alpha > 0 and (types >= 0).all():
            value *= (urgency_s**self.alpha)[:, None]
            price, types = self._types_alone(view, value)
        guessed_s = np.where(self._unknown(view), left_s, 0.0)
        self._bids = Bids(view.job_indices, value / view.gpus[:, None], view.gpus, price, guessed_s)
        return self._selection(view, types, weight, left_s)

    def _types_alone(self, view: View, value: Floats) -> tuple[Floats, Ints]:
        """Prices and types where all jobs run, by values without urgency.

        Urgency says which jobs run first. Where none waits, only types are left to choose: a second saved is a second
        for each job, however long it will run, so that the fast GPUs belong to those who gain most by them. With
        urgency, jobs close to their end would take them from longer ones that need them.
        """
        price = self._type_prices.update(value, view.gpus, view.capacity)
        return price, assign_types(value, view.gpus, view.capacity, price)

    # -- what a unit of speed is worth -----------------------------------------------------------------------------

    def _unknown(self, view: View) -> Flags:
        return np.ones(len(view), dtype=np.bool_) if self.durations == "learned" else view.open_ended

    def _left_s(self, view: View) -> Floats:
        """Seconds of work left on the best type."""
        unknown = self._unknown(view)
        left_s = np.maximum(view.remaining_s, _LEAST_LEFT_S)
        if not unknown.any():
            return left_s
        if self._rounds % _FIT_EVERY == 0:
            self._work.fit(view.done_s, self._set_rows(view))
        self._rounds += 1
        return np.where(unknown, self._work.left_s(view.done_s, self._set_rows(view)), left_s)

    def _urgency_s(self, view: View, left_s: Floats) -> Floats:
        """Seconds of work left as they count in the order of jobs: guesses less than what jobs state."""
        unknown = self._unknown(view)
        if not unknown.any():
            return left_s
        found = left_s.copy()
        found[unknown] = shrunk(left_s[unknown])
        return found

    def _set_of(self, job: Job) -> JobSet:
        """What is not known of a job makes no set of its own."""
        common = (f"gpus {job.gpus}", job.user and f"user {job.user}", job.model and f"model {job.model}")
        return tuple(filter(None, common[: _HISTORIES.index(self.history)]))

    def _set_rows(self, view: View) -> Ints:
        """Row of each job's set in the distribution of work."""
        sets, job_indices = self._sets, view.job_indices.tolist()
        if len(sets) > 2 * len(job_indices) + 1024:
            sets.clear()  # of jobs that ended
        for i in job_indices:
            if i not in sets:
                sets[i] = self._work.row_of(self._set_of(view.job_of(i)))
        return np.fromiter((sets[i] for i in job_indices), dtype=np.int64, count=len(job_indices))

    def _weights(
        self, view: View, figures: JobFigures, left_s: Floats, urgency_s: Floats, mean_speed: Floats
    ) -> Floats:
        """Weight of the job (its own, its priority, its deadline) x urgency x guard."""
        share = fair_speed(mean_speed, view.gpus, int(view.capacity.sum()))
        self._guard.advance(view.now, view.job_indices, share)
        known = ~self._unknown(view)
        weight = figures.weight * self._guard.weight(view.job_indices, view.done_s, left_s, known, share)
        if self.alpha > 0:  # below, ``_all_together`` says how urgent a job is
            weight = weight * urgency_s**-self.alpha
        if view.prioritised:
            weight = weight * 2.0 ** np.clip(view.priority, -60.0, 60.0)
        if np.isfinite(figures.deadline_s).any():
            # The closer the slack before the deadline comes to the work left, the more the job is worth; a job that is
            # late in any case is worth no more than others, or it would take GPUs from jobs that can still be on time.
            slack = (figures.deadline_s - view.now) / left_s
            weight = weight * np.where(slack >= 1.0, np.clip(_LATE / np.maximum(slack, 1.0), 1.0, _LATE), 1.0)
        return weight

    def _all_together(
        self, view: View, speed: Floats, left_s: Floats, weight: Floats, value: Floats
    ) -> tuple[Floats, Floats]:
        """Weights and values where the end of the last job counts (-1), or in part (between -1 and 0).

        Values are in units of the price of the program: a job that is worth more than others bids more for the types
        that suit it, not for the fastest ones.
        """
        self._end.update(view.now, view.job_indices, speed, left_s, view.gpus, view.capacity)
        worth, cost_s = self._end.worth(view.now, speed, left_s, view.gpus)
        factor = worth**-self.alpha
        return weight * factor, value * factor[:, None] * (view.gpus[:, None] / cost_s) ** -self.alpha

    def _effective_speed(self, view: View, figures: JobFigures, left_s: Floats, mean_speed: Floats) -> Floats:
        """Speed by type as it counts in a bid: as measured and a little more where the job runs, elsewhere less what a
        restart takes of the time for which the choice is expected to hold."""
        found = figures.speed.copy()
        running = np.flatnonzero(view.assigned & (view.speed > 0))
        if len(running):
            holds_s = np.clip(left_s[running] / np.maximum(mean_speed[running], 1e-9), *_HOLDS_S)
            found[running] /= 1.0 + (figures.restart_s[running] / holds_s)[:, None]
            margin = self.hysteresis * np.minimum(1.0, figures.restart_s[running] / _FULL_MARGIN_S)
            found[running, view.type_index[running]] = view.speed[running] * (1.0 + margin)
        return found

    def _selection(self, view: View, types: Ints, weight: Floats, left_s: Floats) -> Selection:
        job_indices = view.job_indices
        chosen = np.flatnonzero(types >= 0)
        by_worth = job_indices[np.argsort(-weight / view.gpus, kind="stable")]
        indices: list[int] = job_indices.tolist()
        return Selection(
            dict(zip(job_indices[chosen].tolist(), types[chosen].tolist(), strict=True)),
            values=JobValues(
                dict(zip(indices, weight.tolist(), strict=True)),
                dict(zip(indices, left_s.tolist(), strict=True)),
                by_worth.tolist(),
                MakeRoom() if self.make_room else None,
                _RELOCATION if self.relocate else None,
            ),
        )

    def explain(self, job_index: int) -> str:
        """What the job offers over the price, on the type where it comes closest and on the next best, and what was
        guessed of its length."""
        over = self._offers_over_price(job_index)
        if not any(0 < x < np.inf for x in over.values()):
            return ""
        said = self._in_words(over, *sorted(over, key=lambda t: -over[t])[:2])
        if self.alpha < 0:
            return f"{said} {self._end.explain(job_index)}".rstrip()
        return f"{said} {self._guess_in_words(job_index)}".rstrip()

    def _guess_in_words(self, job_index: int) -> str:
        """How long a job of unknown length is taken for, and by what."""
        guessed_s = float(self._bids.guessed_s[np.searchsorted(self._bids.job_indices, job_index)])
        if guessed_s <= 0 or self.durations == "learned":
            return ""
        ended = self._work.count
        by = f"by the lengths of {ended:,} that ended" if ended else "since no job has ended yet"
        return f"Its length is not known; it is taken for about {guessed_s:,.0f} s, {by}."

    def explain_start(self, job_index: int, type_index: int) -> str:
        """What it offers for the type that it got, and for the one that it would have got otherwise."""
        over = self._offers_over_price(job_index)
        if type_index not in over or all(x == np.inf for x in over.values()):
            return ""
        others = sorted((t for t in over if t != type_index), key=lambda t: -over[t])
        return self._in_words(over, type_index, *others[:1])

    def trade(self, job_index: int, old_type: int, new_type: int) -> Trade | None:
        over, price = self._offers_over_price(job_index), self._bids.prices
        if old_type not in over or (new_type >= 0 and new_type not in over):
            return None
        at = int(np.searchsorted(self._bids.job_indices, job_index))
        offers, gpus = self._bids.offers[at], float(self._bids.gangs[at])
        paid = float(price[old_type]) if over[old_type] < np.inf else 0.0
        if new_type < 0:
            return Trade(paid * gpus, float(offers[old_type]) * gpus, paid, self._in_words(over, old_type))
        surplus = (offers - price) * gpus
        said = self._in_words(over, *dict.fromkeys((old_type, new_type)))
        return Trade(float(surplus[new_type]), float(surplus[old_type]), paid, said)

    def _offers_over_price(self, job_index: int) -> dict[int, float]:
        """Offer over price by type, of the types that the job can use; infinity where the type has room for all."""
        bids, price = self._bids, self._bids.prices
        at = int(np.searchsorted(bids.job_indices, job_index))
        if at >= len(bids.job_indices) or bids.job_indices[at] != job_index:
            return {}
        offers = bids.offers[at]
        usable = np.flatnonzero(offers > 0).tolist()
        return {t: float(offers[t] / price[t]) if price[t] > _NO_PRICE * offers[t] else np.inf for t in usable}

    def _in_words(self, over: dict[int, float], first: int, second: int = -1) -> str:
        """What the job offers for a GPU of one type, and of another."""
        names = [f"{t} GPU" if t.lower() != "gpu" else "GPU" for t in self._types]
        if over[first] < np.inf:
            said = f"For a {names[first]} it offers {_times(over[first])} the price at which the type is full"
        else:
            said = f"There is a {names[first]} for all that want one"
        if second < 0:
            return f"{said}."
        return f"{said}, for a {names[second]} " + (
            f"{_times(over[second])} its price." if over[second] < np.inf else "any price: all that want one have it."
        )

    # -- across restarts -------------------------------------------------------------------------------------------

    def state(self, view: View) -> dict[str, Any]:
        owed = self._guard.owed(view.job_indices)
        return {
            "work": [[list(job_set), counts] for job_set, counts in self._work.ended.items()],
            "prices": self._prices.by_type.tolist(),
            "type_prices": self._type_prices.by_type.tolist(),
            "rounds": self._rounds,
            "seen_s": self._guard.seen_s,
            "owed": {view.name(i): s for i, s in zip(view.job_indices.tolist(), owed.tolist(), strict=True)},
            "common_end": self._end.state({i: view.name(i) for i in view.job_indices.tolist()}),
        }

    def restore(self, kept: dict[str, Any], view: View, stale: bool) -> None:  # noqa: ARG002 - work stays work
        work = kept["work"]
        if work and isinstance(work[0], float):  # as earlier versions wrote it: all jobs are one set
            work = [[[], work]]
        self._work.restore({tuple(job_set): counts for job_set, counts in work})
        self._work.fit(view.done_s, self._set_rows(view))
        self._prices.by_type = np.array(kept["prices"], dtype=np.float64)
        self._type_prices.by_type = np.array(kept.get("type_prices", []), dtype=np.float64)
        self._rounds = int(kept["rounds"])
        known = {view.name(i): i for i in view.job_indices.tolist()}
        owed = {known[name]: float(s) for name, s in kept["owed"].items() if name in known}
        self._guard.resume(float(kept["seen_s"]), owed)
        self._end.restore(kept.get("common_end", {}), known)


def _times(factor: float) -> str:
    return f"{factor:.2f} times" if factor < 10 else f"{factor:,.0f} times"


_RELOCATION = Relocation(slower_than=1 / 0.93, horizon_s=7200.0, quantum_s=720.0)
"""Jobs below 93 % of their best speed are looked at; they count gains over two hours at most."""
