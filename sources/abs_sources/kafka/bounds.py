"""The options for start and end offsets, parsed into values; the syntax is Spark's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from abs_core.errors import OptionError
from abs_core.strictjson import decimal, fields, parse, whole
from abs_sources.kafka.offsets import Partition

EARLIEST, LATEST = -2, -1
"""Offsets that mean the oldest record and the end, in the JSON of Spark's options."""

DATA_LOSS_REMEDY = (
    "if these records are not needed, set failOnDataLoss=false for one start; else restore the topic. "
    "With a new checkpoint the job begins at startingOffsets, and may write rows a second time."
)
"""What to do where records are gone that are still to be read."""


@dataclass(frozen=True, slots=True)
class Bound:
    """An unresolved start or end; exactly one of the three is set.

    Args:
        everywhere: ``EARLIEST`` or ``LATEST``.
        offsets: an offset, ``EARLIEST`` or ``LATEST`` for every partition.
        times: milliseconds since 1970 by partition, or for all under None: the first record at
            that time or later.
    """

    everywhere: int | None = None
    offsets: Mapping[Partition, int] = field(default_factory=dict)
    times: Mapping[Partition | None, int] = field(default_factory=dict)


def a_start(text: str) -> Bound:
    """``earliest``, ``latest``, or JSON with an offset per partition (-2 earliest, -1 latest)."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Bound(everywhere=EARLIEST if word == "earliest" else LATEST)
    return Bound(offsets=_by_partition(text, least=EARLIEST, words="earliest, latest or "))


def end_offset(text: str) -> Bound:
    """``latest``, or JSON with an offset per partition (-1 latest)."""
    if text.strip().lower() == "latest":
        return Bound(everywhere=LATEST)
    return Bound(offsets=_by_partition(text, least=LATEST, words="latest or "))


def timestamp(text: str) -> Bound:
    """Milliseconds since 1970, for all partitions."""
    try:
        return Bound(times={None: decimal(text.strip())})
    except ValueError as error:
        raise ValueError("a number of milliseconds since 1970") from error


def times(text: str) -> Bound:
    """JSON with milliseconds since 1970 per partition."""
    return Bound(times=dict(_by_partition(text, least=0).items()))


def assigned(text: str) -> tuple[Partition, ...]:
    """JSON with a list of partitions per topic."""
    shape = 'JSON like {"topic": [0, 1]}'
    document = _json(text, shape)
    try:
        partitions = [(topic, whole(n, 0)) for topic, numbers in document.items() for n in numbers]
    except (TypeError, ValueError) as error:
        raise ValueError(shape) from error
    if not partitions or len(set(partitions)) != len(partitions):
        raise ValueError("a list with at least one partition, and none twice")
    return tuple(sorted(partitions))


def record_places(text: str) -> frozenset[tuple[str, int, int]]:
    """JSON with a list of offsets per partition."""
    shape = 'JSON like {"topic": {"0": [17]}}'
    try:
        return frozenset(
            (topic, decimal(number), whole(offset, 0))
            for topic, of in _json(text, shape).items()
            for number, offsets in of.items()
            for offset in offsets
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(shape) from error


def names(text: str) -> tuple[str, ...]:
    """Topics, separated by commas."""
    topics = [name.strip() for name in text.split(",")]
    if not all(topics) or len(set(topics)) != len(topics):
        raise ValueError("a list of topics separated by commas, none empty and none twice")
    return tuple(sorted(topics))


def _by_partition(text: str, least: int, words: str = "") -> dict[Partition, int]:
    shape = 'JSON like {"topic": {"0": 12, "1": 3}}'
    document = _json(text, f"{words}{shape}")
    try:
        values = {
            (topic, decimal(number)): whole(value, least)
            for topic, of in document.items()
            for number, value in of.items()
        }
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{shape}, with numbers from {least} on") from error
    if not values:
        raise ValueError(f"{shape}, and not empty")
    return values


def _json(text: str, wanted: str) -> dict[str, Any]:
    try:
        return fields(parse(text))
    except ValueError as error:
        raise ValueError(wanted) from error


def resolve(
    bound: Bound,
    first: Mapping[Partition, int],
    end: Mapping[Partition, int],
    at: Callable[[Mapping[Partition, int]], Mapping[Partition, int | None]],
    *,
    without: int | None,
    option: str,
) -> dict[Partition, int]:
    """The offset of each partition that a bound means.

    Args:
        first: the oldest offset of each partition to read.
        end: the offset after the newest.
        at: looks up the first offset at or after a time; None if there is none.
        without: for a partition without such a record; None: an error.
        option: for messages.

    Raises:
        OptionError: it names other partitions than exist, or a time after all records.
    """
    if bound.everywhere is not None:
        return dict(first if bound.everywhere == EARLIEST else end)
    if bound.offsets:
        _all_named(bound.offsets, first, option)
        special = {EARLIEST: first, LATEST: end}
        return {p: special[o][p] if o in special else o for p, o in bound.offsets.items()}
    wanted = bound.times
    if None not in wanted:
        _all_named(wanted, first, option)
    asked = {p: wanted[None] if None in wanted else wanted[p] for p in first}
    offsets = at(asked)
    missing = [f"{t}-{n}" for (t, n) in sorted(first) if offsets[t, n] is None]
    if missing and without is None:
        raise OptionError(
            f"{option}: no record with such a time, or a later one, in {', '.join(missing)}.",
            remedy="take an earlier time, or startingOffsetsByTimestampStrategy=latest.",
        )
    return {p: end[p] if offset is None else offset for p, offset in offsets.items()}


def _all_named(offsets: Mapping[Any, int], there: Mapping[Partition, int], option: str) -> None:
    unknown = sorted(f"{t}-{n}" for t, n in set(offsets) - set(there))
    missing = sorted(f"{t}-{n}" for t, n in set(there) - set(offsets))
    if unknown or missing:
        raise OptionError(
            f"{option} names partitions that are not read: {unknown or 'none'}; not named, but "
            f"read, are: {missing or 'none'}.",
            remedy="name every partition that is read, and no other (-2 is earliest, -1 latest).",
        )
