"""Third-party sink formats, installed as entry points of the group ``abs_sinks``.

    [project.entry-points.abs_sinks]
    abs-sqlite = "abs_sqlite:FORMAT"

The entry point's name is the format's, as users write it; its object is a ``SinkFormat``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

import pyarrow as pa

from abs_core.contracts import Committer, Inventory, Sink
from abs_core.errors import ConfigError

GROUP = "abs_sinks"


@dataclass(frozen=True, slots=True)
class SinkFormat:
    """A sink format, and what the ``abs`` commands need to manage its jobs.

    Args:
        schemes: URL schemes of its system, without ``://``. Each target identity (``Sink.target``)
            begins with one of them and a colon.
        sink: builds a sink from a job's options and input schema, without connecting; raises
            ``OptionError`` with everything that is wrong. It is also called to check options before
            the input is known, and for the sink's guarantee and target: then the schema is empty.
        look_after: returns the registers at a URL, and a committer for the handles of all jobs there.
        read: returns the rows that a reader sees at a URL, in the named table if one is given.
    """

    schemes: tuple[str, ...]
    sink: Callable[[Mapping[str, str], pa.Schema], Sink]
    look_after: Callable[[str], tuple[Inventory, Committer]]
    read: Callable[[str, str | None], pa.RecordBatchReader]


def format_names() -> list[str]:
    """The names of the installed third-party formats."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def format_named(name: str) -> SinkFormat | None:
    """The format of that name; None if it is not installed.

    Raises:
        ConfigError: it is installed but cannot be loaded.
    """
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            return _loaded(entry)
    return None


def format_of(scheme: str) -> SinkFormat | None:
    """The format with this URL scheme; None if none is installed.

    Raises:
        ConfigError: an installed format cannot be loaded.
    """
    formats = (_loaded(entry) for entry in entry_points(group=GROUP))
    return next((found for found in formats if scheme in found.schemes), None)


def _loaded(entry: EntryPoint) -> SinkFormat:
    whose = f"The entry point {entry.name} = {entry.value} of the group {GROUP}"
    try:
        found = entry.load()
    except Exception as error:
        # A third-party module may raise anything when it is imported.
        raise ConfigError(
            f"{whose} cannot be loaded: {type(error).__name__}: {error}.",
            remedy="repair or uninstall the package that provides it.",
        ) from error
    if not isinstance(found, SinkFormat):
        raise ConfigError(
            f"{whose} is a {type(found).__name__}, not a SinkFormat.",
            remedy="make it name an object of abs_core.formats.SinkFormat.",
        )
    return found
