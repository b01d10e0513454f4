"""Converts messages to Arrow batches with the columns of Spark's own Kafka source."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Message

from abs_clients.kafka.attempts import HEADER
from abs_core.errors import DataError

Headers = list[tuple[str, bytes | None]]

UNREADABLE: Headers = []
"""In place of headers with a key that is not UTF-8; Kafka's format allows it."""

_MAX_MILLIS = (2**63 - 1) // 1000

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_HEADERS = pa.field("headers", pa.list_(pa.field("element", _HEADER)))

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("timestampType", pa.int32()),
    ]
)
"""As Spark's source without ``includeHeaders``; ``timestampType``: 0 creation, 1 append to the log."""

SCHEMA_WITH_HEADERS = SCHEMA.append(_HEADERS)


def batch_of(
    messages: Sequence[Message],
    offsets: npt.NDArray[np.int64],
    topic: str,
    partition: int,
    *,
    headers: Sequence[Headers | None] | None,
    hidden: str | None = None,
) -> pa.RecordBatch:
    """One partition's messages as a batch of ``SCHEMA`` (or ``SCHEMA_WITH_HEADERS``).

    Args:
        messages: without errors and events.
        headers: of each message, as ``headers_of`` gives them; None: there is no such column.
        hidden: the key of a header that is not shown.

    Raises:
        DataError: a record's time is outside of the type's range, or its headers cannot be read.
    """
    rows = len(messages)
    times = chain.from_iterable(map(Message.timestamp, messages))
    kinds, millis = np.fromiter(times, np.int64, count=2 * rows).reshape(rows, 2).T
    wrong = (millis > _MAX_MILLIS) | (millis < -_MAX_MILLIS)
    if wrong.any():
        at = int(wrong.argmax())
        raise _unreadable(
            messages[at],
            f"a record time of {millis[at]} milliseconds since 1970, which no timestamp can hold: its "
            "producer probably gave nanoseconds",
        )
    columns = [
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(list(map(Message.value, messages)), pa.binary()),
        pa.repeat(pa.scalar(topic, pa.string()), rows),
        pa.repeat(pa.scalar(partition, pa.int32()), rows),
        pa.array(offsets, pa.int64()),
        pa.array(millis * 1000, pa.int64()).view(pa.timestamp("us", "UTC")),
        # librdkafka counts from 1, and 0 means "not known"; Java from 0, and -1.
        pa.array((kinds - 1).astype(np.int32)),
    ]
    if headers is None:
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    pairs = zip(messages, headers, strict=True)
    shown = (_shown(message, its_headers, hidden) for message, its_headers in pairs)
    columns.append(pa.array(shown, _HEADERS.type))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA_WITH_HEADERS)


def headers_of(messages: Sequence[Message]) -> list[Headers | None]:
    """The headers of each message; None if it has none, ``UNREADABLE`` if they cannot be read.

    Asks each message once: after a failure confluent-kafka 2.16 gives out a list with null pointers.
    """
    headers: list[Headers | None] = []
    rest: Any = map(Message.headers, messages)
    while len(headers) < len(messages):
        try:
            headers.extend(rest)
        except (SystemError, UnicodeDecodeError):  # the first one is raised by its C code
            headers.append(UNREADABLE)
    return headers


def attempt_of(message: Message, headers: Headers | None) -> bytes | None:
    """The value of the attempt's header, the last one of several; raises as ``_checked``."""
    return dict(_checked(message, headers)).get(HEADER) if headers is not None else None


def _shown(
    message: Message, headers: Headers | None, hidden: str | None
) -> list[dict[str, object]] | None:
    """None without headers, as in Spark."""
    pairs = [] if headers is None else _checked(message, headers)
    return [{"key": key, "value": value} for key, value in pairs if key != hidden] or None


def _checked(message: Message, headers: Headers) -> Headers:
    """The headers; raises DataError if they cannot be read."""
    if headers is UNREADABLE:
        raise _unreadable(
            message,
            "a header whose key is not UTF-8 text, so its headers cannot be read",
            "leave out includeHeaders and set winners=false: then headers are not read; or ",
        )
    return headers


def _unreadable(message: Message, defect: str, instead: str = "") -> DataError:
    topic, partition, offset = message.topic(), message.partition(), message.offset() or 0
    return DataError(
        f"Kafka: the record at offset {offset} of {topic}-{partition} has {defect}.",
        # Not a new start behind it: that would leave out the records before it, too, whose epoch is
        # not written.
        remedy=f"{instead}leave this one record out: set skipOffsets="
        f'{{"{topic}":{{"{partition}":[{offset}]}}}} and restart on the same checkpoint; have its '
        "producer send it again in a form that can be read.",
    )
