"""Jobs that come one after the other are alike in length beyond what their limit, size and user say of them.

Sweeps and bursts make it so: on virtual clusters of the Philly trace the ranks of lengths among jobs of the same limit
have an autocorrelation of 0.25 from one job to the next and of 0.07 to 0.15 over a hundred. The wait behind a queue is
a sum of lengths, and drawn one by one their errors would cancel in it; those that jobs have in common do not.

A length is taken as a quantile of its set (``work_history``), as a standard normal score: a level that passes slowly
from job to job in order of submission, plus what is the job's own (a Gaussian copula; in survival analysis, a frailty
with autocorrelation). The level is the sum of two stationary processes of first order, one of bursts, one of phases.
How strong and how long they are is learned from the history, and drawn anew for every future, as it is known no better.
The jobs that ended tell the level, and so do those that run on: without these only short jobs would count.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve_banded, cholesky_banded, solve_banded
from scipy.special import log_ndtr, ndtri_exp

from trine.forecast.leave_one_out import LeaveOneOut
from trine.forecast.recurrence import Recurrence
from trine.forecast.work_history import KnownJob, WorkHistory
from trine.policy.view import Flags, Floats, Ints

_WINDOW = 2_000
"""Ended jobs that count, the last ones by submission: twice the longest memory that is considered."""
_BURST_JOBS, _PHASE_JOBS = (3.0,), (15.0, 60.0, 240.0, 960.0)
"""Half-lives of the two processes, in jobs."""
_BURST_SHARES, _PHASE_SHARES = (0.005, 0.1, 0.2, 0.35), (0.005, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65)
"""Parts of the variance of a score that may be common: which of all pairs is likely, the history says."""
_MOST_SHARED = 0.9
_SWEEPS = 4
"""Of Gibbs sampling, between the level and the scores of jobs that have not ended."""
_BLOCK = 1_024
_LEAST_EVIDENCE = 0.05
"""A job tells something once so large a part of its set would have ended."""


@dataclass(frozen=True)
class Strength:
    """How alike neighbours are: correlation from job to job, and part of the variance, of both processes."""

    keep: tuple[float, float]
    share: tuple[float, float]

    @property
    def own(self) -> float:
        """Part of the variance that is a job's own."""
        return 1.0 - sum(self.share)


def _strengths() -> list[Strength]:
    pairs = itertools.product(_BURST_JOBS, _PHASE_JOBS, _BURST_SHARES, _PHASE_SHARES)
    # Without a share there is no memory: one of each such pair is enough, or the prior would favour them.
    some = [p for p in pairs if (p[3] > _PHASE_SHARES[0] or p[1] == _PHASE_JOBS[0]) and p[2] + p[3] < _MOST_SHARED]
    return [Strength((0.5 ** (1 / burst), 0.5 ** (1 / phase)), (one, two)) for burst, phase, one, two in some]


class _Level:
    """Distribution of the level given the scores of some jobs; the latest job comes first.

    Precision of (burst, phase) of one job after the other, in the upper banded form of LAPACK. Jobs are eliminated from
    the latest on, and drawn from the oldest on: those that come later change nothing for those before them.
    """

    def __init__(self, strength: Strength, observed: Flags) -> None:
        count = len(observed)
        banded = np.zeros((3, 2 * count))
        for at, (keep, share) in enumerate(zip(strength.keep, strength.share, strict=True)):
            inner = np.full(count, 1.0 + keep * keep)
            inner[[0, -1]] = 1.0 if count > 1 else 1.0 - keep * keep
            banded[2, at::2] = inner / (share * (1.0 - keep * keep))
            banded[0, 2 + at :: 2] = -keep / (share * (1.0 - keep * keep))
        weight = observed / strength.own
        banded[2] += np.repeat(weight, 2)
        banded[1, 1::2] = weight
        self._strength, self._observed, self._weight = strength, observed, weight
        self._factor = cholesky_banded(banded, check_finite=False)

    def log_likelihood(self, scores: Floats) -> float:
        """Of the scores that are observed, up to what is the same for every strength."""
        right, count = np.repeat(self._weight * scores, 2), len(self._observed)
        own, observed = self._strength.own, int(self._observed.sum())
        explained = right @ cho_solve_banded((self._factor, False), right, check_finite=False)
        prior = -sum(
            count * np.log(share) + (count - 1) * np.log(1.0 - keep * keep)
            for keep, share in zip(self._strength.keep, self._strength.share, strict=True)
        )
        posterior = 2.0 * np.log(self._factor[-1]).sum()
        squares = float((scores[self._observed] ** 2).sum()) / own
        return float(0.5 * (explained - squares + prior - posterior - observed * np.log(own)))

    def draw(self, scores: Floats, normals: Floats) -> Floats:
        """Burst and phase of every job (rows)."""
        right = np.repeat(self._weight * scores, 2)
        mean = cho_solve_banded((self._factor, False), right, check_finite=False)
        found: Floats = mean + solve_banded((0, 2), self._factor, normals, check_finite=False)
        return found.reshape(-1, 2)


class LengthCorrelation:
    """What the jobs up to now say of the lengths of those that have not ended."""

    def __init__(self, history: WorkHistory, known: Sequence[KnownJob], added: Collection[str] = ()) -> None:
        """``added``: ids of jobs that are submitted now; what is drawn for the others, and for those to come, is the
        same as without them."""
        open_ones = [each for each in known if not each.ended and not each.exact]
        ended = sorted((each for each in known if each.ended), key=_by_submission)[-_WINDOW:]
        self._jobs = sorted([*ended, *open_ones], key=_by_submission, reverse=True)
        self._position = {each.job.id: at for at, each in enumerate(self._jobs)}
        self._latest = next((at for at, each in enumerate(self._jobs) if each.job.id not in added), 0)
        """The job that those to come follow."""
        left_out = LeaveOneOut(history, self._jobs)
        self.learned = left_out.learned
        """For ``WorkHistory.learned``: from the same jobs."""
        log_alive = np.minimum(left_out.log_survival, -1e-9)
        self._scores: Floats = -ndtri_exp(log_alive)
        """Of jobs that ended; of others the least that they can have."""
        cut = np.array([each.work_s >= each.limit_s for each in self._jobs], dtype=np.bool_)
        over = np.array([each.ended for each in self._jobs], dtype=np.bool_) & ~cut
        self.recurrence = Recurrence(history, self._jobs, left_out.densities)
        # A job that repeats another says nothing of the lengths that jobs have of their own.
        alone = self.recurrence.chances < 0.5
        self._open = ~over & alone & (log_alive < np.log1p(-_LEAST_EVIDENCE))
        over &= alone
        self._observed = over | self._open
        self._over = over
        self._levels: dict[int, _Level] = {}
        self._strengths = _strengths()
        self._chances = self._posterior()

    def _posterior(self) -> Floats:
        """How likely each strength is by the jobs that ended; all alike before the first has."""
        if not self._over.any():
            return np.full(len(self._strengths), 1.0 / len(self._strengths))
        first, last = np.flatnonzero(self._over)[[0, -1]]
        observed, scores = self._over[first : last + 1], self._scores[first : last + 1]
        found = np.array([_Level(each, observed).log_likelihood(scores) for each in self._strengths])
        likely = np.exp(found - found.max())
        chances: Floats = likely / likely.sum()
        return chances

    def positions(self, job_ids: Iterable[str]) -> Ints:
        """Where jobs that have not ended stand, for ``LevelDraw.at``."""
        return np.array([self._position[job_id] for job_id in job_ids], dtype=np.int64)

    def draw(self, rng: np.random.Generator) -> LevelDraw:
        """The level in one future."""
        at = int(rng.choice(len(self._strengths), p=self._chances))
        strength, count = self._strengths[at], len(self._jobs)
        if not count:
            return LevelDraw(strength, np.zeros((1, 2)), rng)
        if at not in self._levels:
            self._levels[at] = _Level(strength, self._observed)
        level, scores, own = self._levels[at], self._scores.copy(), strength.own**0.5
        least, mean = self._scores[self._open], 0.0
        drawn = np.zeros((count, 2))
        # Streams of their own, and reversed: the oldest has the first numbers of each, however many jobs come later, so
        # that both sides of a what-if draw the same for it.
        for each in rng.spawn(_SWEEPS if len(least) else 1):
            ahead, normals = each.spawn(2)
            chance = np.log1p(-ahead.random(len(least))[::-1]) + log_ndtr((mean - least) / own)
            scores[self._open] = mean - own * ndtri_exp(chance)
            drawn = level.draw(scores, normals.standard_normal(2 * count)[::-1])
            mean = drawn[self._open].sum(axis=1)
        return LevelDraw(strength, drawn, rng, self._latest)


class LevelDraw:
    """The level of one future: that of each present job, and of those to come."""

    def __init__(self, strength: Strength, drawn: Floats, rng: np.random.Generator, latest: int = 0) -> None:
        """``drawn``: burst and phase of every job; ``latest``: the one that jobs to come follow."""
        self.own = strength.own**0.5
        """Standard deviation of what is a job's own."""
        self._strength, self._rng = strength, rng
        self._sums, self._last = drawn.sum(axis=1), drawn[latest]

    def at(self, positions: Ints) -> Floats:
        """Of present jobs that have not ended, by ``LengthCorrelation.positions``."""
        found: Floats = self._sums[positions]
        return found

    def to_come(self) -> Iterator[float]:
        """Of the jobs that come next, one after the other."""
        state = self._last
        while True:
            parts = []
            for at, (keep, share) in enumerate(zip(self._strength.keep, self._strength.share, strict=True)):
                moved = self._rng.standard_normal(_BLOCK) * (share * (1.0 - keep * keep)) ** 0.5
                moved[0] += keep * state[at]
                both = np.stack((np.ones(_BLOCK), np.full(_BLOCK, -keep)))
                parts.append(solve_banded((1, 0), both, moved, check_finite=False))
            state = np.array([part[-1] for part in parts])
            yield from (parts[0] + parts[1]).tolist()


def _by_submission(known: KnownJob) -> tuple[float, str]:
    return known.job.submit_s, known.job.id
