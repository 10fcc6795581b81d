"""Around the scheduler: one daemon per state directory, a dry run without a trace, limits from the configuration."""

from __future__ import annotations

import asyncio
import fcntl
import stat
from pathlib import Path

import pytest

from tests.server.site import OWNER, Site, spec
from trine.core.errors import InputError
from trine.executor.base import GpuInfo, NodeInfo
from trine.server import daemon
from trine.server.access import Access, Queue, UserLimits
from trine.server.daemon import AlreadyUpError, Options, cluster_of, dry_run, quotas_of
from trine.server.private import write_private
from trine.server.store import DamagedJournalError


def not_ready(url: str) -> None:
    raise AssertionError(f"serves at {url}")


def test_a_second_daemon_with_the_same_state_is_refused_and_named(tmp_path: Path) -> None:
    with (tmp_path / "daemon.lock").open("w") as lock:
        lock.write("4711")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(AlreadyUpError, match=rf"another daemon \(process 4711\) already runs with {tmp_path}"):
            daemon.run(Options(tmp_path, "2x2"), not_ready)
        assert (tmp_path / "daemon.lock").read_text() == "4711"
        assert not (tmp_path / "api.json").exists()


def test_a_lock_that_a_dead_daemon_left_behind_is_none(tmp_path: Path) -> None:
    (tmp_path / "daemon.lock").write_text("4711")
    (tmp_path / "journal.db").write_bytes(b"not a database" * 100)
    with pytest.raises(InputError, match="not a database"):
        daemon.run(Options(tmp_path, "2x2"), not_ready)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"policy": "fi-fo"}, "fifo"),
        ({"placement": "pakced"}, "packed"),
        ({"settings": {"no_such_key": 1}}, "no_such_key"),
        ({"gpus": "2xx2"}, "2xx2"),
        ({"round_s": 60.0, "settings": {"locality_penalty": 0.5}}, "locality_penalty"),
    ],
)
def test_wrong_options_are_found_before_anything_is_made(
    options: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    home = tmp_path / "state"
    with pytest.raises(InputError, match=sentence):
        daemon.run(Options(home, **({"gpus": "2x2"} | options)), not_ready)  # type: ignore[arg-type]
    assert not home.exists()


def test_a_dry_run_says_what_would_happen_and_leaves_no_trace(tmp_path: Path) -> None:
    home = tmp_path / "state"
    told = dry_run(Options(home, "2x2", "srtf", round_s=30.0))
    assert told[0].startswith("4 GPUs on 2 nodes") and "virtual" in told[0]
    assert "0 jobs are on record" in told[2] and told[-1].endswith("would stop 0 and start 0 jobs.")
    assert not home.exists()
    dry_run(Options(home, "2x2", store=f"sqlite:///{tmp_path / 'other.db'}"))
    assert not home.exists()


def test_a_dry_run_over_a_journal_decides_its_first_round(tmp_path: Path) -> None:
    async def record() -> None:
        site = Site(tmp_path)
        scheduler = await site.up()
        await scheduler.submit([spec(3), spec(2), spec(1)], OWNER)
        await site.quiet()
        await site.crash()

    asyncio.run(record())
    before = (tmp_path / "journal.db").read_bytes()
    told = dry_run(Options(tmp_path, "4x2"))
    assert "3 jobs are on record, 1 of them hold GPUs." in told
    assert told[-1].endswith("would stop 0 and start 2 jobs.")
    assert (tmp_path / "journal.db").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("journal")) == ["journal.db"]


def test_a_damaged_journal_can_be_cut_on_demand(tmp_path: Path) -> None:
    import sqlite3

    async def record() -> None:
        site = Site(tmp_path)
        scheduler = await site.up()
        await scheduler.submit([spec(1)], OWNER)
        await site.quiet()
        await site.crash()

    asyncio.run(record())
    database = sqlite3.connect(tmp_path / "journal.db")
    last = database.execute("select max(seq) from journal").fetchone()[0]
    database.execute("update journal set body = '{}' where seq = ?", (last,))
    database.commit()
    database.close()
    with pytest.raises(DamagedJournalError, match=rf"--truncate {last - 1}"):
        dry_run(Options(tmp_path, "2x2"))
    store = daemon.open_store(Options(tmp_path, "2x2", truncate=last - 1))
    assert list(store.load().jobs) == ["1"]
    store.close()


def test_limits_of_queues_and_users_become_quotas() -> None:
    access = Access(
        queues={"a": Queue("a", max_gpus=4), "b": Queue("b")},
        users={"ann": UserLimits(max_gpus=2), "bob": UserLimits(max_waiting=3)},
    )
    quotas = quotas_of(access)
    assert (quotas.by_group, quotas.by_user) == ({"a": 4}, {"ann": 2})
    assert not quotas_of(Access())


def test_a_machine_with_gpus_of_two_types_is_not_described_wrongly() -> None:
    mixed = NodeInfo("box", (GpuInfo(0, "a100"), GpuInfo(1, "v100")))
    with pytest.raises(InputError, match="a100, v100 in one machine"):
        cluster_of([mixed], "")
    plain = NodeInfo("box", (GpuInfo(0, "a100"), GpuInfo(1, "a100")), labels={"rack": "r7"})
    assert cluster_of([plain], "").nodes[0].rack == "r7"


def test_private_files_are_for_their_owner_only_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "token"
    write_private(path, "old")
    write_private(path, "secret")
    assert path.read_text() == "secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
