"""From the lives of the jobs to the numbers people compare. Only tracked jobs count, except in the use of GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from trine.core.cluster import Tier
from trine.core.prices import HOUR_S
from trine.core.result import JobRecord, JobTime, Summary, TierTime, TimerChange
from trine.sim.recorder import Life, Recorder

_TIMERS_NAMED = 3
"""So many timers are named in the note on their tuning; the others are left out."""
_DROPPED_NAMED = 5
"""So many jobs that were given up are named."""


def job_record(life: Life, fair_s: float) -> JobRecord:
    """One line of ``jobs.csv`` for a finished job; ``fair_s``: its completion time with an equal share and a round."""
    job = life.job
    jct_s = life.finish_s - job.submit_s
    return JobRecord(
        job.id,
        job.submit_s,
        life.start_s,
        life.finish_s,
        jct_s,
        max(0.0, jct_s - life.held_s),
        job.gpus,
        job.model,
        job.user,
        life.preemptions,
        life.migrations,
        life.tier.label,
        jct_s / life.ideal_s,
        life.comm_gpu_s,
        jct_s / fair_s,
        _job_time(life, jct_s),
        0.0 if life.eligible_s is None else life.eligible_s - job.submit_s,
    )


def _job_time(life: Life, jct_s: float) -> JobTime | None:
    """Where the JCT went; ``None`` if no run of the job was recorded."""
    if life.work is None:
        return None
    work_s, ideal_s, type_s, chip_s, network_s = life.work
    # Where published clocks pass over restores, no more is left for them than the GPUs were held.
    restart_s = min(life.lost_s, max(0.0, life.held_s - work_s))
    return JobTime(
        wait_s=jct_s - life.held_s,
        ideal_s=ideal_s,
        type_s=type_s,
        chip_s=chip_s,
        network_s=network_s,
        sharing_s=work_s - (ideal_s + type_s + chip_s + network_s),
        restart_s=restart_s,
        round_end_s=life.held_s - work_s - restart_s,
    )


def dropped_sentences(recorder: Recorder) -> list[str]:
    """Jobs that were given up, which ended but did not finish."""
    dropped = [life.job.id for life in recorder.lives if life.dropped and life.job.tracked]
    if not dropped:
        return []
    named = ", ".join(dropped[:_DROPPED_NAMED]) + (", ..." if len(dropped) > _DROPPED_NAMED else "")
    jobs = "1 job was" if len(dropped) == 1 else f"{len(dropped)} jobs were"
    return [f"{jobs} given up with work left ({named}): times run to that moment."]


def summarise(
    recorder: Recorder,
    records: list[JobRecord],
    *,
    rounds: int,
    cpu_s: float,
    policy: str,
    placement: str,
    seed: int,
    watts: Mapping[str, float] | None = None,
) -> Summary:
    """Percentiles are linear quantiles; makespan runs from the first submission to the last finish of tracked jobs.

    ``watts`` by GPU type, in lower case: the energy is known if all types of the cluster are among them.
    """
    jct = np.array([r.jct_s for r in records]) if records else np.zeros(1)
    wait = np.array([r.wait_s for r in records]) if records else np.zeros(1)
    rho = np.array([r.rho for r in records]) if records else np.zeros(1)
    bounded = np.array([r.bounded_slowdown for r in records]) if records else np.zeros(1)
    first = min((r.submit_s for r in records), default=0.0)
    last = max((r.finish_s for r in records), default=0.0)
    tracked = [life for life in recorder.lives if life.job.tracked]
    # Untracked jobs use GPUs too, from the first submission of all on.
    began = min((life.job.submit_s for life in recorder.lives), default=0.0)
    capacity = recorder.cluster.gpu_count * (last - began)
    held_h = {t: recorder.totals.busy_by_type.get(t, 0.0) / HOUR_S for t in recorder.cluster.types}
    there_h = {t: n * (last - began) / HOUR_S for t, n in recorder.cluster.gpus_by_type.items()}
    return Summary(
        jobs=len(tracked),
        finished=sum(not life.dropped for life in tracked),
        jct_mean_s=float(jct.mean()),
        jct_p50_s=float(np.quantile(jct, 0.5)),
        jct_p95_s=float(np.quantile(jct, 0.95)),
        jct_p99_s=float(np.quantile(jct, 0.99)),
        makespan_s=last - first,
        wait_mean_s=float(wait.mean()),
        wait_p95_s=float(np.quantile(wait, 0.95)),
        utilization=recorder.totals.busy_gpu_s / capacity if capacity > 0 else 0.0,
        preemptions=sum(life.preemptions for life in tracked),
        migrations=sum(life.migrations for life in tracked),
        lost_work_s=sum(life.lost_s for life in tracked),
        comm_gpu_s=recorder.comm_gpu_s,
        cost=recorder.cost,
        rounds=rounds,
        sim_cpu_s=cpu_s,
        policy=policy,
        placement=placement,
        seed=seed,
        rho_mean=float(rho.mean()),
        rho_p99=float(np.quantile(rho, 0.99)),
        rho_max=float(rho.max()),
        deadlines=sum(life.job.deadline_s is not None for life in tracked),
        deadlines_missed=sum(_late(life) for life in tracked),
        bounded_slowdown_mean=float(bounded.mean()),
        bounded_slowdown_p99=float(np.quantile(bounded, 0.99)),
        bounded_slowdown_max=float(bounded.max()),
        jain_index=jain_index(rho),
        dependents=sum(life.eligible_s is not None for life in tracked),
        eligible_wait_mean_s=_eligible_wait_mean_s(records),
        gpu_h_by_type=held_h,
        utilization_by_type={t: held_h[t] / h if h > 0 else 0.0 for t, h in there_h.items()},
        energy_kwh=energy_kwh(held_h, watts or {}),
    )


def _eligible_wait_mean_s(records: Sequence[JobRecord]) -> float:
    """0 where no job had to wait for others to end."""
    if not any(r.blocked_s for r in records):
        return 0.0
    return float(np.mean([r.wait_s - r.blocked_s for r in records]))


def jain_index(values: npt.NDArray[np.float64]) -> float:
    """1 if all values are equal, 1/n if all but one are 0 (Jain, Chiu and Hawe 1984); 0 of nothing."""
    squares = float((values**2).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares > 0 else 0.0


def energy_kwh(held_h: Mapping[str, float], watts: Mapping[str, float]) -> float:
    """Of the GPUs while jobs hold them; 0 if a type has no known power."""
    if any(gpu_type.lower() not in watts for gpu_type in held_h):
        return 0.0
    return sum(hours * watts[gpu_type.lower()] for gpu_type, hours in held_h.items()) / 1000


def tier_times(recorder: Recorder) -> list[TierTime]:
    """Where GPU time went, by tier; nothing where no communication was modelled."""
    if not recorder.comm_gpu_s:
        return []
    return [TierTime(tier, recorder.totals.held_by_tier[tier], recorder.comm_by_tier[tier]) for tier in Tier]


def timer_sentences(changes: Sequence[TimerChange]) -> list[str]:
    """How the waits for a better place were tuned, in a sentence; nothing if they were not."""
    if not changes:
        return []
    last = {(change.gpus, change.tier): change.timer_s for change in changes}
    often = Counter((change.gpus, change.tier) for change in changes)
    waits = [
        f"{last[gpus, tier] / 3600:.2g} h for {gpus} GPUs within one {tier.label}"
        for (gpus, tier), _ in often.most_common(_TIMERS_NAMED)
    ]
    more = " and so on" if len(last) > _TIMERS_NAMED else ""
    times = "once" if len(changes) == 1 else f"{len(changes)} times"
    return [f"How long jobs wait for a better place was tuned {times}; in the end at most {', '.join(waits)}{more}."]


def _late(life: Life) -> bool:
    return life.job.deadline_s is not None and life.finish_s > life.job.deadline_s
