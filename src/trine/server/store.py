"""The journal on disk: an append-only table of records, and snapshots of the state. SQLAlchemy Core, any database.

SQLite (a file in the state directory, write-ahead log, synchronous) by default, PostgreSQL by its URL. Each record
carries a checksum chained over all before it, so that a damaged journal is noticed instead of believed.
"""

from __future__ import annotations

import contextlib
import gc
import json
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError, SQLAlchemyError

from trine.core.errors import InputError, TrineError, require_extra
from trine.server.records import JournalError, Record, UnknownRecordError, from_body, to_body
from trine.server.snapshot import COMPACT, from_snapshot
from trine.server.state import LiveState
from trine.server.state_directory import Owner

_SCHEMA = 1
_META = sa.MetaData()
_JOURNAL = sa.Table(
    "journal",
    _META,
    sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("crc", sa.BigInteger, nullable=False),
)
_SNAPSHOTS = sa.Table(
    "snapshots",
    _META,
    sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("crc", sa.BigInteger, nullable=False),
    sa.Column("chain", sa.BigInteger, nullable=False),
)
_ENDED = sa.Table(
    "ended",
    _META,
    sa.Column("job", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
    sa.Column("seq", sa.BigInteger, nullable=False, index=True),
    sa.Column("gone", sa.BigInteger, index=True),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("crc", sa.BigInteger, nullable=False),
)
"""Ended jobs never change: each is written once, for the first snapshot (``seq``) that holds it, and belongs to all
later ones up to the first (``gone``) that has forgotten it."""
_FACTS = sa.Table("facts", _META, sa.Column("name", sa.String(32), primary_key=True), sa.Column("value", sa.Text))
_REMOVED = "removed"
"""The fact that says up to which record, with which checksum, old records were removed."""
_SNAPSHOTS_KEPT = 2
_CLAIM_WAIT_S, _CLAIM_LOOK_S = 3.0, 0.05
"""PostgreSQL lets go of a closed connection's lock a moment after the connection is gone."""
_POSTGRES = "postgresql+psycopg"


class StoreError(TrineError):
    """Nothing can be made durable now; what was already acknowledged is safe."""


class OutcomeUnknownError(StoreError):
    """The acknowledgement of a commit was lost: the records may be on disk or not."""


class StoreInUseError(StoreError):
    """Another daemon writes to the same database, or owns it."""


class DamagedJournalError(TrineError):
    """The journal on disk is not what was written."""


class Position(NamedTuple):
    """A place in the journal: number and running checksum of a record, and which loading of the journal it is of."""

    seq: int
    chain: int
    loads: int


class Store:
    """Append batches, read everything back. One writer; calls may come from any one thread at a time."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = sa.create_engine(_with_driver(url), pool_pre_ping=True)
        if self._engine.dialect.name == "sqlite":
            sa.event.listen(self._engine, "connect", _durable_sqlite)
        self.seq = 0
        """Number of the last record that is durable."""
        self._chain = 0
        self._empty = False
        """There are no tables, and none were to be made."""
        self._own: sa.Connection | None = None
        """The connection that keeps other daemons out, where the database can do that; all is written through it."""
        self._owner: Owner | None = None
        self._fence: int | None = None
        """Number of our claim. The next claim, by any daemon, has the next one; this one then writes nothing more."""
        self._loads = 0
        self._base = 0
        """The last snapshot that is whole."""

    @classmethod
    def open(cls, where: str | Path, create: bool = True) -> Self:
        """A store by URL, or in the SQLite file of this name; ``create`` makes the tables if they are missing."""
        url = where if isinstance(where, str) and "://" in where else f"sqlite:///{where}"
        try:
            store = cls(url)
            store._open(create)
        except (SQLAlchemyError, ModuleNotFoundError, ValueError) as error:
            # No ``from``: the cause may hold the URL, and with it the password.
            raise InputError(
                "--store", f"{store_name(url)}: {_short(error)}", "a database that can be opened"
            ) from None
        return store

    def claim(self, owner: Owner | None = None, take_over: bool = False) -> None:
        """Keep other daemons from writing to the same database, until ``close`` or the end of the process.

        A journal that is on record as another owner's is refused unless ``take_over``. Where the database has locks
        that end with a connection (PostgreSQL), one is held as well.
        """
        self._owner = owner
        self._claim(take_over)

    def _claim(self, take_over: bool = False) -> None:
        try:
            if self._engine.dialect.name == "postgresql":
                self._lock(take_over)
            with self._begin() as connection:
                fence = self._take(connection, take_over)
        except SQLAlchemyError as error:
            self._unlock()
            raise StoreError(f"{store_name(self.url)}: the database cannot be used now: {_short(error)}") from None
        except StoreInUseError:
            self._unlock()
            raise
        self._fence = fence

    def _lock(self, take_over: bool) -> None:
        """The lock that PostgreSQL keeps for a connection; waited for only if its holder may be our own past."""
        self._unlock()
        self._own = self._engine.connect()
        key = sa.func.hashtext("trine journal in " + sa.func.current_schema())
        deadline = time.monotonic() + _CLAIM_WAIT_S
        while not self._own.scalar(sa.select(sa.func.pg_try_advisory_lock(key))):
            found = self._on_record(self._own)
            self._own.commit()
            ours = found is None or self._owner is None or found.id == self._owner.id
            if time.monotonic() > deadline or not (ours or take_over):
                owner = "" if found is None or ours else f", that of {found}"
                raise StoreInUseError(f"{store_name(self.url)}: another daemon uses this database{owner}")
            time.sleep(_CLAIM_LOOK_S)
        self._own.commit()

    def _unlock(self) -> None:
        """Give the lock back, and the connection with it; one that is broken has lost both already."""
        own, self._own = self._own, None
        if own is None:
            return
        with contextlib.suppress(SQLAlchemyError):
            own.rollback()
            own.scalar(sa.select(sa.func.pg_advisory_unlock_all()))
            own.commit()
        with contextlib.suppress(SQLAlchemyError):
            own.invalidate()
        own.close()

    def _take(self, connection: sa.Connection, take_over: bool) -> int:
        """Be the owner on record, with a number that fences off earlier claims."""
        # Written before anything is read: from here on no other daemon writes until this transaction ends.
        connection.execute(_FACTS.update().where(_FACTS.c.name == "schema").values(value=str(_SCHEMA)))
        found = self._on_record(connection)
        if found is not None and self._owner is not None and found.id != self._owner.id and not take_over:
            raise StoreInUseError(
                f"{store_name(self.url)}: this journal belongs to the daemon of {found}; "
                "if that one is gone for good, start once with --take-over"
            )
        fence = int(_fact(connection, "fence") or 0) + 1
        _put_fact(connection, "fence", str(fence))
        if self._owner is not None:
            _put_fact(connection, "owner", self._owner.to_text())
        return fence

    def _on_record(self, connection: sa.Connection) -> Owner | None:
        text = _fact(connection, "owner")
        return None if text is None else Owner.from_text(text)

    def _check_fence(self, connection: sa.Connection) -> None:
        """Within the transaction that writes, and after its first write: a later claim waits until it has ended."""
        if self._fence is None:
            return
        query = sa.select(_FACTS.c.value).where(_FACTS.c.name == "fence").with_for_update()
        if connection.execute(query).scalar() != str(self._fence):
            found = self._on_record(connection)
            owner = "another daemon" if found is None else f"the daemon of {found}"
            raise StoreInUseError(f"{store_name(self.url)}: {owner} has taken over this journal")

    @contextlib.contextmanager
    def _begin(self) -> Iterator[sa.Connection]:
        if self._own is None:
            with self._engine.begin() as connection:
                yield connection
        else:
            with self._own.begin():
                yield self._own

    def _open(self, create: bool) -> None:
        try:
            self._prepare(create)
        except BaseException:
            self.close()
            raise

    def _prepare(self, create: bool) -> None:
        with self._engine.begin() as connection:
            if create:
                _META.create_all(connection)
            elif not sa.inspect(connection).has_table(_FACTS.name):
                self._empty = True
                return
            found = connection.execute(sa.select(_FACTS.c.value).where(_FACTS.c.name == "schema")).scalar()
            if found is None:
                connection.execute(_FACTS.insert().values(name="schema", value=str(_SCHEMA)))
            elif found != str(_SCHEMA):
                raise DamagedJournalError(
                    f"{store_name(self.url)}: a journal of schema {found}, this version of trine reads {_SCHEMA}"
                )

    def append(self, batch: Iterable[Record]) -> int:
        """Write all records or none; durable when it returns. The number of the last one."""
        rows, seq, chain = [], self.seq, self._chain
        for record in batch:
            seq += 1
            body = json.dumps(to_body(record), separators=(",", ":"))
            chain = _link(chain, record.kind, body)
            rows.append({"seq": seq, "kind": record.kind, "body": body, "crc": chain})
        if not rows:
            return self.seq
        committing = False
        try:
            with self._begin() as connection:
                connection.execute(_JOURNAL.insert(), rows)
                self._check_fence(connection)
                committing = True
        except SQLAlchemyError as error:
            sentence = f"{store_name(self.url)}: the journal cannot be written: {_short(error)}"
            unknown = committing and _may_be_written(error)
            raise (OutcomeUnknownError if unknown else StoreError)(sentence) from error
        self.seq, self._chain = seq, chain
        return seq

    # -- snapshots -----------------------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """Of the last durable record."""
        return Position(self.seq, self._chain, self._loads)

    def snapshot(self, body: dict[str, Any], seq: int) -> None:
        """Keep the whole state, in one body, as of record ``seq`` (which must be the last durable one)."""
        if seq != self.seq:
            raise ValueError(f"a snapshot at {seq}, but the journal is at {self.seq}")
        self.finish_snapshot(self.position, json.dumps(body, separators=(",", ":")))

    def begin_snapshot(self, at: Position) -> None:
        """Drop what a snapshot that was never finished left behind."""
        with self._snapshotting(at) as connection:
            connection.execute(_ENDED.delete().where(_ENDED.c.seq > self._base))
            connection.execute(_ENDED.update().where(_ENDED.c.gone > self._base).values(gone=None))

    def keep_ended(self, at: Position, jobs: Sequence[tuple[str, str]]) -> None:
        """Write ended jobs (id, text) that the snapshot at ``at`` is the first to hold."""
        rows = [{"job": int(job), "seq": at.seq, "body": text, "crc": zlib.crc32(text.encode())} for job, text in jobs]
        if rows:
            with self._snapshotting(at) as connection:
                connection.execute(_ENDED.insert(), rows)

    def drop_ended(self, at: Position, jobs: Sequence[str]) -> None:
        """These ended jobs belong to no snapshot from ``at`` on."""
        if jobs:
            with self._snapshotting(at) as connection:
                connection.execute(_ENDED.update().where(_ENDED.c.job.in_(map(int, jobs))).values(gone=at.seq))

    def finish_snapshot(self, at: Position, text: str) -> None:
        """Keep the rest of the state; from now on the snapshot counts."""
        row = {"seq": at.seq, "body": text, "crc": zlib.crc32(text.encode()), "chain": at.chain}
        with self._snapshotting(at) as connection:
            connection.execute(_SNAPSHOTS.delete().where(_SNAPSHOTS.c.seq == at.seq))
            connection.execute(_SNAPSHOTS.insert().values(row))
            kept = sa.select(_SNAPSHOTS.c.seq).order_by(_SNAPSHOTS.c.seq.desc()).limit(_SNAPSHOTS_KEPT)
            oldest = min(connection.execute(kept).scalars())
            connection.execute(_SNAPSHOTS.delete().where(_SNAPSHOTS.c.seq < oldest))
            connection.execute(_ENDED.delete().where(_ENDED.c.gone <= oldest))
        self._base = at.seq

    @contextlib.contextmanager
    def _snapshotting(self, at: Position) -> Iterator[sa.Connection]:
        if at.loads != self._loads:
            raise StoreError(f"{store_name(self.url)}: the snapshot was given up: the journal was loaded again")
        try:
            with self._begin() as connection:
                yield connection
                self._check_fence(connection)
        except SQLAlchemyError as error:
            raise StoreError(f"{store_name(self.url)}: the snapshot cannot be written: {_short(error)}") from error

    def load(self, writing: bool = True) -> LiveState:
        """The newest snapshot that is whole, and the records after it; not to be written after unless ``writing``."""
        if self._empty:
            return LiveState()
        if self._fence is not None and writing:
            self._claim()  # the connection may have been lost, and the claim with it
        self._loads += 1
        with _no_collections():
            return self._load()

    def _load(self) -> LiveState:
        try:
            state, start, chain = self._newest_snapshot()
            self.seq, self._chain, self._base = start, chain, start
            for seq, record, link in self._read(start, chain, state.skip):
                if record is not None:
                    state.reapply(seq, record)
                self.seq, self._chain = seq, link
        except (OperationalError, InterfaceError) as error:
            raise StoreError(f"{store_name(self.url)}: the database cannot be read now: {_short(error)}") from error
        except DBAPIError as error:
            raise DamagedJournalError(
                f"{store_name(self.url)}: the database cannot be read: {_short(error)}; "
                "restore it from a backup, or move it away to start empty"
            ) from error
        return state

    def records(self, after: int = 0) -> Iterator[Record]:
        """All records from the one after ``after`` on; a journal that was not kept from its beginning is said so."""
        removed, chain = self._removed()
        if after < removed:
            found = f"its first {removed:,} records were removed because of their age"
            raise InputError(store_name(self.url), found, "a journal kept from its start, such as a backup")
        if after > removed:
            with self._engine.connect() as connection:
                chain = connection.execute(sa.select(_JOURNAL.c.crc).where(_JOURNAL.c.seq == after)).scalar_one()
        return (record for _, record, _ in self._read(after, chain) if record is not None)

    def truncate(self, after: int) -> int:
        """Throw away the records after number ``after``; how many those were. For a damaged tail, on demand only."""
        if after < self.removed:
            found = f"{after}, and the records up to {self.removed} were removed because of their age"
            raise InputError("--truncate", found, f"{self.removed} or more, or a backup")
        with self._engine.begin() as connection:
            gone = connection.execute(_JOURNAL.delete().where(_JOURNAL.c.seq > after)).rowcount
            connection.execute(_SNAPSHOTS.delete().where(_SNAPSHOTS.c.seq > after))
        return int(gone)

    # -- retention -----------------------------------------------------------------------------------------------

    def removable(self, before_s: float) -> int:
        """Number of the last record that is older than ``before_s`` and that no snapshot needs; 0: there is none.

        Both snapshots that are kept can still be loaded and added to without it, should the newer one be damaged."""
        with self._engine.connect() as connection:
            kept = connection.execute(sa.select(sa.func.min(_SNAPSHOTS.c.seq), sa.func.count())).one()
            first = connection.execute(sa.select(sa.func.min(_JOURNAL.c.seq))).scalar()
            if kept[1] < _SNAPSHOTS_KEPT or first is None:
                return 0
            low, high = first - 1, int(kept[0])
            while low < high:  # times on record never go back
                middle = (low + high + 1) // 2
                body = connection.execute(sa.select(_JOURNAL.c.body).where(_JOURNAL.c.seq == middle)).scalar()
                low, high = (middle, high) if body and json.loads(body)["at_s"] < before_s else (low, middle - 1)
            return low if low >= first else 0

    def remove_records(self, upto: int, most: int) -> int:
        """Remove ``most`` of the oldest records up to number ``upto`` (see ``removable``); how many those were."""
        try:
            with self._begin() as connection:
                first = connection.execute(sa.select(sa.func.min(_JOURNAL.c.seq))).scalar()
                if first is None or first > upto:
                    return 0
                last = min(upto, first + most - 1)
                chain = connection.execute(sa.select(_JOURNAL.c.crc).where(_JOURNAL.c.seq == last)).scalar_one()
                gone = connection.execute(_JOURNAL.delete().where(_JOURNAL.c.seq <= last)).rowcount
                _put_fact(connection, _REMOVED, json.dumps([last, chain]))
                self._check_fence(connection)
                return int(gone)
        except SQLAlchemyError as error:
            raise StoreError(f"{store_name(self.url)}: records cannot be removed: {_short(error)}") from error

    @property
    def removed(self) -> int:
        """Number of the last record that was removed because it was old; 0 if none was."""
        return self._removed()[0]

    def _removed(self) -> tuple[int, int]:
        """The same with its running checksum."""
        if self._empty:
            return 0, 0
        with self._engine.connect() as connection:
            text = _fact(connection, _REMOVED)
        last, chain = json.loads(text) if text else (0, 0)
        return int(last), int(chain)

    def close(self) -> None:
        self._unlock()
        self._engine.dispose()

    # -- reading -------------------------------------------------------------------------------------------------

    def _newest_snapshot(self) -> tuple[LiveState, int, int]:
        with self._engine.connect() as connection:
            for row in connection.execute(sa.select(_SNAPSHOTS).order_by(_SNAPSHOTS.c.seq.desc())):
                if zlib.crc32(row.body.encode()) != row.crc:
                    continue
                body = json.loads(row.body)
                ended = self._ended_at(connection, row.seq) if body.get("format") == COMPACT else []
                if ended is None or len(ended) != body.get("ended", 0):
                    continue
                return from_snapshot(body, ended), row.seq, row.chain
        return LiveState(), 0, 0

    def _ended_at(self, connection: sa.Connection, seq: int) -> list[dict[str, Any]] | None:
        """The ended jobs of the snapshot at ``seq``; ``None`` if one of them is damaged."""
        there = (_ENDED.c.seq <= seq) & (_ENDED.c.gone.is_(None) | (_ENDED.c.gone > seq))
        texts = []
        for body, crc in connection.execute(sa.select(_ENDED.c.body, _ENDED.c.crc).where(there)):
            if zlib.crc32(body.encode()) != crc:
                return None
            texts.append(body)
        found: list[dict[str, Any]] = json.loads(f"[{','.join(texts)}]")
        return found

    def _read(
        self, after: int, chain: int, skip: Callable[[int, str, BaseException], None] | None = None
    ) -> Iterator[tuple[int, Record | None, int]]:
        """Records with their number and running checksum, from ``after`` (excluded) on.

        One that is as it was written, but makes no sense, is passed to ``skip`` if that is given, and is ``None``."""
        query = sa.select(_JOURNAL).where(_JOURNAL.c.seq > after).order_by(_JOURNAL.c.seq)
        expected = after
        with self._engine.connect() as connection, connection.execution_options(yield_per=5000).execute(query) as rows:
            for row in rows:
                expected += 1
                chain = _link(chain, row.kind, row.body)
                if row.seq != expected or chain != row.crc:
                    raise DamagedJournalError(
                        f"{store_name(self.url)}: record {expected} of the journal is "
                        f"{'missing' if row.seq != expected else 'damaged'}; the {expected - 1} records before it are "
                        f"whole. Restore a backup, or give up what follows with: trine up --truncate {expected - 1}"
                    )
                record = None
                try:
                    record = from_body(row.kind, json.loads(row.body))
                except UnknownRecordError:
                    raise  # of a newer version: to go on without it would be to undo what that one did
                except (ValueError, KeyError, TypeError, JournalError) as error:
                    if skip is None:
                        problem = f"{store_name(self.url)}: record {row.seq} cannot be read: {error}"
                        raise JournalError(problem) from error
                    skip(row.seq, row.kind, error)
                yield row.seq, record, chain


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Everything that is loaded stays: to look for garbage among it, again and again, takes longer than loading it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _fact(connection: sa.Connection, name: str) -> str | None:
    return connection.execute(sa.select(_FACTS.c.value).where(_FACTS.c.name == name)).scalar()


def _put_fact(connection: sa.Connection, name: str, value: str) -> None:
    if not connection.execute(_FACTS.update().where(_FACTS.c.name == name).values(value=value)).rowcount:
        connection.execute(_FACTS.insert().values(name=name, value=value))


def _may_be_written(error: SQLAlchemyError) -> bool:
    """Whether a commit that failed may have been carried out all the same.

    SQLite says for certain that it was not, unless reading or writing the file failed; a server whose connection broke
    says nothing.
    """
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", None)
    if code is not None:
        return bool(code & 0xFF == sqlite3.SQLITE_IOERR)
    return not isinstance(error, IntegrityError)


def _link(chain: int, kind: str, body: str) -> int:
    return zlib.crc32(f"{kind}\n{body}".encode(), chain)


def _durable_sqlite(connection: Any, _: Any) -> None:
    """An acknowledged record survives a power cut: the log is synced at every commit."""
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=5000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _with_driver(url: str) -> sa.URL:
    """``postgresql://`` means the driver that comes with trine, whatever SQLAlchemy's default is."""
    made = sa.make_url(url)
    if made.drivername not in ("postgresql", _POSTGRES):
        return made
    require_extra("postgres", "psycopg", purpose="a store in PostgreSQL needs")
    return made.set(drivername=_POSTGRES)


def store_name(url: str) -> str:
    """The store as it may be shown: never with a password."""
    if url.startswith("sqlite:///"):
        return url.removeprefix("sqlite:///")
    try:
        return str(sa.make_url(url).render_as_string(hide_password=True))
    except (SQLAlchemyError, ValueError):
        return f"{url.partition('://')[0]}://... (a URL that cannot be read)"


def _short(error: BaseException) -> str:
    text = str(getattr(error, "orig", None) or error)
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__
