"""Finds the rows that only the server can refuse, by halving under savepoints.

Good rows cost one statement. The number of bad ones is bounded, so a target that refuses everything
does not take a subtransaction for each row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import Connection, sql

from abs_clients.arrow import is_list
from abs_clients.postgres.errors import by_data, to_abs_error
from abs_core.deadletters import MIN_DEAD
from abs_core.errors import AbsError, DeadLettersError
from abs_core.model import MAX_RECENT
from abs_sinks.deadletters.letter import Shown
from abs_sinks.deadletters.row import OWN, PLAIN
from abs_sinks.postgres.apply.target import Part
from abs_sinks.postgres.columns.plan import CopyPlan
from abs_sinks.postgres.columns.types import PgType, becomes_json
from abs_sinks.postgres.letter_table import staged_name
from abs_sinks.postgres.options import PostgresOptions

_OF_COPY = re.compile(r" \(row \d+ of the task's share(?:, column (?P<column>[^)]+))?\)")

Attempt = Callable[[int, int], object]
"""Writes the rows from the first number up to before the second; raises the driver's error."""


def refused_rows(
    connection: Connection[Any],
    rows: int,
    attempt: Attempt,
    options: PostgresOptions,
    label: str,
    share_of: int | None = None,
) -> dict[int, psycopg.Error]:
    """The rows that the server refuses, by number, in a transaction that then holds the others.

    Args:
        share_of: rows of which ``deadlettermax`` is a share, for the bound; default: ``rows``.

    Raises:
        DeadLettersError: more than the limit can ever allow.
        psycopg.Error: an error that is not of the rows' data.
    """
    most = most_dead(options, share_of or rows)
    errors: dict[int, psycopg.Error] = {}
    waiting = [(0, rows)]
    while waiting:
        first, end = waiting.pop()
        if first >= end:
            continue
        connection.execute("savepoint abs_rows")
        try:
            attempt(first, end)
        except psycopg.Error as error:
            if connection.closed or not by_data(error):
                raise
            connection.execute("rollback to savepoint abs_rows; release savepoint abs_rows")
            if end - first > 1:
                half = (first + end) // 2
                # The last one is taken next, so rows are written in their order.
                waiting += [(half, end), (first, half)]
                continue
            errors[first] = error
            if len(errors) > most:
                raise too_many(options, label, most, reason_of(error)[1]) from error
        else:
            connection.execute("release savepoint abs_rows")
    return errors


def most_dead(options: PostgresOptions, rows: int) -> int:
    """A bound of the work: the exact limit is taken over several epochs, before the decision."""
    return max(MIN_DEAD, ceil(options.deadlettermax * rows * MAX_RECENT))


def too_many(options: PostgresOptions, label: str, most: int, last: str) -> DeadLettersError:
    """The error beyond ``most_dead``; ``last``: the last reason."""
    return DeadLettersError(
        f"The server refuses more than {most} rows for table {label}; the last one: {last}. Nothing "
        "of the epoch is written.",
        remedy="correct the input or the table; or raise deadlettermax "
        f"({options.deadlettermax:.4%}) if so many are expected.",
    )


def reason_of(error: psycopg.Error) -> tuple[str, str, str | None]:
    """Code, message and column of a dead letter; the message shows no value."""
    detail = (error.diag.message_detail or "").rstrip(".: ")
    message = to_abs_error(error, "writing the row").what
    if detail:  # the key that is there already, or missing elsewhere, as values
        message = message.replace(f" ({detail})", "")
    copied = _OF_COPY.search(message)
    column = error.diag.column_name or (copied and copied["column"]) or None
    return error.sqlstate or "", _OF_COPY.sub("", message), column


def server_row(plan: CopyPlan, columns: list[str]) -> sql.Composed:
    """The expression for a row of a staging table ``s`` as JSON, as ``deadletters.row`` reads it.

    Args:
        columns: of the input.
    """
    chosen = [
        sql.SQL("{} as {}").format(
            _expression(planned.conversion.plain, planned.column.type, name),
            sql.Identifier(planned.source),
        )
        for planned in plan.columns
        if planned.source in columns
        for name in (sql.Identifier("s", planned.column.name),)
    ]
    if not chosen:
        return sql.SQL("'{{}}'::json").format()
    return sql.SQL("(select row_to_json(r) from (select {}) r)").format(sql.SQL(", ").join(chosen))


def _expression(plain: pa.DataType, pg: PgType, name: sql.Identifier) -> sql.Composable:
    if becomes_json(plain, pg):
        return sql.SQL(_OBJECT).format(name, f"%{OWN}%", sql.Literal(PLAIN))
    if pa.types.is_duration(plain) or plain.equals(pa.month_day_nano_interval()):
        return sql.SQL(_PARTS).format(name)
    leaf = plain
    while is_list(leaf):
        leaf = leaf.value_type
    if pa.types.is_string(leaf):
        return sql.SQL("{}::text" if leaf == plain else "{}::text[]").format(name)
    if pg.name == "uuid":
        return sql.SQL("uuid_send({})").format(name)
    return name


_OBJECT = """
case when {0}::text like {1} and left({0}::text, 1) = '{{' then json_build_object({2}, {0}::json)
     else {0}::json end
"""

_PARTS = """
case when {0} is not null then json_build_array(
    (extract(year from {0}) * 12 + extract(month from {0}))::int, extract(day from {0})::int,
    (extract(hour from {0}) * 3600000000 + extract(minute from {0}) * 60000000
     + extract(microseconds from {0}))::bigint) end
"""


class StagedRowsRefused(Exception):  # noqa: N818 - no error: dead rows are marked, then tried again
    """The server refused staged rows by their data; the transaction is rolled back."""

    @property
    def why(self) -> str:
        """What it said, without a value."""
        cause = self.__cause__
        if isinstance(cause, psycopg.Error):
            cause = to_abs_error(cause, "applying staged rows")
        return cause.what if isinstance(cause, AbsError) else ""


@contextmanager
def refusing(connection: Connection[Any], *parts: Part) -> Iterator[bool]:
    """Raise ``StagedRowsRefused`` for rows that the server refuses, if a table keeps dead letters.

    Yields whether one does.
    """
    keeps = any(part.table.options.letters for part in parts)
    try:
        yield keeps
    except psycopg.Error as error:
        if not keeps or connection.closed or not by_data(error):
            raise
        connection.execute("ROLLBACK")
        raise StagedRowsRefused from error


@dataclass(frozen=True, slots=True)
class RefusedRows:
    """Refused rows of one relation with ``STAGED``."""

    plan: CopyPlan
    shown: Shown
    rows: list[tuple[int, str, str, str, str | None]]
    """Table, ctid, code, message, column."""


def mark(connection: Connection[Any], table: sql.Identifier, refused: RefusedRows) -> int:
    """Make these rows of a staging table dead letters; how many there were."""
    if not refused.rows:
        return 0
    schema = refused.plan.schema
    tables, ctids, codes, messages, places = map(list, zip(*refused.rows, strict=True))
    said = {name: sql.SQL(f'v."{name}"') for name in ("code", "message", "column")}
    columns_of = {
        "key": refused.shown.keys(schema),
        "position": refused.shown.position(schema),
        "row": refused.shown.columns(schema),
    }
    objects = {
        name: server_row(refused.plan, columns) if columns else sql.NULL
        for name, columns in columns_of.items()
    }
    query = sql.SQL(_MARK).format(
        table=table,
        assignments=sql.SQL(", ").join(
            sql.SQL("{} = {}").format(sql.Identifier(staged_name(name)), value)
            for name, value in {**said, **objects}.items()
        ),
        tables=tables,
        ctids=ctids,
        codes=codes,
        messages=messages,
        places=places,
    )
    return connection.execute(query).rowcount


_MARK = """
update only {table} s set {assignments}
  from unnest({tables}::oid[], {ctids}::text[], {codes}::text[], {messages}::text[],
              {places}::text[]) as v(tab, at, code, message, "column")
 where s.tableoid = v.tab and s.ctid = v.at::tid
"""
