"""Intervals put right by how earlier ones came out: conformal prediction, online, with what is known by now only.

The score of a prediction is where the outcome fell, on a scale on which its interval reaches from about -1 to 1: times
from the prediction on, as logarithms, less that of the median, over half the width. Were intervals right, a tenth of
the scores lay below that of the lower end and a tenth above that of the upper one. The quantiles of the scores seen so
far say by how much each end, and the median, has to move (Vovk et al. 2005; Romano et al. 2019 for quantiles).

What has not happened yet counts, too: it lies above the score that it would have now. Without such censored scores
(Kaplan and Meier 1958) only jobs that started early would teach. The levels asked for follow the misses (Gibbs and
Candes 2021), so that coverage comes back to what it should be when the cluster changes.

Predictions that overlap in time share their fate: of a thousand made while one queue was worked off, all may be late.
So an interval moves from where it was drawn only as far as predictions that do not overlap have shown that it should.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trine.forecast.score import finite

BUCKETS_H = (1.0, 4.0, 24.0)
"""Hours queued at which a new set of scores begins."""
LEVELS = (0.1, 0.5, 0.9)
_OFFSET_S = 60.0
"""Added to all times before the logarithm: seconds make no difference."""
_LEAST_WIDTH = 0.1
_KEPT = 3_000
"""Predictions of one kind; a cluster changes."""
_LEAST_MOMENTS, _LEAST_SCORES = 5, 20
"""With fewer nothing is put right: predictions of one moment share its fate."""
_TRUST = 20.0
"""So many predictions that do not overlap count as much as the futures: two lie beyond each end, if all is well."""
_AGAIN_S = 86_400.0
"""A job that still waits is noted again after so long."""
_RATE = 0.05
"""Step of the levels, for the predictions of one moment."""
_NARROWEST, _WIDEST = 0.4, 0.002
_LONGEST = 700.0
"""Logarithm of more seconds than anything takes."""
_FACTOR = 1e3
"""No end moves by more than this factor of the time from now."""


@dataclass(slots=True)
class Noted:
    """One prediction that was made, and what came of it. Seconds."""

    job: str
    kind: str
    """``start``, ``end``, or ``rest``: the end of a job that runs."""
    bucket: int
    """Position of the time queued in ``BUCKETS_H``."""
    at_s: float
    centre: float
    half_width: float
    shown: tuple[float, float] | None = None
    """The ends that were shown, on the scale of scores; ``None``: shown as drawn."""
    score: float | None = None
    """``None``: it has not happened yet."""

    @property
    def until_s(self) -> float:
        """When it happened; infinity: it has not."""
        return math.inf if self.score is None else self.at_s + _seconds(self.centre + self.half_width * self.score)

    def score_at(self, time_s: float) -> float:
        return (_log(time_s - self.at_s) - self.centre) / self.half_width


def bucket_of(waited_s: float) -> int:
    return bisect_right(BUCKETS_H, waited_s / 3600.0)


def _log(seconds: float) -> float:
    return math.log(max(seconds, 0.0) + _OFFSET_S)


def _seconds(log: float) -> float:
    return max(math.exp(min(log, _LONGEST)) - _OFFSET_S, 0.0)


def not_overlapping(noted: Iterable[Noted]) -> int:
    """The most predictions of which each was made after the one before it had come true."""
    count, free_s = 0, -math.inf
    for until_s, at_s in sorted((each.until_s, each.at_s) for each in noted):
        if at_s >= free_s and until_s < math.inf:
            count, free_s = count + 1, until_s
    return count


Times = Mapping[str, float]
"""An interval: ``low``, ``median``, ``high``, seconds on the clock."""
Outcome = Callable[[str, str], float | None]
"""When the start or end of a job was; ``None``: it has not been yet, infinity: it will never be."""


@dataclass
class Calibration:
    """The predictions of one policy, as far as they count."""

    noted: deque[Noted] = field(default_factory=lambda: deque(maxlen=_KEPT))
    """Oldest first."""
    levels: dict[str, list[float]] = field(default_factory=dict)
    """By kind and bucket: parts of the outcomes that should lie below and above, as the misses have moved them."""
    _last: dict[tuple[str, str, int], float] = field(default_factory=dict)

    # -- what is learned -----------------------------------------------------------------------------------------

    def settle(self, outcome: Outcome) -> None:
        """Take note of what has happened since the last time."""
        gone: list[Noted] = []
        sizes = Counter((each.kind, each.bucket, each.at_s) for each in self.noted)
        for each in self.noted:
            if each.score is not None:
                continue
            real_s = outcome(each.job, each.kind)
            if real_s == math.inf:
                gone.append(each)
            elif real_s is not None:
                each.score = each.score_at(real_s)
                self._follow(each, sizes[each.kind, each.bucket, each.at_s])
        if gone:
            left_out = set(map(id, gone))
            self.noted = deque((each for each in self.noted if id(each) not in left_out), maxlen=_KEPT)

    def _follow(self, each: Noted, alike: int) -> None:
        """A miss below or above makes that side wider, a hit narrower; all of one moment together count as one."""
        if each.shown is None or each.score is None:
            return
        levels = self._levels(each.kind, each.bucket)
        for side, missed in enumerate((each.score < each.shown[0], each.score > each.shown[1])):
            moved = levels[side] + _RATE * (LEVELS[0] - missed) / alike
            levels[side] = min(max(moved, _WIDEST), _NARROWEST)

    def _levels(self, kind: str, bucket: int) -> list[float]:
        return self.levels.setdefault(f"{kind}/{bucket}", [LEVELS[0], LEVELS[0]])

    # -- what is shown --------------------------------------------------------------------------------------------

    def corrections(self, now_s: float) -> Corrections:
        """How to put right predictions made now."""
        return Corrections(self, now_s)

    def note(self, job: str, kind: str, waited_s: float, at_s: float, drawn: Times, shown: Times | None) -> None:
        """A prediction was made: ``drawn`` as the futures had it, ``shown`` as it was shown, if that is another."""
        bucket = bucket_of(waited_s)
        if at_s - self._last.get((job, kind, bucket), -math.inf) < _AGAIN_S:
            return
        self._last[job, kind, bucket] = at_s
        centre, half_width = _scale(at_s, drawn)
        new = Noted(job, kind, bucket, at_s, centre, half_width)
        if shown is not None:
            new = replace(new, shown=(new.score_at(shown["low"]), new.score_at(shown["high"])))
        self.noted.append(new)

    def forget_all_but(self, jobs: Container[str]) -> None:
        """Others will not be noted again: when that was last done need not be kept."""
        self._last = {key: at_s for key, at_s in self._last.items() if key[0] in jobs}

    # -- on disk -------------------------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        rows = [
            [
                e.job,
                e.kind,
                e.bucket,
                e.at_s,
                e.centre,
                e.half_width,
                None if e.shown is None else list(e.shown),
                e.score,
            ]
            for e in self.noted
        ]
        return {"noted": rows, "levels": {key: list(both) for key, both in self.levels.items()}}

    @classmethod
    def of_json(cls, body: Mapping[str, Any]) -> Calibration:
        found = cls(levels={str(key): [finite(below), finite(above)] for key, (below, above) in body["levels"].items()})
        for job, kind, bucket, *numbers, shown, score in body["noted"]:
            at_s, centre, half_width = map(finite, numbers)
            if half_width < _LEAST_WIDTH:
                raise ValueError(half_width)
            both = None if shown is None else (finite(shown[0]), finite(shown[1]))
            seen = None if score is None else finite(score)
            found.noted.append(Noted(str(job), str(kind), int(bucket), at_s, centre, half_width, both, seen))
            found._last[str(job), str(kind), int(bucket)] = at_s
        return found


def _scale(at_s: float, drawn: Times) -> tuple[float, float]:
    low, median, high = (_log(drawn[name] - at_s) for name in ("low", "median", "high"))
    return median, max((high - low) / 2, _LEAST_WIDTH)


class Corrections:
    """Of predictions made at one moment."""

    def __init__(self, calibration: Calibration, now_s: float) -> None:
        self._calibration, self._now_s = calibration, now_s
        self._scores: dict[tuple[str, int], tuple[list[float], float] | None] = {}

    def of(self, kind: str, waited_s: float, drawn: Times) -> dict[str, float] | None:
        """The interval put right; ``None``: too little is known to do so."""
        bucket = bucket_of(waited_s)
        if (kind, bucket) not in self._scores:
            self._scores[kind, bucket] = self._quantiles(kind, bucket)
        found = self._scores[kind, bucket]
        if found is None:
            return None
        (centre, half_width), (seen, weight) = _scale(self._now_s, drawn), found
        times_s = []
        for name, score in zip(("low", "median", "high"), seen, strict=True):
            as_drawn = (_log(drawn[name] - self._now_s) - centre) / half_width
            times_s.append(self._time_s(centre, half_width * (weight * score + (1.0 - weight) * as_drawn)))
        return dict(zip(("low", "median", "high"), times_s, strict=True))

    def _time_s(self, centre: float, shift: float) -> float:
        limit = math.log(_FACTOR)
        return self._now_s + _seconds(centre + min(max(shift, -limit), limit))

    def _quantiles(self, kind: str, bucket: int) -> tuple[list[float], float] | None:
        """Scores of the low end, the median and the high end, and how much they weigh beside what was drawn."""
        for alike in (
            [each for each in self._calibration.noted if each.kind == kind and each.bucket == bucket],
            [each for each in self._calibration.noted if each.kind == kind],
        ):
            happened = [each for each in alike if each.score is not None]
            if len(happened) >= _LEAST_SCORES and len({each.at_s for each in happened}) >= _LEAST_MOMENTS:
                below, above = self._calibration._levels(kind, bucket)
                apart = not_overlapping(happened)
                found = quantiles(self._with_censored(alike), (below, LEVELS[1], 1.0 - above))
                return found, apart / (apart + _TRUST)
        return None

    def _with_censored(self, alike: Iterable[Noted]) -> list[tuple[float, bool]]:
        """Scores, and whether each is what happened, or only a lower bound by now."""
        return [(each.score_at(self._now_s), False) if each.score is None else (each.score, True) for each in alike]


def quantiles(scores: list[tuple[float, bool]], levels: Iterable[float]) -> list[float]:
    """Quantiles where some values (flag false) are only known to be larger; Kaplan and Meier's estimate.

    Levels that it does not reach get the largest value of all."""
    ordered = sorted(scores, key=lambda each: (each[0], not each[1]))
    survival, steps = 1.0, list[tuple[float, float]]()
    for at, (score, happened) in enumerate(ordered):
        if happened:
            survival *= 1.0 - 1.0 / (len(ordered) - at)
            steps.append((1.0 - survival, score))
    reached = [below for below, _ in steps]
    found = []
    for level in levels:
        at = bisect_right(reached, level - 1e-12)
        found.append(steps[at][1] if at < len(steps) else ordered[-1][0])
    return found
