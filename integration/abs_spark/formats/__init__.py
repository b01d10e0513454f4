"""The kinds of sink, by the name that Spark users write; each is imported when it is asked for.

Those of other packages are found by their entry points.

Nothing here needs Spark's Python data sources, which there are from PySpark 4.1 on.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from abs_clients.extras import missing
from abs_core.errors import AbsError, OptionError
from abs_core.formats import GROUP, format_names
from abs_core.model import Guarantee
from abs_spark.formats.others import other_format
from abs_spark.target import Format

_MODULES = {
    "abs-kafka": "abs_spark.formats.kafka",
    "abs-postgres": "abs_spark.formats.postgres",
    "abs-s3": "abs_spark.formats.s3",
}


def sink_format(name: str) -> Format:
    """The format of that name.

    Raises:
        OptionError: there is none.
        ConfigError: an extra of this package that it needs is not installed, or another package that
            has the format cannot be loaded.
    """
    if name in _MODULES:
        try:
            ours: Format = import_module(_MODULES[name]).FORMAT
        except ImportError as error:
            lacking = missing(error, f"The sink {name}")
            if lacking is None:
                raise
            raise lacking from error
        return ours
    found = other_format(name)
    if found is None:
        known = ", ".join([*sorted(_MODULES), *format_names()])
        raise OptionError(
            f"There is no sink {name!r}.",
            remedy=f"use one of {known}; a sink of another package is found by its entry point of the "
            f"group {GROUP}.",
        )
    return found


def described(format_: str, options: Mapping[str, str]) -> str:
    """A sink's target and guarantee, as far as its options tell them; no secret (I9)."""
    try:
        kind = sink_format(format_)
        parsed = kind.parse(options)
        promise = kind.guarantee(parsed)
    except AbsError as error:
        return f"its options cannot be used: {error.what}"
    return f"{kind.where(parsed)}: {promised(promise)}"


def promised(promise: Guarantee) -> str:
    """What a sink promises, in one line."""
    how = f"protocol {promise.protocol}, write {promise.write}"
    return f"every row exactly once ({how}); visible {promise.visibility}"
