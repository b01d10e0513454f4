"""The classes under which Spark finds the formats.

Spark imports every top-level module ``pyspark_*`` and takes its ``DefaultSource``; one exception there
turns discovery off for all formats. So a format's libraries are imported when it is used. A package
with a sink of its own (``abs_sinks.door``) brings such a module, too:

    DefaultSource = default_source("abs-sqlite")
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, MutableMapping
from importlib import import_module
from pkgutil import iter_modules

from pyspark.sql.datasource import DataSource

from abs_clients.extras import missing

_PREFIX = "pyspark_abs_"


def default_source(name: str, of: str | None = None) -> type[DataSource]:
    """The class under which Spark finds the format; it imports the format's own class when used.

    Args:
        name: of the format.
        of: ``module:class`` of one that can be read, too; None: the sink of that name.
    """

    class Found(DataSource):
        """Makes an instance of the format's own class, or raises ImportError."""

        def __new__(cls, options: MutableMapping[str, str]) -> DataSource:  # type: ignore[misc]
            return made(name, options, of)

        @classmethod
        def name(cls) -> str:
            return name

    return Found


def default_sources() -> Iterator[type[DataSource]]:
    """Those that Spark discovers in this process."""
    for module in iter_modules():
        if module.name.startswith(_PREFIX):
            found: type[DataSource] = import_module(module.name).DefaultSource
            yield found


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
