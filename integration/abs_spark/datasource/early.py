"""Checks a format's options when its query is started.

Spark itself asks a format only when there are rows: with ``trigger(availableNow=True)`` and nothing
new in the source, a query with a misspelt option ends as if all were well. Spark shows the options of a
query that is about to start nowhere, so they are read from the private fields of its Java object. Where
a release of Spark has other fields, a warning says that they are checked with the first rows, as Spark
does. (What ``option`` and ``options`` were called with is no door: a writer may be older than
``register``, and would seem to lack options.)

No public door does this in PySpark 3.5 to 4.3: ``StreamingQueryListener.onQueryStarted`` tells neither
format nor options, and its errors are logged, not raised; ``DataSource.__init__`` and ``streamWriter``
are called with the first batch that has rows (Spark's PythonDataSourceV2.getTable makes no Python
object where the schema is known, which a writer's always is).
"""

from __future__ import annotations

import logging
from functools import cache, wraps
from typing import TYPE_CHECKING, Any

from abs_core.errors import ConfigError
from abs_sinks.door import format_named, format_names
from abs_spark.datasource.source import check_of_stream
from abs_spark.hooks import options_of
from abs_spark.sink_spec import parse

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_log = logging.getLogger("abs_spark.start")


@cache
def check_options_first() -> None:
    """Let ``DataStreamWriter.start`` raise a format's ``OptionError``; repeatable."""
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    start = DataStreamWriter.start

    @wraps(start)
    def checked(
        writer: DataStreamWriter,
        path: str | None = None,
        format: str | None = None,  # noqa: A002 - Spark's name for it
        outputMode: str | None = None,  # noqa: N803
        partitionBy: str | list[str] | None = None,  # noqa: N803
        queryName: str | None = None,  # noqa: N803
        **options: bool | float | int | str | None,
    ) -> StreamingQuery:
        if format is not None:
            writer.format(format)
        writer.options(**options)
        _check(writer)
        return start(writer, path, None, outputMode, partitionBy, queryName)

    DataStreamWriter.start = checked  # type: ignore[method-assign,assignment]


def _check(writer: DataStreamWriter) -> None:
    """Raise OptionError for options that the query's format would refuse."""
    from py4j.protocol import Py4JError

    try:
        name, options = _field(writer, "source"), dict(options_of(_field(writer, "extraOptions")))
    except (Py4JError, AttributeError, TypeError) as error:
        _log.warning(
            "This Spark does not tell the options of a query that is about to start, so they are "
            "checked with its first rows: %s",
            error,
        )
        return
    if name not in format_names():
        return
    try:
        kind = format_named(name)
    except ConfigError:
        return  # this Python lacks a library that Spark's may have
    check_of_stream(kind.name, parse(kind, options, started=False))


def _field(writer: DataStreamWriter, name: str) -> Any:
    java: Any = writer._jwrite
    field = java.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(java)
