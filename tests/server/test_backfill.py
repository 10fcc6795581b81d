"""The default policy live, where durations are often unknown: small jobs use idle GPUs, and nobody waits for ever."""

from __future__ import annotations

from pathlib import Path

from tests.server.site import OWNER, Site, run_site, spec
from trine.engine.quotas import Quotas
from trine.server.build import Model
from trine.server.configuration import Options
from trine.server.interface import Caller

HOUR = 3600.0


def states(site: Site) -> dict[str, str]:
    assert site.daemon is not None
    return {job.id: job.state for job in site.daemon.controller.state.jobs.values()}


def backfill(home: Path, gpus: str = "1x4", **values: object) -> Site:
    return Site(home, gpus, policy="fifo-backfill", **values)  # type: ignore[arg-type]


def test_it_is_what_the_daemon_does_by_default(tmp_path: Path) -> None:
    assert Options(tmp_path).policy == "fifo-backfill"


def test_a_job_that_states_its_duration_uses_gpus_that_the_first_in_line_cannot_use_yet(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        assert site.daemon is not None
        await site.daemon.submit([spec(2), spec(4), spec(2, max_runtime=HOUR)], OWNER)
        await site.quiet()
        assert states(site) == {"1": "running", "2": "waiting", "3": "running"}

    run_site(backfill(tmp_path), script)


def test_a_job_that_states_nothing_overtakes_only_on_gpus_that_are_left_over(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        assert site.daemon is not None
        await site.daemon.submit([spec(2, max_runtime=10 * HOUR), spec(3), spec(2)], OWNER)
        await site.quiet()
        assert states(site) == {"1": "running", "2": "waiting", "3": "waiting"}
        reason = site.daemon.job("3", OWNER).reason
        assert reason.code == "would-delay-reservation" and "max_runtime" in reason.change
        await site.daemon.submit([spec(1)], OWNER)
        await site.quiet()
        assert states(site) == {"1": "running", "2": "waiting", "3": "waiting", "4": "running"}

    run_site(backfill(tmp_path), script)


def test_jobs_of_unknown_duration_never_keep_the_first_in_line_waiting_for_ever(tmp_path: Path) -> None:
    """Two-GPU jobs come all the time; the four-GPU job gets its turn as soon as those before it have ended."""

    async def script(site: Site) -> None:
        assert site.daemon is not None
        await site.daemon.submit([spec(2), spec(2), spec(4)], OWNER)
        for turn in range(8):
            await site.daemon.submit([spec(2)], OWNER)
            await site.tick(HOUR)
            if turn in (2, 5):
                site.world.end("1" if turn == 2 else "2")
                await site.quiet()
        assert states(site)["3"] == "running"
        assert set(states(site).values()) == {"done", "running", "waiting"}

    run_site(backfill(tmp_path), script)


def test_one_that_runs_longer_than_it_said_lets_nothing_new_pass(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        assert site.daemon is not None
        await site.daemon.submit([spec(2, steps=3600, max_runtime=100 * HOUR), spec(4)], OWNER)
        await site.quiet()
        site.world.work("1", 3600, total=3600, rate=1.0)
        await site.tick(2 * HOUR)
        await site.daemon.submit([spec(2, max_runtime=60.0)], OWNER)
        await site.tick(60)
        assert states(site) == {"1": "running", "2": "waiting", "3": "waiting"}

    run_site(backfill(tmp_path), script)


def test_what_a_job_reports_of_its_length_counts_as_stated(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        assert site.daemon is not None
        await site.daemon.submit([spec(2), spec(4)], OWNER)
        await site.quiet()
        site.now += 60
        site.world.now = site.now
        site.world.work("1", 60, total=360, rate=1.0)
        await site.tick(1)
        await site.daemon.submit([spec(2, max_runtime=HOUR)], OWNER)
        await site.tick(1)
        assert states(site)["3"] == "waiting", "it would end long after the first"
        await site.daemon.submit([spec(2, max_runtime=120.0)], OWNER)
        await site.tick(1)
        assert states(site)["4"] == "running"

    run_site(backfill(tmp_path), script)


def test_a_user_over_a_quota_does_not_keep_gpus_idle(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        assert site.daemon is not None
        await site.daemon.submit([spec(2, user="ann"), spec(2, user="ann")], Caller("ann", admin=True))
        await site.daemon.submit([spec(2, user="bob")], Caller("bob", admin=True))
        await site.quiet()
        assert states(site) == {"1": "running", "2": "waiting", "3": "running"}
        assert site.daemon.job("2", OWNER).reason.code == "over-quota"

    run_site(backfill(tmp_path, model=Model(quotas=Quotas(by_user={"ann": 2}))), script)
