"""One future of a queue that is served in order of arrival and never stops a job: the engine's decisions without its
books, for policies that say they are such a queue (``Policy.queue``).

Who starts when, on which GPUs and at which speed is what the engine would decide, job by job: the same placement on the
same index of free GPUs, the same performance model, the same moments. Left out is what no forecast reads: events, job
table, reasons, leases. Tests compare both on drawn states.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush

import numpy as np

from trine.core.costs import StopCosts
from trine.core.job import Job
from trine.engine.engine import Engine
from trine.engine.job_table import State
from trine.engine.planner import Plan, Planner
from trine.forecast.arrivals import Length
from trine.forecast.engine_copy import Image
from trine.placement.base import Placement
from trine.placement.free_index import FreeIndex
from trine.placement.wrapper import Sticky
from trine.policy.fifo_backfill import UNLIMITED_S
from trine.policy.view import Flags, Floats, Ints, remaining_by_work

NOBODY = -1
NEW_JOB = -2
_GROWTH = 1024
_LARGEST = 1 << 62
_FEW_STARTED = 200
_FEW = 4
"""Jobs that are looked at one by one faster than all at once."""
_NONE: Ints = np.zeros(0, dtype=np.int64)

Arrivals = Iterator[tuple[Job, float, Length]]
"""Jobs like those to come, in order of submission, with the time of that and what their length follows from."""
StepsOf = Callable[[Length], float]
Outcome = tuple[list[float], list[float], dict[int, int]]
"""Starts (below 0: none) and ends (infinity: none) by job index, and whose GPUs jobs got last."""


class RefusedError(Exception):
    """The placement refused a job although there is room: only the engine can tell what comes of that."""


class Queue:
    """The waiting and running jobs of an engine, to be run forward again and again."""

    def __init__(self, engine: Engine, now_s: float, look_again_s: float, costs: StopCosts) -> None:
        """``look_again_s``: how often decisions are made anew although nothing happened."""
        self.engine, self.now_s, self.look_again_s, self.costs = engine, now_s, look_again_s, costs
        self.easy = engine.policy.queue == "easy"
        self._image: Image[tuple[FreeIndex, Placement]] = Image((engine.free, engine.placement))
        table = engine.table
        waiting = [i for i in engine.active_jobs.job_indices().tolist() if not table.assigned[i]]
        self.waiting = sorted(waiting, key=lambda i: (table.submit_s[i], i)) if self.easy else waiting
        self.running = sorted(engine.assigned)

    def planner(self) -> Planner:
        """Of a cluster in which the GPUs are taken that are taken now."""
        free, placement = self._image.copy()
        return Planner(self.engine.table, free, {}, placement, False, False)

    def run(self, steps: Floats, arrivals: Callable[[], Arrivals], steps_of: StepsOf) -> Outcome:
        """Until every job has started that never did; ``steps`` of each job by job index."""
        # Jobs that come later stand behind all that are there: in strict order none of those waits for them.
        return _Run(self, steps.tolist(), arrivals() if self.easy else iter(()), steps_of).run()


def is_plain_queue(engine: Engine) -> bool:
    """Nothing matters but the order of arrival, free GPUs and, with reservations, the time limits."""
    table, placement = engine.table, engine.placement
    if not engine.policy.queue or table.prioritised or engine.quotas or engine.aside or engine.strict is not None:
        return False
    if engine.policy.queue == "easy" and len(engine.free.pools) > 1:
        return False
    # What a class says of itself need not be true of those derived from it.
    if "queue" not in vars(type(engine.policy)) or "by_room_alone" not in vars(type(placement.chooses)):
        return False
    plain = type(placement) is Sticky and placement.within is placement.chooses
    plain = plain and placement.chooses.by_room_alone and engine.remaining_time is remaining_by_work
    settled = all(table.state[i] is State.RUNNING for i in engine.ownership.holding)
    return plain and settled and engine.ownership.holding.keys() == engine.assigned.keys()


class _Run:
    """One run of a queue; lists are by job index, arrivals behind the present jobs."""

    def __init__(self, queue: Queue, steps: list[float], arrivals: Arrivals, steps_of: StepsOf) -> None:
        engine, table = queue.engine, queue.engine.table
        self.queue, self.perf, self.now = queue, engine.perf, queue.now_s
        self.present = count = len(table)
        self.planner, self.plan = queue.planner(), Plan()
        self.free = self.planner.free
        self.room = self.free.total
        """Free GPUs: counting them at every moment would be a large part of the whole."""
        self.jobs, self.types, self.steps = list(table.jobs), list(table.types), steps
        self.done = table.done[:count].tolist()
        epochs = table.epoch
        self.start_s = [s if n else -1.0 for s, n in zip(table.submit_s[:count].tolist(), epochs, strict=True)]
        self.finish_s = [-1.0] * count
        self.end_s = [math.inf] * count
        self.gpus_of: dict[int, tuple[int, ...]] = dict(engine.assigned)
        self.holder = [NOBODY] * engine.cluster.gpu_count
        for i, gpus in self.gpus_of.items():
            for gpu in gpus:
                self.holder[gpu] = i
        self.blockers: dict[int, int] = {}
        self.ends: list[tuple[float, int]] = []
        self.line: _Line = _EasyLine(self) if queue.easy else _StrictLine(self)
        for i in queue.running:
            self._go_on(i)
        for i in queue.waiting:
            self.line.append(i)
        self.due_s = 0.0
        """When decisions are made anew although nothing happened."""
        self.left = sum(self.start_s[i] < 0 for i in queue.waiting)
        self.arrivals, self.steps_of = arrivals, steps_of
        self.lengths: dict[int, Length] = {}
        """Of jobs that came and have not started: most never do in this future, and lengths are dear."""
        self.next = next(arrivals, None)

    def _go_on(self, i: int) -> None:
        table = self.queue.engine.table
        rate, work_from_s = float(table.rate[i]), float(table.work_from_s[i])
        self._expect_end(i, rate, work_from_s)
        self.line.runs(i, rate, work_from_s, float(table.run_from_s[i] - table.attained_s[i]), float(table.steps[i]))

    def _expect_end(self, i: int, rate: float, work_from_s: float) -> None:
        self.end_s[i] = work_from_s + (self.steps[i] - self.done[i]) / rate
        heappush(self.ends, (self.end_s[i], i))

    def run(self) -> Outcome:
        """Every pass is one moment, as in ``sim.world``: ends, submissions, decisions."""
        unasked, round_s = True, self.queue.look_again_s
        while self.left:
            unasked = self._finish() or unasked
            unasked = self._submit() or unasked
            unasked = unasked or self._pass_by()
            if unasked or self.now >= self.due_s:
                chosen = self.line.admit(self.now, self.room)
                for i in chosen:
                    self._start(i)
                if chosen:
                    self.room = self.free.total
                unasked, self.due_s = False, self.now + round_s
            upcoming = self.ends[0][0] if self.ends else math.inf
            if self.next is not None:
                upcoming = min(upcoming, self.next[1])
            if self.line.changes_with_time and len(self.line):
                upcoming = min(upcoming, self.now + round_s)
            if not self.left or (not self.ends and self.next is None):
                break
            self.now = max(upcoming, self.now)
        count = self.present
        return self.start_s[:count], self._ends_s(), self.blockers

    def _ends_s(self) -> list[float]:
        both = zip(self.finish_s[: self.present], self.end_s, strict=False)
        return [finish_s if finish_s >= 0 else end_s for finish_s, end_s in both]

    def _finish(self) -> bool:
        ends, now, any_left = self.ends, self.now, False
        while ends and ends[0][0] <= now:
            end_s, i = heappop(ends)
            self.finish_s[i] = min(end_s, now)
            self.free.give(self.gpus_of.pop(i))
            self.line.leaves(i)
            any_left = True
        if any_left:
            self.room = self.free.total
        return any_left

    def _submit(self) -> bool:
        """Whether a job came that may start."""
        may_start = False
        while self.next is not None and self.next[1] <= self.now:
            job, _, length = self.next
            i = len(self.jobs)
            self.jobs.append(job)
            self.types.append(self.perf.types_for(job))
            self.steps.append(0.0)
            self.lengths[i] = length
            self.done.append(0.0)
            self.start_s.append(-1.0)
            self.finish_s.append(-1.0)
            self.end_s.append(math.inf)
            self.line.append(i)
            self.next = next(self.arrivals, None)
            if job.gpus <= self.room:
                # As if it had been asked for: the next look is due so much later.
                self.due_s = self.now + self.queue.look_again_s
                may_start = may_start or not self.line.refuses(job, self.now)
        return may_start

    def _pass_by(self) -> bool:
        """Go on over jobs that come and cannot start: nothing is decided before the next end; whether one came that
        may."""
        end_s, round_s, may_start = self.ends[0][0] if self.ends else math.inf, self.queue.look_again_s, False
        while self.next is not None and not may_start:
            submit_s = self.next[1]
            if submit_s >= min(self.due_s, end_s) or submit_s > self.now + round_s:
                break
            self.now = max(submit_s, self.now)
            may_start = self._submit()
        return may_start

    def _start(self, i: int) -> None:
        job, now = self.jobs[i], self.now
        self.planner.now = now
        gpus = self.planner.try_place(job, self.types[i], self.plan, i)
        if gpus is None:
            raise RefusedError(job.id)
        if i >= self.present:
            self.steps[i] = self.steps_of(self.lengths.pop(i))
        again = self.start_s[i] >= 0
        rate = self.perf.speed(job, gpus).steps_per_s
        work_from_s = now + (self.queue.costs.restore(job) if again else 0.0)
        self._note_holders(i, gpus, first=not again)
        self.gpus_of[i] = gpus
        if not again:
            self.start_s[i] = now
            self.left -= i < self.present
        self._expect_end(i, rate, work_from_s)
        table, known = self.queue.engine.table, i < self.present
        before_s = float(table.attained_s[i]) if known else 0.0
        self.line.runs(i, rate, work_from_s, now - before_s, float(table.steps[i]) if known else job.steps)

    def _note_holders(self, i: int, gpus: tuple[int, ...], first: bool) -> None:
        holder = self.holder
        if first and i < self.present and self.now > self.queue.now_s:
            before = {holder[gpu] for gpu in gpus} - {NOBODY}
            finish_s = self.finish_s
            last = max(before, key=lambda other: (finish_s[other], other), default=NOBODY)
            self.blockers[i] = last if last < self.present else NEW_JOB
        for gpu in gpus:
            holder[gpu] = i


class _Line:
    """Who waits, in order, and who may start."""

    changes_with_time = False

    def __len__(self) -> int:
        raise NotImplementedError

    def append(self, i: int) -> None:
        raise NotImplementedError

    def admit(self, now: float, free: int) -> list[int]:
        """Jobs that start now, in order; they wait no longer."""
        raise NotImplementedError

    def refuses(self, job: Job, now: float) -> bool:
        """Whether it is known without asking that a job that comes now cannot start, though it fits."""
        del job, now
        return False

    def runs(self, i: int, rate: float, work_from_s: float, from_s: float, steps: float) -> None:
        """A job runs: ``from_s`` is when it would have begun without a stop, ``steps`` what it is believed to take."""

    def leaves(self, i: int) -> None:
        """A job has ended."""


class _StrictLine(_Line):
    """The first that does not fit blocks all behind it."""

    def __init__(self, run: _Run) -> None:
        self._run, self._waiting, self._at = run, list[int](), 0

    def __len__(self) -> int:
        return len(self._waiting) - self._at

    def append(self, i: int) -> None:
        self._waiting.append(i)

    def admit(self, now: float, free: int) -> list[int]:
        del now, free
        run, pools, begin = self._run, [pool.total for pool in self._run.free.pools], self._at
        while self._at < len(self._waiting):
            i = self._waiting[self._at]
            need = run.jobs[i].gpus
            pool = next((each for each in run.types[i] if pools[each] >= need), -1)
            if pool < 0:
                break
            pools[pool] -= need
            self._at += 1
        return self._waiting[begin : self._at]


class _EasyLine(_Line):
    """The head has a reservation; those behind it start if they do not delay it. See ``policy.fifo_backfill``."""

    changes_with_time = True

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._indices: list[int] = []
        """By position in the line; those that have started stay in it for a while."""
        self._waits = np.zeros(_GROWTH, dtype=np.bool_)
        self._gpus = np.zeros(_GROWTH, dtype=np.int64)
        self._left_s = np.zeros(_GROWTH)
        """Time limits, less what was done; infinity for jobs that state none."""
        self._head = 0
        self._count = 0
        self._sizes: Counter[int] = Counter()
        """Waiting jobs by GPUs."""
        self._smallest = _LARGEST
        """GPUs of the smallest of them."""
        self._settled = (-1, 0.0, 0, 0)
        """Free GPUs, reservation, GPUs left over at it, and length of the line, when nobody else could start."""
        self._same = False
        """Nobody has started or ended since."""
        self._limited = 0
        """Waiting jobs that state a limit."""
        self._believed: list[tuple[float, int, int]] = []
        """Running jobs by when they end by their limits, with their GPUs."""
        self._end_of: dict[int, tuple[float, int, int]] = {}

    def __len__(self) -> int:
        return self._count

    def append(self, i: int) -> None:
        run, position = self._run, len(self._indices)
        if position == len(self._waits):
            for name in ("_waits", "_gpus", "_left_s"):
                column = getattr(self, name)
                setattr(self, name, np.concatenate((column, np.zeros_like(column))))
        job = run.jobs[i]
        self._indices.append(i)
        left_s = math.inf if self._is_open(i) else self._limit_left_s(i)
        self._waits[position], self._gpus[position], self._left_s[position] = True, job.gpus, left_s
        self._count += 1
        self._sizes[job.gpus] += 1
        self._smallest = min(self._smallest, job.gpus)
        self._limited += left_s < math.inf

    def _is_open(self, i: int) -> bool:
        run = self._run
        return bool(run.queue.engine.table.open_ended[i]) if i < run.present else run.jobs[i].open_ended

    def _limit_left_s(self, i: int) -> float:
        run, table = self._run, self._run.queue.engine.table
        if i >= run.present:
            return run.perf.ideal_s(run.jobs[i])
        left_s: float = float(table.ideal_s[i]) * (1.0 - run.done[i] / float(table.steps[i]))
        return left_s

    def runs(self, i: int, rate: float, work_from_s: float, from_s: float, steps: float) -> None:
        run = self._run
        end_s = from_s + UNLIMITED_S if self._is_open(i) else work_from_s + (steps - run.done[i]) / rate
        self._end_of[i] = found = (end_s, i, run.jobs[i].gpus)
        insort(self._believed, found)
        self._same = False

    def leaves(self, i: int) -> None:
        believed = self._believed
        del believed[bisect_left(believed, self._end_of.pop(i))]
        self._same = False

    def refuses(self, job: Job, now: float) -> bool:
        _, reserved_s, spare, _ = self._settled
        # A running job that is past its limit may end at any moment: the reservation is a new one every time.
        if not self._same or job.gpus <= spare or reserved_s == math.inf or self._believed[0][0] <= now:
            return False
        return job.open_ended or now + self._run.perf.ideal_s(job) > reserved_s

    def admit(self, now: float, free: int) -> list[int]:
        if free < self._smallest:
            return []
        if len(self._indices) > 2 * self._count + _FEW_STARTED:
            self._close_ranks()
        chosen: list[int] = []
        head = self._next_from(self._head)
        while head >= 0 and self._gpus[head] <= free:
            free -= int(self._gpus[head])
            self._take(head)
            chosen.append(head)
            head = self._next_from(head + 1)
        self._head = head if head >= 0 else len(self._indices)
        if head >= 0 and free:
            reserved_s, spare = self._reserve(now, free, int(self._gpus[head]), chosen)
            chosen += self._backfill(now, free, reserved_s, spare)
            self._same = not chosen
        return [self._indices[position] for position in chosen]

    def _close_ranks(self) -> None:
        """Those that have started leave the line: looking at them again and again costs more than this."""
        keep = self._waits[: len(self._indices)].nonzero()[0]
        for column in (self._gpus, self._left_s):
            column[: len(keep)] = column[keep]
        self._waits[: len(keep)], self._waits[len(keep) :] = True, False
        self._indices = [self._indices[position] for position in keep.tolist()]
        self._head, self._settled, self._same = 0, (-1, 0.0, 0, 0), False

    def _unseen_from(self, free: int, reserved_s: float, spare: int) -> int:
        """The first position whose job may start. What could not before cannot now with no more room, before the same
        reservation, as time passes: only those that came since can."""
        before = self._settled
        if free > before[0] or reserved_s != before[1] or spare > before[2]:
            return self._head + 1
        return before[3]

    def _next_from(self, position: int) -> int:
        """The first position from here on whose job waits; -1: none."""
        if position < len(self._indices) and self._waits[position]:
            return position
        found = position + int(self._waits[position : len(self._indices)].argmax()) if self._count else -1
        return found if found >= 0 and self._waits[found] else -1

    def _take(self, position: int) -> None:
        self._waits[position] = False
        self._count -= 1
        gpus = int(self._gpus[position])
        self._sizes[gpus] -= 1
        if not self._sizes[gpus]:
            del self._sizes[gpus]
            self._smallest = min(self._sizes, default=_LARGEST)
        self._limited -= bool(self._left_s[position] < math.inf)

    def _end_by_limit(self, now: float, position: int) -> float:
        left_s = float(self._left_s[position])
        return now + (left_s if left_s < math.inf else 2 * UNLIMITED_S)

    def _reserve(self, now: float, free: int, need: int, started: Sequence[int]) -> tuple[float, int]:
        """When the head can start, and how many GPUs are left over then."""
        believed: Sequence[tuple[float, int, int]] = self._believed
        if started:
            more = [(self._end_by_limit(now, at), at, int(self._gpus[at])) for at in started]
            believed = sorted([*self._believed, *more])
        at_s, available = math.inf, free
        for end_s, _, gpus in believed:
            end_s = max(end_s, now)
            if end_s > at_s:
                break
            available += gpus
            if available >= need:
                at_s = end_s
        return (at_s, available - need) if at_s < math.inf else (math.inf, 0)

    def _backfill(self, now: float, free: int, reserved_s: float, spare: int) -> list[int]:
        """Those that start out of order."""
        chosen: list[int] = []
        begin, end = self._unseen_from(free, reserved_s, spare), len(self._indices)
        few = end - begin <= _FEW
        fitting: Ints = np.arange(begin, end) if few else self._that_may_fit(now, free, reserved_s, spare, begin)
        while len(fitting):
            position, fitting = int(fitting[0]), fitting[1:]
            gpus, late = int(self._gpus[position]), self._end_by_limit(now, position) > reserved_s
            if gpus <= (min(free, spare) if late else free) and self._waits[position]:
                spare -= gpus if late else 0
                free -= gpus
                self._take(position)
                chosen.append(position)
                if self._all_too_large(free, reserved_s, spare):
                    break
                # What is free only shrinks: those that do not fit any more are dropped all at once.
                if not few and len(fitting):
                    fitting = fitting[self._fits(fitting, now, free, reserved_s, spare)]
        self._settled = (free, reserved_s, spare, end)
        return chosen

    def _that_may_fit(self, now: float, free: int, reserved_s: float, spare: int, begin: int) -> Ints:
        """Positions from ``begin`` on of all jobs that could start, and few others."""
        if self._all_too_large(free, reserved_s, spare):
            return _NONE
        behind = slice(begin, len(self._indices))
        fitting: Ints = (self._waits[behind] & self._fits(behind, now, free, reserved_s, spare)).nonzero()[0]
        return fitting + behind.start

    def _all_too_large(self, free: int, reserved_s: float, spare: int) -> bool:
        """Not even the smallest job could start out of order; those with a limit may end before the reservation."""
        smallest = self._smallest
        return smallest > free or (smallest > spare and reserved_s < math.inf and not self._limited)

    def _fits(self, some: slice | Ints, now: float, free: int, reserved_s: float, spare: int) -> Flags:
        """Into what is free, and either into what is left over at the reserved time or, nearly, ends by then."""
        gpus = self._gpus[some]
        fits: Flags = gpus <= free
        if reserved_s < math.inf and spare < free:
            fits &= (gpus <= spare) | (self._left_s[some] <= (reserved_s + 1e-9 * abs(reserved_s)) - now)
        return fits
