"""What the coordinator acts with: one committer for the handles of every protocol.

A job may change its protocol between runs: what the old one left, decided or in doubt, is committed
or swept like its own. Each committable says by which protocol it was made.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.pool import leased
from abs_core.aborting import abort_each
from abs_core.contracts import Conflict, Version
from abs_core.errors import AbsError
from abs_core.model import Committable, HandleName, InDoubt, Inspection, JobState, Outcome
from abs_sinks.postgres.doubt import in_doubt
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.prepared import PreparedTransactions
from abs_sinks.postgres.register import persistently
from abs_sinks.postgres.staging import Staging
from abs_sinks.postgres.target import Target, resolve
from abs_sinks.postgres.wal_commit import EpochTransaction

MANY_HANDLES = 8
"""From so many on, handles are committed over several connections."""

COMMIT_SESSIONS = 4

log = logging.getLogger(__name__)


class PostgresCommitter:
    """A ``Committer`` for prepared transactions and staging tables.

    Args:
        schema: of the batches; needed to apply staged rows.
    """

    def __init__(self, options: PostgresOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._prepared = PreparedTransactions(options)
        self._staging = Staging(options)

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        """See ``Committer``. What ``idempotent`` reports is evidence, as good as prepared."""
        seen = {
            handle: Inspection(Outcome.PREPARED) for handle in _made_by("idempotent", committables)
        }
        prepared, staged = _made_by("2pc", committables), _made_by("wal", committables)
        if not prepared and not staged:
            return seen
        with leased(self._options.server) as connection, translate_errors("inspecting handles"):
            seen |= self._prepared.inspect(connection, prepared)
            there = self._staging.existing(connection, staged)
            seen |= {handle: Inspection(Outcome.PREPARED) for handle in there}
            gone = [handle for handle in staged if handle not in there]
            seen |= self._prepared.inspect(connection, gone)
        if staged and not gone:
            # What a decision names must be able to be applied; a constraint may object.
            EpochTransaction(self._options, self._target()).rehearse(_of("wal", committables))
        return seen

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        done = dict.fromkeys(_made_by("idempotent", committables), Outcome.COMMITTED)
        prepared = _made_by("2pc", committables)
        if len(prepared) < MANY_HANDLES:
            done |= self._commit_prepared(prepared)
        else:
            # Each waits for the disk; the server flushes for several sessions at once.
            with ThreadPoolExecutor(COMMIT_SESSIONS) as pool:
                shares = [prepared[n::COMMIT_SESSIONS] for n in range(COMMIT_SESSIONS)]
                for outcomes in pool.map(self._commit_prepared, shares):
                    done |= outcomes
        staged = _of("wal", committables)
        if staged:
            done |= EpochTransaction(self._options, self._target()).apply_with_markers(staged)
        return done

    def abort(self, handles: Sequence[HandleName]) -> None:
        if not handles:
            return
        with leased(self._options.server) as connection:
            with translate_errors("looking for handles to abort"):
                prepared = self._prepared.existing(connection, handles)
                staged = self._staging.existing(connection, handles)

            def abort(handle: HandleName) -> None:
                with translate_errors(f"aborting {handle}"):
                    if handle in prepared:
                        self._prepared.abort(connection, handle)
                    else:
                        self._staging.abort(connection, handle)

            abort_each([h for h in handles if h in prepared or h in staged], abort)

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        """See ``Committer``; with None, of every job."""
        with (
            leased(self._options.server) as connection,
            translate_errors("listing what is in doubt"),
        ):
            return in_doubt(connection, self._options, job)

    def forget(self, state: JobState) -> None:
        try:
            with leased(self._options.server) as connection, translate_errors("deleting markers"):
                self._prepared.forget(connection, state)
        except AbsError as error:
            # They are deleted with the next epoch's.
            log.debug("markers of job %s stay for now: %s", state.job, error)

    def _commit_prepared(self, handles: Sequence[HandleName]) -> dict[HandleName, Outcome]:
        if not handles:
            return {}
        with (
            leased(self._options.server) as connection,
            translate_errors("committing prepared transactions"),
        ):
            return self._prepared.commit(connection, handles)

    def _target(self) -> Target:
        return resolve(self._options, self._schema)


class PostgresCoCommitter(PostgresCommitter):
    """A ``CoCommitter`` for ``wal`` and ``idempotent``: the register lies in the same database."""

    def co_commit(
        self, committables: Sequence[Committable], expected: Version | None, state: JobState
    ) -> Version | Conflict:
        """See ``CoCommitter``.

        Under ``wal``, all rows and the register are one transaction. Under ``idempotent`` the rows
        are there already, and the register alone is changed.

        Raises:
            DataError: under ``upsert``, two rows of the epoch have one key.
        """
        staged = _of("wal", committables)

        def once() -> Version | Conflict:
            return EpochTransaction(self._options, self._target()).co_commit(
                staged, expected, state
            )

        return persistently(self._options, state, once)


def _of(protocol: str, committables: Sequence[Committable]) -> list[Committable]:
    return [c for c in committables if dict(c.extra).get("protocol", "2pc") == protocol]


def _made_by(protocol: str, committables: Sequence[Committable]) -> list[HandleName]:
    return [c.handle for c in _of(protocol, committables)]
