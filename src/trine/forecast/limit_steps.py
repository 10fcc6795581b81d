"""Time limits as users choose them: round figures, and how far each is above the next smaller one.

A limit is asked for where the next smaller one is not enough. The steps from one to the next are much alike, but for
some: after four weeks comes a year, or none at all. Whether jobs with such a limit are as much longer as it is larger,
or no longer than after a usual step, their number says: it falls from each limit to the next, and were lengths spread
over the whole of a wide step, there would be as many jobs as in several usual ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate, pairwise

import numpy as np

from trine.policy.view import Floats

_LEAST_STEP = 2.0
"""Limits that are closer are alike: where users choose any figure, neighbours are a few minutes apart."""
_ROUGHNESS = 0.5
"""Standard deviation of the logarithm of the number of jobs with a limit beside that of its neighbours, by habit."""
_DECAYS: Floats = np.linspace(12.0, -12.0, 2_400)
"""By how much the logarithm of the density of lengths falls in a usual step; 0 is not among them."""


class LimitSteps:
    """Limits that jobs had, in seconds, and how many jobs had each."""

    def __init__(self, jobs_of: Mapping[float, int]) -> None:
        self._jobs_of = jobs_of
        self._limits_s = sorted(jobs_of)

    def excess(self, limit_s: float) -> float:
        """How much smaller a limit would be that is as far above the next smaller one as others are; at most 1."""
        below_s = self._below_s(limit_s)
        return 1.0 if below_s is None else min(self._usual_step(limit_s) * below_s / limit_s, 1.0)

    def _below_s(self, limit_s: float) -> float | None:
        at = bisect_left(self._limits_s, limit_s)
        return self._limits_s[at - 1] if at else None

    def _usual_step(self, limit_s: float) -> float:
        """The median factor between neighbours, by the jobs that have each; the step to this limit does not count."""
        others = sorted((above / s, self._jobs_of[above]) for s, above in pairwise(self._limits_s) if above != limit_s)
        passed, middle = accumulate(jobs for _, jobs in others), sum(jobs for _, jobs in others) / 2.0
        median = next((step for (step, _), jobs in zip(others, passed, strict=True) if jobs >= middle), 1.0)
        return max(median, _LEAST_STEP)

    def _jobs_in_step_to(self, limit_s: float, usual: float) -> int:
        return sum(jobs for s, jobs in self._jobs_of.items() if limit_s / usual < s <= limit_s)

    def log_likelihood(self, proportions: Floats) -> Floats:
        """Of the numbers of jobs, by the proportion to which lengths grow with a limit that is far above the next
        smaller one: 0 if no further than in a usual step, 1 if as far as the limit."""
        found = np.zeros(len(proportions))
        for limit_s in self._limits_s:
            below_s, usual = self._below_s(limit_s), self._usual_step(limit_s)
            if below_s is not None and usual < limit_s / below_s:
                jobs, before = self._jobs_of[limit_s] + 0.5, self._jobs_in_step_to(below_s, usual) + 0.5
                off = np.log(jobs / before) - _log_ratios(np.log(limit_s / below_s) / np.log(usual), proportions)
                found -= 0.5 * off**2 / (_ROUGHNESS**2 + 1.0 / jobs + 1.0 / before)
        return found


def _log_ratios(steps: float, proportions: Floats) -> Floats:
    """Logarithm of the number of jobs in a step that is so many usual ones wide, over that in the usual one before it.

    Where the density of lengths, by their logarithm, falls by ``decay`` in a usual step, the mean length is so far into
    each step; what the wide one has more is its proportion.
    """
    into_usual, into_wide = (1.0 / _DECAYS - width / np.expm1(_DECAYS * width) for width in (1.0, steps))
    log_ratio = np.log(-np.expm1(-_DECAYS * steps) / np.expm1(_DECAYS))
    found: Floats = np.interp(proportions, (into_wide - into_usual) / (steps - 1.0), log_ratio)
    return found
