"""An exactly-once sink for SQLite: protocol 2pc, append; see docs/how-to/write-a-sink.md."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from abs_clients.options import Option, text
from abs_core.aborting import abort_each
from abs_core.codec import state_from_text, state_to_text
from abs_core.contracts import (
    Committer,
    Conflict,
    Inventory,
    Sink,
    Stored,
    Task,
    Version,
    in_time,
)
from abs_core.crash import CrashPoint, reached
from abs_core.errors import ConfigError, RefusedError, SchemaError, UnavailableError
from abs_core.model import (
    Committable,
    Finding,
    Guarantee,
    HandleName,
    InDoubt,
    Inspection,
    JobState,
    Outcome,
)
from abs_core.patience import Patience
from abs_core.protocol import sweepable
from abs_core.registers import check_finished, others_among
from abs_sinks.door import SinkFormat
from abs_sinks.options import CommonOptions, parse_options

_OURS = """
CREATE TABLE IF NOT EXISTS abs_register (job TEXT PRIMARY KEY, number INTEGER, state TEXT);
CREATE TABLE IF NOT EXISTS abs_prepared (
    handle TEXT PRIMARY KEY, job TEXT, target TEXT, content BLOB, at TEXT DEFAULT (strftime('%s')));
CREATE TABLE IF NOT EXISTS abs_marker (handle TEXT PRIMARY KEY, job TEXT);
"""


@contextmanager
def transaction(path: Path, *, keep: bool = True) -> Iterator[sqlite3.Connection]:
    """One transaction on the database, durable when it ends; without ``keep`` it is rolled back."""
    try:
        with closing(sqlite3.connect(path, timeout=30.0, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = FULL")
            db.executescript(_OURS)
            db.execute("BEGIN IMMEDIATE")
            yield db  # where this raises, the connection ends, and the transaction with it
            db.execute("COMMIT" if keep else "ROLLBACK")
    except sqlite3.OperationalError as error:
        raise UnavailableError(f"SQLite does not answer for {path}: {error}.") from error
    except sqlite3.Error as error:
        raise RefusedError(
            f"SQLite refuses a change of {path}: {error}.",
            remedy="look at the table's constraints.",
        ) from error


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _file(given: str) -> Path:
    return Path(given).absolute()


@dataclass(frozen=True, slots=True)
class SqliteOptions:
    """The database's file, the table to write to, and the options of every sink."""

    path: Annotated[Path, _file]
    table: Annotated[str, Option("dbtable", text)]
    common: CommonOptions

    @property
    def patience(self) -> Patience:
        return Patience(self.common.patience, system=f"SQLite in {self.path}")


class SqliteWriter:
    """Keeps a task's rows in memory, and at pre-commit puts them beside the table."""

    def __init__(self, options: SqliteOptions, schema: pa.Schema, task: Task) -> None:
        self._options = options
        self._schema = schema
        self._task = task
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._batches.append(batch)
            if len(self._batches) == 1:
                reached(CrashPoint.AFTER_FIRST_BATCH)

    def pre_commit(self) -> Committable | None:
        if not self._batches:
            return None
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_stream(buffer, self._schema) as stream:
            for batch in self._batches:
                stream.write_batch(batch)
        content = buffer.getvalue().to_pybytes()
        handle = self._task.handle
        reached(CrashPoint.BEFORE_PRE_COMMIT)
        with transaction(self._options.path) as db:
            db.execute(
                "INSERT INTO abs_prepared (handle, job, target, content) VALUES (?, ?, ?, ?)",
                [str(handle), handle.job, self._options.table, content],
            )
        reached(CrashPoint.AFTER_PRE_COMMIT)
        rows = sum(batch.num_rows for batch in self._batches)
        digest = blake2b(content, digest_size=16).hexdigest()
        return Committable(handle, rows, f"blake2b:{digest}", (("protocol", "2pc"),))

    def abort(self) -> None:
        self._batches.clear()


class SqliteCommitter(Committer):
    """Moves what is prepared into the table. A marker in the same transaction proves that it did."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        with transaction(self._path, keep=False) as db:
            found = {c.handle: _outcome(db, c.handle) for c in committables}
            # What a decision names must be able to be applied: a constraint of the table may object.
            for handle, outcome in found.items():
                if outcome is Outcome.PREPARED:
                    _apply(db, handle)
        return {handle: Inspection(outcome) for handle, outcome in found.items()}

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        found: dict[HandleName, Outcome] = {}
        for committable in committables:
            if found:
                reached(CrashPoint.BETWEEN_COMMITS)
            found[committable.handle] = self._commit(committable.handle)
        return found

    def abort(self, handles: Sequence[HandleName]) -> None:
        abort_each(handles, self._abort)

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        with transaction(self._path) as db:
            found = db.execute(
                "SELECT handle, strftime('%s') - at, length(content), target FROM abs_prepared "
                "WHERE job = coalesce(?, job) ORDER BY handle",
                [job],
            ).fetchall()
        named = ((HandleName.parse(name), *rest) for name, *rest in found)
        return [
            InDoubt(handle, age, f"rows prepared for table {table} of {self._path}", size)
            for handle, age, size, table in named
            if handle is not None
        ]

    def forget(self, state: JobState) -> None:
        with transaction(self._path) as db:
            marked = db.execute(
                "SELECT handle FROM abs_marker WHERE job = ?", [state.job]
            ).fetchall()
            for (text,) in marked:
                handle = HandleName.parse(text)
                if handle is not None and sweepable(state, state.generation, handle):
                    db.execute("DELETE FROM abs_marker WHERE handle = ?", [text])

    def _commit(self, handle: HandleName) -> Outcome:
        with transaction(self._path) as db:
            outcome = _outcome(db, handle)
            if outcome is Outcome.PREPARED:
                _apply(db, handle)
                db.execute("INSERT INTO abs_marker VALUES (?, ?)", [str(handle), handle.job])
                return Outcome.COMMITTED
        return outcome

    def _abort(self, handle: HandleName) -> None:
        with transaction(self._path) as db:
            db.execute("DELETE FROM abs_prepared WHERE handle = ?", [str(handle)])


def _outcome(db: sqlite3.Connection, handle: HandleName) -> Outcome:
    for table, outcome in ("abs_prepared", Outcome.PREPARED), ("abs_marker", Outcome.COMMITTED):
        if db.execute(f"SELECT 1 FROM {table} WHERE handle = ?", [str(handle)]).fetchone():
            return outcome
    return Outcome.UNKNOWN  # never guessed: neither aborted nor committed is proven by absence


def _apply(db: sqlite3.Connection, handle: HandleName) -> None:
    """Move the prepared rows into their table, within a transaction."""
    query = "SELECT target, content FROM abs_prepared WHERE handle = ?"
    target, content = db.execute(query, [str(handle)]).fetchone()
    for batch in pa.ipc.open_stream(content):
        names = ", ".join(map(quoted, batch.schema.names))
        places = ", ".join("?" * batch.num_columns)
        rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        db.executemany(f"INSERT INTO {quoted(target)} ({names}) VALUES ({places})", rows)
    db.execute("DELETE FROM abs_prepared WHERE handle = ?", [str(handle)])


class SqliteRegister(Inventory):
    """One row per job, in the same database."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self, job: str) -> Stored | None:
        with transaction(self._path) as db:
            return self._read(db, job)

    def compare_and_set(
        self, job: str, expected: Version | None, state: JobState, deadline: float | None = None
    ) -> Version | Conflict:
        in_time(job, deadline)
        with transaction(self._path) as db:
            stored = self._read(db, job)
            if (None if stored is None else stored.version) != expected:
                return Conflict()
            number = 1 if expected is None else int(expected.partition(".")[0]) + 1
            row = [job, number, state_to_text(state)]
            db.execute("INSERT OR REPLACE INTO abs_register VALUES (?, ?, ?)", row)
            return _version(number, state)

    def jobs(self) -> Sequence[Stored]:
        with transaction(self._path) as db:
            names = db.execute("SELECT job FROM abs_register ORDER BY job").fetchall()
            found = [self._read(db, job) for (job,) in names]
        return [stored for stored in found if stored is not None]

    def others_on(self, target: str, job: str) -> Sequence[str]:
        return others_among((stored.state for stored in self.jobs()), target, job)

    def retire(self, job: str) -> bool:
        with transaction(self._path) as db:
            stored = self._read(db, job)
            if stored is not None:
                check_finished(stored.state)
                db.execute("DELETE FROM abs_register WHERE job = ?", [job])
        return stored is not None

    def place(self, job: str) -> str:
        return f"row {job} of table abs_register of {self._path}"

    def _read(self, db: sqlite3.Connection, job: str) -> Stored | None:
        query = "SELECT number, state FROM abs_register WHERE job = ?"
        row = db.execute(query, [job]).fetchone()
        if row is None:
            return None
        state = state_from_text(row[1], self.place(job))
        return Stored(state, _version(row[0], state))


def _version(number: int, state: JobState) -> Version:
    # With the register's id: where a job was retired and begins anew, numbers begin at 1 again, and a
    # request that was delayed since then must not match.
    return f"{number}.{state.register}"


class SqliteSink(Sink):
    """Writes batches of one schema into one table."""

    def __init__(self, options: SqliteOptions, schema: pa.Schema) -> None:
        for field in schema:
            if not _is_storable(field.type):
                raise SchemaError(
                    f"SQLite has no type for column {field.name} ({field.type}).",
                    remedy="cast it to a whole number of 64 bits, a double, a string or bytes.",
                )
        self._options = options
        self._schema = schema

    @property
    def target_id(self) -> str:
        return f"sqlite:{self._options.path.resolve()}/{self._options.table}"

    def writer(self, task: Task) -> SqliteWriter:
        return SqliteWriter(self._options, self._schema, task)

    def committer(self) -> SqliteCommitter:
        return SqliteCommitter(self._options.path)

    def register(self) -> SqliteRegister:
        return SqliteRegister(self._options.path)

    def preflight(self, job: str, tasks: int | None = None) -> Sequence[Finding]:
        table = self._options.table
        with transaction(self._options.path) as db:
            columns = db.execute(f"PRAGMA table_info({quoted(table)})").fetchall()
        if not columns:
            what = f"There is no table {table} in {self._options.path}."
            return [Finding.error(what, "create it.")]
        missing = sorted(set(self._schema.names) - {name for _, name, *_ in columns})
        findings = [Finding.error(f"Table {table} has no column {c}.", "add it.") for c in missing]
        for other in self.register().others_on(self.target_id, job):
            what = f"Job {other} has written to table {table}, too."
            findings.append(Finding.warning(what, "was this job's checkpoint deleted?"))
        return findings

    def guarantee(self) -> Guarantee:
        return Guarantee("2pc", "append", "each task's rows at once, once decided", "nothing")

    def is_empty(self) -> bool:
        with transaction(self._options.path) as db:
            query = f"SELECT NOT EXISTS (SELECT 1 FROM {quoted(self._options.table)})"
            found: tuple[int] = db.execute(query).fetchone()
        return found == (1,)


def _is_storable(type_: pa.DataType) -> bool:
    whole = pa.types.is_integer(type_) and type_ != pa.uint64()
    text = pa.types.is_string(type_) or pa.types.is_binary(type_)
    return whole or text or pa.types.is_floating(type_) or pa.types.is_boolean(type_)


_TYPES = {"INTEGER": pa.int64(), "REAL": pa.float64(), "BLOB": pa.binary()}


class SqliteFormat(SinkFormat):
    """Tables of SQLite. A URL is ``sqlite:///folder/file.db``."""

    name = "abs-sqlite"
    schemes = ("sqlite",)

    def parse(self, given: Mapping[str, str]) -> SqliteOptions:
        return parse_options(SqliteOptions, self.name, given)

    def at(self, url: str, table: str | None = None, stateschema: str = "abs") -> SqliteOptions:
        path = Path(unquote(urlsplit(url).path))
        if not path.is_file():
            raise ConfigError(
                f"There is no database {path}.", remedy="write sqlite:///folder/file.db."
            )
        return self.parse({"path": str(path), "dbtable": table or "?"})

    def sink(self, options: SqliteOptions, schema: pa.Schema, *, alone: bool = True) -> SqliteSink:
        return SqliteSink(options, schema)

    def administer(self, options: SqliteOptions) -> tuple[Inventory, Committer]:
        return SqliteRegister(options.path), SqliteCommitter(options.path)

    def where(self, options: SqliteOptions) -> str:
        return f"table {options.table} of {options.path}"

    def read(self, options: SqliteOptions) -> pa.RecordBatchReader:
        with transaction(options.path) as db:
            columns = db.execute(f"PRAGMA table_info({quoted(options.table)})").fetchall()
            if not columns:
                raise ConfigError(f"There is no {self.where(options)}.", remedy="name it: --table.")
            found = db.execute(f"SELECT * FROM {quoted(options.table)}").fetchall()
        schema = pa.schema(
            [(name, _TYPES.get(kind.upper(), pa.string())) for _, name, kind, *_ in columns]
        )
        rows = [dict(zip(schema.names, row, strict=True)) for row in found]
        return pa.Table.from_pylist(rows, schema).to_reader()


FORMAT = SqliteFormat()


def sink(given: Mapping[str, str], schema: pa.Schema) -> SqliteSink:
    return FORMAT.sink(FORMAT.parse(given), schema)
