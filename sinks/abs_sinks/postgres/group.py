"""Several sinks of one database: their rows in one transaction, and with them the register's change."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import pyarrow as pa

from abs_core.contracts import Task
from abs_core.routing import ByProtocol
from abs_sinks.postgres.committer import committer_of
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.tables import Table, Tables
from abs_sinks.postgres.twophase import GroupPreparingWriter


def transactions_of(options: PostgresOptions) -> Hashable | None:
    """Sinks for which it is equal can share transactions; None: this one shares none.

    They have the same server, database, role and protocol, as their options write them: two spellings
    of one address are taken for two servers.
    """
    if options.protocol == "idempotent":
        return None
    return options.protocol, options.server, options.stateschema


class PostgresGroup:
    """A ``SinkGroup``. Under ``2pc`` a task has one transaction, under ``wal`` the commit process has.

    Args:
        sinks: options and schema by the sink's number. They agree in ``transactions_of``.
    """

    def __init__(self, sinks: Mapping[int, tuple[PostgresOptions, pa.Schema]]) -> None:
        self._by_number = {number: Table(*sinks[number]) for number in sorted(sinks)}
        self.tables = Tables(self._by_number)

    @property
    def by_task(self) -> bool:
        return self.tables.options.protocol == "2pc"

    def writer(self, task: Task) -> GroupPreparingWriter:
        """See ``SinkGroup``; for protocol ``2pc``."""
        return GroupPreparingWriter(self._by_number, task)

    def committer(self, *, co_commit: bool) -> ByProtocol:
        """See ``SinkGroup``."""
        return committer_of(self.tables, co_commit=co_commit)
