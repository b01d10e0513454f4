"""Operators' state in PostgreSQL by MVCC: rows have versions, and a rollback loads nothing.

A row has the generation and the checkpoint that wrote it. A restore to checkpoint C by generation G
adds one row of history: of generations below G, only rows up to C count. So writes of a failed run
after C, or of its zombie, are never visible. Superseded rows are deleted once the checkpoint after
the superseding one is complete: the last two can be restored.

Source: Carbone et al., "State Management in Apache Flink" (VLDB 2017), 4.2, on externally managed
state with MVCC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from abs_clients.postgres.address import Server
from abs_core.errors import HandleLostError
from abs_embedded.state.contracts import StateHandle, StateOwner
from abs_embedded.state.external import Changes
from abs_embedded.stores.postgres.tables import UNNESTED, StateTables

_INSERT = (
    "insert into {schema}.keyed_mvcc select %(scope)s, c.state, c.key_group, c.key, c.sub,"
    " %(checkpoint)s, %(generation)s, c.value from " + UNNESTED
)
_HISTORY = """
insert into {schema}.keyed_mvcc_history (scope, generation, restored)
values (%(scope)s, %(generation)s, %(restored)s)
on conflict (scope, generation) do nothing
"""
_HORIZON = """
update {schema}.keyed_mvcc_history set horizon = greatest(horizon, %(before)s)
 where scope = %(scope)s and generation = %(generation)s
"""
_LIMITS = """
select generation, restored, horizon from {schema}.keyed_mvcc_history where scope = %s order by 1 desc
"""
# Whatever is older than a row of the checkpoint before counts no more, nor does that row if it deletes.
_SUPERSEDED = """
delete from {schema}.keyed_mvcc m using {schema}.keyed_mvcc n
 where m.scope = %(scope)s and n.scope = m.scope and n.version = %(before)s
   and n.generation = %(generation)s and n.key_group >= %(start)s and n.key_group < %(stop)s
   and (m.state, m.key, m.sub) = (n.state, n.key, n.sub)
   and (m.version < n.version or m.version = n.version and m.value is null)
"""
_FAILED = """
delete from {schema}.keyed_mvcc where scope = %(scope)s and version = %(version)s
   and generation = %(generation)s and key_group >= %(start)s and key_group < %(stop)s
"""


class MvccState(StateTables):
    """See ``abs_embedded.state.external.ExternalState``."""

    format = "postgres-mvcc"
    tables = """
CREATE TABLE IF NOT EXISTS {schema}.keyed_mvcc (
    scope text NOT NULL, state text NOT NULL, key_group int NOT NULL, key bytea NOT NULL,
    sub bytea NOT NULL, version bigint NOT NULL, generation bigint NOT NULL, value bytea,
    PRIMARY KEY (scope, state, key, sub, version, generation));
CREATE INDEX IF NOT EXISTS keyed_mvcc_version ON {schema}.keyed_mvcc (scope, version);
CREATE TABLE IF NOT EXISTS {schema}.keyed_mvcc_history (
    scope text NOT NULL, generation bigint NOT NULL, restored bigint NOT NULL,
    horizon bigint NOT NULL DEFAULT -1, PRIMARY KEY (scope, generation));
"""
    source = """
select distinct on (m.key, m.sub) m.key, m.sub, m.value
  from {schema}.keyed_mvcc m
  join unnest(%(generations)s::bigint[], %(limits)s::bigint[]) as l(generation, version)
    on m.generation = l.generation and m.version <= l.version
 where m.scope = %(scope)s {filter}
 order by m.key, m.sub, m.version desc
"""

    def __init__(self, server: Server, schema: str, place: StateOwner) -> None:
        super().__init__(server, schema, place)
        self._limits: dict[int, int] = {}
        self._committed = -1

    def visible(self) -> Mapping[str, Any]:
        limits = {**self._limits, self.place.generation: self._committed}
        return {"generations": list(limits), "limits": list(limits.values())}

    def restore(self, handles: Sequence[StateHandle]) -> None:
        self.raise_fence()
        restored = max((handle.checkpoint for handle in handles), default=-1)
        values = self._values(restored=restored)
        with self.writing() as connection:
            connection.execute(self.sql(_HISTORY), values)
            rows = connection.execute(self.sql(_LIMITS), (self.scope,)).fetchall()
            connection.execute("commit")
        horizon = max(row[2] for row in rows)
        if handles and restored < horizon:
            raise HandleLostError(
                f"The state of checkpoint {restored} was superseded by that of {horizon}.",
                job=self.place.job,
                epoch=restored,
                remedy="restore one of the last two completed checkpoints, or a savepoint.",
            )
        limit = restored
        for generation, went_back_to, _ in rows:  # from the newest: each bounds all before it
            if generation < self.place.generation:
                self._limits[generation] = limit
            limit = min(limit, went_back_to)
        self._committed = restored

    def persist(self, checkpoint: int, changes: Changes) -> tuple[tuple[str, str], ...]:
        values = self._values(checkpoint=checkpoint, **self.columns(changes))
        with self.writing() as connection:
            connection.execute(self.sql(_INSERT), values)
            connection.execute("commit")
        return ()

    def commit(self, checkpoint: int) -> None:
        before, self._committed = self._committed, checkpoint
        self.execute("deleting superseded state", _HORIZON, _SUPERSEDED, before=before)

    def abort(self, checkpoint: int) -> None:
        """Its rows never count: they are above what is committed, and the next ones overwrite them."""
        self.execute("deleting a failed checkpoint's state", _FAILED, version=checkpoint)


mvcc_backends = MvccState.backends
