"""A state directory that an older version wrote opens: jobs, pairs and requests are where they were, and go on.

``state_0d77cbb.sql`` is the journal of a daemon of commit 0d77cbb with one GPU: job 1 done, 2 failed, 3 and 4 sharing
the GPU with a hold of 3 asked for, 5 cancelled, 6 held, 7 waiting, and the node drained."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from tests.e2e.live import daemon as real_daemon
from tests.e2e.live import until
from tests.server.site import OWNER, Site
from trine.executor.attempt.spec import make_spec
from trine.executor.attempt.state_dir import StateDir
from trine.executor.base import AttemptExited, Event, JobLease
from trine.executor.local.executor import LocalExecutor
from trine.executor.local.inventory import virtual_nodes
from trine.server.snapshot import from_snapshot, to_snapshot
from trine.server.state import LiveState
from trine.server.store import Store

JOURNAL = Path(__file__).with_name("state_0d77cbb.sql")
STATES = {
    "1": "done",
    "2": "failed",
    "3": "stopping",
    "4": "running",
    "5": "cancelled",
    "6": "held",
    "7": "waiting",
}


def written_before(state: Path, snapshots: bool = True) -> Path:
    """A state directory with the journal of that version; without ``snapshots`` only its records."""
    state.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(state / "journal.db")
    database.executescript(JOURNAL.read_text())
    if not snapshots:
        database.execute("delete from snapshots")
        database.commit()
    database.close()
    return state


def loaded(state: Path) -> LiveState:
    store = Store.open(state / "journal.db")
    try:
        return store.load()
    finally:
        store.close()


@pytest.mark.parametrize("snapshots", [True, False], ids=["snapshot", "records"])
def test_jobs_pairs_and_requests_are_read_as_they_were_written(snapshots: bool, tmp_path: Path) -> None:
    state = loaded(written_before(tmp_path, snapshots))
    assert {job.id: job.state for job in state.jobs.values()} == STATES and state.skipped == []
    assert [(job.co_runner, job.requested_action) for job in map(state.jobs.get, "34") if job] == [
        ("4", "hold"),
        ("3", ""),
    ]
    first, second = state.jobs["3"], state.jobs["4"]
    assert state.co_runner_of(first) is second and state.co_runner_of(second) is first
    assert first.colocated_s == second.colocated_s > first.submitted_s
    assert state.nodes["node0"].drained and state.nodes["node0"].reason == "new fan"


def test_what_is_written_now_has_the_keys_of_then(tmp_path: Path) -> None:
    """An older version, and programs that read the journal, find what they know."""
    job = next(job for job in to_snapshot(loaded(written_before(tmp_path)))["jobs"] if job["id"] == "3")
    assert (job["partner"], job["wish"]) == ("4", "hold") and job["company_s"] > 0
    assert not {"co_runner", "requested_action", "colocated_s"} & job.keys()


def test_a_daemon_goes_on_from_there(tmp_path: Path) -> None:
    async def whole() -> None:
        site = Site(written_before(tmp_path), gpus="1x1")
        site.now = 2_000_000_000.0
        daemon = await site.up()
        try:
            await site.quiet()
            found = {job.id: job.state for job in daemon.controller.state.jobs.values()}
            # The processes are gone with that machine: one start is lost, the other was to be held.
            assert found == STATES | {"3": "held", "4": "waiting"}
            await daemon.undrain("node0", OWNER)
            await site.quiet()
            assert sorted(site.world.running()) == ["4"]
            assert daemon.job("4", OWNER).attempt == 2
        finally:
            await site.crash()

    asyncio.run(whole())


def test_an_attempt_that_an_older_version_prepared_is_run(tmp_path: Path) -> None:
    """It was cut short between the two: its directory says nothing of parts, addresses and interfaces."""
    lease = JobLease("7", 1, (("node0", (0,)),), ("/bin/sh", "-c", "echo at $MASTER_ADDR over $GLOO_SOCKET_IFNAME"))
    spec = make_spec(lease, {}, 20_000, "", "")
    for newer in ("addresses", "interface", "parts", "look_s", "ends_with_parent"):
        del spec[newer]
    StateDir(tmp_path).prepare(lease, spec)
    with LocalExecutor(tmp_path, virtual_nodes("1x1")) as executor:
        events: list[Event] = []
        while not _ends(events):
            news = executor.wait_events(30)
            assert news, "it does not end"
            events += news
        assert [event.kind for event in _ends(events)] == ["done"]
        log = executor.storage.open_log("7")
        assert log is not None and log.read(0, 100) == b"at 127.0.0.1 over lo\n"
        log.close()


def _ends(events: list[Event]) -> list[AttemptExited]:
    return [event for event in events if isinstance(event, AttemptExited)]


def test_nodes_of_an_older_snapshot_withhold_nothing_by_themselves(tmp_path: Path) -> None:
    body = to_snapshot(loaded(written_before(tmp_path)))
    del body["nodes"]["node0"]["withheld"]
    node = from_snapshot(body).nodes["node0"]
    assert node.drained and node.withheld == {}


@pytest.mark.slow
def test_clients_of_a_real_daemon_go_on_working(tmp_path: Path) -> None:
    with real_daemon(written_before(tmp_path / "state"), "--gpus", "1x1", "--round", "1") as site:
        client = site.up()
        assert {job["id"]: job["state"] for job in client.jobs(["ended"])} == {
            "1": "done",
            "2": "failed",
            "5": "cancelled",
        }
        until(lambda: client.job("4")["state"] == "waiting", "the lost attempt to be noticed")
        assert client.explain("4")["story"][-1]["what"] == "lost"
        client.cancel("4")
        client.cancel("3")
        client.release("6")
        client.undrain("node0")
        assert [client.wait(job_id, 60)["state"] for job_id in ("6", "7")] == ["done", "done"]
