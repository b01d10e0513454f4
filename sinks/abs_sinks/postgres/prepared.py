"""Prepared transactions as handles: prepares, inspects, commits and rolls back.

The gid is the handle's name. A missing gid was committed or rolled back; the transaction's marker row
tells which. Only ``current_database()`` is looked at: other databases' gids belong to other registers,
and cannot be ended from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import blake2b
from typing import Any, LiteralString

import psycopg
from psycopg import Connection, sql

from abs_clients.postgres.connection import end_prepared
from abs_clients.postgres.errors import to_abs_error
from abs_clients.postgres.pool import leased
from abs_core.crash import CrashPoint, reached
from abs_core.deadletters import counts_of, noted
from abs_core.errors import (
    AbsError,
    ConfigError,
    ContentionError,
    PreflightError,
    RefusedError,
    TargetError,
    UnavailableError,
)
from abs_core.lookback import Position
from abs_core.model import PROTOCOL, Committable, HandleName, InDoubt, Inspection, JobState, Outcome
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.relations import noting, tables_of

_LISTED = """
select gid from pg_prepared_xacts where database = current_database() and gid = any(%s)
"""

_HELD = """
select gid, extract(epoch from clock_timestamp() - prepared)::float8,
       format('prepared transaction %L of role %s', gid, owner)
  from pg_prepared_xacts
 where database = current_database() and gid like 'abs1:%'
"""

_MARK = """
insert into {marker} (register, generation, epoch, partition, attempt, job, rows, digest)
values ({register}, {generation}, {epoch}, {partition}, {attempt}, {job}, {rows}, {digest})
"""

_MARKED = """
select 1 from {marker}
 where (register, generation, epoch, partition, attempt)
       = ({register}, {generation}, {epoch}, {partition}, {attempt})
"""

# The predicate is protocol.sweepable: below the state's generation, or of it with the epoch finished
# or abandoned, and in no open decision.
_FORGET = """
with lazily as materialized (select set_config('synchronous_commit', 'off', true))
delete from {marker} m using lazily
 where m.register = {register}
   and (m.generation < {generation}
        or m.generation = {generation}
           and (m.epoch <= {frontier} or m.epoch = any({abandoned}::bigint[])))
   and not exists (select from unnest({kept}::bigint[], {of_kept}::bigint[]) as k(generation, epoch)
                    where (m.generation, m.epoch) = (k.generation, k.epoch))
   and not exists (select from unnest({generations}::bigint[], {epochs}::bigint[],
                                      {partitions}::bigint[], {attempts}::text[])
                               as o(generation, epoch, partition, attempt)
                    where (m.generation, m.epoch, m.partition, m.attempt)
                          = (o.generation, o.epoch, o.partition, o.attempt))
"""

RAISE = (
    "raise max_prepared_transactions above the number of tasks of all jobs and restart the server"
)

OR_WAL = "set protocol=wal, which applies the rows in an ordinary transaction"
"""The way without prepared transactions, for a task under ``2pc``."""

OR_ALONE = (
    "write this table by a query of its own, with protocol=wal and its register in this database: "
    "rows and register are one ordinary transaction then"
)
"""The way without prepared transactions, for ``wal`` with a register elsewhere."""


class PreparedTransactions:
    """The prepared transactions of this database; connections must be in autocommit mode.

    The driver's errors pass through: callers map them.
    """

    def __init__(self, options: PostgresOptions) -> None:
        self._schema = options.state
        self._patience = options.locktimeout

    def inspect(
        self, connection: Connection[Any], handles: Sequence[HandleName]
    ) -> dict[HandleName, Inspection]:
        """Inspect each handle. A prepared transaction never expires."""
        if not handles:
            return {}
        prepared = self.existing(connection, handles)
        # A later statement has a later snapshot, which shows the markers of what left the list.
        return {
            handle: Inspection(
                Outcome.PREPARED if handle in prepared else self._ended(connection, handle)
            )
            for handle in handles
        }

    def commit(
        self, connection: Connection[Any], handles: Iterable[HandleName]
    ) -> dict[HandleName, Outcome]:
        """COMMIT PREPARED each; durable on return, whatever synchronous_commit is (twophase.c)."""
        outcomes: dict[HandleName, Outcome] = {}
        for handle in handles:
            if outcomes:
                reached(CrashPoint.BETWEEN_COMMITS)
            done = self._end(connection, "COMMIT PREPARED {}", handle)
            outcomes[handle] = Outcome.COMMITTED if done else self._ended(connection, handle)
        return outcomes

    def existing(
        self, connection: Connection[Any], handles: Sequence[HandleName]
    ) -> set[HandleName]:
        """The handles that are prepared now."""
        by_gid = {str(handle): handle for handle in handles}
        return {by_gid[row[0]] for row in connection.execute(_LISTED, (list(by_gid),))}

    def in_doubt(self, connection: Connection[Any], job: str | None) -> list[InDoubt]:
        """The prepared handles of this job; None: of any job."""
        named = (
            (HandleName.parse(gid), age, detail) for gid, age, detail in connection.execute(_HELD)
        )
        return [
            InDoubt(handle, age, detail)
            for handle, age, detail in named
            if handle is not None and job in (None, handle.job)
        ]

    def abort(self, connection: Connection[Any], handle: HandleName) -> None:
        """ROLLBACK PREPARED; a missing gid is not an error."""
        self._end(connection, "ROLLBACK PREPARED {}", handle)

    def marking(self, committable: Committable) -> sql.Composed:
        """The statement that writes the handle's marker row."""
        return sql.SQL(_MARK).format(
            marker=self._schema.table("marker"),
            rows=committable.rows,
            digest=committable.digest,
            **asdict(committable.handle),
        )

    def forget(
        self, connection: Connection[Any], state: JobState, kept: Sequence[Position] = ()
    ) -> None:
        """Delete the markers that ``protocol.sweepable`` allows, in one statement.

        It does not wait for the disk: a marker that returns after a server crash is harmless.

        Args:
            kept: generation and epoch of further markers that stay.
        """
        open_handles = [handle for decision in state.open for handle in decision.handles]
        query = sql.SQL(_FORGET).format(
            marker=self._schema.table("marker"),
            register=state.register,
            generation=state.generation,
            kept=[generation for generation, _ in kept],
            of_kept=[epoch for _, epoch in kept],
            frontier=-1 if state.frontier is None else state.frontier,
            abandoned=list(state.abandoned),
            generations=[handle.generation for handle in open_handles],
            epochs=[handle.epoch for handle in open_handles],
            partitions=[handle.partition for handle in open_handles],
            attempts=[handle.attempt for handle in open_handles],
        )
        connection.execute(query)

    def _ended(self, connection: Connection[Any], handle: HandleName) -> Outcome:
        # No gid and no marker: rolled back, or committed, finished and forgotten. The caller
        # settles that with the register (I7).
        query = sql.SQL(_MARKED).format(marker=self._schema.table("marker"), **asdict(handle))
        try:
            marked = connection.execute(query).fetchone()
        except psycopg.errors.UndefinedTable:
            return Outcome.UNKNOWN
        return Outcome.UNKNOWN if marked is None else Outcome.COMMITTED

    def _end(
        self, connection: Connection[Any], statement: LiteralString, handle: HandleName
    ) -> bool:
        try:
            return end_prepared(connection, statement, str(handle), seconds=self._patience)
        except psycopg.errors.InsufficientPrivilege as error:
            raise _another_roles(connection, handle) from error


def composed_of(staged: Sequence[Committable], stateschema: str) -> Committable:
    """The committable of a transaction that applies all these, with its marker in the schema."""
    first = min(committable.handle for committable in staged)
    counts = noted(counts_of(staged))
    # With the counts: what was composed before rows were found dead is another transaction.
    dead = "".join(text for _, text in counts)
    names = "\n".join(
        [*sorted(f"{c.handle} {c.digest}" for c in staged), *filter(None, [dead])]
    ).encode()
    name = replace(first, attempt=blake2b(names, digest_size=12).hexdigest())
    rows = sum(committable.rows for committable in staged)
    digest = f"staged:{blake2b(names, digest_size=16).hexdigest()}"
    extra = (*proof_noted(stateschema), *counts, *noting(tables_of(staged)))
    return Committable(name, rows, digest, tuple(sorted(extra)))


def prepare(
    options: PostgresOptions,
    connection: Connection[Any],
    handle: HandleName,
    last: sql.Composable,
    otherwise: str,
) -> None:
    """Prepare the connection's transaction under the handle's name.

    Args:
        connection: in the transaction; afterwards in none, or closed.
        last: last statements of the transaction, sent in one message with its end.
        otherwise: the way without prepared transactions, for the errors.

    Raises:
        UnavailableError: the connection broke, and it is not known to be prepared.
        RefusedError, ContentionError, PreflightError: it cannot be prepared, and is rolled back.
    """
    statements = sql.SQL("{}; PREPARE TRANSACTION {}").format(last, str(handle))
    try:
        result = connection.execute(statements)
    except psycopg.Error as error:
        connection.close()
        if _may_have_happened(error):
            _look_for_it(options, handle, error)
            return
        raise _not_prepared(error, str(handle), otherwise) from error
    while result.nextset():
        pass
    if result.statusmessage != "PREPARE TRANSACTION":
        # A transaction that failed before answers ROLLBACK without an error.
        connection.close()
        raise TargetError(
            f"PREPARE TRANSACTION was answered with {result.statusmessage}.",
            handle=str(handle),
            remedy="this is a defect of the sink: please report it.",
        )


def _look_for_it(options: PostgresOptions, handle: HandleName, lost: psycopg.Error) -> None:
    """After a lost reply, check whether it is prepared; the name is this attempt's alone (I6)."""

    def look() -> bool:
        with leased(options.server, doing="looking for a prepared transaction") as connection:
            return bool(PreparedTransactions(options).existing(connection, [handle]))

    try:
        if options.patience.retry(look):
            return
    except AbsError as error:
        raise UnavailableError(
            "The server went away at PREPARE TRANSACTION, and does not answer now.",
            handle=str(handle),
            remedy="the next run sweeps the transaction, if it was prepared.",
        ) from error
    raise UnavailableError(
        "The connection broke at PREPARE TRANSACTION; the server does not have it prepared.",
        handle=str(handle),
        remedy="let the task be tried again; if the server does prepare it later, the next sweep "
        "aborts it.",
    ) from to_abs_error(lost, "preparing a transaction")


def _may_have_happened(error: psycopg.Error) -> bool:
    """Whether PREPARE may have taken effect: the connection broke, or the session was ended."""
    state = error.sqlstate
    return state is None or state[:2] in ("08", "57")


def _not_prepared(error: psycopg.Error, handle: str, otherwise: str) -> AbsError:
    hint = (error.diag.message_primary or "").rstrip(".")
    if isinstance(error, psycopg.errors.ObjectNotInPrerequisiteState):
        return PreflightError(
            "The server has no room for prepared transactions: max_prepared_transactions is 0.",
            handle=handle,
            remedy=f"{RAISE}, or {otherwise}.",
        )
    if isinstance(error, psycopg.errors.OutOfMemory) and "prepared transactions" in hint:
        return ContentionError(
            f"The server has no room for one more prepared transaction: {hint}.",
            handle=handle,
            remedy=f"end those left behind (`abs in-doubt list`); {RAISE}, or {otherwise}.",
        )
    if isinstance(error, psycopg.errors.FeatureNotSupported):
        return RefusedError(
            f"The transaction cannot be prepared: {hint}. A trigger of the table did that.",
            handle=handle,
            remedy=f"{otherwise}; or drop the trigger.",
        )
    return to_abs_error(error, "preparing a transaction")


def _another_roles(connection: Connection[Any], handle: HandleName) -> RefusedError:
    query = "select owner, current_user from pg_prepared_xacts where gid = %s"
    owner, role = connection.execute(query, (str(handle),)).fetchone() or ("another role", "")
    return RefusedError(
        f"Prepared transaction {handle} belongs to role {owner}; role {role} may not end it: only "
        "the role that prepared it, or a superuser, may.",
        handle=str(handle),
        remedy="run the whole job under one role. To end what another role left, run `abs "
        "in-doubt abort` or `commit` with a url of that role or of a superuser.",
    )


SCHEMA = "stateschema"


def proof_noted(stateschema: str | None) -> tuple[tuple[str, str], ...]:
    """The ``extra`` of a committable of ``2pc``, with the schema of its marker.

    Args:
        stateschema: None: the register is in the same schema.
    """
    # With a register elsewhere a changed option ``stateschema`` would hide the marker, the only proof
    # of a commit, and committed rows would count as lost.
    return ((PROTOCOL, "2pc"), *(((SCHEMA, stateschema),) if stateschema is not None else ()))


def check_proof_is_here(
    stateschema: str, committables: Sequence[Committable], outcomes: Mapping[HandleName, Outcome]
) -> None:
    """Refuse an unknown outcome of a handle whose marker is in another schema.

    Args:
        stateschema: the schema of the markers that were read.

    Raises:
        ConfigError: a handle is neither prepared nor marked, and records another schema.
    """
    for committable in committables:
        there = dict(committable.extra).get(SCHEMA, stateschema)
        if outcomes[committable.handle] is Outcome.UNKNOWN and there != stateschema:
            raise ConfigError(
                f"The option stateschema is {stateschema}, but the schema {there} records whether "
                "this is committed.",
                job=committable.handle.job,
                epoch=committable.handle.epoch,
                handle=str(committable.handle),
                remedy=f"set stateschema={there} until the decided epoch is finished; after that "
                "it may be changed.",
            )
