"""A sink of an epoch as the user describes it: format, options, and the rows it gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from abs_core.errors import OptionError
from abs_sinks.deadletters.letter import LETTERS
from abs_sinks.door import as_input, format_named
from abs_sinks.options import ToSink, sink_or
from abs_spark.hooks import install_hooks
from abs_spark.sink_spec import described, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OF_THE_EPOCH = {
    "job": "give it to abs_spark.epoch(..., job=...)",
    "checkpointlocation": "give it to abs_spark.epoch(..., checkpointLocation=...)",
    "adopt": "give it to abs_spark.epoch(..., adopt=...)",
    "epoch": "leave it out: a stream counts its own epochs",
}


@dataclass(frozen=True, slots=True, repr=False)
class EpochSink:
    """See ``abs_spark.sink``, which makes one. ``repr`` shows target and guarantee (I9)."""

    format: str
    options: Mapping[str, str]
    name: str = ""
    select: tuple[str, ...] = ()
    where: str | None = None
    transform: Callable[[DataFrame], DataFrame] | None = None

    def __repr__(self) -> str:
        which = f"{self.name or '-'}: {self.format} to {described(self.format, self.options)}"
        rows = f", rows where {self.where}" if self.where is not None else ""
        return f"<{which}{rows}>"


def sink(
    format: str,  # noqa: A002 - Spark's word for it
    options: Mapping[str, Any],
    *,
    name: str = "",
    select: Sequence[str] = (),
    where: str | None = None,
    transform: Callable[[DataFrame], DataFrame] | None = None,
) -> EpochSink:
    """Describe one sink of an epoch, and check its options; it installs the hooks of ``abs_spark``.

    It connects to nothing.

    Args:
        format: ``abs-postgres``, ``abs-kafka`` or ``abs-s3``; or one of another package's sinks.
        options: as for ``writeStream.format(...).option(...)``.
        name: distinguishes the job's sinks in the register; needed if there are several.
        select: SQL expressions of its columns, each computed from one row alone; default: all columns.
        where: SQL condition of its rows; a row for which it is NULL is omitted.
        transform: makes its rows from the micro-batch, by any function of a DataFrame. It costs a
            separate Spark job, and cannot be combined with ``select`` and ``where``.

    Raises:
        OptionError: the format is unknown, an option is wrong or belongs to the epoch.
    """
    install_hooks()
    kind = format_named(format)
    settings = {str(key): str(value) for key, value in options.items()}
    for key, value in settings.items():
        if key.lower() == "replay" and value.strip().lower() == "token":
            raise OptionError(
                "replay=token trusts the option epoch of a batch write; a sink in an epoch has none.",
                remedy="leave it out, or use replay=count.",
            )
        if key.lower() in _OF_THE_EPOCH:
            raise OptionError(
                f"The option {key} is not an option of a sink in an epoch.",
                remedy=f"{_OF_THE_EPOCH[key.lower()]}.",
            )
    if isinstance(select, str):
        raise OptionError(
            "select must be a list of SQL expressions, not one string.",
            remedy=f"write select=[{select!r}].",
        )
    if transform is not None and (select or where is not None):
        raise OptionError(
            f"The sink {name or format} has both a transform and select or where.",
            remedy="do all of it in the transform.",
        )
    # The place of the log follows from the epoch's checkpoint, which is not known yet.
    parse(kind, {**settings, "checkpointLocation": "/"}, started=False)
    return EpochSink(format, settings, name, tuple(select), where, transform)


def letters_of(sinks: Sequence[EpochSink]) -> dict[int, int]:
    """The sinks whose dead letters another one of the list gets: its place, by theirs.

    Raises:
        OptionError: there is no such sink, it cannot be one, or another option does not fit it.
    """
    places = {sink.name: place for place, sink in enumerate(sinks)}
    takers: dict[int, int] = {}
    for place, sink in enumerate(sinks):
        if (name := _letters_sink(sink)) is None:
            continue
        other = places.get(name)
        if other is None or other == place:
            raise OptionError(
                f"The sink {sink.name or sink.format} names {name!r} for its dead letters, which is no "
                "other sink of this epoch.",
                remedy=f"name one of {', '.join(filter(None, places)) or 'its sinks'}.",
            )
        wrong = _wrong_with(sink, sinks[other])
        if wrong is not None:
            raise wrong
        takers[place] = other
    return takers


def letters_schema(sink: EpochSink) -> pa.Schema:
    """The columns that a sink for dead letters gets."""
    return as_input(format_named(sink.format), pa.RecordBatch.from_pylist([], LETTERS)).schema


def _letters_sink(sink: EpochSink) -> str | None:
    option = {key.lower(): value for key, value in sink.options.items()}.get("deadletter", "")
    place = sink_or(str)(option)
    return place.name if isinstance(place, ToSink) else None


def _wrong_with(sink: EpochSink, other: EpochSink) -> OptionError | None:
    if not format_named(sink.format).buries:
        return OptionError(
            f"The sink {sink.name} ({sink.format}) cannot give its dead letters to another sink.",
            remedy="let its option deadletter name a place of its own system.",
        )
    if sink.transform is not None:
        return OptionError(
            f"The sink {sink.name} has a transform, and gives its dead letters to another sink.",
            remedy="use select and where; or let deadletter name a place of its own system.",
        )
    if other.select or other.where is not None or other.transform is not None:
        return OptionError(
            f"The sink {other.name} gets dead letters, and has select, where or transform.",
            remedy="leave them out: it gets no rows of the batch.",
        )
    if "deadletter" in map(str.lower, other.options):
        return OptionError(
            f"The sink {other.name} gets dead letters, and has the option deadletter itself.",
            remedy="leave it out: a dead letter that is refused stops the query.",
        )
    return None
