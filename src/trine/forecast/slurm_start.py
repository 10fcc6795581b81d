"""When Slurm would say that jobs start (``squeue --start``): every job runs to its time limit, and those that wait are
planned in order, each at the earliest time at which it delays no job before it. One GPU type, no arrivals.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class _Profile:
    """Free GPUs over time, as steps."""

    def __init__(self, now_s: float, free: int, ends: Sequence[tuple[float, int]]) -> None:
        self._times, self._free = [now_s], [free]
        for end_s, gpus in sorted(ends):
            self._times.append(max(end_s, now_s))
            self._free.append(self._free[-1] + gpus)

    def earliest_s(self, gpus: int, length_s: float) -> float:
        """From when on so many GPUs are free for so long; infinity: never."""
        times, free, first = self._times, self._free, 0
        while first < len(times):
            until_s = times[first] + length_s
            short = next((i for i in range(first, len(times)) if free[i] < gpus and times[i] < until_s), len(times))
            if short == len(times):
                return times[first]
            first = short + 1
        return float("inf")

    def take(self, from_s: float, length_s: float, gpus: int) -> None:
        first, last = self._step_at(from_s), self._step_at(from_s + length_s)
        for i in range(first, last):
            self._free[i] -= gpus

    def _step_at(self, at_s: float) -> int:
        """The step that begins at ``at_s``, made if there is none."""
        i = bisect_left(self._times, at_s)
        if i == len(self._times) or self._times[i] != at_s:
            self._times.insert(i, at_s)
            self._free.insert(i, self._free[i - 1])
        return i


def slurm_starts(
    now_s: float, free: int, running: Sequence[tuple[float, int]], waiting: Sequence[tuple[int, float]]
) -> list[float]:
    """Planned starts of ``waiting``, (GPUs, limit in seconds) in order; ``running``: (end by its limit, GPUs)."""
    profile, starts = _Profile(now_s, free, running), []
    for gpus, limit_s in waiting:
        start_s = profile.earliest_s(gpus, limit_s)
        if start_s < float("inf"):
            profile.take(start_s, limit_s, gpus)
        starts.append(start_s)
    return starts
