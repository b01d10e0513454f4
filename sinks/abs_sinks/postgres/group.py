"""Several sinks of one database: their rows in one transaction, and with them the register's change."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import pyarrow as pa

from abs_core.contracts import Committer, Task
from abs_core.routing import ByProtocol, by_protocol
from abs_sinks.postgres.idempotent import IdempotentCoCommitter, IdempotentCommitter
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.tables import Table, Tables
from abs_sinks.postgres.twophase import GroupTwoPhaseWriter, TwoPhaseCommitter
from abs_sinks.postgres.wal import WalCoCommitter, WalCommitter, WalComposer

_PLACE = ("service", "host", "hostaddr", "port", "dbname", "user", "options")
"""Of libpq's parameters those that say which session it is."""

_DEFAULTS = {"port": "5432"}


def transactions_of(options: PostgresOptions) -> Hashable | None:
    """Sinks for which it is equal can share transactions; None: this one shares none.

    They have the same server, database, role, protocol and state schema, as their options write them:
    two names of one server are taken for two servers. The first one's timeouts and password are used.
    """
    if options.protocol == "idempotent":
        return None
    given = {**_DEFAULTS, **dict(options.address.parameters)}
    place = tuple(sorted((name, given[name]) for name in _PLACE if name in given))
    return options.protocol, place, options.stateschema


def committer_of(tables: Tables, *, co_commit: bool = False) -> ByProtocol:
    """A committer for the handles of every protocol.

    Args:
        tables: of all sinks that it is for.
        co_commit: whether the register lies in this database, and the protocol has it decided in one
            transaction with the rows: then it is a ``CoCommitter`` for ``wal`` and ``idempotent``.
            Where it does not, it is a ``Composer`` for ``wal``.
    """
    options = tables.options
    committers: dict[str, Committer] = {
        "2pc": TwoPhaseCommitter(options),
        "wal": WalCommitter(tables),
        "idempotent": IdempotentCommitter(),
    }
    if options.protocol == "wal":
        committers["wal"] = WalCoCommitter(tables) if co_commit else WalComposer(tables)
    if co_commit and options.protocol == "idempotent":
        committers["idempotent"] = IdempotentCoCommitter(tables)
    return by_protocol(options.protocol, committers)


class PostgresGroup:
    """A ``SinkGroup``. Under ``2pc`` a task has one transaction, under ``wal`` the commit process has.

    Args:
        sinks: options and schema by the sink's number, in the order in which their tables are filled.
            They agree in ``transactions_of``.
    """

    def __init__(self, sinks: Mapping[int, tuple[PostgresOptions, pa.Schema]]) -> None:
        self._by_number = {number: Table(*sinks[number]) for number in sinks}
        self.tables = Tables(self._by_number)

    @property
    def by_task(self) -> bool:
        return self.tables.options.protocol == "2pc"

    def writer(self, task: Task) -> GroupTwoPhaseWriter:
        """See ``SinkGroup``; for protocol ``2pc``."""
        return GroupTwoPhaseWriter(self._by_number, task)

    def committer(self, *, co_commit: bool) -> ByProtocol:
        """See ``SinkGroup``."""
        return committer_of(self.tables, co_commit=co_commit)
