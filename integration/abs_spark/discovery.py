"""The classes under which Spark finds the formats.

Spark imports every top-level module ``pyspark_*`` and takes its ``DefaultSource``; one exception there
turns discovery off for all formats. So a format's libraries are imported when it is used. A package
with a sink of its own (``abs_sinks.door``) brings such a module, too:

    DefaultSource = default_source("abs-sqlite")
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator, MutableMapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from abs_clients.extras import missing

_PREFIX = "pyspark_abs_"


def default_source(name: str, of: str | None = None) -> type[DataSource]:
    """The class under which Spark finds the format; it imports the format's own class when used.

    Args:
        name: of the format.
        of: ``module:class`` of one that can be read, too; None: the sink of that name.
    """

    class Found(DataSource):
        """Stands for an object of the format's own class, which it makes when it is used or unpickled.

        For the commit process Spark makes one in a process of its own, which only pickles it: that is
        in the way of a run's first commit, and needs no library of the format.
        """

        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> StructType | str:
            return self._own().schema()

        def reader(self, schema: StructType) -> DataSourceReader:
            return self._own().reader(schema)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            return self._own().streamReader(schema)

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            return self._own().writer(schema, overwrite)

        def streamWriter(  # noqa: N802
            self, schema: StructType, overwrite: bool
        ) -> DataSourceStreamWriter:
            return self._own().streamWriter(schema, overwrite)

        def __reduce__(self) -> tuple[Any, ...]:
            # Made in the other process, once for each epoch: so what names the start goes along.
            return sent, (name, self.options, of, secrets.token_hex(8))

        def _own(self) -> DataSource:
            return made(name, self.options, of)

    return Found


def default_sources() -> Iterator[type[DataSource]]:
    """Those that Spark discovers in this process."""
    for module in iter_modules():
        if module.name.startswith(_PREFIX):
            source: type[DataSource] = import_module(module.name).DefaultSource
            yield source


def made(name: str, options: MutableMapping[str, str], of: str | None = None) -> DataSource:
    """The format as Spark uses it; for the arguments see ``default_source``.

    Raises:
        ImportError: it cannot be used here; the text has the reason.
    """
    try:
        if of is None:
            from abs_sinks.door import format_named
            from abs_spark.datasource.source import AbsDataSource

            return AbsDataSource(options, format_named(name))
        module, _, attribute = of.partition(":")
        own: type[DataSource] = getattr(import_module(module), attribute)
    except Exception as error:
        lacking = missing(error, "It") if isinstance(error, ImportError) else None
        raise ImportError(
            f"{name} cannot be used: {lacking or f'{type(error).__name__}: {error}'}. It needs "
            "PySpark 4.1 or newer with pyarrow (on 3.5 and 4.0 write through abs_spark.epoch in "
            "foreachBatch), and abs-sinks installed with its dependencies for Spark's Python, which "
            f"is {sys.executable}: set PYSPARK_PYTHON to another one before the session is made."
        ) from error
    return own(options)


def sent(
    name: str, options: MutableMapping[str, str], of: str | None, query_start: str
) -> DataSource:
    """``made``, in a process to which Spark sends the format's object for a start of a query."""
    own = made(name, options, of)
    own.query_start = query_start  # type: ignore[attr-defined]
    return own
