"""Jobs that repeat others: a sweep submits one program again and again, and each of its jobs takes about as long.

What a user's last jobs took predicts the next one better than what was asked for (Tsafrir, Etsion and Feitelson, TPDS
2007). A length is either the job's own, drawn as ``work_history`` has it, or that of an earlier job of the same user
with a deviation: one so many jobs back (geometric, of several half-lives), off by so much (log-normal, of several
widths). How often each is the case is learned from the jobs that ended, each given those before it, by expectation and
maximisation. A limit or a size that speaks for other lengths makes a repetition less likely: each candidate counts by
how much likelier its length is for jobs with such a limit than for all.

In a future the jobs that have not ended are drawn in order of submission. So jobs that wait may repeat one that runs,
and where it turns out long, all of them are: the wait behind a sweep is as uncertain as its length.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import ndtr

from trine.forecast.work_history import KnownJob, WorkHistory
from trine.policy.view import Flags, Floats, Ints

_STEP = 0.045
"""Width of a bin of the logarithm of a length, a third of the narrowest that sets are counted in."""
_HALF_LIVES = (1.0, 8.0, 64.0, 512.0)
"""Jobs of the same user after which it is half as likely that one is repeated."""
_WIDTHS = (0.012, 0.05, 0.2)
"""Standard deviations of the logarithm of a length from that of the job that is repeated."""
_OWN_PRIOR = 10.0
"""Jobs with lengths of their own that count beside those of the history."""
_ROUNDS = 60
"""Of expectation and maximisation: the parts have settled to a hundredth."""
_CANDIDATES = 16
"""Earlier jobs that are drawn for each job, one of which it may repeat."""
_FLOOR = 1e-4
"""Part of all lengths that is spread evenly, so that none is impossible."""
_LEAST = 1e-12
_ROWS = 2_048
"""Jobs for which distributions by bin are made at a time: for all of 20,000 at once they would take half a gigabyte."""
_NONE = -1


class Recurrence:
    """Which lengths come again, learned from some jobs; draws of those that have not ended."""

    def __init__(self, history: WorkHistory, jobs: Sequence[KnownJob], densities: Floats) -> None:
        """``jobs``: the latest first; ``densities``: of each the part of jobs like it by bin of the history."""
        jobs, densities = jobs[::-1], densities[::-1]
        self._shift_s = history.first_edge_s
        self._ended: Flags = np.array([each.ended for each in jobs], dtype=np.bool_)
        self._work_s: Floats = np.array([each.work_s for each in jobs])
        self._limit_s: Floats = np.array([each.limit_s for each in jobs])
        self._log_work: Floats = np.log(np.minimum(self._work_s, history.edges[-1]) + self._shift_s)
        self._place_in_order(jobs)
        edges = np.arange(history.log_edges[0], history.log_edges[-1] + _STEP, _STEP)
        self._first, self._bins = float(edges[0]), len(edges) - 1
        of_ended = _in_finer_bins(densities[self._ended], history.log_edges, edges)
        common = of_ended.mean(axis=0) if self._ended.any() else np.full(self._bins, 1.0 / self._bins)
        self._common: Floats = (common + _FLOOR / self._bins) / (common.sum() + _FLOOR)
        """Part of all lengths in each bin."""
        self._work_bins: Ints = np.minimum(((self._log_work - self._first) / _STEP).astype(np.int64), self._bins - 1)
        self._open: Ints = np.flatnonzero(~self._ended)
        self._likelier: Floats = self._beyond_work_done(_in_finer_bins(densities[self._open], history.log_edges, edges))
        self._own: Floats = np.maximum(self._likelier.sum(axis=1), _LEAST)
        """Of each job that has not ended, the part of jobs like it that do more work than it has done."""
        self._likelier /= self._common
        """Of each such job, how much likelier lengths in a bin are for jobs like it than for all."""
        self.weights: Floats = np.eye(1 + len(_HALF_LIVES) * len(_WIDTHS))[0]
        """Parts of the jobs that have a length of their own, and that repeat another in each way."""
        self.chances: Floats = np.zeros(len(jobs))
        """That each job repeats another, the latest first."""
        if self._ended.any():
            self._learn()

    def _place_in_order(self, jobs: Sequence[KnownJob]) -> None:
        """Jobs by user, each user's in order of submission; jobs without a user are those of one."""
        of_user: dict[str, list[int]] = {}
        for at, each in enumerate(jobs):
            of_user.setdefault(each.job.user, []).append(at)
        users = list(of_user.values())
        self._by_user: Ints = np.array([at for own in users for at in own], dtype=np.int64)
        self._rank: Ints = np.argsort(self._by_user)
        """Of each job, where it stands in ``_by_user``."""
        begin = np.cumsum([0, *(len(own) for own in users)])[:-1]
        self._rank_of_first: Ints = np.repeat(begin, [len(own) for own in users])[self._rank]

    def _beyond_work_done(self, left: Floats) -> Floats:
        """Of jobs that have not ended (rows), the part of jobs like each in every bin, without what it has passed."""
        bins = self._work_bins[self._open]
        left *= np.arange(self._bins) >= bins[:, None]
        left[np.arange(len(bins)), bins] *= 1.0 - ((self._log_work[self._open] - self._first) / _STEP - bins)
        return left

    # -- what is learned -----------------------------------------------------------------------------------------

    def _learn(self) -> None:
        likelier = self._how_much_likelier()
        ended = likelier[self._ended]
        weights = np.full(likelier.shape[1], 1.0 / likelier.shape[1])
        for _ in range(_ROUNDS):
            parts = ended * weights
            weights = (parts / parts.sum(axis=1, keepdims=True)).sum(axis=0)
            weights[0] += _OWN_PRIOR
            weights /= weights.sum()
        # Bayesian information criterion: each weight has to make the lengths likelier by half the logarithm of their
        # number. Jobs that are independent gain nothing, sweeps a hundred times as much.
        if np.log(ended @ weights).sum() > 0.5 * (len(weights) - 1) * np.log(len(ended)):
            self.weights = weights
            self.chances = (1.0 - weights[0] / (likelier @ weights))[::-1]

    def _how_much_likelier(self) -> Floats:
        """By job and way of repeating, how much likelier its length, or that it has not ended, is than for a job of
        its own; the first column is that."""
        found = np.ones((len(self._ended), 1 + len(_HALF_LIVES) * len(_WIDTHS)))
        apart = (np.arange(self._bins) - np.arange(self._bins)[:, None]) * _STEP
        kernels = [ndtr((apart + _STEP / 2) / width) - ndtr((apart - _STEP / 2) / width) for width in _WIDTHS]
        for rows, before, missing in self._jobs_before():
            ended, still_open = self._ended[rows], ~self._ended[rows]
            bins, of_open = self._work_bins[rows[ended]], np.searchsorted(self._open, rows[still_open])
            for width, kernel in enumerate(kernels):
                likelier = np.empty((len(rows), self._bins))
                likelier[ended] = kernel[bins] / self._common[bins, None]
                likelier[still_open] = self._likelier[of_open] @ kernel / self._own[of_open, None]
                for at in range(len(_HALF_LIVES)):
                    column = 1 + at * len(_WIDTHS) + width
                    found[rows, column] = (before[at] * likelier).sum(axis=1) + missing[at]
        return found

    def _jobs_before(self) -> Iterator[tuple[Ints, Floats, Floats]]:
        """Some jobs at a time. By half-life and job, how likely each bin is as the length of the job that it repeats,
        and that there is none so far back; jobs that have not ended are passed over."""
        keep = 0.5 ** (1.0 / np.array(_HALF_LIVES))[:, None]
        ended, bins = self._ended.tolist(), self._work_bins.tolist()
        is_first = (self._rank == self._rank_of_first).tolist()
        seen, none = np.zeros((len(keep), self._bins)), np.ones((len(keep), 1))
        for begin in range(0, len(ended), _ROWS):
            rows = self._by_user[begin : begin + _ROWS]
            before, missing = np.empty((len(keep), len(rows), self._bins)), np.empty((len(keep), len(rows)))
            for row, at in enumerate(rows.tolist()):
                if is_first[at]:
                    seen[:], none[:] = 0.0, 1.0
                before[:, row], missing[:, row : row + 1] = seen, none
                if ended[at]:
                    seen *= keep
                    seen[:, bins[at] : bins[at] + 1] += 1.0 - keep
                    none *= keep
            yield rows, before, missing

    # -- what is drawn -------------------------------------------------------------------------------------------

    def totals_s(self, positions: Ints, own_s: Floats, rng: np.random.Generator) -> Floats:
        """The work that jobs that have not ended take in one future, seconds.

        ``positions``: of the jobs in those that were learned from, the latest first; ``own_s``: what each takes if it
        repeats no other.
        """
        if self.weights[0] == 1.0:
            return own_s
        places = len(self._ended) - 1 - positions
        order = np.argsort(places)
        drawn = self._drawn(places[order], np.log(own_s[order] + self._shift_s).tolist(), rng)
        found, some = np.empty(len(own_s)), places[order]
        total_s = np.exp(drawn) - self._shift_s
        found[order] = np.maximum(np.minimum(total_s, self._limit_s[some]), self._work_s[some] + 1.0)
        return found

    def _drawn(self, places: Ints, own_logs: list[float], rng: np.random.Generator) -> Floats:
        """Logarithms of the lengths of jobs in order of submission, each given those before it."""
        # The oldest job has the first numbers of each stream, so that one more job changes no other.
        which, by_how_much, chosen = rng.spawn(3)
        sources, deviations = self._candidates(places, which, by_how_much)
        chances = chosen.random((len(places), 2)).tolist()
        rows = np.searchsorted(self._open, places)
        of_jobs = zip(places.tolist(), rows.tolist(), self._own[rows].tolist(), strict=True)
        logs, repeats = self._log_work.tolist(), 1.0 - float(self.weights[0])
        for at, (place, row, own) in enumerate(of_jobs):
            candidates, sums = self._possible(logs, sources[at], deviations[at], logs[place], row)
            no_source = sources[at].count(_NONE) / _CANDIDATES
            weight_of_own = own * (1.0 - repeats + repeats * no_source)
            weight = repeats * (sums[-1] if sums else 0.0) / _CANDIDATES
            repeats_one, which_one = chances[at]
            if repeats_one * (weight_of_own + weight) < weight_of_own:
                logs[place] = own_logs[at]
            else:
                logs[place] = candidates[bisect_right(sums, which_one * sums[-1])]
        return np.array([logs[place] for place in places.tolist()])

    def _possible(
        self, logs: list[float], sources: list[int], deviations: list[float], done: float, row: int
    ) -> tuple[list[float], list[float]]:
        """Lengths that a job may repeat and that are above the work it has done, and the sums of their weights."""
        candidates, sums, total = list[float](), list[float](), 0.0
        first, last, likelier = self._first, self._bins - 1, self._likelier.item
        for source, deviation in zip(sources, deviations, strict=True):
            if source != _NONE and (log := logs[source] + deviation) > done:
                total += likelier(row, min(max(int((log - first) / _STEP), 0), last))
                candidates.append(log)
                sums.append(total)
        return candidates, sums

    def _candidates(
        self, places: Ints, which: np.random.Generator, by_how_much: np.random.Generator
    ) -> tuple[list[list[int]], list[list[float]]]:
        """By job, earlier ones that it may repeat (``_NONE``: none so far back), and its deviation from each."""
        chances = which.random((len(places), _CANDIDATES, 2))
        ways = self.weights[1:].cumsum() / self.weights[1:].sum()
        way = np.minimum(np.searchsorted(ways, chances[..., 0]), len(ways) - 1)
        half_lives = np.repeat(_HALF_LIVES, len(_WIDTHS))[way]
        back = 1 + (np.log2(1.0 - chances[..., 1]) * -half_lives).astype(np.int64)
        rank = self._rank[places][:, None] - back
        exists = rank >= self._rank_of_first[places][:, None]
        sources = np.where(exists, self._by_user[np.maximum(rank, 0)], _NONE)
        widths = np.tile(_WIDTHS, len(_HALF_LIVES))[way]
        return sources.tolist(), (widths * by_how_much.standard_normal(way.shape)).tolist()


def _in_finer_bins(densities: Floats, log_edges: Floats, finer: Floats) -> Floats:
    """Parts by bin, in finer bins; uniform within each."""
    at = np.clip(np.searchsorted(log_edges, finer, side="right") - 1, 0, len(log_edges) - 2)
    within = np.minimum((finer - log_edges[at]) / (log_edges[at + 1] - log_edges[at]), 1.0)
    found = np.empty((len(densities), len(finer) - 1))
    for begin in range(0, len(densities), _ROWS):
        some = slice(begin, begin + _ROWS)
        below = np.zeros((len(densities[some]), len(log_edges)))
        np.cumsum(densities[some], axis=1, out=below[:, 1:])
        found[some] = np.diff(below[:, at] + within * (below[:, at + 1] - below[:, at]), axis=1)
    return found
