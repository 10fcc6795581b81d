"""A recorded run looked at again: the simulator foresees it, predictions are kept, and a difference is found."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.server.site import OWNER, Site, spec
from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.engine.quotas import Quotas
from trine.perf.throughput import ThroughputTable
from trine.server import records as rec
from trine.server import scheduler
from trine.server.build import Model
from trine.server.controller import Controller
from trine.server.replay import Forecast, error_sentence, recorded_run, redecide
from trine.server.state import LiveState
from trine.server.store import Store
from trine.sim.scenario import finish_times


@pytest.fixture(autouse=True)
def decide_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_FILL_AFTER_S", 0.0)


async def fifo_run(site: Site, lengths: dict[str, tuple[int, float]], model: str = "") -> None:
    """All jobs at once; each (GPUs, seconds) runs exactly that long, in the order in which FIFO starts them."""
    daemon = await site.up()
    await daemon.submit([spec(gpus, steps=seconds, model=model) for gpus, seconds in lengths.values()], OWNER)
    await site.quiet()
    ends: dict[str, float] = {}
    while daemon.controller.state.live:
        for job_id in site.world.running():
            ends.setdefault(job_id, site.now + lengths[job_id][1])
        job_id = min((j for j in site.world.running()), key=lambda j: (ends[j], int(j)))
        site.now = max(site.now, ends[job_id])
        site.world.end(job_id)
        await site.quiet()
    await site.crash()


LENGTHS = {"1": (2, 600.0), "2": (2, 900.0), "3": (4, 300.0), "4": (1, 1200.0), "5": (3, 60.0), "6": (1, 30.0)}


def forecast(state: LiveState, model: Model) -> list[Forecast]:
    run = recorded_run(state, model)
    return [] if run is None else run.compare(finish_times(run.settings, run.engine, run.jobs))


def loaded(home: Path) -> LiveState:
    store = Store.open(home / "journal.db")
    try:
        return store.load()
    finally:
        store.close()


def records_of(home: Path) -> Iterator[rec.Record]:
    store = Store.open(home / "journal.db")
    try:
        yield from store.records()
    finally:
        store.close()


@pytest.mark.parametrize("placement", ["packed-sticky", "packed"])
def test_the_simulator_foresees_a_fifo_run(placement: str, tmp_path: Path) -> None:
    asyncio.run(fifo_run(Site(tmp_path, placement=placement), LENGTHS))
    forecasts = forecast(loaded(tmp_path), Model())
    assert [f.job for f in forecasts] == list(LENGTHS)
    assert [f.real_s for f in forecasts] == pytest.approx([600, 900, 1200, 2400, 1260, 1290], abs=2)
    for f in forecasts:
        assert abs(f.error) < 0.01, f"{f}: FIFO leaves nothing to chance"
    assert "6 jobs are off by 0.0% in the median" in error_sentence(forecasts)


def test_a_forecast_needs_jobs_that_ended_well(tmp_path: Path) -> None:
    assert forecast(LiveState(), Model()) == []
    assert "nothing to compare" in error_sentence([])
    assert Forecast("1", 0.0, 5.0).error == 0.0
    assert Forecast("1", 100.0, 150.0).error == 0.5


def test_a_forecast_is_made_although_the_cluster_has_become_smaller_since(tmp_path: Path) -> None:
    async def script() -> None:
        await fifo_run(Site(tmp_path), LENGTHS)
        smaller = Site(tmp_path, gpus="1x2")
        await smaller.up()
        await smaller.crash()

    asyncio.run(script())
    told = {f.job for f in forecast(loaded(tmp_path), Model())}
    assert told == {"1", "2", "4", "6"}, "those that still fit"


def test_predicted_and_real_run_times_are_kept_by_model(tmp_path: Path) -> None:
    table = ThroughputTable({("bert", 1): {"gpu": 2.0}})
    site = Site(tmp_path, model=Model(table))
    asyncio.run(fifo_run(site, {"1": (1, 600.0), "2": (1, 600.0)}, "bert"))
    learnt = loaded(tmp_path).observations
    assert learnt is not None
    error = learnt.prediction_error("bert")
    assert error is not None and error.runs == 2
    assert error.bias == pytest.approx(-0.5, abs=0.01), "600 steps at 2 per second were expected to take 300 s"
    assert learnt.prediction_error("resnet") is None


def test_a_journal_that_was_tampered_with_is_decided_differently_and_said_so(tmp_path: Path) -> None:
    asyncio.run(fifo_run(Site(tmp_path), LENGTHS))
    records = list(records_of(tmp_path))
    agreement, _ = redecide(records, Model())
    assert agreement.difference == "" and agreement.agreed == agreement.decisions == 6
    number, tick = next((n, r) for n, r in enumerate(records) if isinstance(r, rec.Ticked) and r.orders.starts)
    first = replace(tick.orders.starts[0], gpus=(3, 2))
    records[number] = replace(tick, orders=replace(tick.orders, starts=(first, *tick.orders.starts[1:])))
    agreement, _ = redecide(records, Model())
    assert f"record {number + 1} (ticked): on record start 1 on 3,2" in agreement.difference
    assert agreement.agreed < agreement.decisions


def test_a_journal_without_its_beginning_is_refused(tmp_path: Path) -> None:
    asyncio.run(fifo_run(Site(tmp_path), {"1": (1, 10.0)}))
    with pytest.raises(InputError, match="a journal kept from its start"):
        redecide(list(records_of(tmp_path))[1:], Model())


def test_a_run_over_changes_of_cluster_and_policy_is_decided_the_same_again(tmp_path: Path) -> None:
    async def script() -> None:
        site = Site(tmp_path, policy="srtf", placement="packed")
        daemon = await site.up()
        await daemon.submit([spec(2, steps=50.0), spec(2, steps=900.0), spec(1)], OWNER)
        await site.quiet()
        site.world.work("1", 20)
        await site.tick(60)
        await site.crash()
        other = Site(tmp_path, policy="las", placement="random")
        other.world, other.now = site.world, site.now
        old = site.cluster.nodes
        other.cluster = Cluster((replace(old[0], name="fresh"), old[1], old[0]))
        other.world.nodes = []
        daemon = await other.up()
        await daemon.submit([spec(1), spec(2)], OWNER)
        await other.tick(60)
        for job_id in list(other.world.running()):
            other.world.end(job_id)
        await other.quiet()
        await other.crash()

    asyncio.run(script())
    agreement, _ = redecide(records_of(tmp_path), Model())
    assert agreement.difference == "" and agreement.decisions >= 4


def test_limits_of_queues_and_users_are_on_record_and_need_not_be_told_again(tmp_path: Path) -> None:
    model = Model(quotas=Quotas({"default": 3}, {"owner": 2}))

    async def script() -> None:
        site = Site(tmp_path, model=model)
        daemon = await site.up()
        await daemon.submit([spec(2), spec(2), spec(1)], OWNER)
        await site.quiet()
        assert len(site.world.running()) == 1
        await site.crash()
        free = Site(tmp_path)
        free.world, free.now = site.world, site.now
        await free.up()
        await free.quiet()
        assert len(free.world.running()) == 2, "a later daemon without limits"
        await free.crash()

    asyncio.run(script())
    records = list(records_of(tmp_path))
    agreement, _ = redecide(records, Model())
    assert not agreement.difference and agreement.decisions == 2
    assert agreement.model.quotas == Quotas()
    before = [replace(r, quotas={}) if isinstance(r, rec.Configured) else r for r in records]
    assert redecide(before, Model())[0].difference, "a journal of before does not know them"


def test_a_configuration_without_limits_is_written_as_before() -> None:
    record = Controller(LiveState(), Model()).configure(1.0, "v", Cluster.uniform(1, 1), "fifo", "packed", {})
    assert "quotas" not in rec.to_body(record)
    limited = Controller(LiveState(), Model(quotas=Quotas({"a": 1})))
    record = limited.configure(1.0, "v", Cluster.uniform(1, 1), "fifo", "packed", {})
    assert rec.from_body(record.kind, json.loads(json.dumps(rec.to_body(record)))) == record
