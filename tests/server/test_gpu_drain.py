"""Single GPUs are drained like nodes: nothing starts there, it outlives restarts, and each drain has its own end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from tests.server.api.conftest import Start, start
from tests.server.api.fake import ADMIN_TOKEN
from tests.server.site import OWNER, Site, run_site, spec
from trine.core.cluster import Cluster, Node
from trine.server import records as rec
from trine.server.interface import NotFound
from trine.server.live_job import NodeState, node_after
from trine.server.replay import redecide
from trine.server.store import Store

__all__ = ["start"]


def states(site: Site) -> dict[str, str]:
    assert site.daemon is not None
    return {job.id: job.state for job in site.daemon.controller.state.jobs.values()}


def drained(site: Site) -> dict[str, list[int]]:
    assert site.daemon is not None
    return {view.name: [gpu.index for gpu in view.gpus if gpu.drained] for view in site.daemon.nodes()}


def test_nothing_starts_on_a_drained_gpu_and_what_runs_there_ends_there(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        await daemon.submit([spec(1)], OWNER)
        await site.quiet()
        view = await daemon.drain("node0", "ecc errors", OWNER, (0,))
        assert (view.state, view.gpus[0].drained, view.gpus[0].reason, view.gpus[1].drained) == (
            "up",
            True,
            "ecc errors",
            False,
        )
        await daemon.submit([spec(2), spec(1)], OWNER)
        await site.tick(60)
        assert states(site) == {"1": "running", "2": "waiting", "3": "waiting"}, "fifo: the first blocks the next"
        assert "Out of service: node0:0." in daemon.explain("2", OWNER).sentences
        site.world.end("1")
        await site.tick(60)
        assert states(site)["2"] == "waiting"
        await daemon.cancel("2", OWNER)
        await site.quiet()
        assert daemon.job("3", OWNER).placement[0].gpus == (1,)
        await daemon.submit([spec(1)], OWNER)
        await site.tick(60)
        assert states(site)["4"] == "waiting"
        assert 'trine_gpus{type="gpu",use="out"} 1.0' in daemon.metrics().decode()
        await daemon.undrain("node0", OWNER, (0,))
        await site.quiet()
        assert daemon.job("4", OWNER).placement[0].gpus == (0,)

    run_site(Site(tmp_path, "1x2"), script)


@pytest.mark.parametrize("ends", ["crash", "stop"])
def test_a_drained_gpu_stays_so_over_a_restart(tmp_path: Path, ends: str) -> None:
    """From the journal after a crash, from the snapshot after an orderly end."""

    async def whole() -> None:
        site = Site(tmp_path, "2x2")
        daemon = await site.up()
        await daemon.drain("node0", "ecc errors", OWNER, (1,))
        await daemon.drain("node1", "fan", OWNER)
        if ends == "stop":
            await daemon.stop()
            daemon.executor.close()
            daemon.store.close()
        else:
            await site.crash()
        daemon = await site.up()
        assert drained(site) == {"node0": [1], "node1": []}
        assert daemon.nodes()[0].gpus[1].reason == "ecc errors"
        await daemon.submit([spec(1), spec(1)], OWNER)
        await site.quiet()
        assert states(site) == {"1": "running", "2": "waiting"}
        await site.crash()

    asyncio.run(whole())


def test_the_drain_of_a_gpu_and_of_its_node_are_independent(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        await daemon.drain("node0", "ecc", OWNER, (0,))
        await daemon.drain("node0", "fan", OWNER)
        view = await daemon.undrain("node0", OWNER, (1,))
        assert (view.state, view.gpus[0].drained) == ("drained", True), "GPU 1 was not drained by itself"
        await daemon.undrain("node0", OWNER, (0,))
        assert daemon.nodes()[0].state == "drained"
        assert daemon.controller.deciding.free.total == 0
        await daemon.drain("node0", "ecc", OWNER, (0,))
        view = await daemon.undrain("node0", OWNER)
        assert (view.state, drained(site)) == ("up", {"node0": []})
        assert daemon.controller.deciding.free.total == 2

    run_site(Site(tmp_path, "1x2"), script)


def test_an_undrain_of_some_gpus_leaves_the_others_out(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        await daemon.drain("node0", "ecc", OWNER, (0, 2, 3))
        await daemon.undrain("node0", OWNER, (2,))
        assert drained(site) == {"node0": [0, 3]}
        assert daemon.controller.deciding.free.total == 2
        with pytest.raises(NotFound, match="there is no GPU 4 on node0; its GPUs are 0, 1, 2, 3"):
            await daemon.drain("node0", "", OWNER, (4,))

    run_site(Site(tmp_path, "1x4"), script)


def test_draining_again_without_a_reason_keeps_the_one_on_record(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        await daemon.drain("node0", "fan", OWNER)
        assert (await daemon.drain("node0", "", OWNER)).reason == "fan"
        assert (await daemon.drain("node0", "two fans", OWNER)).reason == "two fans"
        await daemon.drain("node1", "ecc", OWNER, (1,))
        assert (await daemon.drain("node1", "", OWNER, (1,))).gpus[1].reason == "ecc"

    run_site(Site(tmp_path, "2x2"), script)


def test_records_of_drains_are_read_as_they_were_written_and_old_ones_too() -> None:
    old = {"at_s": 1.0, "node": "node0", "state": "drained", "reason": "fan", "by": "me"}
    assert rec.from_body("node", old) == rec.NodeChanged(1.0, "node0", "drained", "fan", "me")
    whole = rec.NodeChanged(1.0, "node0", "drained", "fan", "me")
    assert rec.to_body(whole) == old, "what was possible before is written as before"
    some = rec.NodeChanged(1.0, "node0", "drained", "ecc", "me", (1, 3))
    assert rec.from_body("node", json.loads(json.dumps(rec.to_body(some)))) == some


def test_an_outage_takes_a_node_with_drained_gpus_and_gives_back_the_others() -> None:
    one = node_after(None, rec.NodeChanged(1.0, "n", "drained", "ecc", "me", (1,)))
    down = node_after(one, rec.NodeChanged(2.0, "n", "down", "no answer", rec.EXECUTOR))
    assert down is not None and (down.state, down.reason, down.gpus) == ("down", "no answer", {1: "ecc"})
    again = node_after(down, rec.NodeChanged(3.0, "n", "up", "", rec.EXECUTOR))
    assert again == NodeState("up", "", gpus={1: "ecc"})
    assert node_after(again, rec.NodeChanged(4.0, "n", "up", "", "me", (1,))) is None


def test_a_run_with_drained_gpus_is_decided_the_same_again(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        await daemon.drain("node0", "ecc", OWNER, (0,))
        await daemon.submit([spec(1), spec(2), spec(1)], OWNER)
        await site.tick(60)
        await daemon.undrain("node0", OWNER, (0,))
        await site.tick(60)

    site = Site(tmp_path, "2x2")
    run_site(site, script)
    store = Store.open(tmp_path / "journal.db")
    agreement, ended = redecide(store.records(), site.model)
    store.close()
    assert not agreement.difference and agreement.decisions >= 3
    assert not ended.nodes


def test_gpus_of_a_machine_keep_their_own_numbers(tmp_path: Path) -> None:
    """A daemon that was given GPUs 2 and 5 of a machine speaks of 2 and 5, and follows them over a restart."""

    async def whole() -> None:
        site = Site(tmp_path, "1x2")
        site.cluster = Cluster((Node("box", 2, indices=(2, 5)),))
        daemon = await site.up()
        await daemon.submit([spec(1), spec(1)], OWNER)
        await site.quiet()
        assert sorted(attempt.lease.placement[0][1] for attempt in site.world.running().values()) == [(2,), (5,)]
        assert [gpu.index for gpu in daemon.nodes()[0].gpus] == [2, 5]
        await daemon.drain("box", "ecc", OWNER, (5,))
        stays = next(job for job, one in site.world.running().items() if one.lease.placement[0][1] == (5,))
        await site.crash()
        site.cluster = Cluster((Node("box", 3, indices=(0, 4, 5)),))
        daemon = await site.up()
        await site.quiet()
        assert daemon.job(stays, OWNER).placement[0].gpus == (5,)
        assert drained(site) == {"box": [5]}
        await site.crash()

    asyncio.run(whole())


def test_the_api_drains_single_gpus(start: Start) -> None:
    server = start()
    admin: httpx.Client = server.client(ADMIN_TOKEN)
    assert admin.post("/v1/nodes/node0/drain", json={"reason": "ecc", "gpus": [0]}).json()["gpus"][0]["drained"]
    assert not admin.post("/v1/nodes/node0/undrain", json={"gpus": [0]}).json()["gpus"][0]["drained"]
    for wrong in ([], [-1], ["0"], 3, [1.5]):
        refused = admin.post("/v1/nodes/node0/drain", json={"gpus": wrong})
        assert (refused.status_code, refused.json()["field"]) == (422, "gpus")
    assert admin.post("/v1/nodes/node0/undrain", json={"reason": "x"}).status_code == 422
