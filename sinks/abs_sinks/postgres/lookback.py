"""Whether a database went back behind a register that lies elsewhere, or a table was made again.

A marker is written in the transaction of its rows, so a restored database, or a replica that lost
commits, lacks it. Those of the last finished epoch are kept until the next one is finished; older ones
are deleted, and a database that was restored to their time has them again.

A table may be dropped, or renamed, and made again by its name, also where the register is in the same
database: marks tell the tables' oids, too.

An epoch that a batch write has repaired has markers of the batch's own register. If that lies in this
database, its row stands for them: it is written in the transaction of the rows, or after it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
from psycopg import Connection, sql

from abs_clients.postgres.pool import leased
from abs_core.lookback import LookedBack, Past, Position, compared, reading_mark
from abs_core.model import MAX_MARK, Committable, HandleName, JobState, Shown
from abs_core.sinkmap import STRIDE, number_of
from abs_core.strictjson import fields, of, parse, text, whole
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.prepared import SCHEMA
from abs_sinks.postgres.relations import Present, Table, present, tables_of

_MARKERS = """
select generation, epoch, partition / {stride}, count(*) from {marker}
 where register = {register} group by 1, 2, 3
"""

_PREPARED = """
select gid from pg_prepared_xacts where database = current_database() and starts_with(gid, {gids})
"""


_MARK = "markers"
_SINKS, _ROW, _REGISTER = "sinks", "row", "register"
_TABLES, _HOME = "tables", "home"

Counts = Mapping[tuple[int, int, int], int]
"""How many markers there are of a generation, an epoch and a sink."""

_NO_MARKERS = "The markers that their transactions wrote are not there."
_MADE_AGAIN = "By the name {} there is another table now, or none: it was dropped, or renamed."
_HAS_COPIES = (
    "If the new one has these rows, as a copy: set the option adopt (below), and repair nothing, or "
    "they would be there twice."
)

_HAS_ROW = """
select exists (select from {table} where job = {job} and state ->> 'register' = {register})
"""


@dataclass(frozen=True, slots=True)
class Markers:
    """The markers of an epoch: how many, in which state schema, and of rows of which tables.

    Args:
        count: 0: the register is in the database, and goes back with it.
        sinks: numbers of the sinks whose handles they are; empty: of all, by an older release.
        tables: none: they are not known.
        home: oid of the state schema.
    """

    position: Position
    count: int
    schema: str
    sinks: tuple[int, ...]
    tables: tuple[Table, ...] = field(default=(), kw_only=True)
    home: int = field(default=0, kw_only=True)

    def to_text(self) -> str:
        values = {_MARK: [*self.position, self.count, self.schema], _SINKS: self.sinks}
        of_tables = {_TABLES: self.tables, _HOME: self.home} if self.tables else {}
        mark = json.dumps({**values, **self._of_batch(), **of_tables})
        return mark if len(mark) <= MAX_MARK else replace(self, tables=()).to_text()

    def remade(self, now: Present) -> list[str]:
        """The names of its tables that mean other ones now."""
        return now.others(self.tables) if self.home == now.home else []

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
        return self.count <= self.number_in(counts)

    def number_in(self, counts: Counts) -> int:
        """How many of them are there."""
        # Of its sinks alone: others of the job may have committed more of the epoch here.
        return sum(
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
            markers: Markers = BatchRow(position, count, place, sinks, text(register), text(job))
        elif _REGISTER in values:
            markers = BatchMarkers(position, count, place, sinks, text(values[_REGISTER]))
        else:
            markers = Markers(position, count, place, sinks)
        pairs = [of(list, pair) for pair in of(list, values.get(_TABLES, []))]
        tables = tuple((text(name), whole(oid)) for name, oid in pairs)
        return replace(markers, tables=tables, home=whole(values.get(_HOME, 0)))


def shown(committables: Sequence[Committable], options: PostgresOptions) -> list[Shown]:
    """The markers and the tables of these handles; no markers where the register is beside them.

    But of a batch write (a token) its register: it may repair an epoch of a job with another register.
    """
    handle = committables[0].handle
    schema, is_batch = dict(committables[0].extra).get(SCHEMA), "@" in handle.job
    tables = tables_of(committables)
    if schema is None and not is_batch and not tables:
        return []
    # A decision may name handles of earlier epochs, too.
    last = max((c.handle.generation, c.handle.epoch) for c in committables)
    handles = [c.handle for c in committables if (c.handle.generation, c.handle.epoch) == last]
    sinks = tuple(sorted({*map(number_of, handles)}))
    rows = sum(committable.rows for committable in committables)
    if schema is None and is_batch:
        markers: Markers = BatchRow(last, 0, options.stateschema, (), handle.register, handle.job)
    elif schema is None:
        markers = Markers(last, 0, options.stateschema, sinks)
    elif is_batch:
        markers = BatchMarkers(last, len(handles), schema, sinks, handle.register)
    else:
        markers = Markers(last, len(handles), schema, sinks)
    if tables:
        with leased(options.server, doing="looking at the state schema") as connection:
            home = present(connection, markers.schema).home
        markers = replace(markers, tables=tables, home=home)
    return [Shown(0, rows, markers.to_text())]


def kept(state: JobState) -> list[Position]:
    """Of which epochs the markers must stay: of the last one of each sink."""
    last = {result.sink: result.mark for recent in state.recent for result in recent.shown}
    marks = [read(mark) for mark in last.values() if f'"{_MARK}"' in mark]
    return [mark.position for mark in marks if mark.count]


def look_back(connection: Connection[Any], schema: str, past: Past) -> list[LookedBack]:
    """Compare markers and tables with the noted ones; psycopg's errors pass through.

    Args:
        schema: for state, by the options.
    """
    marks = {note.mark: read(note.mark) for note in past.noted}
    if past.noted:
        # By the mark, not the option: a changed stateschema would look like lost rows.
        schema = marks[past.noted[-1].mark].schema
    own = tables_of(past.own or ())
    names = {
        name for tables in (own, *(mark.tables for mark in marks.values())) for name, _ in tables
    }
    now = present(connection, schema, sorted(names)) if names else Present(0)
    counts: Counts = {}
    if not past.running or any(mark.count for mark in marks.values()):
        counts = _counts(connection, schema, past.register)

    def is_there(mark: str) -> bool:
        return not marks[mark].remade(now) and marks[mark].are_in(connection, counts)

    def has_part(mark: str) -> bool:
        remade = marks[mark].remade(now)
        return (
            len(remade) < len(marks[mark].tables) if remade else marks[mark].number_in(counts) > 0
        )

    why = _NO_MARKERS
    if remade := sorted({name for mark in marks.values() for name in mark.remade(now)}):
        why = f"{_MADE_AGAIN.format(', '.join(remade))} {_HAS_COPIES}"
    looks = compared(past, is_there, why, has_part=has_part)
    if others := now.others(own):
        assert past.own
        sink, why = number_of(past.own[0].handle), _MADE_AGAIN.format(", ".join(others))
        looks.append(LookedBack(sink, unprepared=why))
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
