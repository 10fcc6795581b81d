"""Two jobs on the same GPUs in the live scheduler: who may, who is told, and what is learnt from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.server.pairs import PAIRED, TABLE, pair_site, trains
from tests.server.site import OWNER, Site, run_site
from trine.core.cluster import Cluster
from trine.engine.invariants import check
from trine.server import records as rec
from trine.server.build import Model, performance
from trine.server.records import cluster_to_record
from trine.server.replay import redecide
from trine.server.scheduler import Scheduler
from trine.server.snapshot import to_snapshot
from trine.server.store import Store


def daemon_of(site: Site) -> Scheduler:
    assert site.daemon is not None
    return site.daemon


def states(site: Site) -> dict[str, str]:
    return {job.id: job.state for job in daemon_of(site).controller.state.jobs.values()}


@pytest.mark.parametrize("policy", ["max-min-fairness", "gandiva", "max-throughput"])
def test_two_that_do_well_together_run_on_one_gpu_and_a_third_waits(policy: str, tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = daemon_of(site)
        await daemon.submit([trains("big"), trains("small")], OWNER)
        await site.quiet()
        await daemon.submit([trains("lone")], OWNER)
        await site.tick(60)
        assert states(site) == {"1": "running", "2": "running", "3": "waiting"}
        placed = {job_id: daemon.job(job_id, OWNER).placement for job_id in "12"}
        assert placed["1"] == placed["2"] != ()
        assert [daemon.job(job_id, OWNER).shares_with for job_id in "123"] == ["2", "1", None]
        [node] = daemon.nodes()
        assert {node.gpus[0].job, node.gpus[0].second_job} == {"1", "2"}
        assert "shares its GPU with job 2: together 1.7x of one alone" in daemon.job("1", OWNER).reason.sentence
        site.world.end("1")
        await site.quiet()
        assert daemon.job("2", OWNER).shares_with is None
        assert "shares" not in daemon.job("2", OWNER).reason.sentence
        assert [line.what for line in daemon.explain("2", OWNER).story][-1] == "has its GPUs to itself"

    run_site(pair_site(tmp_path, policy=policy), script)


def test_a_job_joins_one_that_runs_and_both_are_told(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = daemon_of(site)
        await daemon.submit([trains("big")], OWNER)
        await site.quiet()
        await daemon.submit([trains("small")], OWNER)
        await site.tick(2000)  # the shares are computed anew; who runs stays for a round
        await site.tick(400)
        assert states(site) == {"1": "running", "2": "running"}
        assert site.world.running()["1"].shares_with == "2"
        assert [daemon.job(job_id, OWNER).attempt for job_id in "12"] == [1, 1], "nobody was stopped for it"
        assert "job 2 starts there, too." in [line.sentence for line in daemon.explain("1", OWNER).story]
        check(daemon.controller.deciding)

    run_site(pair_site(tmp_path), script)


def test_two_users_share_only_where_the_operator_says_so(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = daemon_of(site)
        await daemon.submit([trains("big", user="ada"), trains("small", user="bob")], OWNER)
        await site.quiet()
        await site.tick(2000)
        await site.tick(400)
        together = daemon.job("1", OWNER).shares_with == "2"
        assert together == (site.sharing == "all")

    for name in ("user", "all"):
        (tmp_path / name).mkdir()
    run_site(pair_site(tmp_path / "user"), script)
    run_site(pair_site(tmp_path / "all", sharing="all"), script)


def test_without_a_table_nobody_is_paired(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await daemon_of(site).submit([trains("big"), trains("small")], OWNER)
        await site.quiet()
        await site.tick(2000)
        assert sorted(states(site).values()) == ["running", "waiting"]

    site = pair_site(tmp_path)
    site.model = Model()
    run_site(site, script)


def test_where_gpus_are_not_shared_each_is_given_to_one_job(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await daemon_of(site).submit([trains("big"), trains("small")], OWNER)
        await site.quiet()
        assert sorted(states(site).values()) == ["running", "waiting"]

    run_site(pair_site(tmp_path, sharing="off"), script)


def test_what_a_pair_did_is_known_next_time_and_says_nothing_of_the_models_alone(tmp_path: Path) -> None:
    """The table says 0.9 and 0.8 of the speed alone; in truth the two slow each other down to a third."""

    async def script(site: Site) -> None:
        daemon = daemon_of(site)
        ids = await daemon.submit([trains("big"), trains("small")], OWNER)
        await site.tick(1)
        for _ in range(6):
            site.now += 20
            site.world.now = site.now
            for job_id in ids:
                site.world.work(job_id, 6, rate=0.3)
            await site.tick(0)
        state = daemon.controller.state
        assert state.cluster is not None and state.observations is not None
        known = performance(state, PAIRED, state.cluster).throughputs
        assert known.rate("big", 1, "gpu") == known.rate("small", 1, "gpu") == 1.0
        pair = known.pair_rate("big", "small", 1, "gpu")
        assert pair is not None and TABLE.pair_rate("big", "small", 1, "gpu") == (0.9, 0.8)
        assert pair == pytest.approx((0.52, 0.49), abs=0.01), "half way, in proportion, after the first run"
        assert not state.observations.rates.by_key and not state.observations.drifts()

    run_site(pair_site(tmp_path), script)


def test_what_was_heard_across_a_change_of_company_is_not_taken_for_a_speed(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = daemon_of(site)
        await daemon.submit([trains("big")], OWNER)
        await site.quiet()
        await daemon.submit([trains("small")], OWNER)
        await site.tick(2000)
        site.now += 400
        site.world.now = site.now
        site.world.work("1", 100, rate=1.0)
        await site.tick(0)  # hears of 1, and puts 2 next to it
        state = daemon.controller.state
        assert state.co_runner_of(state.jobs["1"]) is state.jobs["2"]
        assert state.jobs["1"].rate == 0.0, "what it did alone is not what it does now"
        assert state.observations is not None
        runs = sum(pace.runs for pace in state.observations.rates.by_key.values())
        site.now += 1
        site.world.now = site.now
        site.world.work("1", 1, rate=0.9)
        await site.tick(0)
        assert sum(pace.runs for pace in state.observations.rates.by_key.values()) == runs

    run_site(pair_site(tmp_path), script)


@pytest.mark.parametrize(("policy", "runs"), [("srtf", 1), ("fifo-backfill", 2)])
def test_a_policy_without_pairs_takes_over_a_pair(policy: str, runs: int, tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await daemon_of(site).submit([trains("big"), trains("small")], OWNER)
        await site.quiet()
        await site.crash()
        site.policy, site.settings = policy, {}
        daemon = await site.up()
        await site.quiet()
        assert daemon.job("1", OWNER).shares_with == "2", "they go on until a round decides otherwise"
        await site.tick(60)
        check(daemon.controller.deciding)
        assert list(states(site).values()).count("running") == runs, "it stops one, or nobody if it never stops jobs"

    run_site(pair_site(tmp_path), script)


def test_a_journal_from_before_there_were_pairs_is_read() -> None:
    start = {"job": "1", "epoch": 1, "gpus": [0], "why": "placed", "sentence": "so"}
    ticked = rec.from_body("ticked", {"at_s": 1.0, "fill": False, "heard": [], "starts": [start], "stops": []})
    assert ticked.orders.starts[0].co_runner == "" and isinstance(ticked, rec.Ticked) and ticked.accounts == {}
    cluster = cluster_to_record(Cluster.uniform(1, 1))
    told = {"at_s": 0.0, "version": "0", "cluster": cluster, "policy": "fifo", "placement": "packed", "settings": {}}
    configured = rec.from_body("configured", told)
    assert isinstance(configured, rec.Configured) and configured.sharing == "off"


def test_many_accounts_are_written_in_few_bytes_and_read_back() -> None:
    accounts = {f"unit/{i}+{i + 1}": [[0.25], [0.0], False] for i in range(5000)}
    body = rec.to_body(rec.Ticked(1.0, False, accounts=accounts))
    assert len(json.dumps(body)) < 60_000
    assert rec.from_body("ticked", json.loads(json.dumps(body))) == rec.Ticked(1.0, False, accounts=accounts)


def test_a_job_that_is_slower_than_its_model_is_so_in_pairs_too(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = daemon_of(site)
        await daemon.submit([trains("big")], OWNER)
        await site.quiet()
        site.now += 100
        site.world.now = site.now
        site.world.work("1", 40, rate=0.4)
        await site.tick(0)
        await daemon.submit([trains("small")], OWNER)
        await site.tick(2000)
        one, other = daemon.controller.state.accounts["unit/1+2"][2]
        assert (one[0], other[0]) == pytest.approx((0.9 * 0.4, 0.8)), "alone it does 0.4: no more next to another"

    run_site(pair_site(tmp_path), script)


def test_a_recorded_run_with_pairs_is_decided_the_same_again(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = daemon_of(site)
        await daemon.submit([trains("big"), trains("small"), trains("small"), trains("lone")], OWNER)
        for turn in range(12):
            await site.tick(700)
            for job_id in list(site.world.running()):
                site.world.work(job_id, 10, rate=0.5 + 0.1 * turn)
        for job_id in list(site.world.running()):
            site.world.end(job_id)
        await site.tick(700)

    run_site(pair_site(tmp_path, gpus="1x2"), script)
    store = Store.open(tmp_path / "journal.db")
    agreement, again = redecide(store.records(), PAIRED)
    assert agreement.difference == "" and agreement.decisions > 8
    assert to_snapshot(again) == to_snapshot(store.load())
    assert any(start.co_runner for record in store.records() for start in record.orders.starts)
