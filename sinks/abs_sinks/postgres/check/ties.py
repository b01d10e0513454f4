"""What a start says of constraints that tie rows to one another."""

from __future__ import annotations

from collections.abc import Iterator

from abs_core.model import Finding
from abs_sinks.postgres.apply.write import write_of
from abs_sinks.postgres.columns.table import CatalogTable
from abs_sinks.postgres.options import PostgresOptions


def findings_of_ties(table: CatalogTable, options: PostgresOptions) -> Iterator[Finding]:
    """Constraints by which rows of an epoch decide on one another."""
    ties, key = table.constraints, options.key or table.primary_key
    taken = [unique.name for unique in ties.besides(key)]
    referring = [foreign.name for foreign in ties.foreign if foreign.table == foreign.of]
    if options.letters is not None and options.protocol != "wal" and taken + referring:
        yield Finding.error(
            f"Constraints of table {table.label} let rows decide on one another "
            f"({', '.join(taken + referring)}), and under protocol={options.protocol} each task "
            "applies its share of an epoch by itself: which rows are dead letters would depend on how "
            "rows are dealt to tasks.",
            "set protocol=wal; or leave deadletter out; or drop these constraints here.",
        )
    yield from write_of(options).ties(table, options)
