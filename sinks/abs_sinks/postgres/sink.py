"""The PostgreSQL sink: a ``Sink`` for one table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from psycopg import sql

from abs_clients.postgres.metadata import relatives
from abs_clients.postgres.name import TableName
from abs_clients.postgres.pool import leased
from abs_core.births.rules import vanished_target
from abs_core.contracts import Committer, Sink, Task, Writer
from abs_core.errors import AbsError, OptionError
from abs_core.model import Finding, Guarantee, JobState
from abs_core.patience.slow_writes import SlowWriteReporter
from abs_core.routing import ByProtocol, NothingToCommit
from abs_sinks.deadletters.writer import dead_letters_of
from abs_sinks.options import limit_text, on_one_target
from abs_sinks.postgres.apply.target import SinkTable, SinkTables, label_of
from abs_sinks.postgres.apply.write import write_of
from abs_sinks.postgres.copyin import CopyWriter
from abs_sinks.postgres.idempotent import IdempotentCoCommitter, IdempotentWriter
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.register import PostgresRegister, terminate_older
from abs_sinks.postgres.twophase import GroupTwoPhaseWriter, TwoPhaseCommitter, TwoPhaseWriter
from abs_sinks.postgres.wal import WalCoCommitter, WalCommitter, WalComposer, WalWriter

log = logging.getLogger(__name__)

_ANY_READER = "no setting needed: every reader sees committed rows only"

_GUARANTEES = {
    "2pc": Guarantee(
        protocol="2pc",
        write="append",
        visibility="per task: when the epoch is committed, the rows of its tasks become visible one "
        "task after another, within milliseconds",
        reader=_ANY_READER,
        limits=(
            (
                "Between pre-commit and commit the rows keep their locks: a task that needs one of "
                "these locks, for instance for a unique key, waits for at most locktimeout, then fails."
            ),
            "Sequences and other objects outside of transactions advance with each attempt.",
        ),
    ),
    "wal": Guarantee(
        protocol="wal",
        write="append",
        visibility="whole epoch: all its rows become visible at once",
        reader=_ANY_READER,
        limits=("Triggers of the table fire when the epoch is applied, in one transaction.",),
    ),
    "idempotent": Guarantee(
        protocol="idempotent",
        write="upsert",
        visibility="per task, before the epoch is decided: readers can see rows of an epoch that is "
        "then written again, with the same rows",
        reader="no setting needed. Readers that must not see undecided epochs need protocol=wal",
        limits=(
            "No row is deleted: a row stays even if its key does not occur again.",
            (
                "All rows of one key must be in one task of an epoch: partition the data frame by the "
                "key."
            ),
            "Triggers of the table fire again when an epoch is written again.",
        ),
    ),
}


_OF_NEW_COLUMNS = {
    "wal": "A new column appears with the first epoch that has it: that epoch's transaction adds it, "
    "and readers wait for it. Where the register is elsewhere, as for several sinks, the column is "
    "added before that epoch's rows, and can stay if the epoch is then written without it.",
    "2pc": "A new column is added before the first rows that have it: it can stay if their epoch is "
    "then written without it.",
}


def guarantee(options: PostgresOptions) -> Guarantee:
    """The guarantee that follows from the options."""
    promise = _guarantee(options)
    if options.schemachange != "add":
        return promise
    said = _OF_NEW_COLUMNS["wal" if options.protocol == "wal" else "2pc"]
    return replace(promise, limits=(*promise.limits, said))


def _guarantee(options: PostgresOptions) -> Guarantee:
    of_protocol = replace(_GUARANTEES[options.protocol], write=options.write)
    promise = write_of(options).guarantee(of_protocol)
    if options.deadletter is not None:
        promise = replace(promise, limits=(*promise.limits, *_of_dead_letters(options)))
    return promise


def _of_dead_letters(options: PostgresOptions) -> tuple[str, ...]:
    if options.letters is None:
        of_server = "What only the server can tell, such as a CHECK, stops the query."
        return (dead_letters_of("table", options), of_server)
    limit = (
        "Rows that the table refuses by their data are in the table "
        f"{options.deadletter}, under the same decision; more than {options.deadlettermax:.2%} of the "
        f"rows {limit_text()}, stop the query. Deferred constraints are checked before the decision."
    )
    if options.protocol != "idempotent":
        return (limit,)
    moment = (
        "A row can be visible and a dead letter for a moment, if attempts of its task see it "
        "differently."
    )
    return (limit, moment)


class PostgresSink(Sink):
    """Writes batches of one schema to one table, exactly once.

    It connects at its first use, over connections that the process keeps.

    Args:
        co_commit: whether the register is in this database (``register``); False for an epoch over
            several sinks.

    Raises:
        OptionError: the protocol, or replacing the table's rows, needs the register there.
    """

    def __init__(
        self, options: PostgresOptions, schema: pa.Schema, *, co_commit: bool = True
    ) -> None:
        if not co_commit and options.protocol == "idempotent":
            raise OptionError(
                "protocol=idempotent needs the register in the table's own database: it asks it "
                "inside the statement that writes.",
                remedy="set protocol=wal, which upserts too.",
            )
        if not co_commit and write_of(options).empties:
            raise OptionError(
                "A table's content is replaced in one transaction with the register, which lies "
                "elsewhere.",
                remedy="write that table by a query of its own.",
            )
        self._options = options
        self._table = SinkTable(options, schema)
        self._co_commit = co_commit

    @property
    def target_id(self) -> str:
        """``postgres:<system identifier>/<database>/<schema>.<table>``.

        Raises:
            SchemaError: the table is missing, or the input does not fit it.
            TargetError: the server refused or did not answer.
        """
        return self._table.identity()

    def if_missing(self, check: Callable[[], None]) -> None:
        self._table = replace(self._table, if_missing=check)

    def writer(self, task: Task) -> Writer:
        return SlowWriteReporter(self.raw_writer(task), self._options.patience, task)

    def raw_writer(self, task: Task) -> CopyWriter:
        """See ``deadletters.writer.GivingSink``."""
        elsewhere = not self._co_commit
        match self._options.protocol:
            case "wal":
                return WalWriter(self._table, task, logged=elsewhere)
            case "idempotent":
                return IdempotentWriter(self._table, task)
            case _:
                return TwoPhaseWriter(self._table, task, elsewhere=elsewhere)

    def committer(self) -> ByProtocol:
        """See ``committer_of``."""
        return committer_of(SinkTables({0: self._table}), co_commit=self._co_commit)

    def register(self) -> PostgresRegister:
        return PostgresRegister(self._options)

    def preflight(self, job: str, tasks: int | None = None) -> Sequence[Finding]:
        # No task asks it: 30 ms of CPU less in each worker process.
        from abs_sinks.postgres.check.preflight import preflight

        return preflight(
            self._options,
            self._table.schema,
            job,
            tasks,
            composes=not self._co_commit,
            if_missing=self._table.if_missing,
        )

    def guarantee(self) -> Guarantee:
        return guarantee(self._options)

    def fence(self, state: JobState) -> None:
        try:
            terminate_older(self._options, state)
        except AbsError as error:
            log.warning(
                "sessions of superseded runs of job %s were not ended: %s", state.job, error
            )

    def shares_rows(self, target: str) -> bool:
        """See ``SharesRows``: whether it is a partition or child of this table, or the reverse."""
        table = self._table.target().table
        beside = self.target_id.removesuffix(label_of(table.schema, table.name))
        if not target.startswith(beside):
            return False
        with leased(self._options.server, doing=f"looking at {table.label}") as connection:
            kin = relatives(connection, table.oid)
        return target.removeprefix(beside) in {label_of(schema, name) for schema, name in kin}

    def is_empty(self) -> bool:
        """Whether the table has no row."""
        table = self._table.target().table
        query = sql.SQL("select not exists (select from {})").format(table.identifier)
        with leased(self._options.server, doing=f"looking into {table.label}") as connection:
            row = connection.execute(query).fetchone()
        return row == (True,)

    def reach(self) -> None:
        """See ``Sink``. It resolves the table, which every writer needs."""
        self._table.target()

    def close(self) -> None:
        """Nothing: the process keeps idle connections for the next sink."""


def committer_of(tables: SinkTables, *, co_commit: bool = False) -> ByProtocol:
    """A committer for the handles of every protocol.

    Args:
        tables: of all its sinks.
        co_commit: whether the register is in this database, and is changed with the rows. True: a
            one that co-commits for ``wal`` and ``idempotent``; False: one that composes for ``wal``.
    """
    options = tables.options
    committers = committers_of(options)
    if options.protocol == "wal":
        committers["wal"] = WalCoCommitter(tables) if co_commit else WalComposer(tables)
    if co_commit and options.protocol == "idempotent":
        committers["idempotent"] = IdempotentCoCommitter(tables)
    return ByProtocol(committers, options.protocol)


def committers_of(options: PostgresOptions) -> dict[str, Committer]:
    """By protocol: committers that need no columns of the input. They co-commit and compose nothing."""
    return {
        "2pc": TwoPhaseCommitter(options),
        "wal": WalCommitter(options),
        "idempotent": NothingToCommit(),
    }


def _vanished() -> None:
    """Each sink has created its own table; what is missing now was there."""
    raise vanished_target()


class PostgresGroup:
    """A ``SinkGroup``: one transaction per task under ``2pc``, per epoch under ``wal``.

    Args:
        sinks: options and schema by the sink's number, in the order in which tables are filled; all of
            one ``transactions_of``.
    """

    def __init__(self, sinks: Mapping[int, tuple[PostgresOptions, pa.Schema]]) -> None:
        self._by_number = {
            number: SinkTable(options, schema, _vanished)
            for number, (options, schema) in sinks.items()
        }
        self.tables = SinkTables(self._by_number)

    @property
    def by_task(self) -> bool:
        return self.tables.options.protocol == "2pc"

    def writer(self, task: Task) -> GroupTwoPhaseWriter:
        """See ``SinkGroup``; for protocol ``2pc``."""
        return GroupTwoPhaseWriter(self._by_number, task)

    def committer(self, *, co_commit: bool) -> ByProtocol:
        """See ``SinkGroup``.

        Raises:
            OptionError: one sink writes changes to a table that another one has, too, as their options
                name it. (Engines compare the tables themselves, before.)
        """
        tables: dict[TableName, int] = {}
        for number, table in self._by_number.items():
            name = table.options.dbtable
            other = tables.setdefault(name, number)
            alone = [n for n in (number, other) if write_of(self._by_number[n].options).alone]
            if other != number and alone:
                (shared,) = {number, other} - {alone[0]}
                raise on_one_target(alone[0], shared, f"table {name}")
        return committer_of(self.tables, co_commit=co_commit)
