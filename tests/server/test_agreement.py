"""Engine and state agree after every record, whatever happens in whatever order: an engine that is built from what is
on record offers the same jobs and holds the same GPUs as the one that was there all the time."""

from __future__ import annotations

import json
import os
import random
from typing import Any

import pytest

from tests.server.site import spec
from trine.engine.invariants import check
from trine.inputs.cluster import load_cluster
from trine.server import records as rec
from trine.server.build import Model
from trine.server.controller import Controller
from trine.server.live_job import LiveJob
from trine.server.snapshot import from_snapshot, to_snapshot
from trine.server.state import LiveState

ENDS = ("done", "failed", "preempted", "lost", "host-fault")
SEEDS = range(100, 100 + int(os.environ.get("TRINE_AGREEMENT_SEEDS", "0")))
POLICIES = ("fifo", "fifo-backfill", "las", "srtf")
# The first ones once found a job that was started while it was to pause.
CASES = [
    ("las", 9),
    ("srtf", 2),
    ("fifo", 0),
    ("fifo-backfill", 1),
    *((name, seed) for name in POLICIES for seed in SEEDS),
]
CODES = {"done": 0, "lost": None, "host-fault": None}


def standing(controller: Controller) -> tuple[Any, ...]:
    """Who is offered, who holds which GPUs in what state, how many GPUs nobody may have now, priorities and quotas."""
    engine = controller.deciding
    ids = [job.id for job in engine.table.jobs]
    held = {ids[job_index]: tuple(sorted(gpus)) for job_index, gpus in engine.ownership.holding.items()}
    found = {ids[job_index]: engine.table.state[job_index].name for job_index in engine.ownership.holding}
    offered = {ids[int(job_index)] for job_index in engine.active_jobs.job_indices()}
    ranks = {
        ids[i]: (float(engine.table.priority[i]), engine.table.jobs[i].priority)
        for i in engine.active_jobs.job_indices()
    }
    return offered, held, found, len(engine.cordoned), ranks, engine.quotas


def rebuilt(controller: Controller, now: float) -> Controller:
    body = json.loads(json.dumps(to_snapshot(controller.state)))
    again = Controller(from_snapshot(body), controller.model)
    again.rebuild(now)
    return again


class Chance:
    """Requests and news as they can come, at random."""

    def __init__(self, seed: int, policy: str) -> None:
        self.random = random.Random(f"{policy}/{seed}")
        self.now = 1_000.0
        self.controller = Controller(LiveState(), Model())
        cluster = load_cluster("2x2")
        self.controller.configure(self.now, "test", cluster, policy, "packed-sticky", {})

    def step(self) -> str:
        self.now += self.random.choice((0.001, 1.0, 1.0, 30.0, 400.0))
        actions = (
            self.submit,
            self.tick,
            self.tick,
            self.begin,
            self.end,
            self.end,
            self.ask,
            self.aside,
            self.drain,
            self.rank,
        )
        return self.random.choice(actions)()

    def submit(self) -> str:
        if len(self.controller.state.live) > 12:
            return self.tick()
        retries, limit = self.random.choice((0, 2)), self.random.choice((None, 50.0))
        made = spec(self.random.choice((1, 1, 2, 4)), retries=retries, max_runtime=limit, min_run=limit)
        return f"submitted {self.controller.submit(self.now, 1.0, made).job}"

    def tick(self) -> str:
        fill = self.random.random() < 0.5
        self.controller.decide(self.now, fill=fill)
        return "filled" if fill else "a round"

    def one(self, *states: str) -> LiveJob | None:
        found = [job for job in self.controller.state.live.values() if not states or job.state in states]
        return self.random.choice(found) if found else None

    def begin(self) -> str:
        job = self.one("starting", "stopping")
        if job is None:
            return self.tick()
        self.controller.started(self.now, job.id, job.epoch)
        return f"{job.id} is up"

    def end(self) -> str:
        job = self.one("starting", "running", "stopping")
        if job is None:
            return self.tick()
        outcome = self.random.choice(ENDS)
        rc = CODES.get(outcome, self.random.choice((1, 85, 137, 143)))
        step = self.random.choice((None, 0.0, 10.0, 1e6))
        told = f"{job.id} ({job.state}, {job.requested_action}) ended: {outcome} {rc} {step}"
        self.controller.exited(self.now, job.id, job.epoch, outcome, rc, step)
        return told

    def ask(self) -> str:
        job = self.one()
        if job is None:
            return self.submit()
        verb = self.random.choice(("hold", "release", "hold", "release", "cancel", "timeout"))
        for_good, over = (
            job.requested_action in ("cancel", "timeout"),
            verb == "timeout" and (job.requested_action or not job.holds_gpus),
        )
        over = over or (verb == "timeout" and job.spec.max_runtime is None)
        waits = job.state in ("held", "set aside") or job.requested_action == "hold" or job.not_before_s or job.aside
        if for_good or over or verb == job.requested_action or (verb == "release" and not waits):
            return self.tick()
        told = f"{verb} {job.id} ({job.state}, {job.requested_action})"
        self.controller.ask(self.now, job.id, verb, "owner")
        return told

    def rank(self) -> str:
        job, priority = self.one(), float(self.random.randrange(-1, 3))
        if job is None or self.random.random() < 0.5:
            self.controller.set_quotas(self.now, {"user:owner": self.random.choice((None, 2, 4))}, "owner")
            return "another quota"
        self.controller.set_priority(self.now, job.id, priority, "owner")
        return f"{job.id} has priority {priority:g}"

    def aside(self) -> str:
        job = self.one()
        if job is None or job.aside or job.state == "held" or self.random.random() < 0.5:
            return self.tick()
        self.controller._enter(rec.SetAside(self.now, job.id, "a test"))
        return f"{job.id} is set aside"

    def drain(self) -> str:
        node, state = self.random.choice(("node0", "node1")), self.random.choice(("drained", "up", "up"))
        gpus = self.random.choice(((), (0,), (1,)))
        if state == "up" and node not in self.controller.state.nodes:
            return self.tick()
        self.controller.change_node(self.now, node, state, "test", "owner", gpus)
        return f"{node} {gpus} is {state}"


@pytest.mark.parametrize(("policy", "seed"), CASES)
def test_an_engine_built_from_the_state_stands_where_the_living_one_stands(policy: str, seed: int) -> None:
    chance, story = Chance(seed, policy), list[str]()
    for _ in range(200):
        story.append(chance.step())
        controller = chance.controller
        assert not controller.problems, (controller.problems, story[-12:])
        check(controller.deciding)
        again = rebuilt(controller, chance.now)
        check(again.deciding)
        assert standing(again) == standing(controller), story[-12:]
        wanted = {
            job.id
            for job in controller.state.live.values()
            if not (job.state == "held" or job.requested_action or job.aside or job.not_before_s)
        }
        assert standing(controller)[0] == wanted, story[-12:]
        held = {job.id: tuple(sorted(job.gpus)) for job in controller.state.holders()}
        assert standing(controller)[1] == held, story[-12:]
