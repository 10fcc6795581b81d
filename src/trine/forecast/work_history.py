"""How much work jobs take, learned from those before: draws of the whole of a job's work, given what it has done.

Work is in seconds on median GPUs of the job's best type. The jobs of one user are alike, those of one user, model and
size more so: each such set has hazards of its own, with those of the larger set as prior (a hierarchical beta process;
Hjort 1990, Thibaux and Jordan 2007). A draw first draws the hazards and then the jobs: what is not known of a set is
common to all of its jobs, so that a draw may have all of them long, or all short. How much the jobs of a set are alike
beyond those of the larger one is learned by kind of set (``leave_one_out``): where users do not differ, the few jobs of
one say nothing of their own.

Jobs with a time limit are alike in the part of it that they use: what is known of all of them, and of those with a
limit of the same magnitude, is counted in bins of that part, and is the prior of a limit that few jobs, or none, have
had. Were it the lengths of all jobs, the first job with a limit of weeks would be drawn like one of minutes. Whether
those use as much of it who ask for far more than the next smaller limit is not known: it is drawn, too, as likely as
the jobs that had such limits make it.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from trine.core.job import Job
from trine.forecast.limit_steps import LimitSteps
from trine.policy.remaining import pareto_hazard, work_bins
from trine.policy.view import Floats, Ints

Key = tuple[object, ...]
LIMITED: Key = ("limit",)
"""The set of all jobs that have a time limit."""
_MAGNITUDE = 8.0
"""Limits within about this factor of each other are of one magnitude."""
PARTS: Floats = np.concatenate(([0.0], 2.0 ** (np.arange(-40, 1) / 4)))
"""Edges of the bins of used parts of a limit; the last bin is of jobs that reached it."""
_LOG_PARTS: Floats = np.log(PARTS + PARTS[1])
_PRIOR_SCALE_S = 1800.0
CONCENTRATION = 5.0
"""Jobs that the hazards of the larger set count as, in each bin of a smaller one."""
HIGHEST = 1.0 - 1e-9
_APART = 1 << 24
"""More random numbers than the hazards of one set take."""


@dataclass(frozen=True, slots=True)
class KnownJob:
    """A job that was submitted, now or long ago, and what is known of its length."""

    job: Job
    """As it was submitted to the engine."""
    work_s: float
    """Work that it took, or has done so far if it has not ended, seconds."""
    ended: bool
    exact: bool = False
    """``job.steps`` is what it has to do; else that is a guess or a limit."""
    limit_s: float = math.inf
    """It is stopped for good after so many seconds of work."""


def sets_of(known: KnownJob) -> tuple[Key, ...]:
    """The sets that a job belongs to, from the largest to the smallest; what says nothing of it makes none.

    The limit comes first: a user who asks for a week has another job in mind than one who asks for an hour. Lengths
    that were only cut at the limit, but drawn without it, would be too short.
    """
    job, keys = known.job, list[Key]([()])
    if known.limit_s < math.inf:
        # Short limits are asked for by habit and used in small part; those of days are not.
        magnitude = (*LIMITED, round(math.log(max(known.limit_s, 1.0), _MAGNITUDE)))
        # Limits are round figures. Those of eight and of twelve hours in one set would make the former too long.
        keys = [LIMITED, magnitude, (*magnitude, float(f"{known.limit_s:.2g}"))]
    for what in (job.gpus, job.user or None, job.model or None):
        if what is not None:
            keys.append((*keys[-1], what))
    return tuple(keys)


def kinds_of(known: KnownJob) -> tuple[str, ...]:
    """What the jobs of each of these sets have in common beyond those of the larger one.

    What a user says beyond a limit is another thing than what one says where there is none.
    """
    limited, job = known.limit_s < math.inf, known.job
    kinds = ["limited", "magnitude", "limit"] if limited else ["any"]
    own = zip(("gpus", "user", "model"), (job.gpus, job.user or None, job.model or None), strict=True)
    return (*kinds, *(f"limited {kind}" if limited else kind for kind, what in own if what is not None))


@dataclass(frozen=True)
class Level:
    """Sets of one depth: their keys, the larger sets that each is part of, and their counts by bin."""

    keys: list[Key]
    parents: list[tuple[Key, ...]]
    ended: Floats
    survived: Floats
    concentrations: Floats
    """By set, in a column."""


@dataclass
class Learned:
    """How much sets have in common with the larger ones (``leave_one_out``)."""

    concentrations: dict[str, float] = field(default_factory=dict)
    """By kind of set: jobs that the hazards of the larger set count as, in each bin of a smaller one."""
    proportions: Floats = field(default_factory=lambda: np.ones(1))
    """How likely each part of 0 to 1 is, as the proportion by which lengths grow with limits."""

    def concentration(self, kind: str) -> float:
        return self.concentrations.get(kind, CONCENTRATION)

    @property
    def proportion(self) -> float:
        """The mean."""
        return float(self.proportions @ (np.arange(len(self.proportions)) + 0.5)) / len(self.proportions)

    def draw_proportion(self, rng: np.random.Generator) -> float:
        """In one future."""
        below = np.concatenate(([0.0], np.cumsum(self.proportions)))
        return float(np.interp(rng.random(), below, np.arange(len(below)) / len(self.proportions)))


@dataclass
class WorkHistory:
    """Jobs of the past by set, counted in bins of work."""

    past: Sequence[KnownJob] = ()
    edges: Floats = field(default_factory=work_bins)
    _counts: dict[Key, tuple[Floats, Floats]] = field(default_factory=dict, init=False, repr=False)
    """By set: jobs that ended in each bin, and jobs that survived it."""
    _numbers: dict[Key, int] = field(default_factory=dict, init=False, repr=False)
    _kinds: dict[Key, str] = field(default_factory=dict, init=False, repr=False)
    _excesses: dict[Key, float] = field(default_factory=dict, init=False, repr=False)
    learned: Learned = field(default_factory=Learned)
    """Put in once it is known, since it is learned from these counts."""

    def __post_init__(self) -> None:
        # Within a bin the logarithm of the work is uniform; the first begins at 0, so the scale is shifted.
        self.log_edges: Floats = np.log(np.append(self.edges, 2 * self.edges[-1]) + self.edges[1])
        self.first_edge_s = float(self.edges[1])
        bins: dict[Key, tuple[list[float], list[float]]] = {}
        for each in self.past:
            for key, kind in zip(sets_of(each), kinds_of(each), strict=True):
                self._kinds[key] = kind
                work = each.work_s / each.limit_s if in_parts(key) else each.work_s
                bins.setdefault(key, ([], []))[0 if each.ended else 1].append(work)
        self._counts = {key: _count(PARTS if in_parts(key) else self.edges, *both) for key, both in bins.items()}
        began = Counter(sets_of(each)[2] for each in self.past if each.limit_s < math.inf and each.work_s > 0.0)
        self._with_limit: dict[Key, int] = dict(began)
        """Jobs by the set of their limit. Those that wait do not count: one more in a what-if changes no other."""
        self.limit_steps = LimitSteps({float(str(key[-1])): jobs for key, jobs in began.items()})
        self._numbers = {key: number for number, key in enumerate(self._counts)}

    def ended_like(self, known: KnownJob) -> int:
        """Ended jobs of the smallest set of the job that has any."""
        for key in reversed(sets_of(known)):
            ended = self._counts[key][0].sum() if key in self._counts else 0.0
            if ended:
                return int(ended)
        return 0

    def counts(self, key: Key) -> tuple[Floats, Floats] | None:
        """Jobs that ended in each bin, and that survived it; none of a set that is like the larger one."""
        return self._counts.get(key) if key in self._kinds and self.concentration(key) < math.inf else None

    def counts_of_all(self, keys: Iterable[Key]) -> tuple[Floats, Floats]:
        """The same of any sets, a row for each: zeros where no job was of it."""
        rows = list(keys)
        none = np.zeros(len(PARTS) if in_parts(rows[0]) else len(self.edges))
        found = [self._counts.get(key, (none, none)) for key in rows]
        return np.stack([ended for ended, _ in found]), np.stack([survived for _, survived in found])

    def prior(self, keys: tuple[Key, ...], hazard_of: Callable[[tuple[Key, ...]], Floats], proportion: float) -> Floats:
        """Hazards of the smallest of these sets before its own jobs count; ``hazard_of``: those of a larger set.

        ``proportion``: 1 if lengths grow as limits do however far one is above the next smaller one; 0 if no further
        than the usual step from one limit to the next.
        """
        key = keys[-1]
        if len(keys) > 1:
            larger = hazard_of(keys[:-1])
            if in_parts(key):
                return _of_smaller_limit(larger, self._excess(key) ** (1.0 - proportion))
            if in_parts(keys[-2]):
                excess = self._excess(key) / self._excess(keys[-2])
                return self._at_limit(larger, float(str(key[-1])) * excess ** (1.0 - proportion))
            return larger
        if key == LIMITED:  # nothing is known: any part of the limit is as likely as any other
            return np.append(1.0 - (1.0 - PARTS[1:]) / (1.0 - PARTS[:-1]), 1.0)
        return pareto_hazard(self.edges, _PRIOR_SCALE_S)

    def _excess(self, key: Key) -> float:
        """How much smaller a limit would be that is as far above the next smaller one as others are; at most 1. Of
        limits of one magnitude, the mean.

        A limit is asked for where the next smaller one is not enough: jobs with one of a day, after one of 12 hours,
        take more than those of 12. How much of a year those take for which four weeks are not enough, used parts of
        days say little of.
        """
        if key not in self._excesses:
            own = {each: jobs for each, jobs in self._with_limit.items() if each[:2] == key}
            if len(key) == 2 and own:
                logs = [math.log(self._excess(each)) * jobs for each, jobs in own.items()]
                self._excesses[key] = math.exp(sum(logs) / sum(own.values()))
            else:
                self._excesses[key] = 1.0 if len(key) == 2 else self.limit_steps.excess(float(str(key[-1])))
        return self._excesses[key]

    def stands_out(self, magnitude: Key) -> bool:
        """Whether there are limits of it that are further above the next smaller ones than others are."""
        return self._excess(magnitude) < 1.0

    def _at_limit(self, hazard: Floats, limit_s: float) -> Floats:
        """Hazards by bin of work (last axis), from those by bin of the used part of the limit. Beyond it they do not
        matter."""
        log_alive, log_used = _log_alive(hazard), np.log(self.edges / limit_s + PARTS[1])
        at_edges = np.empty((*hazard.shape[:-1], len(self.edges) + 1))
        at_edges[..., :-1], at_edges[..., -1] = _at_parts(log_alive, log_used), log_alive[..., -1]
        # The bin that the limit lies in: so steep that as many reach the limit as should.
        last = int(np.searchsorted(self.edges, limit_s, side="right")) - 1
        if last + 1 < len(self.edges):
            within = max((_LOG_PARTS[-1] - log_used[last]) / (log_used[last + 1] - log_used[last]), 0.05)
            beyond = at_edges[..., last] + (log_alive[..., -1] - at_edges[..., last]) / within
            at_edges[..., last + 1 :] = beyond[..., None]
        found: Floats = -np.expm1(np.diff(at_edges))
        return found

    def levels(self, jobs: Iterable[KnownJob]) -> list[Level]:
        """The sets of these jobs that have counts, the larger ones first."""
        return self.levels_of(map(sets_of, jobs), ())

    def levels_of(self, sets: Iterable[tuple[Key, ...]], without: Container[Key]) -> list[Level]:
        """The same of the sets of each of some jobs; ``without`` those."""
        by_depth: dict[int, dict[Key, tuple[Key, ...]]] = {}
        for keys in sets:
            for depth in range(1, len(keys)):
                if self.counts(keys[depth]) is not None and keys[depth] not in without and not in_parts(keys[depth]):
                    by_depth.setdefault(depth, {})[keys[depth]] = keys[:depth]
        return [self._level(by_depth[depth]) for depth in sorted(by_depth)]

    def _level(self, sets: dict[Key, tuple[Key, ...]]) -> Level:
        counts = [self._counts[key] for key in sets]
        ended, survived = (np.stack([each[at] for each in counts]) for at in (0, 1))
        concentrations = np.array([[self.concentration(key)] for key in sets])
        return Level(list(sets), list(sets.values()), ended, survived, concentrations)

    def concentration(self, key: Key) -> float:
        return self.learned.concentration(self._kinds[key])

    def number(self, key: Key) -> int:
        """Of a set that has counts: each has its own."""
        return self._numbers[key]


class OpenJobs:
    """Jobs that have not ended, as draws need them again and again: those alike share one row of hazards."""

    def __init__(self, history: WorkHistory, groups: Sequence[tuple[KnownJob, Floats]]) -> None:
        """``groups``: one of jobs alike, and the work that each of them has done, seconds."""
        sizes = [len(done_s) for _, done_s in groups]
        self.keys = [sets_of(known) for known, _ in groups]
        self.rows: Ints = np.repeat(np.arange(len(groups)), sizes)
        """By job, the position of its group."""
        self.done_s: Floats = np.concatenate([done_s for _, done_s in groups])
        self.limits_s: Floats = np.repeat([known.limit_s for known, _ in groups], sizes)
        edges, log_edges = history.edges, history.log_edges
        at = np.log(np.minimum(self.done_s, edges[-1]) + edges[1])
        self._bin = np.minimum(np.searchsorted(log_edges, at, side="right") - 1, len(log_edges) - 2)
        self._within = (at - log_edges[self._bin]) / (log_edges[self._bin + 1] - log_edges[self._bin])

    def at_done(self, survival: Floats) -> Floats:
        """By job, what ``survival``, a row for each group and a column for each edge, is at the work it has done."""
        low, high = survival[self.rows, self._bin], survival[self.rows, self._bin + 1]
        found: Floats = np.where(
            self._bin == 0, np.log1p(self._within * np.expm1(high)), low + self._within * (high - low)
        )
        return found


class NewJobs:
    """Jobs of the past, of which some come again: those of the same sets share one row of hazards."""

    def __init__(self, jobs: Sequence[KnownJob]) -> None:
        rows: dict[Key, int] = {}
        self.keys: list[tuple[Key, ...]] = []
        """Sets by row, from the largest to the smallest."""
        self.rows: Ints = np.zeros(len(jobs), dtype=np.int64)
        """By job."""
        self.limits_s: Floats = np.array([known.limit_s for known in jobs])
        for at, keys in enumerate(map(sets_of, jobs)):
            self.rows[at] = rows.setdefault(keys[-1], len(rows))
            if len(self.keys) < len(rows):
                self.keys.append(keys)


def _inverse(survival: Floats, log_edges: Floats, log_left: Floats) -> Floats:
    """Where each row of ``survival``, which falls along the edges, has fallen to ``log_left``; between edges linear.

    In the first bin, which is wide, it is the share itself that falls so, and not its logarithm: jobs of seconds would
    all be drawn to end at once where most end in it."""
    after = np.minimum((survival > log_left[:, None]).sum(axis=1), len(log_edges) - 1)
    before, row = np.maximum(after - 1, 0), np.arange(len(log_left))
    low, high = survival[row, after], survival[row, before]
    apart = high > low
    part = np.where(apart, np.maximum(log_left - low, 0.0) / np.where(apart, high - low, 1.0), 0.0)
    first = apart & (before == 0)
    share = np.expm1(np.maximum(log_left, low)) / np.where(first, np.expm1(low), -1.0)
    part = np.where(first, 1.0 - share, part)
    found: Floats = log_edges[after] + part * (log_edges[before] - log_edges[after])
    return found


class WorkDraw:
    """Hazards drawn once; lengths of jobs drawn by them.

    The hazards of a set come from a place of their own in the random stream: they are the same whatever else is drawn
    before, so that lengths that are not needed need not be drawn.
    """

    def __init__(self, history: WorkHistory, rng: np.random.Generator) -> None:
        self._history, self._rng = history, rng
        self._stream = np.random.PCG64(int(rng.integers(2**63)))
        self._proportion = history.learned.draw_proportion(rng)
        self._begin, self._of_sets = self._stream.state, np.random.Generator(self._stream)
        self._of_new_sets = np.random.Generator(self._stream.jumped())
        self._of_added = np.random.Generator(self._stream.jumped(2))
        self._hazards: dict[Key, Floats] = {}
        self._survival: dict[Key, Floats] = {}
        self._log_edges = history.log_edges

    def prepare(self, levels: Sequence[Level]) -> None:
        """Draw the hazards of many sets at once, which is many times as fast as one by one."""
        self._prepare(levels, self._rng)

    def _prepare(self, levels: Sequence[Level], rng: np.random.Generator) -> None:
        for level in levels:
            concentration = level.concentrations
            of_sets = zip(level.keys, level.parents, strict=True)
            prior_of, hazard_of, proportion = self._history.prior, self._hazard_of, self._proportion
            prior = np.stack([prior_of((*parents, key), hazard_of, proportion) for key, parents in of_sets])
            prior = np.minimum(np.maximum(prior, 1e-6), 1.0 - 1e-6)
            drawn = rng.beta(level.ended + concentration * prior, level.survived + concentration * (1.0 - prior))
            hazards = np.minimum(drawn, HIGHEST)
            survival = np.zeros((len(hazards), hazards.shape[1] + 1))
            np.cumsum(np.log1p(-hazards), axis=1, out=survival[:, 1:])
            self._hazards.update(zip(level.keys, hazards, strict=True))
            self._survival.update(zip(level.keys, survival, strict=True))

    def apart(self) -> WorkDraw:
        """The same hazards, other random numbers: what is drawn by them leaves those to come here as they are."""
        twin = copy.copy(self)
        twin._hazards, twin._survival, twin._rng = dict(self._hazards), dict(self._survival), self._of_added
        return twin

    def total_s(self, known: KnownJob, done_s: Floats, level: Floats | float = 0.0, own: float = 1.0) -> Floats:
        """As ``totals_s``, of jobs that are all like this one."""
        return self.totals_s(OpenJobs(self._history, [(known, done_s)]), level, own)

    def totals_s(self, jobs: OpenJobs, level: Floats | float = 0.0, own: float = 1.0) -> Floats:
        """The work that jobs take in all, given what they have done already, seconds.

        ``level`` and ``own``: mean and standard deviation of the normal score of a length (``length_correlation``).
        None takes more than its limit; one that has done so much already ends at any moment.
        """
        survival = np.stack([self._survival_of(keys) for keys in jobs.keys])
        least = -ndtri_exp(np.minimum(jobs.at_done(survival), -1e-12))
        chance = np.log1p(-self._rng.random(len(jobs.done_s))) + log_ndtr((level - least) / own)
        log_left = log_ndtr(own * ndtri_exp(chance) - level)
        drawn = np.exp(_inverse(survival[jobs.rows], self._log_edges, log_left)) - self._history.edges[1]
        total: Floats = np.maximum(np.minimum(drawn, jobs.limits_s), jobs.done_s + 1.0)
        return total

    def new_jobs_s(self, jobs: NewJobs, some: Ints, chances: Floats) -> Floats:
        """The work of some of these jobs if they come again, seconds; ``chances``, up to 1, say which part of its set
        outlives each."""
        rows, at = np.unique(jobs.rows[some], return_inverse=True)
        sets = [jobs.keys[row] for row in rows.tolist()]
        if not sets:
            return np.zeros(0)
        new_sets = [keys for keys in sets if keys[-1] not in self._survival]
        self._prepare(self._history.levels_of(new_sets, self._hazards), self._of_new_sets)
        survival = np.stack([self._survival_of(keys) for keys in sets])
        log_work = _inverse(survival[at], self._log_edges, np.log(chances))
        found: Floats = np.exp(log_work) - self._history.first_edge_s
        return np.maximum(np.minimum(found, jobs.limits_s[some]), 1.0)

    def _survival_of(self, keys: tuple[Key, ...]) -> Floats:
        """Logarithm of the share of jobs that outlive each edge."""
        smallest = keys[-1]
        if smallest not in self._survival:
            largest = next(key for key in keys if not in_parts(key))
            key = next(k for k in reversed(keys) if k == largest or self._history.counts(k) is not None)
            hazard = self._hazard_of(keys[: keys.index(key) + 1])
            self._survival[smallest] = np.concatenate(([0.0], np.cumsum(np.log1p(-np.minimum(hazard, HIGHEST)))))
        return self._survival[smallest]

    def _hazard_of(self, keys: tuple[Key, ...]) -> Floats:
        """Of the smallest of these sets, drawn with those of the larger ones as prior."""
        key = keys[-1]
        if key not in self._hazards:
            self._hazards[key] = self._drawn(self._history.prior(keys, self._hazard_of, self._proportion), key)
        return self._hazards[key]

    def _drawn(self, prior: Floats, key: Key) -> Floats:
        counts = self._history.counts(key)
        if counts is None:
            return prior
        ended, survived = counts
        prior = np.minimum(np.maximum(prior, 1e-6), 1.0 - 1e-6)  # np.clip is several times as slow for so few
        self._stream.state = self._begin
        self._stream.advance(_APART * self._history.number(key))
        concentration = self._history.concentration(key)
        drawn = self._of_sets.beta(ended + concentration * prior, survived + concentration * (1.0 - prior))
        highest: Floats = np.minimum(drawn, HIGHEST)
        return highest


def in_parts(key: Key) -> bool:
    """Whether a set is counted in bins of the used part of the limit."""
    return key[:1] == LIMITED and len(key) <= 2


def _log_alive(hazard: Floats) -> Floats:
    """Logarithm of the share of jobs that outlive each part of their limit (last axis), from hazards by part."""
    found = np.zeros(hazard.shape)
    np.cumsum(np.log1p(-np.minimum(hazard[..., :-1], HIGHEST)), axis=-1, out=found[..., 1:])
    return found


def _at_parts(log_alive: Floats, log_used: Floats) -> Floats:
    """The same at other parts; as ``np.interp``, for many rows at once."""
    after = np.clip(np.searchsorted(_LOG_PARTS, log_used, side="right"), 1, len(PARTS) - 1)
    within = np.minimum((log_used - _LOG_PARTS[after - 1]) / (_LOG_PARTS[after] - _LOG_PARTS[after - 1]), 1.0)
    before = log_alive[..., after - 1]
    found: Floats = before + within * (log_alive[..., after] - before)
    return found


def _of_smaller_limit(hazard: Floats, scale: float) -> Floats:
    """Hazards by part of a limit where jobs are as long as those of one that is ``scale`` times as large."""
    if scale == 1.0:
        return hazard
    at_edges = _at_parts(_log_alive(hazard), np.log(PARTS / scale + PARTS[1]))
    return np.concatenate((-np.expm1(np.diff(at_edges)), hazard[..., -1:]), axis=-1)


def _count(edges: Floats, ended: Sequence[float], running: Sequence[float]) -> tuple[Floats, Floats]:
    """By bin: jobs that ended in it, and jobs that survived it."""
    count = len(edges)
    over, passed = (
        np.bincount(np.searchsorted(edges, work, side="right") - 1, minlength=count).astype(np.float64)
        for work in (np.asarray(ended, dtype=np.float64), np.asarray(running, dtype=np.float64))
    )
    # A bin is survived by the jobs that ended in a later one and by those that are in a later one now.
    both = over + passed
    return over, np.cumsum(both[::-1])[::-1] - both


def group_of(known: KnownJob) -> Key:
    """The same for jobs alike in sets and limit."""
    return (*sets_of(known)[-1], known.limit_s)


def groups_of(jobs: Sequence[KnownJob]) -> list[tuple[KnownJob, Ints]]:
    """Positions of jobs alike in sets and limit, with one of the jobs, in order of first appearance."""
    found: dict[Key, list[int]] = {}
    for position, known in enumerate(jobs):
        found.setdefault(group_of(known), []).append(position)
    return [(jobs[positions[0]], np.array(positions, dtype=np.int64)) for positions in found.values()]
