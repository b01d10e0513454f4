"""Tables, fence and reads that the three PostgreSQL state stores share.

Rows belong to a *scope*, a digest of job and operator, not to a subtask: a rescale moves nothing. A
scope's fence row holds the active generation; a writing transaction holds it ``FOR SHARE`` and
checks it, so once a run has raised it, no older run's write can count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, LiteralString

from psycopg import Connection, sql

from abs_clients.postgres.address import Server
from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.metadata import MetadataSchema, in_turn
from abs_clients.postgres.pool import leased
from abs_core.errors import ContentionError, FencedError, IdentityError
from abs_embedded.state.contracts import NewBackend, StateOwner
from abs_embedded.state.external import Changes, Entry, ExternalBackend, ExternalState
from abs_embedded.state.keygroups import GroupRange, groups_of

_FENCE = """
CREATE TABLE IF NOT EXISTS {schema}.keyed_fence (
    scope text PRIMARY KEY, job text NOT NULL, operator text NOT NULL, generation bigint NOT NULL);
CREATE TABLE IF NOT EXISTS {schema}.keyed_owner (scope text PRIMARY KEY, register text NOT NULL);
"""
_RAISE_TRIES = 5

_ENTRIES = (
    "and state = %(state)s and (key, sub) in"
    " (select * from unnest(%(keys)s::bytea[], %(subs)s::bytea[]))"
)
_ONE_KEY = "and state = %(state)s and key = %(key)s"
_GROUPS = "and state = %(state)s and key_group >= %(start)s and key_group < %(stop)s"


class StateTables(ExternalState):
    """The rows of one scope; subclasses distinguish committed from pending ones.

    Args:
        place: whose state it is.
    """

    tables: LiteralString
    """DDL of what this way needs, with ``IF NOT EXISTS``; ``{schema}`` is the schema."""

    source: LiteralString
    """Selects key, sub, value of committed rows; ``{{filter}}`` narrows them."""

    def __init__(self, server: Server, schema: str, place: StateOwner) -> None:
        self.server = server
        self.place = place
        self.scope = hashlib.sha256(f"{place.job}\0{place.operator}".encode()).hexdigest()[:24]
        self._schema = MetadataSchema(server, schema)

    @classmethod
    def backends(cls, server: Server, schema: str = "abs") -> NewBackend:
        """Builds backends in this database; the tables' schema is created if missing."""
        return lambda store, place: ExternalBackend(store, place, partial(cls, server, schema))

    def visible(self) -> Mapping[str, Any]:
        """Further parameters of ``source``."""
        return {}

    # Reads

    def get(self, state: str, entries: Sequence[Entry]) -> Mapping[Entry, bytes]:
        keys, subs = [key for key, _ in entries], [sub for _, sub in entries]
        return dict(self._select(_ENTRIES, state=state, keys=keys, subs=subs))

    def items(self, state: str, key: bytes) -> Mapping[Entry, bytes]:
        return dict(self._select(_ONE_KEY, state=state, key=key))

    def scan(self, groups: GroupRange, state: str) -> Sequence[tuple[Entry, bytes]]:
        return self._select(_GROUPS, state=state, start=groups.start, stop=groups.stop)

    def close(self) -> None:
        """Connections belong to the process and stay open."""

    def _values(self, **others: object) -> dict[str, object]:
        return {
            "scope": self.scope,
            "generation": self.place.generation,
            "start": self.place.groups.start,
            "stop": self.place.groups.stop,
            **others,
        }

    def _select(self, narrow: LiteralString, **values: object) -> list[tuple[Entry, bytes]]:
        query = self.sql(
            "select key, sub, value from (" + self.source + ") s where value is not null",
            filter=sql.SQL(narrow),
        )
        parameters = {"scope": self.scope, **self.visible(), **values}
        with leased(self.server) as connection, translate_errors("reading operators' state"):
            rows = connection.execute(query, parameters, binary=True).fetchall()
        return [((bytes(key), bytes(sub)), bytes(value)) for key, sub, value in rows]

    # Writes

    @contextmanager
    def writing(self) -> Iterator[Connection[Any]]:
        """A transaction of the active generation; raises FencedError if a higher one is active."""
        with leased(self.server) as connection, translate_errors("writing operators' state"):
            connection.execute("begin")
            fence = self.sql(
                "select generation from {schema}.keyed_fence where scope = %s for share"
            )
            row = connection.execute(fence, (self.scope,)).fetchone()
            self._check(None if row is None else row[0])
            yield connection

    def execute(self, doing: str, *statements: LiteralString, **values: object) -> None:
        """Execute statements outside of ``writing``, each by itself."""
        with leased(self.server) as connection, translate_errors(doing):
            for statement in statements:
                connection.execute(self.sql(statement), self._values(**values))

    def raise_fence(self, clear: Any = None) -> None:
        """Make this generation the active one; on return no lower one's transaction is open.

        Args:
            clear: called before each try; ends prepared transactions, which hold the fence.

        Raises:
            IdentityError: the state belongs to a job with another register.
            FencedError: a higher generation is active.
            ContentionError: a transaction holds the fence for too long.
        """
        lift = self.sql(
            "insert into {schema}.keyed_fence as f values (%(scope)s, %(job)s, %(operator)s, %(g)s)"
            " on conflict (scope) do update set generation = %(g)s where f.generation < %(g)s"
        )
        look = self.sql("select generation from {schema}.keyed_fence where scope = %s")
        place = self.place
        values = {"scope": self.scope, "job": place.job, "operator": place.operator}
        with leased(self.server) as connection:
            self._schema.ensure(connection)
            with translate_errors("creating the tables of operators' state"):
                in_turn(connection, lambda: connection.execute(self.sql(_FENCE + self.tables)))
            self._check_owner(connection)
            for last in [*[False] * (_RAISE_TRIES - 1), True]:
                if clear is not None:
                    clear(connection)
                try:
                    with translate_errors("fencing older runs"):
                        # Not where it is raised already: this run's own writers hold it.
                        row = connection.execute(look, (self.scope,)).fetchone()
                        if row is None or row[0] < place.generation:
                            connection.execute(lift, {**values, "g": place.generation})
                            row = connection.execute(look, (self.scope,)).fetchone()
                    break
                except ContentionError:
                    if last:
                        raise
        self._check(None if row is None else row[0])

    def _check_owner(self, connection: Connection[Any]) -> None:
        """Check the owner: a register counts generations, so another register's cannot be compared.

        Earlier releases noted none: then the first register becomes the owner.
        """
        if not self.place.register:
            return
        own = self.sql("insert into {schema}.keyed_owner values (%s, %s) on conflict do nothing")
        look = self.sql("select register from {schema}.keyed_owner where scope = %s")
        with translate_errors("looking whose state it is"):
            connection.execute(own, (self.scope, self.place.register))
            row = connection.execute(look, (self.scope,)).fetchone()
        if row is not None and row[0] != self.place.register:
            raise IdentityError(
                f"The state of operator {self.place.operator} in schema {self._schema.name} is of a "
                f"job with another register ({row[0]}; this job's is {self.place.register}).",
                job=self.place.job,
                remedy="give the backend another schema, or the graph another name; where that job is "
                "gone for good, drop that schema's tables keyed_*.",
            )

    def columns(self, changes: Changes) -> dict[str, list[Any]]:
        """The changes as parallel lists, for ``unnest``.

        Raises ConfigError if some are of another subtask's key groups.
        """
        states = [name for name, entries in changes.items() for _ in entries]
        pairs = [entry for entries in changes.values() for entry in entries]
        keys = [key for key, _ in pairs]
        groups = groups_of(keys, self.place.max_parallelism)
        self.place.groups.check(groups)
        return {
            "states": states,
            "groups": groups.tolist(),
            "keys": keys,
            "subs": [sub for _, sub in pairs],
            "values": [value for entries in changes.values() for value in entries.values()],
        }

    def sql(self, text: LiteralString, **parts: sql.Composable) -> sql.Composed:
        """A statement in the state schema."""
        # The filter is put in first: its %(names)s are for the server's driver.
        return sql.SQL(text).format(schema=sql.Identifier(self._schema.name), **parts)

    def _check(self, generation: int | None) -> None:
        if generation != self.place.generation:
            raise FencedError(
                f"Generation {self.place.generation} of operator {self.place.operator} is no "
                f"longer the active one: {generation} is.",
                job=self.place.job,
                remedy="a newer run has taken over: stop this one.",
            )


UNNESTED: LiteralString = (
    "unnest(%(states)s::text[], %(groups)s::int[], %(keys)s::bytea[], %(subs)s::bytea[],"
    " %(values)s::bytea[]) as c(state, key_group, key, sub, value)"
)
"""The lists of ``columns`` as a table."""
