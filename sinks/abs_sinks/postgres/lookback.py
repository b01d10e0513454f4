"""Whether the database went back behind a register that lies elsewhere: by the last epoch's markers.

A marker is written in the transaction of its rows, so a restored database, or a replica that lost
commits, lacks it. Those of the last finished epoch are kept until the next one is finished; older ones
are deleted, and a database that was restored to their time has them again.

An epoch that a batch write has repaired has markers of the batch's own register. If that lies in this
database, its row stands for them: it is written in the transaction of the rows, or after it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection, sql

from abs_core.lookback import LookedBack, Past, Position, compared, reading_mark
from abs_core.model import Committable, HandleName, JobState, Shown
from abs_core.sinkmap import STRIDE, number_of
from abs_core.strictjson import fields, of, parse, text, whole
from abs_sinks.postgres.prepared import SCHEMA

_MARKERS = """
select generation, epoch, partition / {stride}, count(*) from {marker}
 where register = {register} group by 1, 2, 3
"""

_PREPARED = """
select gid from pg_prepared_xacts where database = current_database() and starts_with(gid, {gids})
"""


_MARK = "markers"
_SINKS, _ROW, _REGISTER = "sinks", "row", "register"

Counts = Mapping[tuple[int, int, int], int]
"""How many markers there are of a generation, an epoch and a sink."""

_HAS_ROW = """
select exists (select from {table} where job = {job} and state ->> 'register' = {register})
"""


@dataclass(frozen=True, slots=True)
class Markers:
    """The markers of an epoch: how many, and in which state schema.

    Args:
        sinks: numbers of the sinks whose handles they are; empty: of all, by an older release.
    """

    position: Position
    count: int
    schema: str
    sinks: tuple[int, ...]

    def to_text(self) -> str:
        values = {_MARK: [*self.position, self.count, self.schema], _SINKS: self.sinks}
        return json.dumps({**values, **self._of_batch()})

    def _of_batch(self) -> dict[str, object]:
        return {}

    def are_in(self, connection: Connection[Any], counts: Counts) -> bool:
        """Whether the database still has them.

        Args:
            counts: of the job's own markers.
        """
        # Markers of earlier epochs are deleted: a later one stands for them.
        return self.position < _top(counts) or self._are_counted(counts)

    def _are_counted(self, counts: Counts) -> bool:
        # Of its sinks alone: others of the job may have committed more of the epoch here.
        return self.count <= sum(
            number
            for (generation, epoch, sink), number in counts.items()
            if (generation, epoch) == self.position and (not self.sinks or sink in self.sinks)
        )


@dataclass(frozen=True, slots=True)
class BatchMarkers(Markers):
    """Those of a batch write with its register elsewhere, under that register's id."""

    register: str

    def _of_batch(self) -> dict[str, object]:
        return {_REGISTER: self.register}

    def are_in(self, connection: Connection[Any], counts: Counts) -> bool:
        return self._are_counted(_counts(connection, self.schema, self.register))


@dataclass(frozen=True, slots=True)
class BatchRow(Markers):
    """The row of a batch write's register, which stands for markers; it is in their schema."""

    register: str
    job: str

    def _of_batch(self) -> dict[str, object]:
        return {_ROW: [self.register, self.job]}

    def are_in(self, connection: Connection[Any], counts: Counts) -> bool:
        table = sql.Identifier(self.schema, "register")
        query = sql.SQL(_HAS_ROW).format(table=table, job=self.job, register=self.register)
        try:
            return connection.execute(query).fetchone() == (True,)
        except psycopg.errors.UndefinedTable:
            return False


def read(mark: str) -> Markers:
    """Read what ``to_text`` made.

    Raises:
        CorruptionError: the text is none of it.
    """
    with reading_mark("PostgreSQL"):
        values = fields(parse(mark))
        generation, epoch, number, schema = of(list, values[_MARK])
        sinks = tuple(map(whole, of(list, values.get(_SINKS, []))))
        position, count, place = (whole(generation), whole(epoch)), whole(number), text(schema)
        if _ROW in values:
            register, job = of(list, values[_ROW])
            return BatchRow(position, count, place, sinks, text(register), text(job))
        if _REGISTER in values:
            return BatchMarkers(position, count, place, sinks, text(values[_REGISTER]))
        return Markers(position, count, place, sinks)


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
    handles = [c.handle for c in committables if (c.handle.generation, c.handle.epoch) == last]
    sinks = tuple(sorted({*map(number_of, handles)}))
    rows = sum(committable.rows for committable in committables)
    if schema is None:
        markers: Markers = BatchRow(last, 0, stateschema, (), handle.register, handle.job)
    elif is_batch:
        markers = BatchMarkers(last, len(handles), schema, sinks, handle.register)
    else:
        markers = Markers(last, len(handles), schema, sinks)
    return [Shown(0, rows, markers.to_text())]


def kept(state: JobState) -> list[Position]:
    """Of which epochs the markers must stay: of the last one of each sink."""
    last = {result.sink: result.mark for recent in state.recent for result in recent.shown}
    marks = [read(mark) for mark in last.values() if f'"{_MARK}"' in mark]
    return [mark.position for mark in marks if not isinstance(mark, BatchRow)]


def look_back(connection: Connection[Any], schema: str, past: Past) -> list[LookedBack]:
    """Compare the markers with the noted ones; psycopg's errors pass through.

    Args:
        schema: for state, by the options.
    """
    if past.noted:
        # By the mark, not the option: a changed stateschema would look like lost rows.
        schema = read(past.noted[-1].mark).schema
    counts = _counts(connection, schema, past.register)
    why = "The markers that their transactions wrote are not there."
    looks = compared(past, lambda mark: read(mark).are_in(connection, counts), why)
    if past.running:
        return looks
    ahead = max([_top(counts), *_prepared(connection, past)])
    return [*looks, LookedBack(0, ahead=ahead)] if ahead > past.decided else looks


def _counts(connection: Connection[Any], schema: str, register: str) -> Counts:
    marker = sql.Identifier(schema, "marker")
    query = sql.SQL(_MARKERS).format(marker=marker, register=register, stride=STRIDE)
    try:
        return {(g, epoch, sink): count for g, epoch, sink, count in connection.execute(query)}
    except psycopg.errors.UndefinedTable:
        return {}


def _top(counts: Counts) -> Position:
    return max(((generation, epoch) for generation, epoch, _ in counts), default=(0, -1))


def _prepared(connection: Connection[Any], past: Past) -> list[Position]:
    """Later generations of which something is prepared: their epochs may be undecided."""
    query = sql.SQL(_PREPARED).format(gids=f"abs1:{past.register}:")
    names = (HandleName.parse(gid) for (gid,) in connection.execute(query))
    return [(name.generation, -1) for name in names if name and name.generation > past.decided[0]]
