"""What the audit needs of a system: records to read and, of a target, what is left behind in it.

Protocols only. A further system (Kafka topics, S3) needs one class with these members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from duckdb import DuckDBPyConnection, DuckDBPyRelation

from abs_audit.families import Type
from abs_audit.report import LeftBehind


class Relation(Protocol):
    """Records with named columns that can be read whole, more than once.

    Each read starts anew and goes to the end: it sees what is there then, never an earlier read's
    view and never up to an expected count only.
    """

    @property
    def name(self) -> str:
        """For people; never holds a secret (I9)."""
        ...

    def columns(self, connection: DuckDBPyConnection) -> Mapping[str, Type]:
        """Names and types of the columns. ``connection`` may be used as a tool to find out.

        Raises:
            ConfigError: there is no such thing to read.
            SchemaError: a column holds what the audit cannot compare.
            TargetError: the system does not answer, or refuses.
        """
        ...

    def rows(
        self, connection: DuckDBPyConnection, names: Sequence[str]
    ) -> AbstractContextManager[DuckDBPyRelation]:
        """All records, with the columns ``names`` in that order, carried as ``families`` says.

        The relation is scanned once, inside the context, and streams: it holds a bounded share of
        the records in memory. Errors of the system are raised by the context's exit.
        """
        ...


@runtime_checkable
class Inspectable(Protocol):
    """A relation whose system can tell what an unfinished write left in it."""

    def left_behind(self) -> LeftBehind:
        """What is in doubt now. Looks only; changes nothing."""
        ...
