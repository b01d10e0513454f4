"""Sinks of one database that share transactions, and the register's change with them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import pyarrow as pa

from abs_core.contracts import Committer, Task
from abs_core.routing import ByProtocol, NothingToCommit
from abs_sinks.postgres.idempotent import IdempotentCoCommitter
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.tables import Table, Tables
from abs_sinks.postgres.twophase import GroupTwoPhaseWriter, TwoPhaseCommitter
from abs_sinks.postgres.wal import WalCoCommitter, WalCommitter, WalComposer

_PLACE = ("service", "host", "hostaddr", "port", "dbname", "user", "options")
"""The libpq parameters that identify server, database, role and session options."""

_DEFAULTS = {"port": "5432"}


def transactions_of(options: PostgresOptions) -> Hashable | None:
    """A key that is equal for sinks that can share transactions; None: this one shares none.

    It compares server, database, role, protocol and state schema as the options write them: two names
    of one server count as two servers. The first sink's timeouts and password are used.
    """
    if options.protocol == "idempotent":
        return None
    given = {**_DEFAULTS, **dict(options.address.parameters)}
    place = tuple(sorted((name, given[name]) for name in _PLACE if name in given))
    return options.protocol, place, options.stateschema


def committer_of(tables: Tables, *, co_commit: bool = False) -> ByProtocol:
    """A committer for the handles of every protocol.

    Args:
        tables: of all its sinks.
        co_commit: whether the register is in this database, and is changed with the rows. True: a
            one that co-commits for ``wal`` and ``idempotent``; False: one that composes for ``wal``.
    """
    options = tables.options
    committers: dict[str, Committer] = {
        "2pc": TwoPhaseCommitter(options),
        "wal": WalCommitter(tables),
        "idempotent": NothingToCommit(),
    }
    if options.protocol == "wal":
        committers["wal"] = WalCoCommitter(tables) if co_commit else WalComposer(tables)
    if co_commit and options.protocol == "idempotent":
        committers["idempotent"] = IdempotentCoCommitter(tables)
    return ByProtocol(committers, options.protocol)


class PostgresGroup:
    """A ``SinkGroup``: one transaction per task under ``2pc``, per epoch under ``wal``.

    Args:
        sinks: options and schema by the sink's number, in the order in which tables are filled; all of
            one ``transactions_of``.
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
