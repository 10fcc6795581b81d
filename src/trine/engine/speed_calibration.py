"""Puts the engine's performance model right by the speeds that running jobs turn out to have, from round to round.

Costs nothing where jobs run as predicted. For policies that ask for it (``Policy.calibrates``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trine.engine.job_table import State
from trine.perf.learning.calibration import Calibration, Run, calibrated

if TYPE_CHECKING:
    from trine.engine.rounds import Rounds

_SAME = 1e-9
"""Relative difference of speeds that comes from rounding."""
_CHIPS_EVERY = 20
"""Rounds between two changes of chip slowdowns: indices of free GPUs are made anew with them."""


class SpeedCalibration:
    """One per engine."""

    def __init__(self, engine: Rounds) -> None:
        self._engine = engine
        self._given = engine.perf
        self._calibration = Calibration()
        self._differs = False
        """Some job did not run as predicted: from then on all are looked at."""
        self._rounds = 0

    def measured(self, job_index: int, rate: float) -> None:
        """A job began to run at ``rate`` steps/s, or goes on at that."""
        if not self._differs:
            predicted = self._engine.speed(job_index).steps_per_s
            self._differs = abs(rate - predicted) > _SAME * predicted

    def learn(self) -> None:
        """Look at all running jobs; change the model of the engine if factors changed materially."""
        if not self._differs:
            return
        engine = self._engine
        for job_index in engine.ownership.holding:
            if self._runs_alone(job_index):
                self._calibration.observe(self._run(job_index))
        self._rounds += 1
        speeds = self._calibration.publish_speeds()
        chips = self._calibration.publish_chips() if self._rounds % _CHIPS_EVERY == 0 else None
        if speeds is None and chips is None:
            return
        perf = engine.perf
        table = perf.variability if chips is None else calibrated(self._given.variability, chips)
        engine.use_model(replace(perf, speed_factors=speeds or perf.speed_factors, variability=table))

    def _runs_alone(self, job_index: int) -> bool:
        table = self._engine.table
        running = table.state[job_index] is State.RUNNING and table.rate[job_index] > 0
        return running and job_index not in self._engine.co_runners

    def _run(self, job_index: int) -> Run:
        engine = self._engine
        job, gpus, cluster = engine.table.jobs[job_index], engine.ownership.holding[job_index], engine.cluster
        predicted, measured = engine.speed(job_index).steps_per_s, float(engine.table.rate[job_index])
        nodes = len({cluster.node_of[gpu] for gpu in gpus})
        fits = len(gpus) <= engine.free.pools[engine.free.type_of(gpus)].largest_node
        return Run(job.model, cluster.type_of(gpus[0]), job.app_class, gpus, nodes, fits, predicted, measured)
