"""A moment of a recorded simulation as a forecast needs it: the state that a daemon would be in, had it run this.

Lengths of jobs are those that the recording shows, where it shows their end; jobs that come later are drawn from those
that had come by then, as for a daemon. What the files of a run do not tell is as the defaults have it: the application
class of a job, the accounts of a policy, and traffic on links.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trine.assembly.settings import described, resolve
from trine.core.errors import InputError
from trine.inputs.job_rules import seconds
from trine.inputs.job_spec import JobSpec
from trine.planning.worker import answer
from trine.report.recorded_run import RecordedRun, read_run, version_of
from trine.report.running_record import RunningRunReader, found_record, is_running
from trine.server.build import Model
from trine.server.live_job import LiveJob
from trine.server.predictions import BUDGET_S, DRAWS, EndedJob, ForecastRequest
from trine.server.state import LiveState

_SHORTEST_S = 1e-3
_NOT_KEPT = frozenset({"network", "oversubscription", "window", "ideal", "validate", "background"})
"""Settings that belong to the simulation of a whole trace, or to links, which the files do not tell."""


class RecordedMoment:
    """The run at ``at_s``, seconds of its trace."""

    def __init__(self, run: RecordedRun, at_s: float) -> None:
        if not run.begin_s <= at_s <= run.last_s:
            span = f"between {0:g} and {run.last_s - run.begin_s:,.0f} s after the first submission"
            raise InputError("--at", f"{at_s - run.begin_s:,.0f} s", f"a time of the run, {span}")
        self.run, self.at_s = run, at_s
        self.worked_s = (np.minimum(run.end_s, at_s) - run.start_s).clip(min=0.0) / run.slowdown
        """Work of each stretch by then, in seconds on reference GPUs."""
        self.exact: set[str] = set()
        """Jobs whose length is known."""

    def request(self, changes: tuple[str, ...], draws: int, budget_s: float) -> ForecastRequest:
        ended = [self._ended(i) for i in np.flatnonzero(self.run.finish_s <= self.at_s).tolist()]
        return ForecastRequest("", ended, Model(), self.at_s, draws, budget_s, changes=changes)

    def state(self) -> LiveState:
        run = self.run
        state = LiveState(policy=run.policy, placement=run.placement, last_s=self.at_s)
        state._use_cluster(self.at_s, run.cluster)
        values = _changed_settings(run)
        state.round_s = float(values.pop("round_s", state.round_s))
        state.settings = values
        jobs = [self._job(i) for i in np.flatnonzero((run.submit_s <= self.at_s) & (self.at_s < run.finish_s)).tolist()]
        state.jobs = {job.id: job for job in jobs}
        state.live = dict(state.jobs)
        state.next_id = 1 + max((int(job.id) for job in run.jobs if job.id.isdecimal()), default=0)
        self._check_sharing(jobs)
        return state

    def _check_sharing(self, jobs: list[LiveJob]) -> None:
        held = [gpu for job in jobs for gpu in job.gpus]
        if len(set(held)) < len(held):
            raise InputError("--run", "jobs that share GPUs at this time", "a run, or a time, without shared GPUs")

    def _ended(self, index: int) -> EndedJob:
        job, work_s = self.run.jobs[index], self._work_s(index)
        return EndedJob(job.id, job.user, "default", job.model, job.gpus, job.submit_s, work_s, None, True)

    def _work_s(self, index: int) -> float:
        return float(self.worked_s[self.run.stretches_of.get(index, [])].sum())

    def _job(self, index: int) -> LiveJob:
        run, job, at_s = self.run, self.run.jobs[index], self.at_s
        spec = JobSpec.model_validate({"name": "recorded", "run": ["true"], "gpus": job.gpus})
        spec = spec.model_copy(update={"model": job.model, "max_runtime": self._length_s(index)})
        made = LiveJob(job.id, job.user, "default", 1.0, spec, job.submit_s, idle_from_s=job.submit_s)
        for i in run.stretches_of.get(index, []):
            start_s, end_s = float(run.start_s[i]), float(run.end_s[i])
            if start_s > at_s:
                continue
            made.epoch += 1
            made.done += float(self.worked_s[i])
            made.started_s = start_s if made.started_s is None else made.started_s
            if end_s > at_s:
                made.state, made.gpus, made.rate = "running", tuple(run.gpus_of(i)), 1.0 / float(run.slowdown[i])
                made.run_from_s, made.heard_s = start_s, at_s
            else:
                made.attained_s += end_s - start_s
                made.idle_from_s = end_s
        made.safe = made.done
        return made

    def _length_s(self, index: int) -> float | None:
        """Of its work in the whole recording; not known of a job that had not ended when the recording did."""
        run, job = self.run, self.run.jobs[index]
        if not math.isfinite(job.finish_s):
            return None
        self.exact.add(job.id)
        of = run.stretches_of.get(index, [])
        return max(float(((run.end_s[of] - run.start_s[of]) / run.slowdown[of]).sum()), _SHORTEST_S)


def _changed_settings(run: RecordedRun) -> dict[str, Any]:
    """What differs from the defaults, by name; refused if the policy or placement is not one of the catalogue."""
    recorded = run.settings.get("settings", {})
    usual = described(resolve(run.policy, run.placement, {}))
    found: dict[str, Any] = {}
    for part in ("run", "policy", "placement"):
        for name, value in recorded.get(part, {}).items():
            known = usual[part].get(name)
            same = list(known) == value if isinstance(known, tuple) else known == value
            if name in usual[part] and not same and name not in _NOT_KEPT and value is not None:
                found[name] = value
    return found


def whatif_of_run(folder: Path, at: str, changes: Sequence[str]) -> dict[str, Any]:
    """What ``changes`` at the time ``at`` of the run in ``folder`` would do; see ``planning.comparison``.

    ``after_s``: that time, since the first submission.
    """
    run = read_any(folder)
    moment = RecordedMoment(run, _time_s(run, at))
    state = moment.state()
    request = moment.request(tuple(changes), DRAWS, BUDGET_S)
    found = answer(request, lambda: copy.deepcopy(state), moment.exact)
    return found | {"after_s": moment.at_s - run.begin_s}


def read_any(folder: Path) -> RecordedRun:
    """The run that goes on there, or the one whose results are there."""
    record = found_record(folder)
    if record is not None and (not version_of(folder) or is_running(record)):
        return RunningRunReader(record, folder.name).read()
    return read_run(folder)


def _time_s(run: RecordedRun, at: str) -> float:
    if not at:
        return run.last_s if run.now_s is not None else float(np.median(run.submit_s))
    try:
        return run.begin_s + (0.0 if at == "0" else seconds(float(at) if at.replace(".", "", 1).isdigit() else at))
    except ValueError:
        raise InputError("--at", repr(at), "a time since the first submission, such as 12h or 3600") from None
