"""The journal on disk: SQLite and a real PostgreSQL through the same code, damaged, unreachable, or in other hands."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.recovery.test_crashes import Book, finish_everything, scenario, until_death
from tests.server.site import OWNER, MortalStore, Site, spec
from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.server import records as rec
from trine.server import scheduler
from trine.server import state as state_module
from trine.server.build import Model
from trine.server.controller import Controller
from trine.server.interface import OutcomeUnknown, Unavailable
from trine.server.replay import redecide
from trine.server.snapshot import capture, job_text, saved, to_snapshot
from trine.server.state import LiveState
from trine.server.state_directory import Owner
from trine.server.store import (
    DamagedJournalError,
    OutcomeUnknownError,
    Store,
    StoreError,
    StoreInUseError,
    store_name,
)

PASSWORD = "s3cr3t-w0rd"


class Postgres:
    """A server on a socket of its own, ended by its process id."""

    def __init__(self, home: Path, user: str | None) -> None:
        self.home, self.user = home, user
        self.data = home / "data"
        (home / "password").write_text(PASSWORD)
        if user is not None:
            for path in (home, home / "password"):
                shutil.chown(path, user)
        tool = ["initdb", "-D", str(self.data), "-U", "trine", "--pwfile", str(home / "password")]
        self._run([*tool, "-A", "scram-sha-256", "--no-sync", "--no-locale", "-E", "UTF8"])
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(command, user=self.user, cwd="/", capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()

    def start(self) -> None:
        settings = ("listen_addresses=", "fsync=off", "shared_buffers=16MB", f"unix_socket_directories={self.home}")
        options = [part for setting in settings for part in ("-c", setting)]
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(
                ["postgres", "-D", str(self.data), *options], user=self.user, cwd="/", stdout=log, stderr=log
            )
        deadline = time.monotonic() + 30
        while True:
            try:
                self.execute("select 1")
                return
            except sa.exc.OperationalError:
                assert self.process.poll() is None and time.monotonic() < deadline, (self.home / "log").read_text()
                time.sleep(0.05)

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(30)
            self.process = None

    def url(self, schema: str = "public", password: str = PASSWORD) -> str:
        return f"postgresql://trine:{password}@/postgres?host={self.home}&options=-csearch_path%3D{schema}"

    def execute(self, statement: str, schema: str = "public") -> None:
        engine = sa.create_engine(self.url(schema).replace("postgresql:", "postgresql+psycopg:"))
        try:
            with engine.begin() as connection:
                connection.execute(sa.text(statement))
        finally:
            engine.dispose()


def unprivileged() -> str | None:
    """Whom the server runs as; it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    pytest.skip("PostgreSQL does not run as root, and there is no user postgres or nobody")


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")
    if not (shutil.which("initdb") and shutil.which("postgres")):
        pytest.skip("no PostgreSQL server (initdb, postgres) on the path")
    user = unprivileged()
    home = Path(tempfile.mkdtemp(prefix="trine-pg-"))
    running = None
    try:
        running = Postgres(home, user)
        yield running
    finally:
        if running is not None:
            running.stop()
        shutil.rmtree(home, ignore_errors=True)


_SCHEMAS = count(1)


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store, as ``--store`` would name it."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'journal.db'}"
    return new_schema(request.getfixturevalue("server"))


def new_schema(server: Postgres) -> str:
    schema = f"s{next(_SCHEMAS)}"
    server.execute(f"create schema {schema}")
    return server.url(schema)


@pytest.fixture(autouse=True)
def decide_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_FILL_AFTER_S", 0.0)


def some_records(jobs: int = 3) -> list[rec.Record]:
    controller = Controller(LiveState(), Model())
    records = [controller.configure(0.0, "test", Cluster.uniform(2, 2), "fifo", "packed-sticky", {})]
    awkward = {"env": {"TEXT": "tab\there ✓ \\ ' \" % :x"}}
    records += [controller.submit(float(i), 1.0, spec(1, steps=9.0, **awkward)) for i in range(jobs)]
    return [*records, controller.tick(9.0)]


def raw(place: str, statement: str) -> None:
    engine = sa.create_engine(place.replace("postgresql:", "postgresql+psycopg:"))
    try:
        with engine.begin() as connection:
            connection.execute(sa.text(statement))
    finally:
        engine.dispose()


@contextlib.contextmanager
def opened(place: str | Path) -> Iterator[Store]:
    store = Store.open(place)
    try:
        yield store
    finally:
        store.close()


# -- both databases -------------------------------------------------------------------------------------------------


def test_what_was_written_is_read_back(place: str) -> None:
    records = some_records()
    with opened(place) as store:
        assert store.load().jobs == {}
        assert store.append(records[:2]) == 2
        assert store.append([]) == 2
        assert store.append(records[2:]) == len(records)
    with opened(place) as store:
        assert list(store.records()) == records
        assert list(store.records(after=2)) == records[2:]
        state = store.load()
        assert store.seq == len(records)
        assert [job.state for job in state.jobs.values()] == ["starting"] * 3
        store.snapshot(to_snapshot(state), store.seq)
        extra = rec.Ticked(10.0, False)
        store.append([extra])
        assert store.load().last_s == 10.0


def test_a_batch_is_written_whole_or_not_at_all(place: str) -> None:
    records = some_records()
    with opened(place) as one, opened(place) as two:
        one.load(), two.load()
        one.append(records[:2])
        with pytest.raises(StoreError, match="cannot be written"):
            two.append(records)  # somebody else wrote a record of the same number
        assert two.seq == 0
        assert len(two.load().jobs) == 1 and two.seq == 2
        two.append(records[2:])
        assert list(one.records()) == records


def test_a_damaged_snapshot_gives_way_to_an_older_one_and_to_the_journal(place: str) -> None:
    records = some_records()
    with opened(place) as store:
        state = store.load()
        for number, record in enumerate(records, start=1):
            store.append([record])
            state.apply(record)
            if number in (2, 4):
                store.snapshot(to_snapshot(state), number)
        expected = to_snapshot(state)
        for damaged in (4, 2):
            raw(place, f"update snapshots set body = replace(body, 'waiting', 'running') where seq = {damaged}")
            assert to_snapshot(store.load()) == expected, f"snapshot {damaged} was believed"
            assert store.seq == len(records)


def test_old_records_that_no_snapshot_needs_are_removed_and_the_rest_stays_whole(place: str) -> None:
    records = some_records(jobs=12)
    with opened(place) as store:
        state = store.load()
        for number, record in enumerate(records, 1):
            store.append([record])
            state.apply(record)
            if number in (6, 10):
                store.snapshot(to_snapshot(state), number)
        assert store.removable(before_s=2.0) == 3, "those before it in time, and not the one at it"
        assert store.removable(before_s=1e9) == 6, "what both snapshots are without"
        assert [store.remove_records(6, most=4) for _ in range(3)] == [4, 2, 0]
    with opened(place) as store:
        assert to_snapshot(store.load()) == to_snapshot(state)
        assert store.removed == 6 and list(store.records(after=6)) == records[6:]
        with pytest.raises(InputError, match="removed because of their age"):
            list(store.records())
        store.append([rec.Ticked(20.0, False)])
    raw(place, "delete from snapshots where seq = 10")
    with opened(place) as store:
        assert store.load().last_s == 20.0, "the older snapshot and the records since are enough"


def test_only_the_last_snapshots_are_kept(place: str) -> None:
    with opened(place) as store:
        state = store.load()
        for record in some_records():
            store.append([record])
            state.apply(record)
            store.snapshot(to_snapshot(state), store.seq)
        with store._engine.connect() as connection:
            assert connection.scalar(sa.text("select count(*) from snapshots")) == 2
        with pytest.raises(ValueError, match="the journal is at"):
            store.snapshot({}, 1)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("update journal set body = replace(body, '1.0', '2.0') where seq = 3", "record 3 of the journal is damaged"),
        ("update journal set kind = 'ticked' where seq = 3", "record 3 of the journal is damaged"),
        ("delete from journal where seq = 3", "record 3 of the journal is missing"),
    ],
)
def test_a_damaged_journal_is_refused_and_can_be_cut(place: str, damage: str, sentence: str) -> None:
    with opened(place) as store:
        store.load()
        store.append(some_records())
        raw(place, damage)
        with pytest.raises(DamagedJournalError, match=rf"{sentence}.*--truncate 2"):
            store.load()
        assert store.truncate(2) in (2, 3)
        assert len(store.load().jobs) == 1
        store.append([rec.Ticked(99.0, False)])
        assert store.load().last_s == 99.0


def test_a_journal_of_another_schema_is_refused(place: str) -> None:
    with opened(place):
        pass
    raw(place, "update facts set value = '99' where name = 'schema'")
    with pytest.raises(DamagedJournalError, match=r"a journal of schema 99, this version of trine reads \d") as told:
        Store.open(place)
    assert PASSWORD not in str(told.value)


def test_looking_without_creating_makes_no_tables(place: str) -> None:
    store = Store.open(place, create=False)
    assert store.load().jobs == {}
    store.close()
    with pytest.raises(sa.exc.DBAPIError, match=r"(?i)no such table|does not exist"):
        raw(place, "select * from journal")


@pytest.mark.parametrize("after_commit", [False, True])
def test_the_daemon_dies_at_records_of_a_scenario(place: str, after_commit: bool, tmp_path: Path) -> None:
    """A sample of the positions that the recovery suite goes through one by one on SQLite."""

    async def life(home: Path, where: str, dies_at: int) -> None:
        site, book = Site(home, policy="srtf"), Book()
        store = MortalStore.open(where)
        store.claim()
        await site.up(store=store)
        store.dies_at, store.after_commit = dies_at, after_commit
        await until_death(site, lambda: scenario(site, book))
        await site.crash()
        store = MortalStore.open(where)
        store.claim()
        await site.up(store=store)
        try:
            await site.quiet()
            book.look(site)
            await finish_everything(site)
            book.look(site)
            agreement, _ = redecide(store.records(), Model())
            assert agreement.difference == ""
        finally:
            await site.crash()

    for dies_at in (5, 12, 19):
        home = tmp_path / str(dies_at)
        home.mkdir()
        where = f"sqlite:///{home / 'journal.db'}" if place.startswith("sqlite") else place
        asyncio.run(life(home, where, dies_at))
        if not place.startswith("sqlite"):
            for table in ("journal", "snapshots"):
                raw(place, f"delete from {table}")


def test_a_lost_acknowledgement_is_told_as_unknown_and_a_refused_write_is_not(place: str) -> None:
    records = some_records()
    with opened(place) as store:
        store.load()
        store.append(records[:1])
        with opened(place) as other, pytest.raises(StoreError) as told:
            other.append(records[:1])
        assert not isinstance(told.value, OutcomeUnknownError), "a record of this number is there already"
        lose_acknowledgements(store)
        with pytest.raises(OutcomeUnknownError):
            store.append(records[1:2])
        assert len(store.load().jobs) == 1


def test_a_journal_of_another_owner_is_refused_by_name_until_it_is_taken_over(place: str) -> None:
    mine, other = Owner("a" * 32, "here", "/state"), Owner("b" * 32, "there", "/other")
    records = some_records()
    with opened(place) as first, opened(place) as second:
        first.claim(mine)
        first.load()
        first.append(records[:2])
        first.close()
        with pytest.raises(StoreInUseError, match=r"belongs to the daemon of /state on host here.*--take-over"):
            second.claim(other)
        first.claim(mine)
        assert len(first.load().jobs) == 1, "the refusal changed nothing"
        first._unlock()  # it lost its connection, and with it the lock
        second.claim(other, take_over=True)
        second.load()
        with pytest.raises(StoreInUseError, match="daemon of /other on host there has taken over this journal"):
            first.append(records[2:])
        with pytest.raises(StoreInUseError, match="/other on host there"):
            first.load()
        second.append(records[2:])
        assert list(second.records()) == records


def test_a_snapshot_that_was_cut_short_leaves_the_one_before(place: str) -> None:
    """Ended jobs are written before the rest: without the rest they are not believed."""
    controller = Controller(LiveState(), Model())
    records = [controller.configure(0.0, "test", Cluster.uniform(2, 2), "fifo", "packed-sticky", {})]
    records += [controller.submit(1.0, 1.0, spec(1)) for _ in range(4)]
    with opened(place) as store:
        store.load()
        store.append(records)
        for job_id in ("1", "2"):
            store.append([controller.ask(2.0, job_id, "cancel", "test")])
            snapshot(store, controller.state)
        store.append([controller.ask(3.0, "3", "cancel", "test")])
        taken = capture(controller.state)
        assert [job.id for job in taken.ended] == ["3"], "the others were written before"
        store.begin_snapshot(store.position)
        store.keep_ended(store.position, [(job.id, job_text(job)) for job in taken.ended])
        expected = to_snapshot(controller.state)
        assert to_snapshot(store.load()) == expected
        snapshot(store, controller.state)
        assert to_snapshot(store.load()) == expected
        raw(place, "update ended set body = replace(body, 'cancelled', 'done') where job = 3")
        after = store.load()
        assert to_snapshot(after) == expected
        assert list(after.unsaved) == ["3"], "from the snapshot before, which did not hold job 3"


def test_ended_jobs_that_are_forgotten_leave_the_database(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "_ENDED_KEPT", 10)
    controller = Controller(LiveState(), Model())
    record = controller.configure(0.0, "test", Cluster.uniform(2, 2), "fifo", "packed-sticky", {})
    with opened(place) as store:
        store.load()
        store.append([record])
        for _ in range(60):
            job = controller.submit(1.0, 1.0, spec(1))
            store.append([job, controller.ask(2.0, job.job, "cancel", "test")])
            snapshot(store, controller.state)
            assert to_snapshot(store.load()) == to_snapshot(controller.state)
        with store._engine.connect() as connection:
            assert connection.scalar(sa.text("select count(*) from ended")) <= 13


def snapshot(store: Store, state: LiveState) -> None:
    """As the daemon takes it, without a daemon."""
    at, taken = store.position, capture(state)
    store.begin_snapshot(at)
    store.keep_ended(at, [(job.id, job_text(job)) for job in taken.ended])
    store.drop_ended(at, taken.forgotten)
    store.finish_snapshot(at, taken.text())
    saved(state, taken)


# -- SQLite only ----------------------------------------------------------------------------------------------------


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(b"these are my holiday photos\n" * 500)
    with pytest.raises(InputError, match=r"journal\.db: file is not a database.*a database that can be opened"):
        Store.open(path)
    assert path.read_bytes().startswith(b"these are my holiday photos"), "it is left as it was"


def test_a_directory_that_is_not_there_or_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no/journal\.db: unable to open database file"):
        Store.open(tmp_path / "no" / "journal.db")
    with pytest.raises(InputError, match="unable to open database file"):
        Store.open("/proc/journal.db")


def test_a_database_that_somebody_else_locks_is_not_written_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = some_records()
    with opened(tmp_path / "journal.db") as store:
        store.load()
        store.append(records[:1])
        with store._engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA busy_timeout=10")
        other = sqlite3.connect(tmp_path / "journal.db")
        other.execute("begin immediate")
        with pytest.raises(StoreError, match="database is locked"):
            store.append(records[1:])
        other.close()
        store.append(records[1:])
        assert list(store.records()) == records


# -- PostgreSQL only ------------------------------------------------------------------------------------------------


def test_a_second_daemon_on_the_same_database_is_refused(server: Postgres) -> None:
    url = new_schema(server)
    with opened(url) as first, opened(url) as second, opened(new_schema(server)) as other:
        first.claim()
        other.claim()
        with pytest.raises(StoreInUseError, match="another daemon uses this database") as told:
            second.claim()
        assert PASSWORD not in str(told.value)
        first.close()
        second.claim()
        second.load()
        second.append(some_records())


def test_an_immediate_restart_waits_until_the_server_has_let_go(server: Postgres) -> None:
    url, me = new_schema(server), Owner("a" * 32, "here", "/state")
    with opened(url) as first, opened(url) as second:
        first.claim(me)
        gone = threading.Event()

        def end() -> None:
            gone.set()
            first.close()

        # As after a crash: the connection ends without a word, and the server finds out when it finds out.
        ending = threading.Timer(0.5, end)
        ending.start()
        second.claim(me)
        assert gone.is_set(), "nobody has it while the first connection is there"
        ending.join()
        second.load()
        assert second.append(some_records()) > 0


def test_a_killed_connection_is_opened_and_claimed_again_at_once(server: Postgres, tmp_path: Path) -> None:
    url = new_schema(server)

    async def script() -> None:
        site = Site(tmp_path)  # rounds never come by themselves
        store = MortalStore.open(url)
        store.claim(Owner("a" * 32, "here", "/state"))
        daemon = await site.up(store=store)
        await daemon.submit([spec(1)], OWNER)
        await site.quiet()
        server.execute("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()")
        with pytest.raises(Unavailable):
            await daemon.submit([spec(1)], OWNER)
        assert b"trine_journal_failing 1.0" in daemon.metrics()
        await site.recovered(within_s=2.0)
        assert b"trine_journal_failing 0.0" in daemon.metrics()
        assert await daemon.submit([spec(1)], OWNER) == ["2"]
        with opened(url) as other, pytest.raises(StoreInUseError, match="/state on host here"):
            other.claim(Owner("b" * 32, "there", "/other"))
        await site.crash()

    asyncio.run(script())


@pytest.mark.parametrize("found", [True, False], ids=["written", "not written"])
def test_a_commit_whose_connection_is_lost_is_told_as_unknown(server: Postgres, tmp_path: Path, found: bool) -> None:
    url = new_schema(server)

    async def script() -> None:
        site = Site(tmp_path)
        store = MortalStore.open(url)
        store.claim()
        daemon = await site.up(store=store)
        await site.quiet()
        if found:
            lose_acknowledgements(store)
        else:
            raw(url, LOST_IN_COMMIT)
            raw(url, "create constraint trigger t after insert on journal initially deferred for each row "
                "execute function lost_in_commit()")  # fmt: skip
        with pytest.raises(OutcomeUnknown, match="not known; ask again with the same request id r1") as told:
            await daemon.submit([spec(1), spec(2)], OWNER, "r1")
        assert told.value.code == "unknown"
        if not found:
            raw(url, "drop function lost_in_commit cascade")
        await site.recovered()
        assert len(daemon.controller.state.jobs) == (2 if found else 0)
        assert await daemon.submit([spec(1), spec(2)], OWNER, "r1") == ["1", "2"]
        assert len(daemon.controller.state.jobs) == 2
        await site.crash()

    asyncio.run(script())


LOST_IN_COMMIT = """
create function lost_in_commit() returns trigger language plpgsql as
$$ begin perform pg_terminate_backend(pg_backend_pid()); return null; end $$
"""


def lose_acknowledgements(store: Store) -> None:
    """The next commit is carried out, and nobody hears of it."""

    def commit(connection: sa.Connection) -> None:
        sa.event.remove(store._engine, "commit", commit)
        connection.connection.commit()  # the driver's own
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        raise sa.exc.OperationalError("COMMIT", None, error)

    sa.event.listen(store._engine, "commit", commit)


def test_whoever_lost_the_claim_writes_nothing_any_more(server: Postgres) -> None:
    url = new_schema(server)
    records = some_records()
    with opened(url) as first, opened(url) as second:
        first.claim()
        first.load()
        first.append(records[:1])
        server.execute("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()")
        second.claim()
        second.load()
        with pytest.raises(StoreError, match="cannot be written"):
            first.append(records[1:])
        with pytest.raises(StoreInUseError):
            first.load()
        second.append(records[1:2])
        second.close()
        assert len(first.load().jobs) == 1, "it may go on where the other left off"
        first.append(records[2:])


def test_the_daemon_waits_while_the_database_is_away_and_goes_on_when_it_is_back(
    server: Postgres, tmp_path: Path
) -> None:
    url = new_schema(server)

    async def script() -> None:
        site = Site(tmp_path)
        store = MortalStore.open(url)
        store.claim()
        daemon = await site.up(store=store)
        await daemon.submit([spec(4), spec(4)], OWNER)
        await site.quiet()
        server.stop()
        with pytest.raises(Unavailable) as told:
            await daemon.submit([spec(1)], OWNER)
        assert PASSWORD not in str(told.value)
        site.world.end("1")
        server.start()
        await site.recovered()
        assert {job.id: job.state for job in daemon.controller.state.jobs.values()} == {"1": "done", "2": "running"}
        assert await daemon.submit([spec(1)], OWNER) == ["3"]
        await site.crash()

    asyncio.run(script())


def test_passwords_are_never_shown(server: Postgres) -> None:
    bad: list[Callable[[], Any]] = [
        lambda: Store.open(server.url(password="wr0ng-w0rd")),
        lambda: Store.open(f"postgresql://trine:{PASSWORD}@/postgres?host=/nowhere"),
        lambda: Store.open(f"postgresql://trine:{PASSWORD}@localhost:port/postgres"),
        lambda: Store.open(f"postgresql://trine:{PASSWORD}@[::1/postgres"),
        lambda: Store.open(f"oracle8://trine:{PASSWORD}@/postgres"),
        lambda: Store.open(f"postgresql://trine:{PASSWORD}@/postgres?host={server.home}&colour=red"),
    ]
    for call in bad:
        with pytest.raises(InputError) as told:
            call()
        shown = str(told.value)
        assert PASSWORD not in shown and "wr0ng-w0rd" not in shown, "the password is shown"
        assert told.value.__cause__ is None, "a traceback would show what the driver was given"
        assert "a database that can be opened" in shown
    assert PASSWORD not in store_name(server.url())
