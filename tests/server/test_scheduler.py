from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.site import OWNER, Site, run_site, spec
from trine.engine.invariants import check
from trine.engine.quotas import Quotas
from trine.executor.base import Handle, JobLease
from trine.server import records as rec
from trine.server.build import Model
from trine.server.interface import Caller, JobView, NotFound, Refused
from trine.server.outcome import MAX_VAIN


def states(site: Site) -> dict[str, str]:
    assert site.daemon is not None
    check(site.daemon.controller.deciding)
    return {job.id: job.state for job in site.daemon.controller.state.jobs.values()}


async def submit(site: Site, *gangs: int, **values: object) -> list[str]:
    assert site.daemon is not None
    ids = await site.daemon.submit([spec(gpus, **values) for gpus in gangs], OWNER)
    await site.quiet()
    return ids


def view(site: Site, job_id: str) -> JobView:
    assert site.daemon is not None
    return site.daemon.job(job_id, OWNER)


def test_jobs_run_as_gpus_come_free_without_waiting_for_a_round(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await submit(site, 3, 2)
        assert states(site) == {"1": "running", "2": "waiting"}
        assert view(site, "2").position == 1
        assert "needs 2 GPUs" in view(site, "2").reason.sentence
        site.world.end("1")
        await site.quiet()
        assert states(site) == {"1": "done", "2": "running"}
        assert view(site, "1").exit_code == 0

    run_site(Site(tmp_path), script)


def test_a_preempted_job_resumes_from_its_last_step_on_other_gpus(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await submit(site, 4, steps=100.0)
        site.world.work("1", 40)
        await submit(site, 4, priority=5.0)
        assert states(site) == {"1": "running", "2": "waiting"}, "nobody is stopped between rounds"
        await site.tick(after_s=60)
        assert states(site) == {"1": "waiting", "2": "running"}
        assert view(site, "1").preemptions == 1
        site.world.end("2")
        await site.quiet()
        assert states(site) == {"1": "running", "2": "done"}
        assert site.world.running()["1"].step == 40
        assert view(site, "1").attempt == 2

    run_site(Site(tmp_path, policy="srtf"), script)


def test_gpus_are_handed_on_only_after_the_last_holder_is_gone(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        site.world.obedient = False
        await submit(site, 4)
        await submit(site, 4, priority=1.0)
        await site.tick()
        assert states(site) == {"1": "stopping", "2": "waiting"}
        await site.tick()
        assert states(site) == {"1": "stopping", "2": "waiting"}
        site.world.let_stop("1")
        await site.quiet()
        assert states(site) == {"1": "waiting", "2": "running"}

    run_site(Site(tmp_path, policy="srtf"), script)


def test_cancel_hold_and_release_whatever_the_job_is_doing(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        await submit(site, 4, 4, 4, 1)
        await daemon.hold("2", OWNER)
        await daemon.cancel("3", OWNER)
        assert states(site)["2"] == "held" and states(site)["3"] == "cancelled"
        await daemon.cancel("1", OWNER)
        await site.quiet()
        assert states(site) == {"1": "cancelled", "2": "held", "3": "cancelled", "4": "running"}
        await daemon.release("2", OWNER)
        site.world.end("4")
        await site.quiet()
        assert states(site)["2"] == "running"
        await daemon.hold("2", OWNER)
        await site.quiet()
        assert states(site)["2"] == "held"
        with pytest.raises(Refused, match="cancelled already"):
            await daemon.cancel("1", OWNER)

    run_site(Site(tmp_path), script)


def test_a_failing_job_keeps_its_exit_code_and_a_vanishing_one_is_tried_again_and_held_at_last(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await submit(site, 2, 2)
        site.world.end("1", "failed", 7)
        site.world.end("2", "lost", 137)
        await site.quiet()
        assert states(site)["2"] == "running", "once may be anything"
        for _ in range(MAX_VAIN - 2):
            site.world.end("2", "lost", 137)
            await site.quiet()
            assert view(site, "2").reason.code == "paused"
            await site.tick(after_s=301)
            assert states(site)["2"] == "running"
        site.world.end("2", "lost", 137)
        await site.quiet()
        assert states(site) == {"1": "failed", "2": "held"}
        assert view(site, "1").exit_code == 7
        assert "10 attempts in a row were lost" in view(site, "2").reason.sentence

    run_site(Site(tmp_path), script)


def test_nothing_starts_on_a_drained_node_and_what_runs_there_may_end(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        await submit(site, 2)
        drained = view(site, "1").placement[0].node
        node = await daemon.drain(drained, "new fan", OWNER)
        assert (node.state, node.reason) == ("drained", "new fan")
        assert (await daemon.drain(drained, "", OWNER)).reason == "new fan"
        assert (await daemon.drain(drained, "two new fans", OWNER)).reason == "two new fans"
        await submit(site, 2, 1)
        assert states(site) == {"1": "running", "2": "running", "3": "waiting"}
        assert view(site, "2").placement[0].node != drained
        site.world.end("1")
        await site.tick(60)
        assert states(site)["3"] == "waiting"
        assert drained in " ".join(daemon.explain("3", OWNER).sentences)
        await daemon.undrain(drained, OWNER)
        await site.quiet()
        assert states(site)["3"] == "running"

    run_site(Site(tmp_path), script)


def test_quotas_keep_a_queue_from_taking_everything(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await submit(site, 2, 2, 1)
        assert states(site) == {"1": "running", "2": "waiting", "3": "running"}
        await site.tick()
        assert view(site, "2").reason.code == "over-quota"
        site.world.end("1")
        await site.quiet()
        assert states(site)["2"] == "running"

    run_site(Site(tmp_path, model=Model(quotas=Quotas(by_group={"default": 3}))), script)


def test_shapes_are_honoured(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        await submit(site, 2, nodes=2)
        assert [len(part.gpus) for part in view(site, "1").placement] == [1, 1]
        await submit(site, 2, topology={"required": "node"})
        assert states(site)["2"] == "waiting"
        assert view(site, "2").reason.code == "no-room-close-together"
        for gpus, values in ((3, {"topology": {"required": "node"}}), (4, {"nodes": 4}), (5, {})):
            with pytest.raises(Refused, match="can never run"):
                await submit(site, gpus, **values)
        site.world.end("1")
        await site.quiet()
        assert len(view(site, "2").placement) == 1

    run_site(Site(tmp_path), script)


def test_users_see_and_change_only_their_own_jobs(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        eve = Caller("eve")
        await submit(site, 1)
        mine = await daemon.submit([spec(1, user="eve")], eve)
        assert [job.id for job in daemon.jobs(eve)] == mine
        for verb in (daemon.cancel, daemon.hold, daemon.release):
            with pytest.raises(NotFound):
                await verb("1", eve)
        with pytest.raises(NotFound):
            daemon.explain("1", eve)
        with pytest.raises(Refused, match="owner of the daemon"):
            await daemon.drain("node0", "", eve)

    run_site(Site(tmp_path), script)


def test_the_same_request_twice_is_one_job(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        first = await daemon.submit([spec(), spec()], OWNER, "abc")
        assert await daemon.submit([spec(), spec()], OWNER, "abc") == first
        with pytest.raises(Refused, match="abc was used before, to submit other jobs") as told:
            await daemon.submit([spec(), spec(2)], OWNER, "abc")
        assert told.value.code == "conflict"
        assert await daemon.submit([spec(user="eve")], Caller("eve"), "abc") != first
        assert len(states(site)) == 3

    run_site(Site(tmp_path), script)


def test_a_request_id_of_an_older_journal_keeps_its_jobs(tmp_path: Path) -> None:
    """Records of older versions do not say what the request asked for."""

    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        first = await daemon.submit([spec()], OWNER, "abc")
        state = daemon.controller.state
        del state.digests["owner/abc"]
        assert await daemon.submit([spec(2)], OWNER, "abc") == first
        old = rec.to_body(rec.Accepted(1.0, "9", "owner", "default", 1.0, spec(), "owner/old"))
        assert "digest" not in old
        state.apply(rec.from_body("accepted", old))
        assert state.requests["owner/old"] == ["9"] and "owner/old" not in state.digests

    run_site(Site(tmp_path), script)


def test_jobs_past_their_max_runtime_are_stopped_for_good(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        await submit(site, 1, 1, max_runtime=100.0)
        site.world.end("2")
        await site.tick(after_s=150)
        await site.quiet()
        assert states(site) == {"1": "timed out", "2": "done"}
        assert any("max_runtime" in line.what for line in site.daemon.controller.state.jobs["1"].story)  # type: ignore[union-attr]

    run_site(Site(tmp_path), script)


def test_leases_of_jobs_that_keep_their_gpus_are_renewed_without_a_restart(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        await submit(site, 2)
        lease = site.world.running()["1"].lease
        site.now += 300
        await daemon._each_round()
        assert daemon.executor.renewed == {lease.handle: lease.lease_s}  # type: ignore[attr-defined]
        assert lease.lease_s == 900.0
        assert len(site.world.launches) == 1

    run_site(Site(tmp_path), script)


def test_observed_speed_refines_the_model_and_flags_a_slow_gpu(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        for _batch in range(8):
            ids = await submit(site, 1, 1, 1, 1, model="resnet", steps=1000.0, **{"class": "A"})
            slow = next(i for i in ids if view(site, i).placement[0] == site_gpu(site, 3))
            for _ in range(3):
                site.now += 60
                for job_id in ids:
                    site.world.work(job_id, 60, rate=5.0 if job_id == slow else 10.0)
                await site.tick()
            for job_id in ids:
                site.world.end(job_id)
            await site.quiet()
        flags = [flag for node in daemon.nodes() for gpu in node.gpus for flag in gpu.flags]
        assert len(flags) == 1 and "node1:1" in flags[0] and "slower" in flags[0]
        scores = [gpu.scores["A"] for node in daemon.nodes() for gpu in node.gpus]
        assert scores[3] > 1.5 > max(scores[:3])

    site = Site(tmp_path, settings={}, placement="packed-sticky")
    from dataclasses import replace

    site.cluster = replace(site.cluster, scores={"A": (1.0, 1.0, 1.0, 1.0)})
    run_site(site, script)


def test_a_refined_model_takes_away_no_reason(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        first, second = await submit(site, 4, 4, model="resnet", steps=1000.0)
        await site.quiet()
        refined = 0
        for rate in (10.0, 5.0, 12.0, 3.0):
            site.now += 60
            site.world.work(first, 60, rate=rate)
            before = site.daemon.controller.adapter  # type: ignore[union-attr]
            await site.tick()
            refined += site.daemon.controller.adapter is not before  # type: ignore[union-attr]
            reason = view(site, second).reason
            assert reason is not None and "needs 4 GPUs at once" in reason.sentence
        assert refined, "otherwise this shows nothing"

    run_site(Site(tmp_path), script)


def site_gpu(site: Site, gpu: int) -> object:
    from trine.server.interface import PlacementView

    node = site.cluster.node_of[gpu]
    return PlacementView(site.cluster.nodes[node].name, (gpu - site.cluster.first_gpu[node],))


def test_numbers_of_jobs_that_the_journal_has_lost_are_not_given_out_again(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        assert await submit(site, 1) == ["8"]

    (tmp_path / "jobs" / "7").mkdir(parents=True)
    run_site(Site(tmp_path), script)


def test_no_job_may_name_a_directory_of_the_daemon(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        assert site.daemon is not None
        state = site.home
        for path in (str(state / "jobs" / "1" / "1"), str(state), f"{state}//jobs/./1"):
            for values in ({"workdir": path}, {"checkpoint": {"dir": path}}):
                with pytest.raises(Refused, match="inside the daemon's own state directory"):
                    await submit(site, 1, **values)
        assert states(site) == {}

    (tmp_path / "site").mkdir()
    run_site(Site(tmp_path / "site"), script)


def test_an_order_that_cannot_be_carried_out_stops_neither_the_others_nor_the_daemon(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        assert site.daemon is not None
        launch, forget = site.daemon.executor.launch, site.daemon.executor.forget

        def fails_for_the_first(lease: JobLease) -> Handle:
            if lease.job_id == "1":
                raise RecursionError("links without end")
            return launch(lease)

        def fails_always(handle: Handle) -> None:
            forget(handle)
            raise RecursionError("directories without end")

        site.daemon.executor.launch, site.daemon.executor.forget = fails_for_the_first, fails_always  # type: ignore[method-assign]
        crashes: list[BaseException] = []
        site.daemon.on_crash = crashes.append
        await submit(site, 1)
        await submit(site, 1)
        await site.quiet()
        assert set(site.world.running()) == {"2"}
        site.world.end("2")
        await site.quiet()
        assert states(site) == {"1": "starting", "2": "done"} and not crashes
        site.daemon.executor.launch = launch  # type: ignore[method-assign]
        await site.crash()
        await site.up()
        await site.quiet()
        assert set(site.world.running()) == {"1"}, "the next start carries it out"

    run_site(Site(tmp_path), script)
