"""What the daemon concludes from an engine that cannot be asked, fails to start jobs, or whose nodes come and go."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.live.command import trine
from tests.server.scripted_engine import register
from tests.server.site import OWNER, Site, run_site, spec
from trine.core.errors import InputError
from trine.executor.base import EngineDown, EngineUp, Handle, InventoryChanged, LaunchFailed, NodeGpu, NodeInfo
from trine.server.auth import add_user_token
from trine.server.build import Model
from trine.server.configuration import Options, prepare
from trine.server.controller import Controller
from trine.server.daemon import dry_run
from trine.server.interface import Refused
from trine.server.outcome import MAX_PASSING
from trine.server.replay import redecide
from trine.server.scheduler import Scheduler
from trine.server.store import Store


def daemon_of(site: Site) -> Scheduler:
    assert site.daemon is not None
    return site.daemon


def states(site: Site) -> dict[str, str]:
    return {job.id: job.state for job in daemon_of(site).controller.state.jobs.values()}


async def submit(site: Site, *gpus: int, **values: object) -> None:
    await daemon_of(site).submit([spec(count, **values) for count in gpus], OWNER)
    await site.quiet()


async def engine_goes(site: Site) -> None:
    site.world.away = "slurmctld: connection refused"
    site.world.tell(EngineDown(site.now, site.world.away))
    await site.quiet()


async def engine_returns(site: Site) -> None:
    site.world.away = ""
    site.world.tell(EngineUp(site.now))
    await site.quiet()


async def nodes_become(site: Site, *nodes: NodeInfo) -> None:
    site.world.nodes = list(nodes)
    site.world.tell(InventoryChanged(site.now, tuple(nodes)))
    await site.quiet()


def node(name: str, gpus: int = 2, **values: object) -> NodeInfo:
    return NodeInfo(name, tuple(NodeGpu(index, "gpu") for index in range(gpus)), **values)  # type: ignore[arg-type]


def replayed(site: Site) -> None:
    """The journal, decided a second time, comes to the same orders."""
    daemon = daemon_of(site)
    agreement, _ = redecide(daemon.store.records(), Model())
    assert not agreement.difference and agreement.agreed == agreement.decisions


def over_crash(home: Path, script: Callable[[Site], Awaitable[None]], gpus: str = "2x2") -> None:
    async def whole() -> None:
        site = Site(home, gpus)
        try:
            await script(site)
            assert not site.world.violations
        finally:
            await site.crash()

    asyncio.run(whole())


def test_nothing_is_started_stopped_or_given_up_while_the_engine_cannot_be_asked(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await submit(site, 2)
        await engine_goes(site)
        await submit(site, 1)
        for _ in range(3):
            await site.tick(after_s=3_600)
        assert states(site) == {"1": "running", "2": "waiting"}
        assert site.world.killed == [] and len(site.world.launches) == 1
        daemon = daemon_of(site)
        down = "the engine local does not answer: slurmctld: connection refused"
        assert daemon.daemon().engine_down == down and down in daemon.daemon().problems
        assert down in " ".join(daemon.explain("2", OWNER).sentences)
        assert b"trine_engine_up 0.0" in daemon.metrics()
        await engine_returns(site)
        assert states(site) == {"1": "running", "2": "running"}
        assert daemon.daemon().engine_down == "" and b"trine_engine_up 1.0" in daemon.metrics()
        replayed(site)

    run_site(Site(tmp_path), script)


def test_a_daemon_that_starts_while_the_engine_is_away_loses_no_job_and_recovers(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await site.up()
        await submit(site, 2, 2, 1)
        assert states(site) == {"1": "running", "2": "running", "3": "waiting"}
        await site.crash()
        site.world.away = "no route to host"
        daemon = await site.up()
        await site.tick(after_s=3_600)
        assert states(site) == {"1": "running", "2": "running", "3": "waiting"}
        assert "no route to host" in daemon.daemon().engine_down
        site.world.end("1")  # seen although the engine is away: its own record says so
        await site.quiet()
        assert states(site) == {"1": "done", "2": "running", "3": "waiting"}, "free GPUs are not given out yet"
        await engine_returns(site)
        assert states(site) == {"1": "done", "2": "running", "3": "running"}

    over_crash(tmp_path, script)


def test_what_was_ordered_while_the_engine_was_away_is_done_when_it_is_back(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        site.world.obedient = False
        await submit(site, 2, 2)
        await engine_goes(site)
        await daemon_of(site).cancel("1", OWNER)
        await site.quiet()
        assert states(site)["1"] == "stopping"
        await engine_returns(site)
        assert site.world.attempts[Handle("1", 1)].asked_to_stop
        site.world.let_stop("1")
        await site.quiet()
        assert states(site) == {"1": "cancelled", "2": "running"}

    run_site(Site(tmp_path), script)


def test_a_job_that_the_engine_does_not_know_when_it_is_back_is_lost_and_starts_again(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await submit(site, 2)
        await engine_goes(site)
        del site.world.attempts[Handle("1", 1)]
        await site.tick(after_s=60)
        assert states(site) == {"1": "running"}
        await engine_returns(site)
        assert states(site) == {"1": "running"} and site.world.launches == [Handle("1", 1), Handle("1", 2)]

    run_site(Site(tmp_path), script)


def test_a_launch_that_may_work_later_waits_longer_each_time_and_is_held_in_the_end(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        site.world.refuses = "sbatch: timed out after 10 s"
        await submit(site, 1)
        waits = []
        for epoch in range(1, MAX_PASSING + 1):
            job = daemon_of(site).controller.state.jobs["1"]
            assert job.epoch == epoch
            if job.state == "held":
                break
            assert (job.state, job.failures) == ("waiting", 0)
            assert "sbatch: timed out after 10 s" in " ".join(daemon_of(site).explain("1", OWNER).sentences)
            waits.append(job.not_before_s - site.now)
            await site.tick(after_s=job.not_before_s - site.now + 1)
        assert waits == sorted(waits) and waits[0] < 2 and waits[-1] > 250
        assert f"{MAX_PASSING} starts in a row failed, so it is held" in daemon_of(site).job("1", OWNER).reason.sentence
        site.world.refuses = ""
        await daemon_of(site).release("1", OWNER)
        await site.quiet()
        assert states(site) == {"1": "running"}

    run_site(Site(tmp_path), script)


def test_a_launch_that_fails_for_good_fails_the_job(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await submit(site, 1)
        site.world.attempts.clear()
        site.world.tell(LaunchFailed(Handle("1", 1), site.now, "there is no user 'eve'"))
        await site.quiet()
        assert states(site) == {"1": "failed"}

    run_site(Site(tmp_path), script)


def test_nodes_join_while_the_daemon_runs_and_are_used_at_once(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await site.up()
        await submit(site, 2, 2, 2)
        assert sorted(states(site).values()) == ["running", "running", "waiting"]
        where = {job: daemon_of(site).job(job, OWNER).placement for job in "12"}
        await nodes_become(site, node("front"), node("node0"), node("node1"))
        assert set(states(site).values()) == {"running"}
        assert daemon_of(site).job("3", OWNER).placement[0].node == "front"
        assert {job: daemon_of(site).job(job, OWNER).placement for job in "12"} == where, "the others stay"
        replayed(site)
        await site.crash()
        await site.up()
        await site.quiet()
        assert [view.name for view in daemon_of(site).nodes()] == ["front", "node0", "node1"]
        assert set(states(site).values()) == {"running"} and len(site.world.launches) == 3

    over_crash(tmp_path, script)


def test_a_node_leaves_when_its_last_job_has(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await submit(site, 2, 2)
        (part,) = daemon_of(site).job("2", OWNER).placement
        other = "node0" if part.node == "node1" else "node1"
        await nodes_become(site, node(other))
        daemon = daemon_of(site)
        assert states(site) == {"1": "running", "2": "running"}, "its ranks may still run there"
        left = next(view for view in daemon.nodes() if view.name == part.node)
        assert (left.state, left.reason) == ("down", "it is not part of the cluster any more")
        site.world.end("2")
        await site.quiet()
        assert [view.name for view in daemon.nodes()] == [other]
        await submit(site, 2)
        assert states(site)["3"] == "waiting"
        await nodes_become(site, node("node0"), node("node1"))
        assert states(site)["3"] == "running"
        replayed(site)

    run_site(Site(tmp_path), script)


def test_a_job_for_nodes_that_the_engine_lost_sight_of_is_accepted_and_runs_when_they_are_back(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await nodes_become(site, node("node0"))
        await submit(site, 4)
        daemon = daemon_of(site)
        sentences = daemon.explain("1", OWNER).sentences
        assert states(site) == {"1": "waiting"}
        assert "cannot run on the cluster as it is now: it asks for 4 GPUs, the cluster has 2 GPUs." in sentences[0]
        assert "when nodes with such GPUs join" in sentences[1]
        await submit(site, 2)
        assert states(site) == {"1": "waiting", "2": "running"}, "it is in nobody's way"
        with pytest.raises(Refused, match="can never run: it asks for 5 GPUs, the cluster has 2 GPUs"):
            await daemon.submit([spec(5)], OWNER)
        await daemon.hold("1", OWNER)
        await daemon.release("1", OWNER)
        await submit(site, 3)
        await daemon.cancel("3", OWNER)
        site.world.end("2")
        await nodes_become(site, node("node0"), node("node1"))
        assert states(site) == {"1": "running", "2": "done", "3": "cancelled"}
        with pytest.raises(Refused, match="can never run: it asks for 5 GPUs, the cluster has 4 GPUs"):
            await daemon.submit([spec(5)], OWNER)
        replayed(site)

    run_site(Site(tmp_path), script)


def test_a_job_is_not_refused_as_too_large_while_the_engine_cannot_say_which_nodes_it_has(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await engine_goes(site)
        await submit(site, 5)
        daemon = daemon_of(site)
        said = " ".join(daemon.explain("1", OWNER).sentences)
        assert "it asks for 5 GPUs, the cluster has 4 GPUs" in said and "the engine local does not answer" in said
        site.world.nodes = [node("node0"), node("node1"), node("node2")]
        await engine_returns(site)
        assert states(site) == {"1": "running"}
        replayed(site)

    run_site(Site(tmp_path), script)


@pytest.mark.parametrize("lost", [node("node1", up=False), node("node1", schedulable=False)], ids=["down", "closed"])
def test_a_job_for_nodes_that_are_out_of_service_is_accepted(tmp_path: Path, lost: NodeInfo) -> None:
    async def script(site: Site) -> None:
        await nodes_become(site, node("node0"), lost)
        await submit(site, 4)
        assert states(site) == {"1": "waiting"}
        assert any("Out of service: node1" in said for said in daemon_of(site).explain("1", OWNER).sentences)
        await nodes_become(site, node("node0"), node("node1"))
        assert states(site) == {"1": "running"}

    run_site(Site(tmp_path), script)


def test_a_node_that_has_other_gpus_than_before_is_taken_as_it_is_once_it_is_empty(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await submit(site, 2, 2, 3)
        await nodes_become(site, node("node0"), node("node1", 3))
        assert states(site)["3"] == "waiting"
        for job in ("1", "2"):
            site.world.end(job)
            await site.quiet()
        assert daemon_of(site).job("3", OWNER).placement[0] == replace(
            daemon_of(site).job("3", OWNER).placement[0], node="node1", gpus=(0, 1, 2)
        )
        replayed(site)

    run_site(Site(tmp_path), script)


def test_nodes_that_cannot_be_scheduled_are_left_out_with_a_reason(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        mixed = NodeInfo("odd", (NodeGpu(0, "a100"), NodeGpu(1, "v100")))
        await nodes_become(site, node("node0"), node("node1"), mixed)
        assert [view.name for view in daemon_of(site).nodes()] == ["node0", "node1"]
        (problem,) = daemon_of(site).daemon().problems
        assert "odd" in problem and "a100, v100" in problem
        await nodes_become(site, node("node0"), node("node1"))
        assert daemon_of(site).daemon().problems == ()

    run_site(Site(tmp_path), script)


def test_gpus_that_others_hold_are_withheld_with_the_reason(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await site.up()
        taken = NodeInfo("node0", (NodeGpu(0, "gpu", withheld="job 77 of alice"), NodeGpu(1, "gpu")))
        await nodes_become(site, taken, node("node1"))
        await submit(site, 4)
        daemon = daemon_of(site)
        assert states(site) == {"1": "waiting"}
        gpu = daemon.nodes()[0].gpus[0]
        assert (gpu.withheld, gpu.drained, gpu.reason) == (True, False, "job 77 of alice")
        assert "Out of service: node0:0 (job 77 of alice)." in daemon.explain("1", OWNER).sentences
        await site.crash()
        await site.up()
        await site.quiet()
        assert states(site) == {"1": "waiting"}, "known over a restart"
        await nodes_become(site, node("node0"), node("node1"))
        assert states(site) == {"1": "running"}
        replayed(site)

    over_crash(tmp_path, script)


def test_a_drain_in_the_engine_shows_here_and_ends_there(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await nodes_become(site, node("node0", schedulable=False, reason="disk broken"), node("node1"))
        await submit(site, 4)
        assert states(site) == {"1": "waiting"}
        assert {gpu.reason for gpu in daemon_of(site).nodes()[0].gpus} == {"disk broken"}
        await daemon_of(site).drain("node1", "new cables", OWNER)
        await nodes_become(site, node("node0"), node("node1", schedulable=False, reason="new cables"))
        assert [view.state for view in daemon_of(site).nodes()] == ["up", "drained"]
        assert not any(gpu.withheld for view in daemon_of(site).nodes() for gpu in view.gpus), "one drain, not two"
        await daemon_of(site).undrain("node1", OWNER)
        await nodes_become(site, node("node0"), node("node1"))
        assert states(site) == {"1": "running"}

    run_site(Site(tmp_path), script)


SCORES = "gpu,node,slowdown_A\n0,0,1\n1,0,1.5\n2,1,1\n3,1,1\n"


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    register(monkeypatch)
    return Options(tmp_path, engine="scripted")


def said(options: Options, **settings: object) -> Options:
    return replace(options, settings={f"engine.{name}": value for name, value in settings.items()})


@pytest.mark.parametrize("placement", ["pm-first", "pal", "pal-sticky", "exclude-outliers-sticky", "trine"])
def test_placements_that_choose_chips_are_refused_where_gpus_are_not_exact(scripted: Options, placement: str) -> None:
    options = replace(said(scripted, exact=False), placement=placement)
    with pytest.raises(InputError, match=rf"--placement: {placement} chooses GPUs by their chips.*cannot give exact"):
        prepare(options)
    assert prepare(replace(scripted, placement=placement)).setup.placement == placement
    assert prepare(replace(options, placement="packed-sticky")).setup.placement == "packed-sticky"


def test_a_wrapper_around_a_placement_that_chooses_chips_is_refused_as_well(scripted: Options) -> None:
    options = said(scripted, exact=False)
    with pytest.raises(InputError, match="delay chooses GPUs by their chips"):
        prepare(replace(options, placement="delay", settings={**options.settings, "inner": "pal"}))


def test_the_command_refuses_it_with_one_sentence_and_exit_code_2(scripted: Options) -> None:
    wrong = ("--engine", "scripted", "--set", "engine.exact=false", "--placement", "pal")
    done = trine("up", *wrong, "--state", scripted.state / "state")
    assert (done.code, done.out, len(done.err.strip().splitlines())) == (2, "", 1)
    assert "cannot give exact GPUs; expected one that does not, such as packed-sticky" in done.err
    assert not (scripted.state / "state").exists()


def test_gpus_are_shared_only_where_the_engine_can(scripted: Options) -> None:
    assert prepare(scripted).setup.sharing == "user"
    options = said(scripted, shares=False)
    assert prepare(options).setup.sharing == "off"
    with pytest.raises(InputError, match="--share-between-users: the engine scripted gives a GPU to one job only"):
        prepare(replace(options, share_between_users=True))


def test_an_engine_that_cannot_separate_users_is_a_warning_where_there_are_some(
    scripted: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trine.server.configuration.user_name", lambda _: "ada")
    options = said(scripted, separates=False)
    assert prepare(options).warnings == (), "there is nobody to separate"
    add_user_token(scripted.state, "bob")
    (warning,) = prepare(options).warnings
    assert "scripted runs all jobs as ada, those of bob too" in warning and "docs/security.md" in warning
    assert warning in dry_run(options)
    assert not prepare(options).access.runs_as_user


def test_racks_are_those_of_the_engine_and_else_those_of_the_description(scripted: Options, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("nodes:\n  - {name: n0, gpus: 2, type: v100, rack: left}\n  - {name: n1, gpus: 2, type: v100}\n")
    options = replace(scripted, gpus=str(file))
    assert prepare(options).setup.cluster.nodes[0].rack == "left"
    assert [node.rack for node in prepare(said(options, racks=True)).setup.cluster.nodes] == ["switch0", "switch1"]
    assert [node.rack for node in prepare(said(scripted, racks=True)).setup.cluster.nodes] == ["switch0", "switch1"]


def test_what_the_command_line_says_holds_for_nodes_that_join(scripted: Options, tmp_path: Path) -> None:
    table = tmp_path / "scores.csv"
    table.write_text(SCORES)
    setup = prepare(replace(scripted, variability=str(table), prices="v100=2.5")).setup
    joined = NodeInfo("n2", (NodeGpu(0, "v100"),))
    there = [NodeInfo(name, (NodeGpu(0, "v100"), NodeGpu(1, "v100"))) for name in ("n0", "n1")]
    with pytest.raises(InputError, match=r"scores\.csv"):
        setup.describe([*there, joined])
    assert setup.describe(there) == setup.cluster
    assert setup.describe(there).prices_per_gpu_h == {"v100": 2.5}


def test_an_engine_that_is_away_at_the_first_start_is_refused(scripted: Options) -> None:
    with pytest.raises(InputError, match=r"--engine scripted: it does not answer \(no route to host\).*first start"):
        prepare(said(scripted, away="no route to host"))


def test_an_engine_that_is_away_later_has_the_nodes_on_record(scripted: Options) -> None:
    store = Store.open(scripted.state / "journal.db")
    setup = prepare(scripted).setup
    controller = Controller(store.load(), Model())
    recorded = (setup.version, setup.cluster, setup.policy, setup.placement, setup.settings)
    store.append([controller.configure(1.0, *recorded)])
    store.close()
    prepared = prepare(said(scripted, away="no route to host"))
    assert prepared.setup.cluster.nodes == setup.cluster.nodes
    assert [found.name for found in prepared.nodes] == ["n0", "n1"]


async def _anything(site: Site, rng: random.Random) -> None:
    """One thing that may happen to a daemon and its engine."""
    running = sorted(site.world.running())
    kind = rng.choice(
        ["submit", "submit", "tick", "tick", "end", "engine", "engine", "nodes", "nodes", "crash", "cancel"]
    )
    if kind == "submit":
        await submit(site, rng.choice([1, 1, 2]))
    elif kind == "end" and running:
        site.world.end(rng.choice(running), *rng.choice([("done", 0), ("failed", 1), ("lost", 137)]))
    elif kind == "cancel" and running:
        job = rng.choice(running)
        if states(site)[job] == "running":
            await daemon_of(site).cancel(job, OWNER)
    elif kind == "engine":
        await (engine_returns(site) if site.world.away else engine_goes(site))
    elif kind == "nodes" and not site.world.away:
        await nodes_become(site, *_some_nodes(site, rng))
    elif kind == "crash":
        await site.crash()
        await site.up()
    await site.tick(after_s=rng.choice([1.0, 60.0, 600.0]))


def _some_nodes(site: Site, rng: random.Random) -> list[NodeInfo]:
    """Some of four nodes, with GPUs that others hold where no job of ours does."""
    ours = {place for attempt in site.world.running().values() for place in attempt.gpus}
    nodes = []
    for name in sorted(rng.sample(["node0", "node1", "node2", "node3"], rng.randint(1, 4))):
        others = {index for index in range(2) if rng.random() < 0.2 and (name, index) not in ours}
        gpus = tuple(NodeGpu(index, "gpu", withheld="taken" if index in others else "") for index in range(2))
        nodes.append(NodeInfo(name, gpus, schedulable=rng.random() < 0.9, up=rng.random() < 0.9))
    return nodes


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_to_the_engine_every_job_ends_once_and_no_gpu_is_held_twice(seed: int, tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        rng = random.Random(seed)
        await site.up()
        for _ in range(40):
            await _anything(site, rng)
        if site.world.away:
            await engine_returns(site)
        await nodes_become(site, *(node(f"node{i}") for i in range(4)))
        for _ in range(20):
            for job in sorted(site.world.running()):
                site.world.end(job)
            await site.tick(after_s=600.0)
        left = {job: state for job, state in states(site).items() if state not in ("done", "failed", "cancelled")}
        assert left == {} and not site.world.running()
        replayed(site)

    over_crash(tmp_path, script)
