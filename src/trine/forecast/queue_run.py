"""One future of a queue that is served in order of arrival and never stops a job: the engine's decisions without its
books, for policies that say they are such a queue (``Policy.queue``).

Who starts when, on which GPUs and at which speed is what the engine would decide, job by job: the same placement on the
same index of free GPUs, the same performance model, the same moments. Left out is what no forecast reads: events, job
table, reasons, leases. Tests compare both on drawn states.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from trine.core.costs import StopCosts
from trine.core.job import Job
from trine.engine.engine import Engine
from trine.engine.job_table import State
from trine.engine.planner import Plan, Planner
from trine.forecast.arrivals import Arrival
from trine.forecast.engine_copy import Image
from trine.forecast.waiting_line import Believed, EasyLine, Line, Request, StrictLine
from trine.placement.base import Placement
from trine.placement.free_index import FreeIndex
from trine.placement.packed import Packed
from trine.placement.wrapper import Sticky
from trine.policy.fifo_backfill import UNLIMITED_S
from trine.policy.view import Floats, remaining_by_work

NO_JOB = -1
NEW_JOB = -2
_NO_POSITION = 1 << 62

Days = Iterator[list[Arrival]]
"""Jobs to come in order of submission, a day at a time."""
Outcome = tuple[list[float], list[float], dict[int, int]]
"""Starts (below 0: none) and ends (infinity: none) by job index, and whose GPUs jobs got last."""


class RefusedError(Exception):
    """The placement refused a job although there is room: only the engine can tell what comes of that."""


class LimitsMatterError(Exception):
    """A job states a limit, or runs for longer than one that states none is taken to: not for an ``_OpenRun``."""


class Queue:
    """The waiting and running jobs of an engine, to be run forward again and again."""

    def __init__(
        self, engine: Engine, now_s: float, look_again_s: float, costs: StopCosts, job_like: Callable[[int], Job]
    ) -> None:
        """``look_again_s``: how often decisions are made anew although nothing happened. ``job_like``: the job of late
        that one to come is like, by its number."""
        self._job_like = job_like
        self._alike: dict[str, bool] = {}
        self.engine, self.now_s, self.look_again_s, self.costs = engine, now_s, look_again_s, costs
        self.easy = engine.policy.queue == "easy"
        self._image: Image[tuple[FreeIndex, Placement]] = Image((engine.free, engine.placement))
        self._best_fit = len(engine.free.pools) == 1 and type(engine.placement.chooses) is Packed
        table, count = engine.table, len(engine.table)
        waiting = [i for i in engine.active_jobs.job_indices().tolist() if not table.assigned[i]]
        self.waiting = sorted(waiting, key=lambda i: (table.submit_s[i], i)) if self.easy else waiting
        self.done: list[float] = table.done[:count].tolist()
        starts = zip(table.submit_s[:count].tolist(), table.epoch, strict=True)
        self.start_s = [submit_s if epoch else -1.0 for submit_s, epoch in starts]
        """Below 0: has not started."""
        self.requests = {i: self._present_request(i) for i in (*sorted(engine.assigned), *self.waiting)}
        self._arrivals: dict[int, Request] = {}
        """Of jobs to come, by the job that they are like."""
        self.running = [(i, float(table.rate[i]), float(table.work_from_s[i])) for i in sorted(engine.assigned)]
        self.holder = [NO_JOB] * engine.cluster.gpu_count
        """By GPU, the job that has it."""
        for i, gpus in engine.assigned.items():
            for gpu in gpus:
                self.holder[gpu] = i
        self.line = self._line()
        self.open_ended = self.easy and all(each.open_ended for each in self.requests.values())
        """No job states a limit, as far as is known: who may start then changes with starts and ends alone."""

    def _line(self) -> Line:
        """As it is now; runs begin with a copy."""
        line, table = EasyLine() if self.easy else StrictLine(), self.engine.table
        for i, rate, work_from_s in self.running:
            request = self.requests[i]
            end_s = request.believed_end_s(float(table.run_from_s[i]), work_from_s, self.done[i], rate)
            line.runs(i, request.gpus, end_s, request.open_ended)
        for i in self.waiting:
            line.append(i, self.requests[i])
        return line

    def _present_request(self, i: int) -> Request:
        table = self.engine.table
        steps = float(table.steps[i])
        left_s = float(table.ideal_s[i]) * (1.0 - self.done[i] / steps)
        found = self._request(table.jobs[i], steps, left_s, bool(table.open_ended[i]))
        found.attained_s = float(table.attained_s[i])
        return found

    def arriving(self, like: int) -> Request:
        """What a job to come asks for; ``like``: the job of late that it is like."""
        found = self._arrivals.get(like)
        if found is None:
            job = self._job_like(like)
            ideal_s = math.inf if job.open_ended else self.engine.perf.ideal_s(job)
            found = self._arrivals[like] = self._request(job, job.steps, ideal_s, job.open_ended)
        return found

    def _request(self, job: Job, steps: float, left_s: float, open_ended: bool) -> Request:
        perf = self.engine.perf
        found = Request(job, perf.types_for(job), steps, left_s, open_ended)
        found.single = self._best_fit and job.gpus == 1 and job.shape is None and bool(found.types)
        if found.single and self._all_alike_to(job.app_class):
            found.rate = perf.speed(job, (0,)).steps_per_s
        return found

    def _all_alike_to(self, app_class: str) -> bool:
        """No GPU is slower than another for jobs of this class."""
        if app_class not in self._alike:
            slowdowns = self.engine.perf.variability.slowdown(app_class)
            self._alike[app_class] = min(slowdowns) == max(slowdowns)
        return self._alike[app_class]

    def planner(self) -> Planner:
        """Of a cluster in which the GPUs are taken that are taken now."""
        free, placement = self._image.copy()
        return Planner(self.engine.table, free, {}, placement, False, False)

    def run(self, steps: Floats, arrivals: Days) -> Outcome:
        """Until every job has started that never did; ``steps`` of each job by job index."""
        if self.open_ended:
            return _OpenRun(self, steps.tolist(), arrivals).run()
        # Jobs that come later stand behind all that are there: in strict order none of those waits for them.
        return _LineRun(self, steps.tolist(), arrivals if self.easy else iter(())).run()


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

    def __init__(self, queue: Queue, steps: list[float], days: Days) -> None:
        engine = queue.engine
        self.queue, self.perf, self.now = queue, engine.perf, queue.now_s
        self.present = count = len(engine.table)
        self.planner, self.plan = queue.planner(), Plan()
        self.pools = self.planner.free.pools
        self.days, self.steps = days, steps
        self.start_s = list(queue.start_s)
        self.finish_s = [-1.0] * count
        self.end_s = [math.inf] * count
        for i, rate, work_from_s in queue.running:
            self.end_s[i] = work_from_s + (steps[i] - queue.done[i]) / rate
        self.holder = list(queue.holder)
        self.blockers: dict[int, int] = {}
        self.left = sum(self.start_s[i] < 0 for i in queue.waiting)

    def outcome(self) -> Outcome:
        both = zip(self.finish_s, self.end_s, strict=False)
        return self.start_s, [finish_s if finish_s >= 0 else end_s for finish_s, end_s in both], self.blockers

    def place(self, i: int, request: Request) -> tuple[int, ...]:
        """GPUs for a job, taken."""
        if request.single:
            return (self.pools[0].take_one(),)
        self.planner.now = self.now
        gpus = self.planner.try_place(request.job, request.types, self.plan, i)
        if gpus is None:
            raise RefusedError(request.job.id)
        return gpus

    def give(self, gpus: tuple[int, ...]) -> None:
        if len(gpus) == 1 and len(self.pools) == 1:
            self.pools[0].give_one(gpus[0])
        else:
            self.planner.free.give(gpus)

    def start_present(self, i: int, request: Request, gpus: tuple[int, ...], rate: float) -> float:
        """Note that a job starts that is there now; from when on it works."""
        queue, now = self.queue, self.now
        again, holder = self.start_s[i] >= 0, self.holder
        if not again and now > queue.now_s:
            self.blockers[i] = self._blocker(gpus)
        for gpu in gpus:
            holder[gpu] = i
        if not again:
            self.start_s[i] = now
            self.left -= 1
        work_from_s = now + (queue.costs.restore(request.job) if again else 0.0)
        self.end_s[i] = work_from_s + (self.steps[i] - queue.done[i]) / rate
        return work_from_s

    def _blocker(self, gpus: tuple[int, ...]) -> int:
        """Whose GPUs these were last."""
        holder, finish_s = self.holder, self.finish_s
        if len(gpus) == 1:
            last = holder[gpus[0]]
        else:
            before = {holder[gpu] for gpu in gpus} - {NO_JOB}
            last = max(before, key=lambda other: (finish_s[other], other), default=NO_JOB)
        return last if last < self.present else NEW_JOB


class _LineRun(_Run):
    """Moment by moment, as the engine is asked."""

    def __init__(self, queue: Queue, steps: list[float], days: Days) -> None:
        super().__init__(queue, steps, days)
        self.line = queue.line.copy()
        self.gpus_of: dict[int, tuple[int, ...]] = dict(queue.engine.assigned)
        self.ends = [(self.end_s[i], i) for i, _, _ in queue.running]
        heapify(self.ends)
        self.due_s = 0.0
        """When decisions are made anew although nothing happened."""
        self.came: list[tuple[Request, float]] = []
        """Jobs that came, with the steps they take."""
        self.arrivals = itertools.chain.from_iterable(days)
        self.next = next(self.arrivals, None)
        self.next_s = math.inf if self.next is None else self.next[0]

    def run(self) -> Outcome:
        """Every pass is one moment, as in ``sim.world``: ends, submissions, decisions."""
        unasked, round_s, ends, line = True, self.queue.look_again_s, self.ends, self.line
        while self.left:
            if ends and ends[0][0] <= self.now:
                self._finish()
                unasked = True
            if self.next_s <= self.now:
                unasked = self._submit() or unasked
            unasked = unasked or self._pass_by()
            if unasked or self.now >= self.due_s:
                for i in line.admit(self.now, self.pools):
                    self._start(i)
                unasked, self.due_s = False, self.now + round_s
            if not self.left or (not ends and self.next is None):
                break
            upcoming = min(ends[0][0] if ends else math.inf, self.next_s)
            if line.changes_with_time and not line.is_empty:
                upcoming = min(upcoming, self.now + round_s)
            self.now = max(upcoming, self.now)
        return self.outcome()

    def _finish(self) -> None:
        ends, now, finish_s, line = self.ends, self.now, self.finish_s, self.line
        while ends and ends[0][0] <= now:
            end_s, i = heappop(ends)
            finish_s[i] = end_s
            self.give(self.gpus_of.pop(i))
            line.leaves(i)

    def _submit(self) -> bool:
        """Whether a job came that may start."""
        may_start, now, line, room = False, self.now, self.line, self.pools[0].total
        while self.next is not None and self.next_s <= now:
            _, like, steps = self.next
            request = self.queue.arriving(like)
            line.append(self.present + len(self.came), request)
            self.came.append((request, steps))
            self.finish_s.append(-1.0)
            self.next = next(self.arrivals, None)
            self.next_s = math.inf if self.next is None else self.next[0]
            if request.gpus <= room:
                # As if it had been asked for: the next look is due so much later.
                self.due_s = now + self.queue.look_again_s
                may_start = not line.refuses(request, now) or may_start
        return may_start

    def _pass_by(self) -> bool:
        """Go on over jobs that come and cannot start: nothing is decided before the next end; whether one came that
        may."""
        end_s, round_s = self.ends[0][0] if self.ends else math.inf, self.queue.look_again_s
        while self.next_s < self.due_s and self.next_s < end_s and self.next_s <= self.now + round_s:
            self.now = max(self.next_s, self.now)
            if self._submit():
                return True
        return False

    def _start(self, i: int) -> None:
        known, now = i < self.present, self.now
        request = self.queue.requests[i] if known else self.came[i - self.present][0]
        self.gpus_of[i] = gpus = self.place(i, request)
        rate = request.rate or self.perf.speed(request.job, gpus).steps_per_s
        if known:
            work_from_s = self.start_present(i, request, gpus, rate)
            heappush(self.ends, (self.end_s[i], i))
            believed_end_s = request.believed_end_s(now, work_from_s, self.queue.done[i], rate)
        else:
            for gpu in gpus:
                self.holder[gpu] = i
            heappush(self.ends, (now + self.came[i - self.present][1] / rate, i))
            believed_end_s = request.believed_end_s(now, now, 0.0, rate)
        self.line.runs(i, request.gpus, believed_end_s, request.open_ended)


class _OpenRun(_Run):
    """With EASY backfilling where no job states a limit: only starts and ends change who may start.

    So jobs that come and cannot start are not looked at one by one. A day of them at a time joins the lines, of which
    there is one for each number of GPUs; the first of a line that has room comes next, or has come. While a present job
    waits, the head of the queue is one.
    """

    def __init__(self, queue: Queue, steps: list[float], days: Days) -> None:
        super().__init__(queue, steps, days)
        self.waits = bytearray([1]) * len(queue.waiting)
        """By position in the queue of present jobs."""
        self.head = 0
        self.lines: dict[int, deque[int]] = {}
        """By number of GPUs, positions in the queue; arrivals follow the present jobs, those that come later too."""
        self.requests = [queue.requests[i] for i in queue.waiting]
        self.submit_s = [-math.inf] * len(queue.waiting)
        self.steps_to_come: list[float] = []
        self._join(self.requests, 0)
        self.believed: list[Believed] = []
        """Running jobs by when they end if each takes a year: in order of their starts."""
        self.ends: list[tuple[float, int, tuple[int, ...], Believed]] = []
        for i, rate, work_from_s in queue.running:
            request = queue.requests[i]
            start_s = float(queue.engine.table.run_from_s[i])
            believed = (request.believed_end_s(start_s, work_from_s, 0.0, rate), i, request.gpus)
            self.believed.append(believed)
            self.ends.append((self.end_s[i], i, queue.engine.assigned[i], believed))
        self.believed.sort()
        heapify(self.ends)

    def _join(self, requests: Iterable[Request], position: int) -> None:
        lines = self.lines
        for request in requests:
            if request.gpus not in lines:
                lines[request.gpus] = deque()
            lines[request.gpus].append(position)
            position += 1

    def _draw_until(self, until_s: float) -> None:
        """Know who comes up to then."""
        arriving = self.queue.arriving
        while self.submit_s[-1] < until_s:
            day = next(self.days, None)
            if day is None:
                self.submit_s.append(math.inf)  # no job comes any more
                return
            requests = [arriving(like) for _, like, _ in day]
            if not all(request.open_ended for request in requests):
                raise LimitsMatterError
            self._join(requests, len(self.requests))
            self.requests += requests
            self.submit_s += [submit_s for submit_s, _, _ in day]
            self.steps_to_come += [steps for _, _, steps in day]
            self.finish_s += [-1.0] * len(day)

    def run(self) -> Outcome:
        """Every pass is one moment at which a job ends, or one comes that can start."""
        ends, believed, submit_s = self.ends, self.believed, self.submit_s
        upcoming = self.now
        while self.left and upcoming < math.inf:
            if believed and believed[0][0] <= upcoming:
                raise LimitsMatterError
            self.now = upcoming
            if ends and ends[0][0] <= upcoming:
                self._finish()
            end_s = ends[0][0] if ends else math.inf
            if submit_s[-1] < end_s:
                self._draw_until(end_s)
            upcoming = self._decide()
            if ends and ends[0][0] < upcoming:
                upcoming = ends[0][0]
        return self.outcome()

    def _finish(self) -> None:
        ends, now, finish_s, believed, give_one = (
            self.ends,
            self.now,
            self.finish_s,
            self.believed,
            self.pools[0].give_one,
        )
        while ends and ends[0][0] <= now:
            end_s, i, gpus, found = heappop(ends)
            finish_s[i] = end_s
            del believed[bisect_left(believed, found)]
            if len(gpus) == 1:
                give_one(gpus[0])
            else:
                self.planner.free.give(gpus)

    def _decide(self) -> float:
        """Start who may; when to decide again if no job ends before."""
        waits, requests, lines, free = self.waits, self.requests, self.lines, self.pools[0].total
        chosen: list[int] = []
        head = waits.find(1, self.head)
        while head >= 0 and requests[head].gpus <= free:
            free -= requests[head].gpus
            waits[head] = 0
            chosen.append(lines[requests[head].gpus].popleft())
            head = waits.find(1, head + 1)
        if head < 0 or not free:
            self._start(chosen)
            return math.inf
        self.head = head
        reserved_s, spare = self._reserve(free, requests[head].gpus, chosen)
        next_s = self._backfill(free, reserved_s, spare, chosen)
        # A job that starts counts as the last one to end. Asked again, the engine takes it to end a year after its
        # start: that makes no difference to a reservation before it.
        if self._start(chosen) <= reserved_s < math.inf:
            return self._next_look_s()
        return next_s

    def _reserve(self, free: int, need: int, chosen: Sequence[int]) -> tuple[float, int]:
        """When the head can start, and how many GPUs are left over then."""
        ends, at_s = iter(self.believed), math.inf
        for end_s, _, gpus in ends:
            free += gpus
            if free >= need:
                at_s = end_s
                break
        else:
            free += sum([self.requests[position].gpus for position in chosen])
            return (self.now + 2 * UNLIMITED_S, free - need) if free >= need else (math.inf, 0)
        for end_s, _, gpus in ends:
            if end_s > at_s:
                break
            free += gpus
        return at_s, free - need

    def _backfill(self, free: int, reserved_s: float, spare: int, chosen: list[int]) -> float:
        """Add those that start out of order to ``chosen``; when the next comes that could."""
        now, lines, submit_s = self.now, self.lines, self.submit_s
        if reserved_s == math.inf:
            spare = free
        late = now + 2 * UNLIMITED_S > reserved_s  # else the head waits for jobs that start at this very moment, too
        while free and spare:
            first, room = _NO_POSITION, min(free, spare)
            for gpus, line in lines.items():
                if gpus <= room and line and line[0] < first:
                    first, size = line[0], gpus
            if first == _NO_POSITION:
                break
            if submit_s[first] > now:
                return submit_s[first]
            free -= size
            if late:
                spare -= size
            chosen.append(lines[size].popleft())
            if first < len(self.waits):
                self.waits[first] = 0
        return math.inf

    def _next_look_s(self) -> float:
        """When the engine is asked again if no job ends before: because a job came that fits into what is free, or
        because it was not asked for so long."""
        free, round_s, requests, submit_s = self.pools[0].total, self.queue.look_again_s, self.requests, self.submit_s
        last_s, due_s = self.now, self.now + round_s
        for position in range(bisect_right(submit_s, self.now), len(requests)):
            at_s = submit_s[position]
            if at_s > last_s + round_s:
                break
            if at_s >= due_s or requests[position].gpus <= free:
                return at_s
            last_s = at_s
        return last_s + round_s

    def _start(self, chosen: Sequence[int]) -> float:
        """The first moment at which one of these ends if each takes a year with GPUs."""
        now, count, first_s = self.now, len(self.waits), math.inf
        for position in chosen:
            request = self.requests[position]
            i = self.queue.waiting[position] if position < count else self.present + position - count
            gpus = self.place(i, request)
            rate = request.rate or self.perf.speed(request.job, gpus).steps_per_s
            believed_s = now - request.attained_s + UNLIMITED_S
            if position < count:
                self.start_present(i, request, gpus, rate)
                end_s = self.end_s[i]
            else:
                for gpu in gpus:
                    self.holder[gpu] = i
                end_s = now + self.steps_to_come[position - count] / rate
            believed = (believed_s, i, request.gpus)
            heappush(self.ends, (end_s, i, gpus, believed))
            insort(self.believed, believed)
            first_s = min(first_s, believed_s)
        return first_s
