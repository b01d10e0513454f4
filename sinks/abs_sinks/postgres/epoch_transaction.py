"""Protocol wal: one transaction applies an epoch's staged rows to one table or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

import psycopg
from psycopg import Connection, sql

from abs_clients.postgres.connection import Tag
from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.pool import leased
from abs_core.contracts import Conflict, Version
from abs_core.crash import CrashPoint, reached
from abs_core.deadletters import MAX_REFUSALS, RowsRefused, miscount, unsettled
from abs_core.errors import AbsError, DataError, NotPreparedError
from abs_core.model import Committable, HandleName, JobState, Outcome
from abs_sinks.postgres import letter_table
from abs_sinks.postgres.apply.message import Message, Result
from abs_sinks.postgres.apply.newcolumns import add_within
from abs_sinks.postgres.apply.replacing import empty, emptying
from abs_sinks.postgres.apply.rows_sql import duplicate_key, union_of
from abs_sinks.postgres.apply.statements import (
    CHECKED,
    DEFERRED,
    Picking,
    Share,
    Step,
    in_order,
    locks,
    naming_constraint,
    naming_option,
    picking,
    steps,
)
from abs_sinks.postgres.apply.target import (
    Part,
    ResolvedTable,
    SinkTables,
    altered,
    noticing_changes,
)
from abs_sinks.postgres.letters.held import StagedLetters
from abs_sinks.postgres.letters.refused_rows import StagedRowsRefused, refusing
from abs_sinks.postgres.prepared import OR_ALONE, PreparedTransactions, composed_of, prepare
from abs_sinks.postgres.register import persistently, swapping
from abs_sinks.postgres.staging import Staging, good

_DOING = "applying staged rows"


class EpochTransaction:
    """Moves staged rows to their tables: all of them, or none.

    The statements of a table are one message; the COMMIT follows after the counts are checked.

    Args:
        besides: what else ``co_commit`` does in the transaction, after the rows.
    """

    def __init__(
        self, tables: SinkTables, besides: Callable[[Connection[Any]], None] = lambda _: None
    ) -> None:
        self._tables = tables
        self._besides = besides
        self._options = options = tables.options
        self._state = options.state
        self._staging = Staging(options)
        self._letters = StagedLetters(tables)
        self._prepared = PreparedTransactions(options)

    def co_commit(
        self,
        staged: Sequence[Committable],
        expected: Version | None,
        state: JobState,
        buried: Sequence[Committable] = (),
    ) -> Version | Conflict:
        """Apply the rows, drop the staging tables, and compare and set the register.

        It is retried after collisions of sessions.

        Args:
            buried: handles whose staging tables hold dead letters only.

        Raises:
            NotPreparedError: a staging table is gone, or lacks rows; nothing was changed.
            DataError: a key occurs twice; nothing was changed.
        """
        once = partial(self._co_commit, staged, expected, state, buried)
        try:
            return persistently(self._options, state, once)
        except StagedRowsRefused as refused:
            raise RowsRefused(self._letters.marked(staged, _DOING), refused.why) from None

    def _co_commit(
        self,
        staged: Sequence[Committable],
        expected: Version | None,
        state: JobState,
        buried: Sequence[Committable],
    ) -> Version | Conflict:
        swap = swapping(self._state, expected, state)
        with leased(self._options.server, Tag(state.register, state.generation)) as connection:
            self._state.ensure(connection)
            with translate_errors(_DOING):
                if not buried and not self._tables.parts(staged):
                    reached(CrashPoint.INSIDE_CO_COMMIT)
                    version = connection.execute(swap).fetchone()
                    return Conflict() if version is None else str(version[0])
                try:
                    version = self._begin(connection, swap, staged, buried)
                except (NotPreparedError, StagedRowsRefused):
                    # A successor may have swept the tables: then the register tells more.
                    if self._has_moved(connection, expected, state):
                        return Conflict()
                    raise
                if version is None:
                    # The register has changed: what was applied beside the swap must go with it.
                    connection.execute("ROLLBACK")
                    return Conflict()
                self._besides(connection)
                reached(CrashPoint.INSIDE_CO_COMMIT)
                self._commit(connection, [*staged, *buried])
        return str(version[0])

    def compose(
        self, staged: Sequence[Committable], counted: dict[HandleName, Committable]
    ) -> Committable:
        """Apply the rows in a transaction that is left prepared: a handle of protocol ``2pc``.

        It locks the table's shape and keys, so its commit cannot fail, and the commit drops the staging
        tables. Its name is derived from theirs, so that a retry after a lost reply finds it.

        Args:
            counted: takes the committables, with the counts of dead letters that were found.

        Raises:
            NotPreparedError, DataError, SchemaError, RefusedError: the table does not take the rows, or
                rows are missing; nothing was changed.
            PreflightError, ContentionError: the server has no room for a prepared transaction.
        """
        why = ""
        for _ in range(MAX_REFUSALS):
            try:
                return self._compose(staged)
            except StagedRowsRefused as refused:
                why = refused.why
                staged = self._letters.marked(staged, _DOING)
                counted.update({committable.handle: committable for committable in staged})
        raise unsettled(staged[0].handle.job, staged[0].handle.epoch, why)

    def _compose(self, staged: Sequence[Committable]) -> Committable:
        composed = composed_of(staged, self._options.stateschema)
        tag = Tag(composed.handle.register, composed.handle.generation)
        with leased(self._options.server, tag) as connection:
            self._state.ensure(connection)
            with translate_errors(_DOING):
                seen = self._prepared.inspect(connection, [composed.handle])[composed.handle]
                if seen.outcome is Outcome.PREPARED:
                    return composed
                if seen.outcome is Outcome.COMMITTED:
                    raise NotPreparedError(
                        "These rows are committed already, by another run's decision.",
                        handle=composed.handle,
                        remedy="restart the query, if no newer run of it is at work.",
                    )
                self._begin(connection, self._prepared.marking(composed), staged)
                drop = self._staging.dropping([committable.handle for committable in staged])
                prepare(self._options, connection, composed.handle, drop, OR_ALONE)
        return composed

    def _begin(
        self,
        connection: Connection[Any],
        first: sql.Composed,
        staged: Sequence[Committable],
        buried: Sequence[Committable] = (),
    ) -> tuple[Any, ...] | None:
        """BEGIN, ``first``, an INSERT for each table; returns the row of ``first``.

        Raises:
            NotPreparedError, DataError: as ``co_commit``; the transaction is rolled back.
            SchemaError: a table was altered since the rows were staged.
        """
        self._whole: list[Part] = []  # every staged row was read as a good one: none is marked
        parts = in_order(self._tables.parts(staged))
        targets = [target for _, target in parts]
        # What begins the transaction waits for its first work: they are one round trip.
        message = Message(sql.SQL("BEGIN"), first)
        if pending := [target.plan for target in targets if target.plan.added]:
            # ALTER TABLE comes before ``first``, in messages of its own: its errors are other ones.
            add_within(connection, pending)
            message = Message(sql.SQL("SAVEPOINT added"), first)
        message.wait([DEFERRED, *locks(targets)])
        if not parts:
            # Only dead letters were staged: no step would send what waits.
            message.results(connection.execute(message.text([])), [])
            if message.row is None:
                return None
        if replaced := emptying(targets):
            empty(connection, message, replaced)
        self._write(connection, message, parts)
        for part, target in parts:
            self._bury(connection, part, target)
        for part in self._tables.parts(buried) if buried else ():
            self._bury(connection, part, part.table.target())
        self._letters.check(connection, [part for part, _ in parts if part not in self._whole])
        # Before the decision: at COMMIT the server would refuse the epoch without a row that is named.
        with refusing(connection, *(part for part, _ in parts)) as keeps:
            if keeps or any(target.table.constraints.defers for target in targets):
                connection.execute(CHECKED)
        return message.row

    def _write(
        self,
        connection: Connection[Any],
        message: Message,
        parts: Sequence[tuple[Part, ResolvedTable]],
    ) -> None:
        """Pick the rows, and execute all ``steps``, with what waits in the message."""
        shares = [self._share(part, target) for part, target in parts]
        for (part, target), share in zip(parts, shares, strict=True):
            if picks := picking(share):
                self._pick(connection, message, part, target, share, picks)
        written: dict[int, int] = {}
        for step in steps(shares):
            part, target = parts[step.number]
            if not target.write.picks:
                self._insert(connection, message, step, part, target)
                continue
            count = step.count(self._apply(connection, message, part, target, step))
            if not step.deletes:
                written[step.number] = count
                continue
            first = part.staged[0].handle
            target.write.tell(connection, first, part.good, count, written[step.number])

    def _share(self, part: Part, target: ResolvedTable) -> Share:
        """What is applied to a table; winners are in a table that the transaction makes and drops."""
        names = "\n".join(sorted(str(committable.handle) for committable in part.staged))
        digest = blake2b(names.encode(), digest_size=16).hexdigest()
        winners = self._state.table(f"judged_{digest}")
        return Share(part.table.options, target, self._union(part, target), winners)

    def _apply(
        self,
        connection: Connection[Any],
        message: Message,
        part: Part,
        target: ResolvedTable,
        step: Step,
    ) -> list[Result]:
        """Execute a step whose rows are picked."""
        doing = f"applying changes to table {target.table.label}"
        naming = naming_option(part.table.options)
        with naming, naming_constraint(target), translate_errors(doing):
            return self._run(connection, message, step.statements, part, target)

    def _bury(self, connection: Connection[Any], part: Part, target: ResolvedTable) -> None:
        """Move the dead letters of a table's staged rows."""
        for handle, dead in part.dead.items():
            source = self._staging.table(handle)
            query = letter_table.moving(part.table.options, target.plan, handle, source)
            with translate_errors(f"writing dead letters of table {target.table.label}"):
                moved = connection.execute(query).rowcount
            if moved != dead:
                connection.execute("ROLLBACK")
                raise miscount(handle, (0, dead), (0, moved))

    def _insert(
        self,
        connection: Connection[Any],
        message: Message,
        step: Step,
        part: Part,
        target: ResolvedTable,
    ) -> None:
        """Send what waits and the INSERT in one message."""
        statements = [*step.statements, target.plan.shape_query()]
        doing = f"applying staged rows to table {target.table.label}"
        with naming_option(part.table.options), translate_errors(doing):
            results = self._run(connection, message, statements, part, target)
        if results[-1].row != (target.shape,):
            connection.execute("ROLLBACK")
            raise altered(part.table.options, target.plan)
        inserted = step.count(results)
        if inserted == part.good == part.rows:
            self._whole.append(part)  # it inserts no more rows than it reads
        # Of a key's rows only one counts, and triggers may drop rows: the staged ones are counted.
        elif inserted != part.good and (lost := self._staging.incomplete(connection, part.staged)):
            connection.execute("ROLLBACK")
            raise lost

    def _pick(
        self,
        connection: Connection[Any],
        message: Message,
        part: Part,
        target: ResolvedTable,
        share: Share,
        picks: Picking,
    ) -> None:
        """Send what waits, and pick the rows, in one message.

        Raises:
            DataError: changes contradict each other, or cannot be applied.
        """
        counting = sql.SQL("select count(*) from ({}) s").format(share.rows)
        statements = [*picks, counting, target.plan.shape_query()]
        with translate_errors(f"looking at the changes of table {target.table.label}"):
            results = self._run(connection, message, statements, part, target)
        _, problem, counted, shape = results
        wrong: AbsError | None = None
        if shape.row != (target.shape,):
            wrong = altered(part.table.options, target.plan)
        elif counted.row != (part.good,):
            wrong = self._staging.incomplete(connection, part.staged)
        elif part.good == part.rows:
            self._whole.append(part)
        bad = wrong or target.write.error_of(problem.row)
        if bad is not None:
            connection.execute("ROLLBACK")
            if wrong is None and part.table.options.letters and type(bad) is DataError:
                raise StagedRowsRefused from bad
            raise bad

    def _run(
        self,
        connection: Connection[Any],
        message: Message,
        statements: Sequence[sql.Composable],
        part: Part,
        target: ResolvedTable,
    ) -> list[Result]:
        """Execute what waits, and these; a known error is explained."""
        options = part.table.options
        with refusing(connection, part), noticing_changes(options, target.plan):
            try:
                return message.results(connection.execute(message.text(statements)), statements)
            except psycopg.errors.NotNullViolation:
                connection.execute("ROLLBACK")
                raise
            except (psycopg.errors.UndefinedTable, psycopg.errors.CardinalityViolation) as error:
                connection.execute("ROLLBACK")
                why: AbsError | None
                if isinstance(error, psycopg.errors.CardinalityViolation):
                    union = self._union(part, target)
                    why = duplicate_key(connection, target.plan, target.key, union)
                else:
                    why = self._staging.incomplete(connection, part.staged)
                if why is not None:
                    raise why from error
                raise

    def _commit(self, connection: Connection[Any], staged: Sequence[Committable]) -> None:
        ends: list[sql.Composable] = [sql.SQL("COMMIT")]
        if staged:
            ends.insert(0, self._staging.dropping([c.handle for c in staged]))
        connection.execute(sql.SQL("; ").join(ends))

    def _has_moved(
        self, connection: Connection[Any], expected: Version | None, state: JobState
    ) -> bool:
        query = sql.SQL("select version::text from {} where job = {}").format(
            self._state.table("register"), state.job
        )
        row = connection.execute(query).fetchone()
        return (None if row is None else row[0]) != expected

    def _union(self, part: Part, target: ResolvedTable) -> sql.Composed:
        staged = [self._staging.table(committable.handle) for committable in part.staged]
        return union_of(target.plan, staged, good(part.table.options))
