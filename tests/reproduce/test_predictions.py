"""Predictions scored on a small drawn workload."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trine.core.job import Job
from trine.forecast.predictions import Interval
from trine.forecast.replay import CheckedPrediction, Waits
from trine.inputs.yaml_reader import read_mapping
from trine.reproduce.prediction_clusters import fewest_nodes, moments_of, queue_at, wait_per_run
from trine.reproduce.predictions import (
    _FIGURES,
    _by_cluster,
    _by_time_queued,
    _clusters,
    _judged,
    _overview,
    _range,
    replays,
)
from trine.trace import ImportOptions, load

_SMALL = {"jobs": 250, "gpus": 16, "cluster": "2x8", "load": 1.3, "max_gpus": 8, "seeds": [0]}


def test_replays_are_scored_by_policy_and_time_queued_beside_slurms_method() -> None:
    figures = read_mapping(_FIGURES).plain()
    figures["generated"] |= _SMALL | {"times": 16, "draws": 4}
    figures |= {"policies": ["fifo"], "least": 5}
    (item,) = replays("", figures, quick=True)
    made = item.run()
    starts = [each for each in made if each.kind == "start"]
    assert len(starts) >= 5 and all(each.real_s >= each.at_s and each.slurm_s is not None for each in starts)
    assert all(each.predicted.low <= each.predicted.median <= each.predicted.high for each in made)
    assert item.run() == made  # the same bytes from the same seed
    assert any(each.drawn is not None for each in made)  # put right by what had happened by then
    checks = _judged(figures, "fifo", [(item, made)]).checks
    assert checks[0].held is not None and checks[-1].band == "not above Slurm's" and not checks[-1].counted
    assert _overview(figures, [(item, made)]).tables[0].rows[0][1] == f"{len(starts):,}"
    name, nodes, jobs, _, mean_wait_h, *_ = _clusters(figures, [item, item]).tables[0].rows[0]
    assert (name, nodes, jobs) == ("generated 0", "2x8", "250") and float(mean_wait_h) > 0.0


def test_queues_of_different_replays_are_different_trials_and_moments_of_one_queue_are_one() -> None:
    """Predictions in one queue share its fate: counted by moment, a range would be far too narrow."""
    interval = Interval(0.0, 1.0, 2.0)
    made = [
        CheckedPrediction(
            "1", "start", 300.0 * at, 0.0, interval, 1.0 if trace == "one" else 9.0, trace=trace, queue=at // 2
        )
        for at in range(6)
        for trace in ("one", "other")
    ]
    assert _range(made).startswith(" in 6 queues [") and _range(made[::2]) == " in 3 queues"
    nobody_waits = [replace(each, queue=None) for each in made]
    assert _range(nobody_waits).startswith(" in 12 queues [")


def test_overloaded_clusters_are_shown_and_not_judged(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    figures = read_mapping(_FIGURES).plain()
    both = [item for item in replays(str(tmp_path), figures, quick=True) if item.policy == "fifo"]
    overloaded = {item.group for item in both if item.name.endswith(", overloaded")}
    assert {item.group for item in both if item.judged} == overloaded
    assert {item.group for item in both} - overloaded == {"6214e9", "11cb48"}  # which the method was developed on
    made = CheckedPrediction("1", "start", 0.0, 0.0, Interval(0.0, 1.0, 2.0), 9.0, slurm_s=1.0)
    missed = [(item, [made] * 200) for item in both if not item.judged]
    rows = _by_cluster(missed).tables[0].rows
    assert len(rows) == 5 and all(", " in row[0] and "0.0%" in row for row in rows)
    assert _by_time_queued(figures, missed).tables[0].rows[0][1:] == ("0.0% of 200", "-", "-", "-")


def test_moments_are_spread_over_the_time_in_which_jobs_wait() -> None:
    queues = [(0.0, 10.0), (100.0, 120.0), (200.0, 260.0)]
    assert moments_of(queues, 5.0, 220.0, 9) == [7.5, 102.5, 107.5, 112.5, 117.5, 202.5, 207.5, 212.5, 217.5]
    assert [queue_at(queues, at_s) for at_s in (-1.0, 0.0, 10.0, 110.0, 230.0)] == [None, 0, None, 1, 2]
    assert moments_of([], 0.0, 10.0, 3) == []


def test_a_queue_ends_when_no_job_waits() -> None:
    found = Waits(np.array([0.0, 1.0, 2.0, 9.0, 20.0]), np.array([0.0, 5.0, 8.0, 9.0, 21.0]), np.ones(5))
    assert found.queues() == [(1.0, 8.0), (20.0, 21.0)]
    assert found.per_run == 11.0 / 5.0


def test_a_cluster_has_the_fewest_nodes_on_which_jobs_wait_as_recorded() -> None:
    """Four jobs of two GPUs at once and one later, on nodes of two: they wait 0, 100, 200 and 300 s on one node."""
    jobs = [Job(str(at), 0.0 if at < 4 else 1_000.0, 2, 100.0) for at in range(5)]
    figures = read_mapping(_FIGURES).plain()
    nodes = []
    for mean_wait_s in (120.0, 40.0, 0.0):
        rule = {"gpus_per_node": 2, "mean_wait_s": mean_wait_s, "mean_run_s": 100.0}
        nodes.append(fewest_nodes(jobs, figures | {"recorded_waits": figures["recorded_waits"] | rule}))
    assert nodes == [1, 2, 4]


@pytest.mark.parametrize("group", ["103959", "ee9e8c", "7f04ca", "6214e9", "11cb48"])
def test_sizes_follow_the_rule(shared_data: Path, group: str) -> None:
    """Not below, where jobs would wait longer than recorded, and not above."""
    figures = read_mapping(_FIGURES).plain()
    rule, trace = figures["recorded_waits"], shared_data / figures["philly"]["trace"]
    clusters = figures["philly"]["clusters"] | figures["philly"]["developed"]
    nodes = int(clusters[group].split("x")[0])
    jobs = [job for job in load(str(trace), None, ImportOptions()).jobs if job.group == group]
    fewer, as_many = (wait_per_run(jobs, f"{count}x8", figures) for count in (nodes - 1, nodes))
    assert as_many <= rule["mean_wait_s"] / rule["mean_run_s"] < fewer


@pytest.mark.parametrize("policy", ["las", "srtf"])
def test_jobs_wait_in_replays_of_policies_that_stop_jobs(policy: str) -> None:
    """Moments are those at which jobs would wait without stops; what is judged is ends, since jobs start at once."""
    figures = read_mapping(_FIGURES).plain()
    figures["generated"] |= _SMALL | {"with_stops": {"times": 3, "draws": 2}}
    figures |= {"policies": [policy]}
    (item,) = replays("", figures, quick=True)
    made = item.run()
    assert len({each.at_s for each in made}) == 3 and all(each.queue is not None for each in made)
    gpus_of, asked = {job.id: job.gpus for job in item._jobs()}, Counter[float]()
    for at_s, job_id in {(each.at_s, each.job) for each in made}:
        asked[at_s] += gpus_of[job_id]
    assert max(asked.values()) > 16  # more than there are
    assert all(each.real_s > each.at_s for each in made)
