"""What staging tables hold of dead letters, against what was counted: looked at, never inferred.

``mark_refused`` marks staged rows in a transaction of its own. Its reply may be lost, and it may arrive
late: so the marks themselves are counted, before and after it, and by the transaction that
applies the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from abs_clients.postgres.errors import translate_errors
from abs_clients.postgres.pool import leased
from abs_core.deadletters import miscount, with_dead
from abs_core.errors import AbsError
from abs_core.model import Committable, HandleName
from abs_sinks.postgres.apply.newcolumns import adding
from abs_sinks.postgres.apply.replacing import emptying
from abs_sinks.postgres.apply.statements import in_order
from abs_sinks.postgres.apply.target import Part, SinkTables
from abs_sinks.postgres.letters.refused_rows import StagedRowsRefused
from abs_sinks.postgres.letters.refused_staged import mark_refused
from abs_sinks.postgres.staging import Staging, staged_incomplete


class StagedLetters:
    """The dead letters in the staging tables of these sinks."""

    def __init__(self, tables: SinkTables) -> None:
        self._tables = tables
        self._options = tables.options
        self._staging = Staging(tables.options)

    def check(self, connection: Connection[Any], parts: Sequence[Part]) -> None:
        """Check that the tables hold the dead letters that were counted, and no others.

        The transaction that applies the rows calls it after it has read them: what is marked later was
        written as good. Such marks wait for its end, or were committed by then.

        Raises:
            StagedRowsRefused: a mark whose reply was lost has marked rows.
            MiscountError, NotPreparedError: dead letters or rows are missing. The transaction is rolled
                back in each case.
        """
        for part in parts:
            try:
                held = self._held(connection, part)
                if any(dead != part.dead.get(handle, 0) for handle, dead in held.items()):
                    marked = sum(held.values())
                    counted, seen = (part.good, part.rows - part.good), (part.rows - marked, marked)
                    raise StagedRowsRefused from miscount(part.staged[0].handle, counted, seen)
            except (AbsError, StagedRowsRefused):
                connection.execute("ROLLBACK")
                raise

    def marked(self, staged: Sequence[Committable], doing: str) -> list[Committable]:
        """Mark refused rows (``mark_refused``); the committables with the dead letters that are held.

        Nothing is looked for where rows were marked before and the reply was lost.

        Raises:
            MiscountError, NotPreparedError: dead letters or rows are missing.
        """
        targets = in_order(self._tables.parts(staged))
        parts = [part for part, _ in targets]
        first = [adding(target.plan) for _, target in targets if target.plan.added]
        first += [table.delete for table in emptying([target for _, target in targets])]
        with leased(self._options.server) as connection, translate_errors(doing):
            held = self._all_held(connection, parts)
            if all(part.dead.get(h, 0) == held.get(h, 0) for part in parts for h in part.handles):
                mark_refused(connection, self._options, targets, first)
                held = self._all_held(connection, parts)
        return [with_dead(c, held[c.handle]) if c.handle in held else c for c in staged]

    def _all_held(
        self, connection: Connection[Any], parts: Sequence[Part]
    ) -> dict[HandleName, int]:
        return {h: dead for part in parts for h, dead in self._held(connection, part).items()}

    def _held(self, connection: Connection[Any], part: Part) -> dict[HandleName, int]:
        """How many dead letters each table of the part holds; none of them without the option.

        Raises:
            NotPreparedError: rows are missing.
            MiscountError: dead letters are missing.
        """
        if part.table.options.letters is None:
            return {}
        held = self._staging.counts(connection, part.handles)
        for committable in part.staged:
            expected = part.dead.get(committable.handle, 0)
            rows, dead = held[committable.handle]
            if rows != committable.rows:
                raise staged_incomplete(committable, rows)
            if dead < expected:
                counted, seen = (rows - expected, expected), (rows - dead, dead)
                raise miscount(committable.handle, counted, seen)
        return {handle: dead for handle, (_, dead) in held.items()}
