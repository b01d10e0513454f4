"""Whether the database went back behind a register that lies elsewhere: by the last epoch's markers.

A marker is written in the transaction of its rows, so a restored database, or a replica that lost
commits, lacks it. Those of the last finished epoch are kept until the next one is finished; older ones
are deleted, and a database that was restored to their time has them again.

An epoch that a batch write has repaired has markers of the batch's own register. If that lies in this
database, its row stands for them: it is written in the transaction of the rows, or after it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import psycopg
from psycopg import Connection, sql

from abs_core.lookback import LookedBack, Past, Position, compared, reading_mark
from abs_core.model import Committable, HandleName, JobState, Shown
from abs_core.strictjson import fields, of, parse, text, whole
from abs_sinks.postgres.prepared import SCHEMA

_MARKERS = """
select generation, epoch, count(*) from {marker} where register = {register} group by 1, 2
"""

_PREPARED = """
select gid from pg_prepared_xacts where database = current_database() and starts_with(gid, {gids})
"""


_MARK = "markers"


_ROW, _REGISTER = "row", "register"

_HAS_ROW = """
select exists (select from {table} where job = {job} and state ->> 'register' = {register})
"""


@dataclass(frozen=True, slots=True)
class Markers:
    """The markers of an epoch: how many, and in which state schema.

    Args:
        row: of a batch write instead: the id of its register, which is in that schema, and its job.
        register: of a batch write with its register elsewhere: whose markers they are.
    """

    position: Position
    count: int
    schema: str
    row: tuple[str, str] | None = None
    register: str | None = None

    def to_text(self) -> str:
        batch = {_ROW: self.row, _REGISTER: self.register}
        of_batch = {key: value for key, value in batch.items() if value is not None}
        return json.dumps({_MARK: [*self.position, self.count, self.schema], **of_batch})

    @classmethod
    def read(cls, mark: str) -> Self:
        """Raises CorruptionError: the text is none of ``to_text``."""
        with reading_mark("PostgreSQL"):
            values = fields(parse(mark))
            generation, epoch, count, schema = of(list, values[_MARK])
            position = whole(generation), whole(epoch)
            row = None
            of_batch = text(values[_REGISTER]) if _REGISTER in values else None
            if _ROW in values:
                register, job = of(list, values[_ROW])
                row = text(register), text(job)
            return cls(position, whole(count), text(schema), row, of_batch)


def shown(committables: Sequence[Committable], stateschema: str) -> list[Shown]:
    """The markers of these handles; nothing where the register goes back with the database.

    But of a batch write (a token) its register: it may repair an epoch of a job with another register.
    """
    handle = committables[0].handle
    schema, is_batch = dict(committables[0].extra).get(SCHEMA), "@" in handle.job
    if schema is None and not is_batch:
        return []
    # A decision may name handles of earlier epochs, too.
    last = max((c.handle.generation, c.handle.epoch) for c in committables)
    count = sum((c.handle.generation, c.handle.epoch) == last for c in committables)
    rows = sum(committable.rows for committable in committables)
    made = (
        Markers(last, 0, stateschema, (handle.register, handle.job))
        if schema is None
        else Markers(last, count, schema, register=handle.register if is_batch else None)
    )
    return [Shown(0, rows, made.to_text())]


def kept(state: JobState) -> list[Position]:
    """Of which epochs the markers must stay: of the last one of each sink."""
    last = {result.sink: result.mark for recent in state.recent for result in recent.shown}
    marks = [Markers.read(mark) for mark in last.values() if f'"{_MARK}"' in mark]
    return [mark.position for mark in marks if mark.row is None]


def look_back(connection: Connection[Any], schema: str, past: Past) -> list[LookedBack]:
    """Compare the markers with the noted ones; psycopg's errors pass through.

    Args:
        schema: for state, by the options.
    """
    if past.noted:
        # By the mark, not the option: a changed stateschema would look like lost rows.
        schema = Markers.read(past.noted[-1].mark).schema
    counts = _counts(connection, schema, past.register)
    top = max(counts, default=(0, -1))

    def is_there(mark: str) -> bool:
        noted = Markers.read(mark)
        if noted.row is not None:
            return _has_row(connection, noted.schema, noted.row)
        if noted.register is not None:
            of_batch = _counts(connection, noted.schema, noted.register)
            return noted.count <= of_batch.get(noted.position, 0)
        # Markers of earlier epochs are deleted: a later one stands for them.
        return noted.position < top or noted.count <= counts.get(noted.position, 0)

    why = "The markers that their transactions wrote are not there."
    looks = compared(past, is_there, why)
    if past.running:
        return looks
    ahead = max([top, *_prepared(connection, past)])
    return [*looks, LookedBack(0, ahead=ahead)] if ahead > past.decided else looks


def _counts(connection: Connection[Any], schema: str, register: str) -> dict[Position, int]:
    query = sql.SQL(_MARKERS).format(marker=sql.Identifier(schema, "marker"), register=register)
    try:
        return {(generation, epoch): n for generation, epoch, n in connection.execute(query)}
    except psycopg.errors.UndefinedTable:
        return {}


def _has_row(connection: Connection[Any], schema: str, row: tuple[str, str]) -> bool:
    register, job = row
    table = sql.Identifier(schema, "register")
    query = sql.SQL(_HAS_ROW).format(table=table, job=job, register=register)
    try:
        return connection.execute(query).fetchone() == (True,)
    except psycopg.errors.UndefinedTable:
        return False


def _prepared(connection: Connection[Any], past: Past) -> list[Position]:
    """Later generations of which something is prepared: their epochs may be undecided."""
    query = sql.SQL(_PREPARED).format(gids=f"abs1:{past.register}:")
    names = (HandleName.parse(gid) for (gid,) in connection.execute(query))
    return [(name.generation, -1) for name in names if name and name.generation > past.decided[0]]
