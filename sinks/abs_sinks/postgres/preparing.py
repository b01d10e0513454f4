"""PREPARE TRANSACTION: by a task for its rows, or by the commit process for an epoch's."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import Connection, sql

from abs_clients.postgres.errors import to_abs_error, translate_errors
from abs_clients.postgres.pool import leased
from abs_core.errors import (
    AbsError,
    ContentionError,
    PreflightError,
    RefusedError,
    TargetError,
    UnavailableError,
)
from abs_core.model import HandleName
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.prepared import PreparedTransactions

RAISE = (
    "raise max_prepared_transactions above the number of tasks of all jobs and restart the server"
)

OR_WAL = "set protocol=wal, which applies the rows in an ordinary transaction"
"""What a task under ``2pc`` could do without."""

OR_ALONE = (
    "write this table by a query of its own, with protocol=wal and its register in this database: "
    "rows and register are one ordinary transaction then"
)
"""What an epoch under ``wal`` could do without, where its register is elsewhere."""


def prepare(
    options: PostgresOptions,
    connection: Connection[Any],
    handle: HandleName,
    last: sql.Composable,
    otherwise: str,
) -> None:
    """Prepare the connection's transaction under the handle's name.

    Args:
        connection: inside the transaction; it is outside of one afterwards, or closed.
        last: statements that belong to the transaction, sent together with its end.
        otherwise: how to do without prepared transactions, for the errors.

    Raises:
        UnavailableError: the connection broke, and the server does not say that it is prepared.
        RefusedError, ContentionError, PreflightError: it cannot be prepared; it is rolled back.
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
        # A transaction that had failed before answers ROLLBACK, and no error.
        connection.close()
        raise TargetError(
            f"PREPARE TRANSACTION was answered with {result.statusmessage}.",
            handle=str(handle),
            remedy="this is a defect of the sink: please report it.",
        )


def _look_for_it(options: PostgresOptions, handle: HandleName, lost: psycopg.Error) -> None:
    """The reply is lost: prepared or not? The name is this attempt's alone (I6)."""

    def look() -> bool:
        with (
            leased(options.server) as connection,
            translate_errors("looking for a prepared transaction"),
        ):
            return PreparedTransactions(options).is_prepared(connection, handle)

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
        remedy="let the task be tried again; if the server prepares it yet, it is swept.",
    ) from to_abs_error(lost, "preparing a transaction")


def _may_have_happened(error: psycopg.Error) -> bool:
    """The connection broke, or the server ended the session: PREPARE may have taken effect."""
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
