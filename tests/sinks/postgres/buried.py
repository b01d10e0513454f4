"""A table beside its dead letters: what the table refuses is in ``<table>_dead``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

from abs_clients.postgres.metadata import exists
from abs_clients.postgres.name import TableName
from abs_sinks.deadletters.letter import schema_of
from abs_sinks.deadletters.row import rows_of
from abs_sinks.postgres import PostgresSink
from abs_sinks.postgres.testing import VARIANTS, TableHarness, Variant
from abs_testing import SCHEMA, Row


class Buried(TableHarness):
    """A harness whose sink keeps dead letters.

    Args:
        changed: options besides ``deadletter``.
    """

    def __init__(self, url: str, variant: Variant, **changed: object) -> None:
        super().__init__(url, variant)
        self.dead = f"{self.table}_dead"
        given = {"deadletter": TableName.parse(self.dead), **changed}
        self.options = replace(self.options, **given)  # type: ignore[arg-type]
        self.new_sink = partial(PostgresSink, self.options, SCHEMA, co_commit=self.own_register)

    def letters(self) -> list[tuple[str, Row]]:
        """Code and row of each dead letter, in the order of writing."""
        if not exists(self.db, self.dead):
            return []
        query = f'select code, "row"::text, schema from {self.dead} order by id'
        found = self.db.execute(query).fetchall()
        read = [(code, rows_of([row], schema_of(schema))) for code, row, schema in found]
        return [(code, (b["id"][0].as_py(), b["value"][0].as_py())) for code, b in read]

    def close(self) -> None:
        super().close()
        self.reconnect()
        self.db.execute(f"drop table if exists {self.dead}, {self.table}_of cascade")
        self.db.execute(f"drop function if exists {self.table}_f cascade")
        self.db.execute(f"drop domain if exists {self.table}_d cascade")
        self.db.close()


class Poisoned(Buried):
    """A table that refuses some rows of every check.

    It refuses those that ``is_poison`` tells.

    Args:
        together: whether a reader sees both: then each check of the kit is one of the equation. The
            client refuses rows from 10 on, too.
    """

    code = "23514"

    def __init__(
        self, url: str, variant: Variant, *, together: bool = False, **changed: object
    ) -> None:
        super().__init__(url, variant, **{"deadlettermax": 1.0, **changed})
        self.upserts, self.together = variant.write == "upsert", together
        self.db.execute(f"alter table {self.table} add check (id % 5 <> 2)")
        if together:
            self.db.execute(f"alter table {self.table} alter value type varchar(2)")

    def read(self) -> Sequence[Row]:
        seen = [*super().read(), *(row for _, row in self.letters() if self.together)]
        # Of a key's rows an upsert's reader looks for the last one: a later one was refused.
        return list(dict(seen).items()) if self.upserts else seen


def buried(url: str, name: str, **changed: object) -> closing[Buried]:
    return closing(Buried(url, VARIANTS[name], **changed))


def poisoned(url: str, name: str, *, together: bool = True, **changed: object) -> closing[Poisoned]:
    return closing(Poisoned(url, VARIANTS[name], together=together, **changed))
