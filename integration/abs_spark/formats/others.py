"""Sinks of other packages in an epoch, by their entry points; see ``abs_core.formats``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from abs_clients.options import Problems, read_options
from abs_core.contracts import CoCommitter, Sink
from abs_core.errors import ConfigError, OptionError
from abs_core.formats import format_named
from abs_core.model import Guarantee
from abs_core.patience import Patience
from abs_sinks.options import COMMON, CommonOptions
from abs_spark.target import Format

_OURS = frozenset({"patience", "replay", "checkpointlocation"})
"""Options that the engine reads; the sink gets all others, and none of these."""


@dataclass(frozen=True, slots=True)
class OtherOptions:
    """Options of a sink of another package; which of them is a secret, only that knows (I9)."""

    format: str
    given: tuple[tuple[str, str], ...] = field(repr=False)
    common: CommonOptions

    @property
    def patience(self) -> Patience:
        return Patience(self.common.patience, system=f"the target of {self.format}")


@dataclass(frozen=True, slots=True)
class Parse:
    """Reads the options of one format; equal to itself once it is unpickled, as a partial is not."""

    format: str

    def __call__(self, given: Mapping[str, str]) -> OtherOptions:
        problems = Problems(self.format)
        theirs = of_the_sink(given)
        ours = {name: text for name, text in given.items() if name not in theirs}
        common = CommonOptions.of(read_options(ours, COMMON, problems))
        problems.raise_any()
        options = OtherOptions(self.format, tuple(sorted(theirs.items())), common)
        protocol = guarantee(options).protocol
        return replace(options, common=replace(common, protocol=protocol))


def of_the_sink(given: Mapping[str, str]) -> dict[str, str]:
    """The options that the sink gets, of those that a job gives."""
    return {name: text for name, text in given.items() if name.lower() not in _OURS}


def make(options: OtherOptions, schema: pa.Schema, *, co_commit: bool = True) -> Sink:
    """The sink.

    Raises:
        ConfigError: its package is not installed here.
        OptionError: without ``co_commit``: it commits its rows together with its own register.
    """
    found = format_named(options.format)
    if found is None:
        raise ConfigError(
            f"The package of the sink {options.format} is not installed here.",
            remedy="install it for the driver and for every executor.",
        )
    sink = found.sink(dict(options.given), schema)
    if not co_commit and isinstance(sink.committer(), CoCommitter):
        sink.close()
        raise OptionError(
            f"The sink {options.format} commits rows and register in one transaction, and cannot be "
            "used together with other sinks.",
            remedy="use it alone, or with another protocol of it.",
        )
    return sink


def guarantee(options: OtherOptions) -> Guarantee:
    """What the sink promises under its options."""
    sink = make(options, pa.schema([]))
    try:
        return sink.guarantee()
    finally:
        sink.close()


def where(options: OtherOptions) -> str:
    """No more than the format: an option's value may be a secret."""
    return f"a target of {options.format}"


def other_format(name: str) -> Format | None:
    """The format of another package; None if none of that name is installed.

    Raises:
        ConfigError: it cannot be loaded.
    """
    if format_named(name) is None:
        return None
    return Format(name, Parse(name), make, guarantee, where)
