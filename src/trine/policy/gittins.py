"""Gittins index over attained GPU-seconds: serve first what is most likely to end soon per unit of service."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from trine.core.params import param
from trine.policy.base import FinishedJob, KeyPolicy
from trine.policy.remaining import WorkDistribution
from trine.policy.view import Floats, View

PRIOR_GPU_S = np.geomspace(60.0, 2.6e6, 41)
"""For a fixed look-ahead before anything has finished: sizes spread over the decades from a minute to a GPU-month."""


@dataclass
class Gittins(KeyPolicy):
    """Index(a) = max over d of P(end within d | reached a) / E[service until end or a + d | reached a].

    The distribution is ``sample``, or else learned in this cluster: from the jobs that have finished and, as censored,
    from those that have not, so that long jobs count before the first of them ends (``policy.remaining``). With
    ``quantum_gpu_s`` the maximum over d is replaced by that one d, as in the published implementation, and what is
    learned is a sample of finished jobs.
    """

    name: ClassVar[str] = "gittins"
    title: ClassVar[str] = "Gittins index from the GPU-times of earlier jobs"
    paper: ClassVar[str] = "Tiresias (NSDI'19), section 4.3"

    sample: tuple[float, ...] = param(
        (), "GPU-times in GPU-seconds, or a file with one per line; empty = learn from finished jobs", minimum=0
    )
    quantum_gpu_s: float | None = param(None, "fixed look-ahead in GPU-seconds instead of the best one", minimum=1e-9)
    min_finished: int = param(
        30, "with quantum_gpu_s: finished jobs before the learned sample replaces the prior", minimum=1
    )
    _finished: list[float] = field(default_factory=list, init=False, repr=False)
    _learned: WorkDistribution = field(default_factory=WorkDistribution, init=False, repr=False)
    _fitted: int = field(default=-1, init=False, repr=False)
    _ages: Floats = field(default_factory=lambda: np.zeros(0), init=False, repr=False)
    _index: Floats = field(default_factory=lambda: np.zeros(0), init=False, repr=False)

    def finished(self, ended: FinishedJob) -> None:
        self._finished.append(ended.gpu_time_s)

    def key(self, view: View) -> tuple[Floats, ...]:
        return -self._index_of(view.attained_gpu_s), (~view.assigned).astype(np.float64), view.submit_s

    def _index_of(self, attained_gpu_s: Floats) -> Floats:
        if not self.sample and self.quantum_gpu_s is None:
            self._learn(attained_gpu_s)
            return 1.0 / self._learned.left_s(attained_gpu_s)
        self._refit()
        found: Floats = self._index[np.searchsorted(self._ages, attained_gpu_s, side="right") - 1]
        return found

    def _learn(self, attained_gpu_s: Floats) -> None:
        """Fit again when the number of finished jobs has grown by a tenth, so that the cost stays small."""
        known = max(self._fitted, 0)
        if self._fitted >= 0 and len(self._finished) < max(known + 1, known * 1.1):
            return
        for size in self._finished[known:]:
            self._learned.add(size)
        self._learned.fit(attained_gpu_s)
        self._fitted = len(self._finished)

    def _refit(self) -> None:
        """The same for a sample."""
        if self._fitted >= 0 and (self.sample or len(self._finished) < max(self.min_finished, self._fitted * 1.1)):
            return
        learned = len(self._finished) >= self.min_finished
        sizes = self.sample or (self._finished if learned else PRIOR_GPU_S)
        self._ages, self._index = gittins_index(np.asarray(sizes, dtype=np.float64), self.quantum_gpu_s)
        self._fitted = len(self._finished) if learned else 0


def gittins_index(sizes: Floats, quantum: float | None = None, points: int = 512) -> tuple[Floats, Floats]:
    """Ages and the index from each age on (a step function), for an empirical distribution of sizes.

    Beyond the largest size the index is 0: nothing is known to end there. Samples over ``points`` values are thinned
    to that many quantiles, since the exact index costs the square of the sample.
    """
    values = np.sort(sizes[sizes > 0])
    if len(values) > points:
        values = np.quantile(values, np.linspace(0.0, 1.0, points), method="inverted_cdf")
    ages = np.concatenate(([0.0], np.unique(values)))
    index = np.array([_best_rate(values[values > age] - age, quantum) for age in ages])
    return ages, index


def _best_rate(left: Floats, quantum: float | None) -> float:
    """The largest P(end within d) / E[min(size, d)] over d, for what is ``left`` of the sizes (sorted)."""
    if not len(left):
        return 0.0
    if quantum is not None:
        return float((left <= quantum).sum() / np.minimum(left, quantum).sum())
    ended = np.arange(1, len(left) + 1)
    served = np.cumsum(left) + left * (len(left) - ended)
    return float((ended / served).max())
