"""From what a person writes to a relation: a PostgreSQL URL with a table, or paths of files."""

from __future__ import annotations

from collections.abc import Sequence

from abs_audit.contracts import Relation
from abs_audit.files import Files
from abs_audit.postgres import PostgresTable
from abs_core.errors import OptionError
from abs_sinks.postgres.address import Address
from abs_sinks.postgres.name import TableName

_URLS = ("postgresql://", "postgres://", "jdbc:")


def relation(
    where: Sequence[str],
    *,
    table: str | None = None,
    null: str | None = None,
    stateschema: str = "abs",
) -> Relation:
    """The relation that is meant.

    Args:
        where: one libpq URI or keyword string (``host=... dbname=...``), or one or more paths.
        table: the table, for PostgreSQL; quoted as in SQL.
        null: the text that stands for NULL in CSV files.
        stateschema: where the sinks keep registers and staging, for PostgreSQL.

    Raises:
        OptionError: it is none of these; the message shows no URL (I9).
    """
    databases = [text for text in where if _is_database(text)]
    if not where:
        raise OptionError("No file and no database is named.", remedy="name one.")
    if not databases:
        if table is not None:
            raise OptionError(
                f"A table is named ({table}), and no database.",
                remedy="give a URL such as postgresql://host:5432/database, or leave it out.",
            )
        return Files(tuple(where), null)
    if len(where) > 1:
        raise OptionError(
            "A database is named together with something else.", remedy="name one of them."
        )
    if table is None:
        raise OptionError("A database is named, and no table.", remedy="name its table.")
    return PostgresTable(Address.parse(databases[0]), TableName.parse(table), stateschema)


def _is_database(text: str) -> bool:
    given = text.strip().lower()
    return given.startswith(_URLS) or "dbname=" in given
