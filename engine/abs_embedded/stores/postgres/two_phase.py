"""Operators' state in PostgreSQL by two-phase commit: entries are pre-committed on the barrier.

SQL tools can read the state: one row per entry, without versions. ``persist`` changes the rows in a
transaction and PREPAREs it; the checkpoint's completion commits it. A restore commits the
transactions that the handles name, and rolls back all others of older runs (I1, I4). Only the last
completed checkpoint can be restored. Needs max_prepared_transactions > 0.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any, LiteralString

from psycopg import Connection, sql

from abs_clients.postgres.address import Server
from abs_clients.postgres.connection import end_prepared
from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.pool import leased
from abs_core.errors import HandleLostError
from abs_embedded.state.contracts import StateHandle, StateOwner
from abs_embedded.state.external import Changes
from abs_embedded.stores.postgres.tables import UNNESTED, StateTables

_GID = re.compile(
    r"abs-state:(?P<scope>[0-9a-f]{24}):(?P<generation>\d{1,18}):\d{1,18}:[0-9a-f]{12}"
)
_PUT = (
    "insert into {schema}.keyed_2pc as t select %(scope)s, c.state, c.key_group, c.key, c.sub, c.value"
    " from " + UNNESTED + " where c.value is not null"
    " on conflict (scope, state, key, sub) do update set value = excluded.value"
)
_DELETE = (
    "delete from {schema}.keyed_2pc t using " + UNNESTED + " where c.value is null"
    " and t.scope = %(scope)s and (t.state, t.key, t.sub) = (c.state, c.key, c.sub)"
)
_EMPTY = """
delete from {schema}.keyed_2pc
 where scope = %(scope)s and key_group >= %(start)s and key_group < %(stop)s
"""
# The newest markers stay: they prove the last completed checkpoint, and that no later one is.
_UNMARK = """
delete from {schema}.keyed_2pc_marker where scope = %(scope)s and checkpoint < %(checkpoint)s
   and key_group >= %(start)s and key_group < %(stop)s
"""
_PREPARED = """
select gid from pg_prepared_xacts where database = current_database() and gid like 'abs-state:%'
"""


class TwoPhaseState(StateTables):
    """See ``abs_embedded.state.external.ExternalState``."""

    format = "postgres-2pc"
    tables = """
CREATE TABLE IF NOT EXISTS {schema}.keyed_2pc (
    scope text NOT NULL, state text NOT NULL, key_group int NOT NULL, key bytea NOT NULL,
    sub bytea NOT NULL, value bytea NOT NULL, PRIMARY KEY (scope, state, key, sub));
CREATE TABLE IF NOT EXISTS {schema}.keyed_2pc_marker (
    gid text PRIMARY KEY, scope text NOT NULL, checkpoint bigint NOT NULL, key_group int NOT NULL);
"""
    source = "select key, sub, value from {schema}.keyed_2pc where scope = %(scope)s {filter}"

    def __init__(self, server: Server, schema: str, place: StateOwner) -> None:
        super().__init__(server, schema, place)
        self._gid: str | None = None

    def restore(self, handles: Sequence[StateHandle]) -> None:
        named = {gid for handle in handles for name, gid in handle.extra if name == "gid"}
        self.raise_fence(partial(self._settle, named))
        with leased(self.server) as connection, translate_errors("looking for committed state"):
            query = self.sql(
                "select gid, checkpoint from {schema}.keyed_2pc_marker where scope = %s"
            )
            marked = dict(connection.execute(query, (self.scope,)).fetchall())
            restored = max((handle.checkpoint for handle in handles), default=-1)
            later = [gid for gid, number in marked.items() if handles and number > restored]
            for gid in sorted([*(named - set(marked)), *later]):
                raise HandleLostError(
                    f"The state of checkpoint {restored} was not committed, or a later one was.",
                    job=self.place.job,
                    handle=gid,
                    remedy="two-phase state goes back to the last completed checkpoint only; from an "
                    "older one, restore a savepoint.",
                )
        if not handles:
            self.execute("emptying state", _EMPTY, _UNMARK, checkpoint=1 << 62)

    def persist(self, checkpoint: int, changes: Changes) -> tuple[tuple[str, str], ...]:
        place = self.place
        gid = f"abs-state:{self.scope}:{place.generation}:{checkpoint}:{secrets.token_hex(6)}"
        values = {**self._values(checkpoint=checkpoint), "gid": gid, **self.columns(changes)}
        mark: LiteralString = (
            "insert into {schema}.keyed_2pc_marker values"
            " (%(gid)s, %(scope)s, %(checkpoint)s, %(start)s)"
        )
        with self.writing() as connection:
            for statement in (_DELETE, _PUT, mark):
                connection.execute(self.sql(statement), values)
            self._gid = gid  # before: where the reply is lost, it may be there and hold locks
            connection.execute(sql.SQL("PREPARE TRANSACTION {}").format(gid))
        return (("gid", gid),)

    def commit(self, checkpoint: int) -> None:
        self._end("COMMIT PREPARED {}")
        self.execute("deleting older markers", _UNMARK, checkpoint=checkpoint)

    def abort(self, checkpoint: int) -> None:
        self._end("ROLLBACK PREPARED {}")

    def _end(self, statement: LiteralString) -> None:
        if self._gid is not None:
            with leased(self.server) as connection:
                _end(connection, statement, self._gid)
            self._gid = None

    def _settle(self, named: set[str], connection: Connection[Any]) -> None:
        """End the prepared transactions of older runs by the decision, which the handles are."""
        with translate_errors("looking for prepared state"):
            gids = [row[0] for row in connection.execute(_PREPARED)]
        for gid in gids:
            name = _GID.fullmatch(gid)
            if name and name["scope"] == self.scope:
                if gid in named:
                    _end(connection, "COMMIT PREPARED {}", gid)
                elif int(name["generation"]) < self.place.generation:
                    _end(connection, "ROLLBACK PREPARED {}", gid)


two_phase_backends = TwoPhaseState.backends


def _end(connection: Connection[Any], statement: LiteralString, gid: str) -> None:
    with translate_errors("ending prepared state"):
        end_prepared(connection, statement, gid, seconds=10.0)  # gone: by another subtask's restore
