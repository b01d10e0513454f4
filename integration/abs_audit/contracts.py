"""Interfaces of a system that can be audited: records to read, and unfinished writes to report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
from duckdb import DuckDBPyConnection, DuckDBPyRelation

from abs_audit.families import Type
from abs_audit.report import LeftBehind
from abs_sinks.deadletters.place import KeptLetters
from abs_sinks.door import SinkFormat

PLACE = "abs:place"
"""The column that ``Relation.rows`` adds if it is asked for: where a record is, as text for people."""


class Relation(ABC):
    """Named columns and records that can be read completely, more than once.

    Each read starts anew and sees the current records up to the end.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """For people; never contains a secret (I9)."""

    @abstractmethod
    def columns(self, connection: DuckDBPyConnection) -> Mapping[str, Type]:
        """Names and types of the columns; ``connection`` may be used to determine them.

        Raises:
            ConfigError: the relation does not exist.
            SchemaError: the audit cannot compare a column's type.
            TargetError: the system does not answer, or refuses.
        """

    @abstractmethod
    def rows(
        self, connection: DuckDBPyConnection, names: Sequence[str]
    ) -> AbstractContextManager[DuckDBPyRelation]:
        """All records, with the columns ``names`` in that order, in the types of ``families``.

        ``PLACE`` among the names is no column of the records: it says where each record is, such as
        the file, or partition and offset. NULL where the system cannot say.

        The relation can be scanned once, inside the context, and streams with bounded memory.
        Errors of the system are raised by the context's exit.
        """

    def unfolded(self, rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        """The records that the sink would have made of these rows, with these columns.

        Of a system whose columns are within those of the sink's input.
        """
        return rows

    def left_behind(self) -> LeftBehind | None:
        """Unfinished writes that exist now; None: the system cannot tell. Read-only."""
        return None


class Side(ABC):
    """How targets of one format are read by the audit; ``SinkFormat.audit`` names such a class."""

    def __init__(self, format: SinkFormat) -> None:  # noqa: A002 - Spark's word for it
        self.format = format

    @abstractmethod
    def at(self, url: str, table: str | None, null: str | None, stateschema: str) -> Relation:
        """The relation at a URL, without connecting.

        Args:
            table: as given by the user; None: none was.
            null: the text for NULL in CSV files.
            stateschema: where registers are, in systems that have schemas.

        Raises:
            OptionError: the URL cannot be read, or no table is named, or one where there is none; the
                message shows no URL (I9).
        """

    @abstractmethod
    def of(self, options: Any) -> Relation:
        """What a sink with these options writes to, as its readers see it.

        Raises:
            ConfigError: that is not one relation.
        """

    def refused_by(self, options: Any) -> Callable[[str], bool]:
        """Whether a dead letter's ``sink`` is that of a sink with these options."""
        return lambda sink: True

    def letters(
        self, url: str, deadletter: str, table: str | None, stateschema: str
    ) -> tuple[KeptLetters | None, Callable[[str], bool]]:
        """The dead letters beside the relation at a URL, and whether a letter's ``sink`` is it.

        Args:
            deadletter: as in the sink's option; the others as in ``at``.
        """
        return self._kept(url, deadletter, table), lambda sink: True

    def _kept(
        self, url: str, deadletter: str, table: str | None, **more: str
    ) -> KeptLetters | None:
        places = self.format.letters()
        return None if places is None else places.at(url, deadletter, table, more)
