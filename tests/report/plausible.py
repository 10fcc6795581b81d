"""Made-up but plausible results: a seeded first-come first-served world, just good enough to fill a report."""

from __future__ import annotations

import heapq
import itertools
import random

from trine.core.cluster import Cluster
from trine.core.result import JobRecord, RunResult, Segment, Summary

MODELS = ("resnet50", "bert", "gpt2", "vgg16", "")
SIZES = (1, 1, 1, 1, 2, 2, 4, 4, 8, 16)


def plausible_run(
    jobs: int = 120,
    nodes: int = 16,
    gpus_per_node: int = 4,
    seed: int = 0,
    policy: str = "fifo",
    placement: str = "packed",
    speed: float = 1.0,
) -> RunResult:
    """A run of ``jobs`` jobs; ``speed`` above 1 makes every job quicker, so that policies differ."""
    cluster = Cluster.uniform(nodes, gpus_per_node, "v100", nodes_per_rack=max(1, nodes // 2))
    rng = random.Random(seed)
    free, clock, now = list(range(cluster.gpu_count)), 0.0, 0.0
    ends: list[tuple[float, tuple[int, ...]]] = []
    records, segments = [], []
    for i in range(jobs):
        submit = clock = round(clock + rng.expovariate(cluster.gpu_count / 36000.0), 1) if i else 0.0
        gpus, ideal = min(rng.choice(SIZES), cluster.gpu_count), round(rng.lognormvariate(8.4, 1.1) + 60, 1)
        now = max(now, submit)  # nobody overtakes, so no GPU is taken before it was given back
        while ends and (ends[0][0] <= now or len(free) < gpus):
            now = max(now, ends[0][0])
            free += heapq.heappop(ends)[1]
        taken = tuple(sorted(free)[:gpus])
        free = sorted(free)[gpus:]
        tier = cluster.tier(taken).label
        slow = 1.0 if tier in {"gpu", "node"} else 1.4
        finish = round(now + ideal * slow / speed, 1)
        heapq.heappush(ends, (finish, taken))
        records.append(_record(i, submit, now, finish, gpus, rng, tier, ideal))
        segments += _stays(records[-1], taken, slow, split=i % 7 == 3)
    return RunResult(
        summary_of(records, policy, placement, seed),
        records,
        segments,
        cluster,
        {"policy": policy, "round_s": 300, "perf": {"locality_penalty": 1.4, "uplink": None}},
        ["3 rows of the trace were skipped: no GPUs asked for."],
    )


def _record(
    i: int, submit: float, start: float, finish: float, gpus: int, rng: random.Random, tier: str, ideal: float
) -> JobRecord:
    jct = round(finish - submit, 1)
    return JobRecord(
        f"job-{i:04d}", submit, start, finish, jct, round(start - submit, 1), gpus, rng.choice(MODELS),
        f"user{rng.randrange(9)}", int(i % 7 == 3), 0, tier, jct / ideal,
    )  # fmt: skip


def _stays(job: JobRecord, gpus: tuple[int, ...], slow: float, split: bool) -> list[Segment]:
    middle = round((job.start_s + job.finish_s) / 2, 1)
    cuts = [job.start_s, middle, job.finish_s] if split else [job.start_s, job.finish_s]
    ends = ["preempted", "finished"] if split else ["finished"]
    starts = ["placed", "resumed"]
    return [
        Segment(job.job_id, a, b, gpus, job.tier, slow, starts[k], ends[k])
        for k, (a, b) in enumerate(itertools.pairwise(cuts))
    ]


def summary_of(jobs: list[JobRecord], policy: str, placement: str, seed: int) -> Summary:
    jct = sorted(j.jct_s for j in jobs) or [float("nan")]
    wait = sorted(j.wait_s for j in jobs) or [float("nan")]

    def at(values: list[float], q: float) -> float:
        return values[min(len(values) - 1, int(q * len(values)))]

    makespan = max((j.finish_s for j in jobs), default=0.0)
    return Summary(
        jobs=len(jobs), finished=len(jobs), jct_mean_s=sum(jct) / len(jct), jct_p50_s=at(jct, 0.5),
        jct_p95_s=at(jct, 0.95), jct_p99_s=at(jct, 0.99), makespan_s=makespan, wait_mean_s=sum(wait) / len(wait),
        wait_p95_s=at(wait, 0.95), utilization=0.78, preemptions=sum(j.preemptions for j in jobs), migrations=0,
        lost_work_s=0.0, comm_gpu_s=0.0, cost=0.0, rounds=int(makespan // 300), sim_cpu_s=0.123, policy=policy,
        placement=placement, seed=seed,
    )  # fmt: skip
