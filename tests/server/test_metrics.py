from __future__ import annotations

import asyncio
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.server.site import OWNER, Site, spec
from trine.server.metrics import TABLE
from trine.server.scheduler import Scheduler
from trine.server.store import StoreError


def families(daemon: Scheduler) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(daemon.metrics().decode())}


def samples(daemon: Scheduler) -> dict[tuple[str, ...], float]:
    """Values by name and labels, labels in the order of their names."""
    found = [sample for family in families(daemon).values() for sample in family.samples]
    return {(s.name, *(s.labels[label] for label in sorted(s.labels))): s.value for s in found}


async def small_run(site: Site) -> Scheduler:
    daemon = await site.up()
    await daemon.submit([spec(2, steps=10.0), spec(1), spec(3)], OWNER)
    await site.quiet()
    site.world.end("2")
    await daemon.drain("node1", "fan", OWNER)
    await daemon.submit([spec(2, priority=3.0)], OWNER)
    await site.tick(60)
    return daemon


def test_every_metric_of_the_table_is_there_with_its_meaning(tmp_path: Path) -> None:
    async def script() -> None:
        site = Site(tmp_path, policy="srtf")
        daemon = await small_run(site)
        daemon.forecasts.last = {"made_at_s": site.now - 5, "draws": 40, "jobs": {}}
        daemon.forecasts.scores.starts.add(0.0, 60.0, 120.0, 90.0)
        daemon.forecasts.scores.ends.add(0.0, 60.0, 120.0, 90.0)
        found = families(daemon)
        named = {name: found.get(name) or found.get(name.removesuffix("_total")) for name in TABLE}
        assert [name for name, family in named.items() if family is None] == []
        for name, family in named.items():
            assert family is not None and family.documentation == TABLE[name]
            assert family.samples, f"{name} has no value"
            assert (family.type == "counter") == name.endswith("_total"), f"{name} is a {family.type}"
        told = {name for name in found if name.startswith("trine_") and not name.endswith("_created")}
        assert told <= set(TABLE) | {name.removesuffix("_total") for name in TABLE}, "a metric that no table explains"
        await site.crash()

    asyncio.run(script())


def test_the_values_say_what_happened(tmp_path: Path) -> None:
    async def script() -> None:
        site = Site(tmp_path, policy="srtf")
        daemon = await small_run(site)
        values = samples(daemon)
        states = {job.id: job.state for job in daemon.controller.state.jobs.values()}
        for state in set(states.values()):
            assert values["trine_jobs", state] == list(states.values()).count(state)
        assert values["trine_submissions_total",] == 4
        assert values["trine_exits_total", "done"] == 1
        assert sum(values[key] for key in values if key[0] == "trine_gpus") == 4
        held = sum(len(part.gpus) for view in daemon.jobs(OWNER) for part in view.placement)
        assert values["trine_gpus", "gpu", "held"] == held
        assert values["trine_journal_failing",] == 0
        assert values["trine_journal_records_total",] == daemon.store.seq
        assert values["trine_round_seconds_count",] >= 1
        starts = sum(v for key, v in values.items() if key[:2] == ("trine_decisions_total", "start"))
        assert starts == len(site.world.launches)
        await site.crash()

    asyncio.run(script())


def test_a_cancelled_start_is_not_counted_as_preempted(tmp_path: Path) -> None:
    async def script() -> None:
        site = Site(tmp_path)
        daemon = await site.up()
        await daemon.submit([spec(1), spec(1)], OWNER)
        await site.quiet()
        await daemon.cancel("1", OWNER)
        await daemon.hold("2", OWNER)
        await site.quiet()
        values = samples(daemon)
        assert values["trine_exits_total", "cancelled"] == 1
        assert values["trine_exits_total", "preempted"] == 1
        assert values["trine_decisions_total", "stop", "cancelled"] == 1
        await site.crash()

    asyncio.run(script())


def test_the_oldest_wait_grows_while_nothing_happens(tmp_path: Path) -> None:
    async def script() -> None:
        site = Site(tmp_path)
        daemon = await site.up()
        await daemon.submit([spec(4), spec(4)], OWNER)
        await site.quiet()
        before = samples(daemon)["trine_oldest_wait_seconds",]
        site.now += 600
        assert 600 <= samples(daemon)["trine_oldest_wait_seconds",] - before < 601
        await site.crash()

    asyncio.run(script())


def test_a_failing_journal_shows(tmp_path: Path) -> None:
    async def script() -> None:
        site = Site(tmp_path)
        daemon = await site.up()
        daemon.journal.failure = StoreError("disk is full")
        assert samples(daemon)["trine_journal_failing",] == 1
        await site.crash()

    asyncio.run(script())
