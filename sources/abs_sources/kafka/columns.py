"""Converts messages to Arrow batches with the columns of Spark's own Kafka source."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Message

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
    headers: bool,
    hidden: str | None = None,
) -> pa.RecordBatch:
    """One partition's messages as a batch of ``SCHEMA`` (or ``SCHEMA_WITH_HEADERS``).

    Args:
        messages: without errors and events.
        hidden: the key of a header that is not shown.
    """
    rows = len(messages)
    times = chain.from_iterable(map(Message.timestamp, messages))
    kinds, millis = np.fromiter(times, np.int64, count=2 * rows).reshape(rows, 2).T
    columns = [
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(list(map(Message.value, messages)), pa.binary()),
        pa.repeat(pa.scalar(topic, pa.string()), rows),
        pa.repeat(pa.scalar(partition, pa.int32()), rows),
        pa.array(offsets, pa.int64()),
        pa.array(millis * 1000, pa.int64()).view(pa.timestamp("us", "UTC")),
        # librdkafka counts from 1, and 0 is none; Java from 0, and -1 is none.
        pa.array((kinds - 1).astype(np.int32)),
    ]
    if not headers:
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    columns.append(pa.array((_headers(m, hidden) for m in messages), _HEADERS.type))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA_WITH_HEADERS)


def _headers(message: Message, hidden: str | None) -> list[dict[str, object]] | None:
    """None without headers, as in Spark."""
    found: Any = message.headers()
    shown = [{"key": key, "value": value} for key, value in found or () if key != hidden]
    return shown or None
