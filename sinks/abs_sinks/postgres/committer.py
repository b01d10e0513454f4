"""What the coordinator acts with: one committer for each protocol, and one over all of them.

``committer_of`` makes the one over all: a job may change its protocol between runs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.pool import leased
from abs_core.aborting import abort_each
from abs_core.contracts import Committer, Conflict, Version
from abs_core.errors import AbsError
from abs_core.model import Committable, HandleName, InDoubt, Inspection, JobState, Outcome
from abs_core.routing import ByProtocol, by_protocol
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.postgres.prepared import PreparedTransactions
from abs_sinks.postgres.register import persistently
from abs_sinks.postgres.staging import Staging
from abs_sinks.postgres.tables import Tables
from abs_sinks.postgres.wal_commit import EpochTransaction

MANY_HANDLES = 8
"""From so many on, handles are committed over several connections."""

COMMIT_SESSIONS = 4

log = logging.getLogger(__name__)


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
        "2pc": PreparedCommitter(options),
        "wal": StagedCommitter(tables),
        "idempotent": UpsertedCommitter(),
    }
    if options.protocol == "wal":
        committers["wal"] = StagedCoCommitter(tables) if co_commit else StagedComposer(tables)
    if co_commit and options.protocol == "idempotent":
        committers["idempotent"] = UpsertedCoCommitter(tables)
    return by_protocol(options.protocol, committers)


class PreparedCommitter:
    """Protocol 2pc: a ``Committer`` for prepared transactions."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._prepared = PreparedTransactions(options)

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        with leased(self._options.server) as connection, translate_errors("inspecting handles"):
            return self._prepared.inspect(connection, [c.handle for c in committables])

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        prepared = [c.handle for c in committables]
        if len(prepared) < MANY_HANDLES:
            return self._commit(prepared)
        done: dict[HandleName, Outcome] = {}
        # Each waits for the disk; the server flushes for several sessions at once.
        with ThreadPoolExecutor(COMMIT_SESSIONS) as pool:
            shares = [prepared[n::COMMIT_SESSIONS] for n in range(COMMIT_SESSIONS)]
            for outcomes in pool.map(self._commit, shares):
                done |= outcomes
        return done

    def abort(self, handles: Sequence[HandleName]) -> None:
        with leased(self._options.server) as connection:
            with translate_errors("looking for handles to abort"):
                mine = self._prepared.existing(connection, handles)

            def abort(handle: HandleName) -> None:
                with translate_errors(f"aborting {handle}"):
                    self._prepared.abort(connection, handle)

            abort_each([handle for handle in handles if handle in mine], abort)

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        with (
            leased(self._options.server) as connection,
            translate_errors("listing what is in doubt"),
        ):
            return self._prepared.in_doubt(connection, job)

    def forget(self, state: JobState) -> None:
        """Delete markers. Those of ``wal`` are the same table's."""
        try:
            with leased(self._options.server) as connection, translate_errors("deleting markers"):
                self._prepared.forget(connection, state)
        except AbsError as error:
            # They are deleted with the next epoch's.
            log.debug("markers of job %s stay for now: %s", state.job, error)

    def _commit(self, handles: Sequence[HandleName]) -> dict[HandleName, Outcome]:
        with (
            leased(self._options.server) as connection,
            translate_errors("committing prepared transactions"),
        ):
            return self._prepared.commit(connection, handles)


class StagedCommitter:
    """Protocol wal: a ``Committer`` for staging tables, with a marker as the proof of a commit."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._options = options = tables.options
        self._staging = Staging(options)
        self._prepared = PreparedTransactions(options)

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        staged = [c.handle for c in committables]
        with leased(self._options.server) as connection, translate_errors("inspecting handles"):
            there = self._staging.existing(connection, staged)
            gone = [handle for handle in staged if handle not in there]
            seen = self._prepared.inspect(connection, gone)
        return seen | {handle: Inspection(Outcome.PREPARED) for handle in there}

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        return EpochTransaction(self._tables).apply_with_markers(committables)

    def abort(self, handles: Sequence[HandleName]) -> None:
        with leased(self._options.server) as connection:
            with translate_errors("looking for handles to abort"):
                # A decided epoch's staging tables go with the transaction that was composed of them.
                mine = self._staging.existing(connection, handles)
                mine -= self._staging.held(connection, handles)

            def abort(handle: HandleName) -> None:
                with translate_errors(f"aborting {handle}"):
                    self._staging.abort(connection, handle)

            abort_each([handle for handle in handles if handle in mine], abort)

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        with (
            leased(self._options.server) as connection,
            translate_errors("listing what is in doubt"),
        ):
            return self._staging.in_doubt(connection, job)

    def forget(self, state: JobState) -> None:
        """Nothing: its markers are deleted with those of ``2pc``."""


class StagedComposer(StagedCommitter):
    """Protocol wal, a ``Composer``: the register lies elsewhere, so the decision is made before.

    What is composed is a prepared transaction, and from then on a handle like those of ``2pc``.
    """

    def compose(self, committables: Sequence[Committable]) -> Sequence[Committable]:
        """See ``Composer``.

        Raises:
            DataError, SchemaError, RefusedError: the table does not take the rows.
            PreflightError, ContentionError: the server has no room for a prepared transaction.
        """
        if not committables:
            return []
        return [EpochTransaction(self._tables).compose(committables)]


class StagedCoCommitter(StagedCommitter):
    """Protocol wal, a ``CoCommitter``: the register lies in the same database."""

    def co_commit(
        self, committables: Sequence[Committable], expected: Version | None, state: JobState
    ) -> Version | Conflict:
        """See ``CoCommitter``.

        Raises:
            DataError: under ``upsert``, two rows of the epoch have one key.
        """
        return _co_commit(self._tables, committables, expected, state)


class UpsertedCommitter:
    """Protocol idempotent: the rows are in the table before a committable exists."""

    def inspect(self, committables: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
        """See ``Committer``. What a task reports is evidence, as good as prepared."""
        return {c.handle: Inspection(Outcome.PREPARED) for c in committables}

    def commit(self, committables: Sequence[Committable]) -> Mapping[HandleName, Outcome]:
        return {c.handle: Outcome.COMMITTED for c in committables}

    def abort(self, handles: Sequence[HandleName]) -> None:
        """Nothing: a row cannot be taken back; the epoch is written again over it."""

    def in_doubt(self, job: str | None) -> Sequence[InDoubt]:
        return []

    def forget(self, state: JobState) -> None:
        """Nothing: there is no marker."""


class UpsertedCoCommitter(UpsertedCommitter):
    """Protocol idempotent, a ``CoCommitter``: the register alone is changed."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def co_commit(
        self, committables: Sequence[Committable], expected: Version | None, state: JobState
    ) -> Version | Conflict:
        return _co_commit(self._tables, [], expected, state)


def _co_commit(
    tables: Tables,
    staged: Sequence[Committable],
    expected: Version | None,
    state: JobState,
) -> Version | Conflict:
    """One transaction of what is staged and the register; tried again where sessions collide."""

    def once() -> Version | Conflict:
        return EpochTransaction(tables).co_commit(staged, expected, state)

    return persistently(tables.options, state, once)
