"""The journal on disk: an append-only table of records, and snapshots of the state. SQLAlchemy Core, any database.

SQLite (a file in the state directory, write-ahead log, synchronous) by default, PostgreSQL by its URL. Each record
carries a checksum chained over all before it, so that a damaged journal is noticed instead of believed.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError

from trine.core.errors import InputError, TrineError
from trine.server.records import JournalError, Record, from_body, to_body
from trine.server.state import LiveState

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
_FACTS = sa.Table("facts", _META, sa.Column("name", sa.String(32), primary_key=True), sa.Column("value", sa.Text))
_SNAPSHOTS_KEPT = 2


class StoreError(TrineError):
    """Nothing can be made durable now; what was already acknowledged is safe."""


class StoreInUseError(StoreError):
    """Another daemon writes to the same database."""


class DamagedJournalError(TrineError):
    """The journal on disk is not what was written."""


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

    def claim(self) -> None:
        """Keep other daemons from writing to the same database, until ``close`` or the end of the process.

        SQLite needs none of it: there the lock on the state directory does that.
        """
        if self._engine.dialect.name != "postgresql":
            return
        try:
            if self._own is not None:
                self._own.close()
            self._own = self._engine.connect()
            key = sa.func.hashtext("trine journal in " + sa.func.current_schema())
            free = self._own.scalar(sa.select(sa.func.pg_try_advisory_lock(key)))
            self._own.commit()
        except DBAPIError as error:
            raise StoreError(f"{store_name(self.url)}: the database cannot be reached: {_short(error)}") from None
        if not free:
            self._own.close()
            raise StoreInUseError(f"{store_name(self.url)}: another daemon uses this database")

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
        try:
            with self._begin() as connection:
                connection.execute(_JOURNAL.insert(), rows)
        except SQLAlchemyError as error:
            raise StoreError(f"{store_name(self.url)}: the journal cannot be written: {_short(error)}") from error
        self.seq, self._chain = seq, chain
        return seq

    def snapshot(self, body: dict[str, Any], seq: int) -> None:
        """Keep the state as of record ``seq`` (which must be the last durable one)."""
        if seq != self.seq:
            raise ValueError(f"a snapshot at {seq}, but the journal is at {self.seq}")
        text = json.dumps(body, separators=(",", ":"))
        row = {"seq": seq, "body": text, "crc": zlib.crc32(text.encode()), "chain": self._chain}
        try:
            with self._begin() as connection:
                connection.execute(_SNAPSHOTS.delete().where(_SNAPSHOTS.c.seq == seq))
                connection.execute(_SNAPSHOTS.insert().values(row))
                kept = sa.select(_SNAPSHOTS.c.seq).order_by(_SNAPSHOTS.c.seq.desc()).limit(_SNAPSHOTS_KEPT)
                oldest = min(connection.execute(kept).scalars())
                connection.execute(_SNAPSHOTS.delete().where(_SNAPSHOTS.c.seq < oldest))
        except SQLAlchemyError as error:
            raise StoreError(f"{store_name(self.url)}: the snapshot cannot be written: {_short(error)}") from error

    def load(self) -> LiveState:
        """The newest snapshot that is whole, and the records after it."""
        if self._empty:
            return LiveState()
        if self._own is not None:
            self.claim()  # the connection may have been lost, and the claim with it
        try:
            state, start, chain = self._newest_snapshot()
            self.seq, self._chain = start, chain
            for seq, record, link in self._read(start, chain):
                state.apply(record)
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
        chain = 0
        if after:
            with self._engine.connect() as connection:
                chain = connection.execute(sa.select(_JOURNAL.c.crc).where(_JOURNAL.c.seq == after)).scalar_one()
        return (record for _, record, _ in self._read(after, chain))

    def truncate(self, after: int) -> int:
        """Throw away the records after number ``after``; how many those were. For a damaged tail, on demand only."""
        with self._engine.begin() as connection:
            gone = connection.execute(_JOURNAL.delete().where(_JOURNAL.c.seq > after)).rowcount
            connection.execute(_SNAPSHOTS.delete().where(_SNAPSHOTS.c.seq > after))
        return int(gone)

    def close(self) -> None:
        if self._own is not None:
            self._own.close()
        self._engine.dispose()

    # -- reading -------------------------------------------------------------------------------------------------

    def _newest_snapshot(self) -> tuple[LiveState, int, int]:
        with self._engine.connect() as connection:
            for row in connection.execute(sa.select(_SNAPSHOTS).order_by(_SNAPSHOTS.c.seq.desc())):
                if zlib.crc32(row.body.encode()) == row.crc:
                    return LiveState.from_snapshot(json.loads(row.body)), row.seq, row.chain
        return LiveState(), 0, 0

    def _read(self, after: int, chain: int) -> Iterator[tuple[int, Record, int]]:
        """Records with their number and running checksum, from ``after`` (excluded) on."""
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
                try:
                    record = from_body(row.kind, json.loads(row.body))
                except (ValueError, KeyError) as error:
                    raise JournalError(f"{store_name(self.url)}: record {row.seq} cannot be read: {error}") from error
                yield row.seq, record, chain


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
    return made.set(drivername="postgresql+psycopg") if made.drivername == "postgresql" else made


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
