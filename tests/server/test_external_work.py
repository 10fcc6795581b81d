"""Work that people gave to the engine itself: it becomes a job exactly once, whatever happens to the daemon, under the
limits of whose it is, and ends when its owner takes it back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.server.site import OWNER, FakeExecutor, FakeWorld, Site, run_site, spec
from trine.executor.base import ExternalJob, ExternalJobsChanged, InventoryChanged, JobLease, LaunchFailed
from trine.executor.local.executor import LocalExecutor
from trine.executor.local.inventory import nodes_of, virtual_nodes
from trine.inputs.cluster import load_cluster
from trine.server.access import Access, Queue, UserLimits
from trine.server.build import Model
from trine.server.configuration import quotas_of
from trine.server.replay import redecide
from trine.server.scheduler import Scheduler

TEAM = "kube.team-a"


class TellingExecutor(FakeExecutor):
    """Keeps what owners are told."""

    def __init__(self, world: FakeWorld) -> None:
        super().__init__(world)
        self.told: dict[str, str] = {}

    def tell_external(self, reasons: Mapping[str, str]) -> None:
        self.told = dict(reasons)


def daemon_of(site: Site) -> Scheduler:
    assert site.daemon is not None
    return site.daemon


async def offer(site: Site, *works: ExternalJob) -> None:
    site.world.tell(ExternalJobsChanged(site.now, works))
    await site.quiet()


def work(key: str, gpus: int = 1, **more: object) -> ExternalJob:
    return ExternalJob(key, f"team-a:{key}", TEAM, gpus, **more)  # type: ignore[arg-type]


def states(site: Site) -> dict[str, str]:
    return {job.spec.name.removeprefix("team-a:"): job.state for job in daemon_of(site).controller.state.jobs.values()}


def test_it_is_a_job_once_over_crashes_and_repeated_news(tmp_path: Path) -> None:
    site = Site(tmp_path)

    async def script(site: Site) -> None:
        await offer(site, work("a", 4), work("b"))
        assert states(site) == {"a": "running", "b": "waiting"}
        await site.crash()
        await site.up()
        await offer(site, work("a", 4), work("b"))
        await offer(site, work("a", 4), work("b"))
        assert states(site) == {"a": "running", "b": "waiting"}
        site.world.end("1")
        await site.quiet()
        await offer(site, work("b"))
        assert states(site) == {"a": "done", "b": "running"}
        await offer(site, work("a", 4), work("b"))
        assert states(site) == {"a": "done", "b": "running"}, "what has ended is not started again"

        agreement, _ = redecide(daemon_of(site).store.records(), Model())
        assert not agreement.difference, "the journal decides the same again"

    run_site(site, script)


def test_what_its_owner_takes_back_ends_also_while_the_daemon_is_away(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await offer(site, work("runs", 4), work("waits"), work("stays"))
        await site.crash()
        await site.up()
        assert states(site)["waits"] == "waiting", "nothing follows before the engine was asked"
        await offer(site, work("stays"))
        assert states(site) == {"runs": "cancelled", "waits": "cancelled", "stays": "running"}

    run_site(Site(tmp_path), script)


def test_limits_and_queues_hold_for_it_and_its_owner_is_told(tmp_path: Path) -> None:
    queues = {"default": Queue("default"), "staff": Queue("staff", users=frozenset({"alice"}))}
    access = Access(queues, {TEAM: UserLimits(max_gpus=2, max_waiting=1)})
    site = Site(tmp_path, access=access, model=Model(quotas=quotas_of(access)))

    async def script(site: Site) -> None:
        executor = TellingExecutor(site.world)
        await site.crash()
        daemon = await site.up(executor)
        await offer(site, work("large", 4), work("staff", queue="staff"), work("huge", 64), work("odd", refused="No."))
        daemon._tell_external()
        assert states(site) == {}
        assert "user kube.team-a may use 2 at once" in executor.told["large"]
        assert "may not submit to queue staff" in executor.told["staff"]
        assert executor.told["odd"] == "No."
        await offer(site, work("one", 2), work("two", 1))
        await offer(site, work("one", 2), work("two", 1), work("three", 1))
        daemon._tell_external()
        assert states(site) == {"one": "running", "two": "waiting"}
        assert "exceed the limit of 1" in executor.told["three"] and "one" not in executor.told
        assert executor.told["two"].startswith("job 2 ")

    run_site(site, script)


def test_what_can_never_run_becomes_a_job_when_the_cluster_has_grown(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await offer(site, work("large", 8))
        assert states(site) == {}
        site.world.nodes = nodes_of(load_cluster("4x2"))
        site.world.tell(InventoryChanged(site.now, tuple(site.world.nodes)))
        await site.quiet()
        await daemon_of(site)._each_round()
        await site.quiet()
        assert states(site) == {"large": "running"}

    run_site(Site(tmp_path), script)


@pytest.mark.parametrize("policy", ["las", "srtf", "max-min-fairness", "trine"])
def test_it_is_not_stopped_for_others_unless_the_engine_says_so(tmp_path: Path, policy: str) -> None:
    async def script(site: Site) -> None:
        await offer(site, work("pod", 4))
        await daemon_of(site).submit([spec(1, max_runtime=600.0) for _ in range(4)], OWNER)
        for _ in range(5):
            await site.tick(3_600.0)
        assert states(site)["pod"] == "running"

    run_site(Site(tmp_path, policy=policy, round_s=360.0), script)


def test_its_command_is_never_run_whatever_the_engine(tmp_path: Path) -> None:
    lease = JobLease("1", 1, (("node0", (0,)),), ("touch", str(tmp_path / "ran")), external="uid")
    with LocalExecutor(tmp_path / "state", virtual_nodes("1x1")) as executor:
        executor.launch(lease)
        (event,) = executor.wait_events(10.0)
    assert isinstance(event, LaunchFailed) and "given to another engine" in event.reason
    assert not (tmp_path / "ran").exists()
