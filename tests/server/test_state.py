"""State is what the records add up to: snapshots hold all of it, and it survives changes of the cluster in between."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server.site import OWNER, Site, spec
from trine.core.cluster import Cluster
from trine.engine.invariants import check
from trine.inputs.cluster import load_cluster
from trine.server import records as rec
from trine.server import scheduler
from trine.server import state as live_state
from trine.server.build import Model
from trine.server.controller import Controller
from trine.server.interface import Refused
from trine.server.records import cluster_to_record
from trine.server.snapshot import from_snapshot, to_snapshot
from trine.server.state import LiveState

MODEL = Model()


def configured(state: LiveState, cluster: Cluster, now: float = 0.0, policy: str = "srtf") -> Controller:
    controller = Controller(state, MODEL)
    controller.configure(now, "test", cluster, policy, "packed-sticky", {})
    return controller


def recorded(seed: int) -> list[rec.Record]:
    """The records of a run with a bit of everything, straight from the controller."""
    rng, records = random.Random(seed), list[rec.Record]()
    controller, now = Controller(LiveState(), MODEL), 0.0
    records.append(
        controller.configure(now, "test", load_cluster("x=2x2,y=1x2"), rng.choice(("las", "srtf")), "packed", {})
    )
    for _ in range(60):
        now += rng.random() * 30
        live = list(controller.state.live.values())
        job = rng.choice(live) if live else None
        action = rng.randrange(9)
        if action < 2 and len(live) < 8:
            values: dict[str, Any] = {"steps": 100.0, "priority": float(rng.randrange(2)), "model": "m", "class": "A"}
            records.append(
                controller.submit(now, 1.0, spec(rng.choice((1, 2)), **values), rng.choice(("", "r1", "r2")))
            )
        elif action == 2:
            records.append(controller.tick(now, heard(rng, controller, now)))
        elif action == 3 and job is not None:
            records += filter(None, [controller.started(now, job.id, job.epoch)])
        elif action == 4 and job is not None:
            end = rng.choice(("done", "failed", "lost", "preempted"))
            records += filter(None, [controller.exited(now, job.id, job.epoch, end, 0, rng.choice((None, 7.0)))])
        elif action == 5 and job is not None and job.requested_action != "cancel":
            records.append(controller.ask(now, job.id, rng.choice(("cancel", "hold", "hold", "release")), "me"))
        elif action == 6:
            by, state = rng.choice((("me", "drained"), ("me", "up"), (rec.EXECUTOR, "down"), (rec.EXECUTOR, "up")))
            records.append(controller.change_node(now, rng.choice(("node0", "node2")), state, "why", by))
        elif action == 7 and job is not None:
            records.append(controller.set_priority(now, job.id, float(rng.randrange(-2, 3)), "me"))
            limit = {"user:me": rng.choice((None, 1, 4))}
            records.append(controller.set_quotas(now, limit, "me", rng.choice(((), ("queue:q",)))))
        else:
            records.append(controller.tick(now, fill=True))
        check(controller.deciding)
    return records


def heard(rng: random.Random, controller: Controller, now: float) -> list[rec.Heard]:
    return [
        rec.Heard(
            job.id, job.epoch, now, rng.randrange(90), rng.choice((None, 90.0)), rng.choice((0.0, 1.0, 9.0)), 60.0
        )
        for job in controller.state.holders()
        if rng.random() < 0.7
    ]


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6), st.data())
def test_a_snapshot_taken_anywhere_and_the_records_after_it_give_the_same_state(seed: int, data: st.DataObject) -> None:
    records = [rec.from_body(r.kind, json.loads(json.dumps(rec.to_body(r)))) for r in recorded(seed)]
    assert records == recorded(seed), "a record read back is the record written"
    cut = data.draw(st.integers(0, len(records)))
    straight, before = LiveState(), LiveState()
    for record in records:
        straight.apply(record)
    for record in records[:cut]:
        before.apply(record)
    restored = from_snapshot(json.loads(json.dumps(to_snapshot(before))))
    assert to_snapshot(restored) == to_snapshot(before)
    for record in records[cut:]:
        restored.apply(record)
    assert to_snapshot(restored) == to_snapshot(straight)
    assert list(restored.live) == list(straight.live)


def test_a_snapshot_of_another_version_is_refused_in_words() -> None:
    with pytest.raises(rec.JournalError, match=r"format 99; this version reads format \d"):
        from_snapshot({"format": 99})


# -- the cluster changes while the daemon is away -------------------------------------------------------------------


def running_on_three_nodes() -> tuple[LiveState, dict[str, str]]:
    """Jobs 1 to 3, one per node, and job 4 waiting; node names by job."""
    controller = configured(LiveState(), Cluster.uniform(3, 2))
    for _ in range(3):
        controller.submit(0.0, 1.0, spec(2, steps=100.0, model="m", **{"class": "A"}))
    controller.submit(0.0, 1.0, spec(1, steps=5000.0))
    controller.tick(1.0)
    state = controller.state
    for job in list(state.holders()):
        controller.started(2.0, job.id, job.epoch)
    news = [rec.Heard(job.id, job.epoch, 120.0, 50.0, 100.0, 2.0, 118.0) for job in state.holders()]
    controller.tick(120.0, news)
    assert state.cluster is not None
    where = {j.id: state.cluster.nodes[state.cluster.node_of[j.gpus[0]]].name for j in state.holders()}
    assert sorted(where.values()) == ["node0", "node1", "node2"]
    return from_snapshot(json.loads(json.dumps(to_snapshot(state)))), where


def nodes_of(state: LiveState, job_id: str) -> set[str]:
    assert state.cluster is not None
    return {state.cluster.nodes[state.cluster.node_of[gpu]].name for gpu in state.jobs[job_id].gpus}


def test_jobs_on_a_vanished_node_wait_again_and_the_others_keep_their_gpus() -> None:
    state, where = running_on_three_nodes()
    old = Cluster.uniform(3, 2)
    new = Cluster((*old.nodes[1:], replace(old.nodes[0], name="fresh")))
    controller = configured(state, new, 500.0)
    check(controller.deciding)
    gone = next(job for job, node in where.items() if node == "node0")
    for job_id, node in where.items():
        if job_id != gone:
            assert nodes_of(state, job_id) == {node} and state.jobs[job_id].state == "running"
    lost = state.jobs[gone]
    assert (lost.state, lost.gpus, lost.done) == ("waiting", (), 0.0), "nothing of it was saved"
    assert lost.attained_s == pytest.approx(498.0), "the time it held GPUs still counts"
    assert "not part of the cluster" in lost.story[-1].sentence
    controller.tick(501.0)
    assert nodes_of(state, gone) == {"fresh"}, "it runs again where there is room now"


def test_a_job_to_be_cancelled_or_held_on_a_vanished_node_is_cancelled_or_held() -> None:
    for verb, after in (("cancel", "cancelled"), ("hold", "held")):
        state, where = running_on_three_nodes()
        gone = next(job for job, node in where.items() if node == "node2")
        controller = configured(state, Cluster.uniform(3, 2), 300.0)
        controller.ask(301.0, gone, verb, "me")
        assert state.jobs[gone].state == "stopping"
        controller = configured(state, Cluster.uniform(2, 2), 302.0)
        check(controller.deciding)
        assert state.jobs[gone].state == after


def test_observations_follow_the_gpus() -> None:
    controller = configured(LiveState(), Cluster.uniform(2, 2))
    learnt = controller.state.observations
    assert learnt is not None
    for run in range(12):
        for gpu in range(4):
            learnt.observe(60.0 * run, "m", "A", (gpu,), "gpu", 0, 0.5 if gpu == 3 else 1.0, 600.0, f"{run}/{gpu}")  # type: ignore[arg-type]
    slow = learnt.refined().slowdown("A")[3]
    assert slow > 1.5
    old = Cluster.uniform(2, 2)
    new = Cluster((replace(old.nodes[0], name="first"), old.nodes[1], old.nodes[0]))
    after = configured(controller.state, new, 1000.0).state.observations
    assert after is not None
    scores = after.refined().slowdown("A")
    assert scores[3] == pytest.approx(slow) and max(scores[g] for g in (0, 1, 2, 4, 5)) < 1.2


def test_a_gang_whose_nodes_are_no_longer_of_one_type_waits_again() -> None:
    controller = configured(LiveState(), Cluster.uniform(2, 2))
    controller.submit(0.0, 1.0, spec(4))
    controller.tick(1.0)
    old = Cluster.uniform(2, 2)
    mixed = Cluster((old.nodes[0], replace(old.nodes[1], gpu_type="other"), replace(old.nodes[1], name="n2")))
    controller = configured(controller.state, mixed, 10.0)
    check(controller.deciding)
    assert controller.state.jobs["1"].state == "waiting"
    controller.tick(11.0)
    assert nodes_of(controller.state, "1") == {"node0", "n2"}


def test_the_daemon_starts_on_a_cluster_too_small_for_a_job_it_once_accepted(tmp_path: Path) -> None:
    async def script() -> None:
        site = Site(tmp_path, gpus="4x2")
        daemon = await site.up()
        await daemon.submit([spec(6), spec(6), spec(1)], OWNER)
        await site.quiet()
        await daemon.drain("node3", "gone soon", OWNER)
        await site.crash()
        site.world.attempts.clear()
        site.cluster = Cluster.uniform(2, 2)
        site.world.nodes = site.world.nodes[:2]
        daemon = await site.up()
        await site.quiet()
        assert {job.id: job.state for job in daemon.jobs(OWNER)} == {"1": "waiting", "2": "waiting", "3": "running"}
        told = daemon.explain("1", OWNER)
        assert told.job.reason.code == "too-large"
        assert "asks for 6 GPUs, the cluster has 4" in told.sentences[0]
        await daemon.hold("2", OWNER)
        await daemon.release("2", OWNER)
        await daemon.cancel("2", OWNER)
        site.world.end("3")
        await site.tick(60)
        await site.crash()
        site.cluster = load_cluster("4x2")
        daemon = await site.up()
        await site.quiet()
        assert daemon.job("1", OWNER).state == "running", "it was not forgotten"
        await site.crash()

    asyncio.run(script())


# -- what is kept, and for how long ---------------------------------------------------------------------------------


def test_ended_jobs_are_forgotten_beyond_the_limit_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_state, "_ENDED_KEPT", 20)
    controller = configured(LiveState(), Cluster.uniform(1, 1), policy="fifo")
    first = controller.submit(0.0, 1.0, spec(1)).job
    for i in range(60):
        controller.ask(float(i), controller.submit(float(i), 1.0, spec(1)).job, "cancel", "me")
    state = controller.state
    ended = [int(job.id) for job in state.jobs.values() if not job.live]
    assert 20 <= len(ended) <= 22
    assert ended == list(range(62 - len(ended), 62)), "the newest ones are kept"
    assert first in state.jobs and state.next_id == 62, "live jobs are never forgotten, numbers never used again"
    restored = from_snapshot(to_snapshot(state))
    assert restored.next_id == 62


def test_the_variables_of_a_job_that_has_ended_are_not_kept() -> None:
    controller = configured(LiveState(), Cluster.uniform(1, 1), policy="fifo")
    job = controller.submit(0.0, 1.0, spec(1, env={"API_TOKEN": "secret"})).job
    assert "secret" in json.dumps(to_snapshot(controller.state)), "a job that waits needs them"
    controller.ask(1.0, job, "cancel", "me")
    assert "secret" not in json.dumps(to_snapshot(controller.state))


def test_request_ids_are_bounded_and_outlive_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_state, "_REQUESTS_KEPT", 10)
    controller = configured(LiveState(), Cluster.uniform(1, 1), policy="fifo")
    for i in range(30):
        controller.submit(float(i), 1.0, spec(1), f"request-{i}")
        controller.submit(float(i), 1.0, spec(1), f"request-{i}")
    restored = from_snapshot(json.loads(json.dumps(to_snapshot(controller.state))))
    assert list(restored.requests) == [f"request-{i}" for i in range(20, 30)]
    assert restored.requests["request-29"] == ["59", "60"]


# -- ends -----------------------------------------------------------------------------------------------------------


def test_a_job_that_ended_well_shows_all_its_steps(tmp_path: Path) -> None:
    controller = configured(LiveState(), Cluster.uniform(1, 1))
    for values, steps in (({"steps": 100.0}, 100.0), ({}, 60.0)):
        job = controller.submit(0.0, 1.0, spec(1, **values)).job
        controller.tick(1.0)
        controller.started(2.0, job, 1)
        controller.tick(30.0, [rec.Heard(job, 1, 30.0, 60.0, None, 2.0, 28.0)])
        controller.exited(50.0, job, 1, "done", 0, None)
        ended = controller.state.jobs[job]
        assert (ended.done, ended.total) == (steps, steps), "also of a job that said of no length"


@pytest.mark.parametrize(("safe", "took_s"), [(100.0, 30.0), (150.0, 30.0), (40.0, 0.0), (None, 0.0)])
def test_a_job_that_ends_with_nothing_left_to_do_or_in_no_time_just_ends(safe: float | None, took_s: float) -> None:
    """Nothing can be learnt from how long it took; that is all."""
    controller = configured(LiveState(), Cluster.uniform(1, 1))
    controller.submit(0.0, 1.0, spec(1, steps=100.0, model="m"))
    controller.tick(1.0)
    controller.exited(2.0, "1", 1, "lost", None, safe)
    controller.tick(3.0)
    controller.exited(3.0 + took_s, "1", 2, "done", 0, None)
    state = controller.state
    assert state.jobs["1"].state == "done"
    assert state.observations is not None
    error = state.observations.prediction_error()
    assert error is None


def test_a_cancelled_job_is_not_brought_back_by_holding_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_FILL_AFTER_S", 0.0)

    async def script() -> None:
        site = Site(tmp_path)
        site.world.obedient = False
        daemon = await site.up()
        await daemon.submit([spec(1)], OWNER)
        await site.quiet()
        await daemon.cancel("1", OWNER)
        for verb in (daemon.hold, daemon.release):
            with pytest.raises(Refused):
                await verb("1", OWNER)
        await daemon.cancel("1", OWNER)  # once more is no error
        await site.quiet()
        site.world.let_stop("1")
        await site.quiet()
        assert daemon.job("1", OWNER).state == "cancelled"
        await site.crash()

    asyncio.run(script())


def test_the_cluster_on_record_is_the_cluster(tmp_path: Path) -> None:
    cluster = replace(load_cluster("x=2x2,y=1x2"), scores={"A": (1.0, 1.1, 1.2, 1.3, 1.4, 1.5)})
    controller = configured(LiveState(), cluster)
    again = from_snapshot(json.loads(json.dumps(to_snapshot(controller.state)))).cluster
    assert again is not None
    assert (again.nodes, again.scores) == (cluster.nodes, cluster.scores)
    assert cluster_to_record(again) == cluster_to_record(cluster)
