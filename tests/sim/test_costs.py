"""What a stop costs: restores, moves and work since the last checkpoint, all worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.tiny import Outcome, one_node, simulate
from trine.assembly.factory import performance_model, stop_costs
from trine.assembly.settings import resolve
from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.core.job import Job
from trine.perf.throughput import ThroughputTable
from trine.perf.variability import VariabilityTable
from trine.sim import world

SHORT = Job("b", 100, 1, 150)


def preempted_once(long: Job | None = None, **values: Any) -> Outcome:
    """One GPU: a (1,000 s) runs 0-100, b 100-250, then a goes on."""
    return simulate([long or Job("a", 0, 1, 1000), SHORT], one_node(1), "srtf", event_driven=True, **values)


def test_a_first_start_and_a_free_stop_cost_nothing() -> None:
    out = preempted_once()
    assert (out.finish("a"), out.summary.lost_work_s) == (1150, 0)
    assert preempted_once(restore_s=1000).finish("b") == 250


def test_a_restore_delays_the_work_and_holds_the_gpus() -> None:
    """a has its GPU from 250 on but works from 270: 900 s are left."""
    out = preempted_once(restore_s=20)
    assert (out.finish("a"), out.summary.lost_work_s) == (1170, 20)
    assert out.stretches("a") == [(0, 100), (250, 1170)]
    assert out.records["a"].wait_s == 150


def test_work_since_the_last_checkpoint_is_lost() -> None:
    """A checkpoint every 30 s: of 100 s, 90 are safe."""
    out = preempted_once(checkpoint_every_s=30)
    assert (out.finish("a"), out.summary.lost_work_s) == (1160, 10)
    assert preempted_once(checkpoint_every_s=50).summary.lost_work_s == 0
    assert preempted_once(checkpoint_every_s=101).finish("a") == 1250


def test_both_add_up() -> None:
    out = preempted_once(checkpoint_every_s=30, restore_s=20)
    assert (out.finish("a"), out.summary.lost_work_s) == (1180, 30)


def test_checkpoints_count_seconds_of_work_not_of_holding_gpus() -> None:
    """The second run restores 250-270 and is stopped at 500 by c: 230 s of work, 20 beyond the seventh checkpoint."""
    jobs = [Job("a", 0, 1, 1000), SHORT, Job("c", 500, 1, 10)]
    out = simulate(jobs, one_node(1), "srtf", event_driven=True, checkpoint_every_s=30, restore_s=20)
    assert out.summary.lost_work_s == 10 + 20 + 20 + 20
    assert out.finish("a") == 510 + 20 + (1000 - 90 - 210)


def test_on_slow_gpus_the_same_seconds_are_fewer_steps() -> None:
    cluster = Cluster(one_node(1).nodes, scores={"A": (2.0,)})
    out = simulate(
        [Job("a", 0, 1, 1000), Job("b", 100, 1, 10)], cluster, "srtf", event_driven=True, checkpoint_every_s=30
    )
    assert (out.finish("b"), out.summary.lost_work_s) == (120, 10)
    assert out.finish("a") == 120 + 2 * (1000 - 45)


def test_a_restore_that_is_cut_short_costs_the_time_it_had() -> None:
    """a restores from 250 on, c takes the GPU 260-270, a restores again: 10 s + 50 s."""
    jobs = [Job("a", 0, 1, 1000), SHORT, Job("c", 260, 1, 10)]
    out = simulate(jobs, one_node(1), "srtf", event_driven=True, restore_s=50)
    assert (out.finish("a"), out.summary.lost_work_s) == (270 + 50 + 900, 60)
    assert out.records["a"].preemptions == 2


@pytest.mark.parametrize(
    ("job", "settings", "finish_s"),
    [
        (Job("a", 0, 1, 1000, restore_s=5), {"restore_s": 20}, 1155),
        (Job("a", 0, 1, 1000, restore_s=0), {"restore_s": 20}, 1150),
        (Job("a", 0, 1, 1000, restore_s=5, migration_s=70), {"migration_s": 30}, 1155),
        (Job("a", 0, 1, 1000, checkpoint_every_s=40), {"checkpoint_every_s": 30}, 1170),
        (Job("a", 0, 1, 1000, checkpoint_every_s=0), {"checkpoint_every_s": 30}, 1150),
    ],
)
def test_what_a_job_says_of_itself_goes_before_the_settings(
    job: Job, settings: dict[str, float], finish_s: float
) -> None:
    assert preempted_once(job, **settings).finish("a") == finish_s


def moving(b: Job | None = None, **values: Any) -> Outcome:
    """Two nodes of two, re-placed every 100 s: b moves once, at 100; c at 100 and when b's GPUs are free again."""
    jobs = [Job("a", 0, 1, 100), b or Job("b", 0, 2, 500), Job("c", 0, 1, 1000)]
    return simulate(jobs, Cluster.uniform(2, 2), "fifo", "packed", round_s=100, **values)


def test_a_move_costs_migration_s() -> None:
    """b works from 130 on: 530. c too; it moves again at 600 with 570 done, works from 630: 1060."""
    out = moving(migration_s=30, restore_s=70)
    assert (out.finish("b"), out.finish("c"), out.summary.lost_work_s) == (530, 1060, 90)
    assert (out.summary.migrations, out.summary.preemptions) == (3, 0)


def test_a_move_costs_as_much_as_a_restore_unless_told_otherwise() -> None:
    assert moving(restore_s=70).finish("b") == 570
    assert moving(restore_s=70, migration_s=0).finish("b") == 500


@pytest.mark.parametrize(
    ("job", "settings", "finish_s"),
    [
        (Job("b", 0, 2, 500, migration_s=10), {"migration_s": 30, "restore_s": 70}, 510),
        (Job("b", 0, 2, 500, restore_s=50), {"migration_s": 30, "restore_s": 70}, 530),
        (Job("b", 0, 2, 500, restore_s=50), {"restore_s": 70}, 550),
    ],
    ids=["own migration", "the run's migration before the job's restore", "own restore stands in"],
)
def test_the_cost_of_a_move_by_job_and_by_run(job: Job, settings: dict[str, float], finish_s: float) -> None:
    assert moving(job, **settings).finish("b") == finish_s


def test_a_move_loses_work_since_the_checkpoint_too() -> None:
    out = moving(checkpoint_every_s=30)
    assert out.finish("b") == 510


@pytest.mark.parametrize("standstill", [{"checkpoint_every_s": 400}, {"restore_s": 300}])
def test_a_standstill_is_told_instead_of_simulated_for_ever(
    standstill: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs take turns of 300 s on one GPU: neither ever reaches a checkpoint, or the end of its restore."""
    jobs = [Job("a", 0, 1, 1000), Job("b", 0, 1, 1000)]
    monkeypatch.setattr(world, "_FRUITLESS_STOPS", 500)
    with pytest.raises(InputError, match=r"no job saved any work .* expected .* longer round"):
        simulate(jobs, one_node(1), "las", round_s=300, **standstill)


def test_a_restart_costs_what_the_table_of_models_says() -> None:
    """250 s for models that load ImageNet, 60 s for those that are not in the table; a job's own figure comes first."""
    by_model = {"restart": "model", "restore_s": 7}
    assert preempted_once(Job("a", 0, 1, 1000, model="ResNet-50"), **by_model).finish("a") == 1400
    assert preempted_once(Job("a", 0, 1, 1000, model="no such model"), **by_model).finish("a") == 1210
    assert preempted_once(Job("a", 0, 1, 1000, model="ResNet-50", restore_s=20), **by_model).finish("a") == 1170
    assert preempted_once(Job("a", 0, 1, 1000, model="ResNet-50"), restore_s=7).finish("a") == 1157


def test_moves_are_weighed_with_what_the_table_of_models_says() -> None:
    settings = resolve("fifo", "packed", {"restart": "model"})
    perf = performance_model(settings.run, one_node(1), VariabilityTable.flat(1), ThroughputTable())
    costs = stop_costs(settings.run, perf)
    assert costs.migration(Job("a", 0, 1, 1000, model="ResNet-50")) == 250
    assert costs.migration(Job("a", 0, 1, 1000, model="ResNet-50", migration_s=3)) == 3
