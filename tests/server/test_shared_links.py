"""What is heard of a job while others use its links teaches nothing; what is heard of it alone does."""

from __future__ import annotations

import json
import random

import pytest

from tests.server.site import spec
from trine.core.cluster import Cluster, Links, Tier
from trine.core.job import Job
from trine.perf.learning.observations import Observations
from trine.perf.learning.observations_json import observations_to_json
from trine.server import records as rec
from trine.server import views
from trine.server.build import Model, performance
from trine.server.controller import Controller
from trine.server.records import cluster_from_record, cluster_to_record
from trine.server.replay import redecide
from trine.server.snapshot import from_snapshot, to_snapshot
from trine.server.state import LiveState

MODEL = "LM (batch size 20)"
LINKS = Links(intra_node_bytes_per_s=10e9, nic_bytes_per_s=1.8e9)
CLUSTER = Cluster(Cluster.uniform(3, 2, "v100").nodes, links=LINKS)
"""Two gangs of three GPUs share the NIC of the node in the middle."""


class Daemon:
    """A controller that writes a journal, and a world that does what it is told at once."""

    def __init__(self, state: LiveState | None = None, now: float = 0.0) -> None:
        self.controller = Controller(state or LiveState(), Model())
        self.journal: list[rec.Record] = []
        self.note(self.controller.configure(now, "test", CLUSTER, "fifo", "packed-sticky", {}))

    @property
    def learnt(self) -> Observations:
        found = self.controller.state.observations
        assert found is not None
        return found

    def note(self, record: rec.Record | None) -> None:
        assert record is not None
        self.journal.append(rec.from_body(record.kind, json.loads(json.dumps(rec.to_body(record)))))

    def submit(self, now: float, gpus: int = 3) -> str:
        record = self.controller.submit(now, 1.0, spec(gpus, model=MODEL, steps=1e6))
        self.note(record)
        self.decide(now, ())
        return record.job

    def decide(self, now: float, heard: tuple[rec.Heard, ...]) -> rec.Ticked:
        """A round; what it starts is up at once."""
        ticked = self.controller.tick(now, heard)
        self.note(ticked)
        for start in ticked.orders.starts:
            self.note(self.controller.started(now, start.job, start.epoch))
        return ticked

    def end(self, now: float, job: str) -> None:
        self.note(self.controller.exited(now, job, 1, "done", 0, None))

    def hear(self, now: float, job: str, seconds: float, steps_per_s: float = 2.0) -> rec.Heard:
        heard = rec.Heard(job, 1, now, now * steps_per_s, None, steps_per_s, seconds)
        return self.decide(now, (heard,)).heard[0]


def test_what_is_heard_while_links_are_shared_is_marked_and_teaches_nothing() -> None:
    daemon = Daemon()
    first = daemon.submit(0.0)
    assert not daemon.hear(60.0, first, 60.0).links_shared
    assert [key.tier for key in daemon.learnt.rates.by_key] == [Tier.RACK]
    alone = observations_to_json(daemon.learnt)
    second = daemon.submit(70.0)
    for job in (first, second):
        assert daemon.hear(120.0, job, 50.0, steps_per_s=0.5).links_shared
    assert observations_to_json(daemon.learnt) == alone


def test_a_report_that_reaches_back_to_when_links_were_shared_is_marked_and_the_next_is_not() -> None:
    daemon = Daemon()
    first, second = daemon.submit(0.0), daemon.submit(10.0)
    daemon.end(100.0, second)
    assert daemon.hear(120.0, first, 60.0).links_shared
    assert not daemon.learnt.rates.by_key
    assert not daemon.hear(180.0, first, 60.0).links_shared
    assert daemon.learnt.rates.by_key


def test_a_speed_measured_before_others_came_is_not_taken_for_the_present_one() -> None:
    daemon = Daemon()
    first = daemon.submit(0.0)
    daemon.hear(60.0, first, 60.0, steps_per_s=2.0)
    controller, job_index = daemon.controller, daemon.controller.job_indices[first]
    daemon.submit(70.0)
    expected = float(controller.deciding.table.rate[job_index])
    assert expected < 1.7, "the links are shared from now on"
    ticked = controller.tick(80.0, [rec.Heard(first, 1, 69.0, 138.0, None, 2.0, 9.0)])
    assert ticked.heard[0].links_changed
    assert controller.deciding.table.rate[job_index] == pytest.approx(expected)
    assert not daemon.hear(120.0, first, 40.0, steps_per_s=1.1).links_changed
    assert controller.deciding.table.rate[job_index] == pytest.approx(1.1)


def test_jobs_that_share_no_link_teach() -> None:
    daemon = Daemon()
    first, second = daemon.submit(0.0), daemon.submit(1.0, gpus=1)
    assert not any(daemon.hear(90.0, job, 80.0).links_shared for job in (first, second))


def test_after_a_restart_the_time_before_it_is_not_believed() -> None:
    """Which links were shared before is not on record."""
    daemon = Daemon()
    first = daemon.submit(0.0)
    later = Daemon(from_snapshot(to_snapshot(daemon.controller.state)), now=100.0)
    assert later.hear(110.0, first, 60.0).links_shared
    assert not later.hear(170.0, first, 60.0).links_shared


def test_a_replay_decides_and_learns_the_same() -> None:
    daemon = Daemon()
    first, second = daemon.submit(0.0), daemon.submit(10.0)
    daemon.hear(60.0, first, 50.0)
    daemon.end(100.0, second)
    daemon.hear(120.0, first, 60.0)
    daemon.hear(200.0, first, 80.0)
    agreement, state = redecide(daemon.journal, Model())
    assert not agreement.difference and agreement.agreed == 2
    assert to_snapshot(state) == to_snapshot(daemon.controller.state)


def test_a_journal_of_before_is_read_as_unshared() -> None:
    heard = rec.Heard("1", 1, 60.0, 1.0, None, 2.0, 60.0)
    body = rec.to_body(rec.Ticked(60.0, False, (heard,)))
    assert "links_shared" not in body["heard"][0]
    assert rec.from_body("ticked", body) == rec.Ticked(60.0, False, (heard,))


def test_the_links_of_the_cluster_are_on_record() -> None:
    cluster = Cluster(CLUSTER.nodes, links=LINKS, type_links={"v100": Links(intra_node_bytes_per_s=50e9)})
    body = json.loads(json.dumps(cluster_to_record(cluster)))
    assert cluster_from_record(body) == cluster
    assert not {"links", "type_links"} & cluster_to_record(Cluster.uniform(1, 1)).keys(), "nothing new where none is"
    assert cluster_from_record(cluster_to_record(Cluster.uniform(1, 1))) == Cluster.uniform(1, 1)


def test_a_start_expects_what_the_links_leave() -> None:
    daemon = Daemon()
    daemon.submit(0.0)
    second = daemon.submit(1.0)
    engine, state = daemon.controller.deciding, daemon.controller.state
    job_index = daemon.controller.job_indices[second]
    alone_s = 1e6 / engine.perf.speed(engine.table.jobs[job_index], state.jobs[second].gpus).steps_per_s
    expected_s = state.jobs[second].expected_s
    assert expected_s is not None and expected_s > 1.2 * alone_s


def test_a_model_seen_only_across_nodes_is_freed_of_what_the_links_cost_it() -> None:
    daemon = Daemon()
    for run in range(3):
        daemon.learnt.observe(60.0 * run, MODEL, "", (0, 2), "v100", Tier.RACK, 2.0, 60.0, f"{run}")
    perf = performance(daemon.controller.state, Model(), CLUSTER)
    job = Job("j", 0.0, 2, 1.0, None, MODEL)
    assert perf.speed(job, (0, 2)).steps_per_s == pytest.approx(2.0, rel=1e-5)
    slowdown = perf.tier_slowdowns(job)[Tier.RACK]
    assert slowdown > 1.2
    assert perf.speed(job, (0, 1)).steps_per_s == pytest.approx(2.0 * slowdown, rel=1e-5)


def test_sensitivity_is_the_models_at_first_and_then_as_measured() -> None:
    daemon = Daemon()
    state, job = daemon.controller.state, Job("j", 0.0, 2, 1.0, 1.0, MODEL)
    by_links = performance(state, Model(), CLUSTER).sensitivity(job)
    assert by_links > 1.2
    for run in range(3):
        assert performance(state, Model(), CLUSTER).sensitivity(job) == pytest.approx(by_links), "too few runs"
        daemon.learnt.observe(60.0 * run, MODEL, "", (0, 1), "v100", Tier.NODE, 4.0, 60.0, f"{run}/node")
        before = daemon.learnt.token
        daemon.learnt.observe(60.0 * run, MODEL, "", (0, 2), "v100", Tier.RACK, 0.5, 60.0, f"{run}/rack")
    assert daemon.learnt.token > before, "what was measured counts from now on"
    assert performance(state, Model(), CLUSTER).sensitivity(job) == pytest.approx(8.0)


def test_a_running_job_says_what_it_spends_on_communication_and_what_others_leave_of_its_links() -> None:
    daemon = Daemon()
    first = daemon.submit(0.0)
    state = daemon.controller.state
    alone = views.explanation(daemon.controller, state.jobs[first])
    (told,) = [s for s in alone.sentences if "communication" in s]
    assert "communication across nodes of one rack" in told
    assert not any("links are shared" in s for s in alone.sentences)
    second = daemon.submit(10.0)
    engine = daemon.controller.deciding
    assert engine.traffic is not None
    left = engine.traffic.link_share(daemon.controller.job_indices[first])
    shared = views.explanation(daemon.controller, state.jobs[first])
    assert f"Its links are shared: {left:.2g} of the bandwidth it has alone." in shared.job.reason.sentence
    spent = [
        float(s.split(" compute, ")[1].split("%")[0]) for s in (*alone.sentences, *shared.sentences) if "compute," in s
    ]
    assert spent[1] > spent[0]
    daemon.end(20.0, second)
    assert "links" not in views.job_view(daemon.controller, state.jobs[first]).reason.sentence


@pytest.mark.parametrize("seed", range(3))
def test_any_run_with_links_replays_to_the_same_state(seed: int) -> None:
    """Jobs come and go at random, report at random, and the daemon is started again in between."""
    rng, daemon, now, shared = random.Random(seed), Daemon(), 0.0, 0
    for step in range(80):
        now += rng.random() * 40
        running = [job for job in daemon.controller.state.holders() if job.state == "running"]
        if len(running) < 3:
            daemon.submit(now, rng.choice((1, 2, 3, 4)))
        elif rng.random() < 0.3:
            daemon.end(now, rng.choice(running).id)
        for job in running:
            if job.live and rng.random() < 0.6:
                heard = daemon.hear(now, job.id, rng.choice((1.0, 20.0, 90.0)), rng.choice((0.5, 1.0, 3.0)))
                shared += heard.links_shared
        if step % 25 == 24:
            daemon.note(daemon.controller.configure(now, "test", CLUSTER, "fifo", "packed-sticky", {}))
        if (refined := daemon.controller.refine(now)) is not None:
            daemon.note(refined)
    assert shared
    agreement, state = redecide(daemon.journal, Model())
    assert not agreement.difference
    assert to_snapshot(state) == to_snapshot(daemon.controller.state)
