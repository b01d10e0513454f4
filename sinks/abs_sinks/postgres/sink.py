"""The PostgreSQL sink: a ``Sink`` for one table."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pyarrow as pa
from psycopg import sql

from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.pool import leased
from abs_core.contracts import Task, Writer
from abs_core.errors import AbsError, OptionError
from abs_core.model import Finding, Guarantee, JobState
from abs_core.patience.told_writer import ToldWriter
from abs_core.routing import ByProtocol
from abs_sinks.postgres.fence import terminate_older
from abs_sinks.postgres.group import committer_of
from abs_sinks.postgres.guarantee import guarantee
from abs_sinks.postgres.idempotent import IdempotentWriter
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.preflight import preflight
from abs_sinks.postgres.register import PostgresRegister
from abs_sinks.postgres.tables import Tables
from abs_sinks.postgres.target import resolve
from abs_sinks.postgres.twophase import TwoPhaseWriter
from abs_sinks.postgres.wal import WalWriter

log = logging.getLogger(__name__)


class PostgresSink:
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
        if not co_commit and options.replaces:
            raise OptionError(
                "A table's content is replaced in one transaction with the register, which lies "
                "elsewhere.",
                remedy="write that table by a query of its own.",
            )
        self._options = options
        self._schema = schema
        self._co_commit = co_commit

    @property
    def target(self) -> str:
        """``postgres:<system identifier>/<database>/<schema>.<table>``.

        Raises:
            SchemaError: the table is missing, or the input does not fit it.
            TargetError: the server refused or did not answer.
        """
        return resolve(self._options, self._schema).identity

    def writer(self, task: Task) -> Writer:
        return ToldWriter(self._writer(task), self._options.patience, task)

    def _writer(self, task: Task) -> Writer:
        match self._options.protocol:
            case "wal":
                logged = not self._co_commit
                return WalWriter(self._options, self._schema, task, logged=logged)
            case "idempotent":
                return IdempotentWriter(self._options, self._schema, task)
            case _:
                elsewhere = not self._co_commit
                return TwoPhaseWriter(self._options, self._schema, task, elsewhere=elsewhere)

    def committer(self) -> ByProtocol:
        """A ``CoCommitter`` for ``wal`` and ``idempotent``; a ``Composer`` for a register elsewhere."""
        tables = Tables.only(self._options, self._schema)
        return committer_of(tables, co_commit=self._co_commit)

    def register(self) -> PostgresRegister:
        return PostgresRegister(self._options)

    def preflight(self, job: str, tasks: int | None = None) -> Sequence[Finding]:
        composes = not self._co_commit
        return preflight(self._options, self._schema, job, tasks, composes=composes)

    def guarantee(self) -> Guarantee:
        return guarantee(self._options)

    def fence(self, state: JobState) -> None:
        try:
            terminate_older(self._options, state)
        except AbsError as error:
            log.warning(
                "sessions of superseded runs of job %s were not ended: %s", state.job, error
            )

    def is_empty(self) -> bool:
        """Whether the table has no row."""
        table = resolve(self._options, self._schema).table
        query = sql.SQL("select not exists (select from {})").format(table.identifier)
        with (
            leased(self._options.server) as connection,
            translate_errors(f"looking into {table.label}"),
        ):
            row = connection.execute(query).fetchone()
        return row == (True,)

    def reach(self) -> None:
        """See ``Reachable``. It resolves the table, which every writer needs."""
        resolve(self._options, self._schema)

    def close(self) -> None:
        """Nothing: the process keeps idle connections for the next sink."""
