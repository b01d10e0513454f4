"""Operators' state in PostgreSQL by Trident's opaque form: previous and present value.

A row has the checkpoint that wrote its value, and the value before that checkpoint. Until the
checkpoint is complete the previous value counts, and it stays when the row is written again under
any number and content. So every write can be repeated (idempotent). It needs no prepared
transactions, takes twice the space, and goes back by one checkpoint.

Source: Apache Storm, "Trident state", opaque transactional spouts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from abs_clients.postgres.address import Server
from abs_core.errors import HandleLostError
from abs_embedded.state.contracts import StateHandle, StateOwner
from abs_embedded.state.external import Changes
from abs_embedded.stores.postgres.tables import UNNESTED, StateTables

_PUT = (
    "insert into {schema}.keyed_opaque as t"
    " select %(scope)s, c.state, c.key_group, c.key, c.sub, %(checkpoint)s, c.value, null from "
    + UNNESTED
    + " on conflict (scope, state, key, sub) do update set"
    " before = case when t.checkpoint <= %(committed)s then t.value else t.before end,"
    " value = excluded.value, checkpoint = excluded.checkpoint"
)
_GO_BACK = """
update {schema}.keyed_opaque set value = before, checkpoint = %(committed)s
 where scope = %(scope)s and checkpoint > %(committed)s
   and key_group >= %(start)s and key_group < %(stop)s
"""
_EMPTY = """
delete from {schema}.keyed_opaque
 where scope = %(scope)s and key_group >= %(start)s and key_group < %(stop)s
"""
_ANEW = "update {schema}.keyed_opaque_progress set committed = -1 where scope = %(scope)s"
_PROGRESS = """
insert into {schema}.keyed_opaque_progress as p values (%(scope)s, %(committed)s)
on conflict (scope) do update set committed = greatest(p.committed, excluded.committed)
returning committed
"""


class OpaqueState(StateTables):
    """See ``abs_embedded.state.external.ExternalState``."""

    format = "postgres-opaque"
    tables = """
CREATE TABLE IF NOT EXISTS {schema}.keyed_opaque (
    scope text NOT NULL, state text NOT NULL, key_group int NOT NULL, key bytea NOT NULL,
    sub bytea NOT NULL, checkpoint bigint NOT NULL, value bytea, before bytea,
    PRIMARY KEY (scope, state, key, sub));
CREATE INDEX IF NOT EXISTS keyed_opaque_checkpoint ON {schema}.keyed_opaque (scope, checkpoint);
CREATE TABLE IF NOT EXISTS {schema}.keyed_opaque_progress (
    scope text PRIMARY KEY, committed bigint NOT NULL);
"""
    source = """
select key, sub, case when checkpoint <= %(committed)s then value else before end as value
  from {schema}.keyed_opaque where scope = %(scope)s {filter}
"""

    def __init__(self, server: Server, schema: str, place: StateOwner) -> None:
        super().__init__(server, schema, place)
        self._committed = -1

    def visible(self) -> Mapping[str, Any]:
        return {"committed": self._committed}

    def restore(self, handles: Sequence[StateHandle]) -> None:
        self.raise_fence()
        self._committed = max((handle.checkpoint for handle in handles), default=-1)
        with self.writing() as connection:
            # A checkpoint that later ones were written over has no values before any more.
            row = connection.execute(self.sql(_PROGRESS), self._values()).fetchone()
            if handles and row is not None and row[0] > self._committed:
                raise HandleLostError(
                    f"Checkpoint {row[0]} was completed after {self._committed}: opaque state can't "
                    "go back behind it.",
                    job=self.place.job,
                    epoch=self._committed,
                    remedy="restore the last completed checkpoint, or a savepoint.",
                )
            go = (_GO_BACK,) if handles else (_EMPTY, _ANEW)
            for statement in go:
                connection.execute(self.sql(statement), self._values())
            connection.execute("commit")

    def persist(self, checkpoint: int, changes: Changes) -> tuple[tuple[str, str], ...]:
        values = self._values(checkpoint=checkpoint, **self.columns(changes))
        with self.writing() as connection:
            connection.execute(self.sql(_PROGRESS), values)
            connection.execute(self.sql(_PUT), values)
            connection.execute("commit")
        return ()

    def commit(self, checkpoint: int) -> None:
        self._committed = checkpoint

    def abort(self, checkpoint: int) -> None:
        """Its values never count: the previous ones do, until they are overwritten."""

    def _values(self, **others: object) -> dict[str, object]:
        return super()._values(committed=self._committed, **others)


opaque_backends = OpaqueState.backends
