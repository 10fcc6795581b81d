"""Finish-time fairness with pairs: the smallest slowdown rho, by programs whose duals rule out every smaller one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trine.policy.shares import packed
from trine.policy.shares.program import Solved
from trine.policy.shares.solver.highs import Session
from trine.policy.view import Floats

GAP = 1e-9
MOST_PROGRAMS = 60
NEAR = 0.05


@dataclass(frozen=True)
class Finish:
    """What the finish of each job is measured by. Jobs without steps left are finished and do not count."""

    steps_left: Floats
    elapsed_s: Floats
    ideal_s: Floats

    def demand(self, rho: float) -> Floats:
        """Steps per second with which each job ends within rho times its ideal time."""
        spare_s = rho * self.ideal_s - self.elapsed_s
        return np.divide(self.steps_left, spare_s, out=np.zeros(len(spare_s)), where=self.steps_left > 0)

    def worst(self, rate: Floats) -> float:
        """The largest rho at these steps per second."""
        left_s = np.full(len(rate), np.inf)
        np.divide(self.steps_left, rate, out=left_s, where=rate > 0)
        return self._largest(self.elapsed_s + left_s)

    def least(self) -> float:
        """No rho is below this: the time that has passed."""
        return self._largest(self.elapsed_s)

    def _largest(self, finish_s: Floats) -> float:
        left = self.steps_left > 0
        return float((finish_s[left] / self.ideal_s[left]).max())

    def ruled_out(self, duals: Floats, worth: float, least: float, most: float) -> float:
        """The largest rho whose demands are worth more, at these duals, than any shares can bring. By bisection."""
        low, high = least, most
        while high - low > 1e-13 * high:
            middle = (low + high) / 2
            if middle in (low, high):
                break
            low, high = (middle, high) if float(duals @ self.demand(middle)) > worth else (low, middle)
        return low


def slowdown(space: packed.Space, finish: Finish, session: Session) -> Solved:
    """A rho can be had iff every job can make ``finish.demand(rho)``: iff the highest level with it is 1 or more."""
    least = bound = finish.least()
    rho = max(2 * least, 1.0)
    best, value = None, np.inf
    for _ in range(MOST_PROGRAMS):
        answer = packed.level(space, finish.demand(rho), session=session)
        reached = finish.worst(space.throughput(answer.x, answer.y))
        if best is None or reached < value:
            best, value = answer, reached
        bound = max(bound, finish.ruled_out(answer.duals, answer.bound, least, value))
        gap = (value - bound) / value
        if gap <= GAP:
            break
        # Far off, the bound is too low and the shares are too poor: the truth lies between.
        rho = bound if gap < NEAR and bound > least else (bound + value) / 2
    assert best is not None
    return Solved(best.x, best.y, value, bound, max(gap, 0.0), best.duals, best.prices, "highs")
