"""The line of waiting jobs in one future of a queue, and which of them may start: strictly in order, or with EASY
backfilling (``policy.fifo_backfill``).

A future has thousands of starts and as many ends, and at most of them hardly any job of a long line can start. So jobs
that state no limit wait in one line per number of GPUs: of those of one size only the first can be next.
"""

from __future__ import annotations

import copy
import math
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Sequence

import numpy as np

from trine.core.job import Job
from trine.placement.free_index import FreePool
from trine.policy.fifo_backfill import UNLIMITED_S
from trine.policy.view import Flags, Ints

_GROWTH = 1024
_FEW_STARTED = 200
_LARGEST = 1 << 62
Believed = tuple[float, int, int]
"""When a running job ends by its limit, its index, its GPUs."""


class Request:
    """What a job asks for and states of itself: the same in every future."""

    __slots__ = ("attained_s", "gpus", "job", "left_s", "open_ended", "rate", "single", "steps", "types")

    def __init__(self, job: Job, types: Sequence[int], steps: float, left_s: float, open_ended: bool) -> None:
        """``steps``: what it is believed to take in all. ``left_s``: how long from now on, on median GPUs."""
        self.job, self.gpus, self.types = job, job.gpus, types
        self.steps, self.left_s, self.open_ended = steps, left_s, open_ended
        self.attained_s = 0.0
        """Seconds for which it has had GPUs."""
        self.rate = 0.0
        """Steps/s wherever it runs; 0: that depends on the place."""
        self.single = False
        """It gets one GPU by best fit."""

    def believed_end_s(self, start_s: float, work_from_s: float, done: float, rate: float) -> float:
        """When the job ends by what it states, if it starts (or started) then; one that states nothing after a year
        with GPUs."""
        if self.open_ended:
            return start_s - self.attained_s + UNLIMITED_S
        return work_from_s + (self.steps - done) / rate


class Line:
    """Waiting jobs in order."""

    changes_with_time = False
    """Who may start may change although nothing happens."""

    @property
    def is_empty(self) -> bool:
        raise NotImplementedError

    def copy(self) -> Line:
        raise NotImplementedError

    def append(self, i: int, request: Request) -> None:
        raise NotImplementedError

    def refuses(self, request: Request, now: float) -> bool:
        """Whether it is known without asking that a job that comes now cannot start, though it fits."""
        del request, now
        return False

    def admit(self, now: float, pools: Sequence[FreePool]) -> Sequence[int]:
        """Jobs that start now, in order; they wait no longer."""
        raise NotImplementedError

    def runs(self, i: int, gpus: int, believed_end_s: float, unlimited: bool = False) -> None:
        """A job runs; ``unlimited``: it states no limit."""

    def leaves(self, i: int) -> None:
        """A running job has ended."""


class StrictLine(Line):
    """The first that does not fit blocks all behind it."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Request]] = []
        self._at = 0

    @property
    def is_empty(self) -> bool:
        return self._at == len(self._waiting)

    def copy(self) -> StrictLine:
        twin = copy.copy(self)
        twin._waiting = list(self._waiting)
        return twin

    def append(self, i: int, request: Request) -> None:
        self._waiting.append((i, request))

    def admit(self, now: float, pools: Sequence[FreePool]) -> Sequence[int]:
        del now
        free, begin, waiting = [pool.total for pool in pools], self._at, self._waiting
        while self._at < len(waiting):
            request = waiting[self._at][1]
            pool = next((each for each in request.types if free[each] >= request.gpus), -1)
            if pool < 0:
                break
            free[pool] -= request.gpus
            self._at += 1
        return [i for i, _ in waiting[begin : self._at]]


class EasyLine(Line):
    """The head has a reservation; those behind it start if they do not delay it. Of one GPU type."""

    changes_with_time = True

    def __init__(self) -> None:
        self._indices: list[int] = []
        self._requests: list[Request] = []
        """By position in the line, also of jobs that have started."""
        self._waits = bytearray()
        self._head = 0
        """No job waits before this position."""
        self._open: dict[int, deque[int]] = {}
        """Positions of waiting jobs that state no limit, by GPUs."""
        self._limited = _LimitedJobs()
        self._sizes: Counter[int] = Counter()
        """Waiting jobs by GPUs."""
        self._smallest = _LARGEST
        self._settled = False
        """When last asked no job could start, and no job has started or ended since."""
        self._reserved_s, self._spare = 0.0, 0
        """The reservation then, and the GPUs left over at it."""
        self._settled_until_s = 0.0
        """From here on a running job is past its limit and may end at any moment: the reservation is a new one every
        time."""
        self._believed: list[Believed] = []
        """Running jobs by when they end by their limits."""
        self._believed_of: dict[int, Believed] = {}
        self._unlimited: set[int] = set()
        """Running jobs that state no limit."""

    @property
    def is_empty(self) -> bool:
        return self._smallest == _LARGEST

    def copy(self) -> EasyLine:
        twin = copy.copy(self)
        twin._indices, twin._requests = list(self._indices), list(self._requests)
        twin._waits, twin._sizes = bytearray(self._waits), Counter(self._sizes)
        twin._open = {gpus: deque(positions) for gpus, positions in self._open.items()}
        twin._limited = self._limited.copy()
        twin._unlimited = set(self._unlimited)
        twin._believed, twin._believed_of = list(self._believed), dict(self._believed_of)
        return twin

    def append(self, i: int, request: Request) -> None:
        position, gpus = len(self._indices), request.gpus
        self._indices.append(i)
        self._requests.append(request)
        self._waits.append(1)
        self._sizes[gpus] += 1
        self._smallest = min(self._smallest, gpus)
        if not request.open_ended:
            self._limited.append(position, gpus, request.left_s)
        elif gpus in self._open:
            self._open[gpus].append(position)
        else:
            self._open[gpus] = deque((position,))

    def refuses(self, request: Request, now: float) -> bool:
        if (
            self._settled
            and request.gpus > self._spare
            and now < self._settled_until_s
            and self._reserved_s < math.inf
            and (request.open_ended or now + request.left_s > self._reserved_s)
        ):
            return True
        self._settled = False
        return False

    def runs(self, i: int, gpus: int, believed_end_s: float, unlimited: bool = False) -> None:
        if unlimited:
            self._unlimited.add(i)
        self._believed_of[i] = found = (believed_end_s, i, gpus)
        if self._believed and found < self._believed[-1]:
            insort(self._believed, found)
        else:
            self._believed.append(found)
        self._settled = False

    def leaves(self, i: int) -> None:
        believed = self._believed
        del believed[bisect_left(believed, self._believed_of.pop(i))]
        self._unlimited.discard(i)
        self._settled = False

    def admit(self, now: float, pools: Sequence[FreePool]) -> Sequence[int]:
        free = pools[0].total
        if free < self._smallest or (self._settled and now < self._settled_until_s):
            return ()
        chosen: list[int] = []
        waits, requests = self._waits, self._requests
        head = waits.find(1, self._head)
        while head >= 0 and requests[head].gpus <= free:
            free -= requests[head].gpus
            self._take(head)
            chosen.append(head)
            head = waits.find(1, head + 1)
        self._head = head if head >= 0 else len(waits)
        if free and head >= 0:
            reserved_s, spare = self._reserve(now, free, requests[head].gpus, chosen)
            self._backfill(now, free, reserved_s, spare, chosen)
            self._settled = not chosen
        indices = self._indices
        return [indices[position] for position in chosen]

    def _take(self, position: int) -> None:
        """The job waits no longer; of those like it that state no limit it is the first."""
        self._waits[position] = 0
        request, sizes = self._requests[position], self._sizes
        gpus = request.gpus
        if request.open_ended:
            positions = self._open[gpus]
            positions.popleft()
            if not positions:
                del self._open[gpus]
        else:
            self._limited.remove(position)
        sizes[gpus] -= 1
        if not sizes[gpus]:
            del sizes[gpus]
            self._smallest = min(sizes, default=_LARGEST)

    def _end_by_limit(self, now: float, position: int) -> float:
        request = self._requests[position]
        return now + (2 * UNLIMITED_S if request.open_ended else request.left_s)

    def _reserve(self, now: float, free: int, need: int, started: Sequence[int]) -> tuple[float, int]:
        """When the head can start, and how many GPUs are left over then."""
        believed = self._believed
        if started:
            more = sorted((self._end_by_limit(now, at), at, self._requests[at].gpus) for at in started)
            in_order = not believed or believed[-1][0] <= more[0][0]
            believed = [*believed, *more] if in_order else sorted([*believed, *more])
        ends, at_s = iter(believed), math.inf
        for end_s, i, gpus in ends:
            free += gpus
            if free >= need:
                # One that states nothing may be past its year; one that is past its limit ends at any moment.
                at_s = end_s if i in self._unlimited else max(end_s, now)
                break
        else:
            return math.inf, 0
        for end_s, _, gpus in ends:
            if end_s > at_s:
                break
            free += gpus
        return at_s, free - need

    def _backfill(self, now: float, free: int, reserved_s: float, spare: int, chosen: list[int]) -> None:
        """Add those that start out of order to ``chosen``. What is free, and spare, only shrinks: the first in line
        that fits is always behind the one before."""
        limited = self._limited
        candidates = limited.fitting(now, free, reserved_s, spare) if limited.count else None
        while free >= self._smallest:
            position = self._first_open(free if reserved_s == math.inf else min(free, spare))
            if candidates is not None:
                position = candidates.first(position, free, spare)
            if position == _LARGEST:
                break
            gpus = self._requests[position].gpus
            if self._end_by_limit(now, position) > reserved_s:
                spare -= gpus
            free -= gpus
            self._take(position)
            chosen.append(position)
        if candidates is not None:
            limited.settle(free, reserved_s, spare)
        self._reserved_s, self._spare = reserved_s, spare
        self._settled_until_s = self._believed[0][0] if self._believed else math.inf

    def _first_open(self, free: int) -> int:
        """The first position of a job without a limit that needs no more GPUs than these."""
        first = _LARGEST
        for gpus, positions in self._open.items():
            if gpus <= free and positions[0] < first:
                first = positions[0]
        return first


class _LimitedJobs:
    """Waiting jobs that state a limit, in order: which of those of one size can start differs with their limits, so
    that all are looked at at once."""

    def __init__(self) -> None:
        self.count = 0
        self._length = 0
        """Jobs in the columns: those that have started stay in them for a while."""
        self._positions = np.zeros(_GROWTH, dtype=np.int64)
        self._waits = np.zeros(_GROWTH, dtype=np.bool_)
        self._gpus = np.zeros(_GROWTH, dtype=np.int64)
        self._left_s = np.zeros(_GROWTH)
        self._settled = (-1, 0.0, 0, 0)
        """Free GPUs, reservation, GPUs left over at it, and length of the columns, when no other job could start."""

    def copy(self) -> _LimitedJobs:
        twin = copy.copy(self)
        twin._positions, twin._waits = self._positions.copy(), self._waits.copy()
        twin._gpus, twin._left_s = self._gpus.copy(), self._left_s.copy()
        return twin

    def append(self, position: int, gpus: int, left_s: float) -> None:
        at = self._length
        if at == len(self._waits):
            for name in ("_positions", "_waits", "_gpus", "_left_s"):
                column = getattr(self, name)
                setattr(self, name, np.concatenate((column, np.zeros_like(column))))
        self._positions[at], self._waits[at], self._gpus[at], self._left_s[at] = position, True, gpus, left_s
        self._length += 1
        self.count += 1

    def remove(self, position: int) -> None:
        self._waits[int(self._positions[: self._length].searchsorted(position))] = False
        self.count -= 1

    def fitting(self, now: float, free: int, reserved_s: float, spare: int) -> _Candidates:
        """All that could start, and few others."""
        if self._length > 2 * self.count + _FEW_STARTED:
            self._close_ranks()
        behind = slice(self._unseen_from(free, reserved_s, spare), self._length)
        gpus, left_s = self._gpus[behind], self._left_s[behind]
        fits: Flags = self._waits[behind] & (gpus <= free)
        if reserved_s < math.inf and spare < free:
            fits &= (gpus <= spare) | (left_s <= (reserved_s + 1e-9 * abs(reserved_s)) - now)
        found = fits.nonzero()[0]
        return _Candidates(self._positions[behind][found], gpus[found], now + left_s[found] > reserved_s)

    def settle(self, free: int, reserved_s: float, spare: int) -> None:
        """No other job can start."""
        self._settled = (free, reserved_s, spare, self._length)

    def _unseen_from(self, free: int, reserved_s: float, spare: int) -> int:
        """Where the first job stands that may start. What could not before cannot now with no more room, before the
        same reservation, as time passes: only those that came since can."""
        before = self._settled
        return 0 if free > before[0] or reserved_s != before[1] or spare > before[2] else before[3]

    def _close_ranks(self) -> None:
        """Those that have started leave the columns: looking at them again and again costs more than this."""
        keep = self._waits[: self._length].nonzero()[0]
        for column in (self._positions, self._gpus, self._left_s):
            column[: len(keep)] = column[keep]
        self._waits[: len(keep)], self._waits[len(keep) :] = True, False
        self._length, self._settled = len(keep), (-1, 0.0, 0, 0)


class _Candidates:
    """Jobs with a limit of which some may start, in order of the line."""

    def __init__(self, positions: Ints, gpus: Ints, late: Flags) -> None:
        """``late``: they end after the reservation, and may have GPUs only that are left over at it."""
        self._positions, self._gpus, self._late = positions, gpus, late

    def first(self, before: int, free: int, spare: int) -> int:
        """The first that fits, taken out; ``before`` if it stands behind that position, or none fits."""
        if not len(self._positions):
            return before
        fits = self._gpus <= np.where(self._late, min(free, spare), free)
        at = int(fits.argmax())
        if not fits[at] or self._positions[at] >= before:
            return before
        found = int(self._positions[at])
        rest = slice(at + 1, None)
        self._positions, self._gpus, self._late = self._positions[rest], self._gpus[rest], self._late[rest]
        return found
