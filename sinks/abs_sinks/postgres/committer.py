"""What the coordinator acts with: one committer for the handles of every protocol.

A job may change its protocol between runs: what the old one left, decided or in doubt, is committed
or swept like its own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from abs_core.errors import AbsError
from abs_core.model import Committable, HandleName, InDoubt, Inspection, JobState, Outcome
from abs_sinks.postgres.connection import leased
from abs_sinks.postgres.faults import mapped
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.prepared import PreparedTransactions

log = logging.getLogger(__name__)


class PostgresCommitter:
    """A ``Committer`` for prepared transactions."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._prepared = PreparedTransactions(options)

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        if not committables:
            return {}
        with leased(self._options) as connection, mapped("inspecting handles"):
            return self._prepared.inspect(connection, [c.handle for c in committables])

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        if not committables:
            return {}
        with leased(self._options) as connection, mapped("committing prepared transactions"):
            return self._prepared.commit(connection, [c.handle for c in committables])

    def abort(self, handles: Sequence[HandleName]) -> None:
        if not handles:
            return
        with leased(self._options) as connection, mapped("rolling back prepared transactions"):
            self._prepared.abort(connection, handles)

    def in_doubt(self, job: str) -> Sequence[InDoubt]:
        with leased(self._options) as connection, mapped("listing prepared transactions"):
            return self._prepared.in_doubt(connection, job)

    def forget(self, state: JobState) -> None:
        try:
            with leased(self._options) as connection, mapped("deleting markers"):
                self._prepared.forget(connection, state)
        except AbsError as error:
            # They are deleted with the next epoch's.
            log.debug("markers of job %s stay for now: %s", state.job, error)
