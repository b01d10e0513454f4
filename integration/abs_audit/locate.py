"""Finds the relation that a user's URL or paths name."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from abs_audit.contracts import Relation, Side
from abs_audit.files import Files
from abs_core.errors import OptionError
from abs_sinks.door import SinkFormat, find_format


def relation(
    where: Sequence[str],
    *,
    table: str | None = None,
    null: str | None = None,
    stateschema: str = "abs",
) -> Relation:
    """The relation that ``where`` names.

    Args:
        where: a URL of an installed format (``abs_sinks.door``), or paths of files. For our own: a
            libpq URI or keyword string; a topic (``kafka://host:port,host:port/topic``, with
            ``?value=raw`` if its values are not JSON objects, ``winners=true`` for a topic of
            ``protocol=idempotent``, ``config=FILE`` for client settings such as passwords); a prefix (``s3://bucket/prefix``,
            with ``?endpoint=`` and ``&region=`` for other servers than Amazon's).
        table: for systems with tables; quoted as in SQL.
        null: the text for NULL in CSV files.
        stateschema: PostgreSQL schema of registers and staging.

    Raises:
        OptionError: it is none of these; the message shows no URL (I9).
        ConfigError: a library of the format is not installed.
    """
    if not where:
        raise OptionError("No file and no database is named.", remedy="name one of them.")
    format_ = next((one for one in map(find_format, where) if one is not None), None)
    if format_ is not None:
        if len(where) > 1:
            raise OptionError(
                "A target is named together with something else.", remedy="name one target alone."
            )
        return side_of(format_).at(where[0], table, null, stateschema)
    if table is not None:
        raise OptionError(
            f"A table is named ({table}), and no database.",
            remedy="give a URL such as postgresql://host:5432/database, or leave it out.",
        )
    return Files(tuple(where), null)


def side_of(format_: SinkFormat) -> Side:
    """How the audit reads targets of the format."""
    module, _, name = format_.audit.partition(":")
    side: type[Side] = getattr(import_module(module), name)
    return side(format_)


def without_table(table: str | None) -> None:
    """Refuse a table where the URL alone names the relation."""
    if table is not None:
        raise OptionError(
            f"A table is named ({table}), and the URL names all that is audited.",
            remedy="leave it out; a table (--table, --expected-table) is a database's.",
        )
