"""From Arrow columns to Kafka records, with the semantics of Spark's own Kafka sink.

Columns, by name in any case (``org.apache.spark.sql.kafka010.KafkaWriter``):

| column | type | |
| --- | --- | --- |
| value | string or binary | required; null is a tombstone |
| key | string or binary | optional; null: no key |
| headers | array of struct(key string, value binary) | optional |
| topic | string | required where the option ``topic`` is not given, which overrides it |
| partition | int | optional; null: by key as the Java client does, without a key any |
| timestamp | timestamp | optional (not in Spark's sink); null: the time of sending |

Other columns are not written, as in Spark. Strings are sent as UTF-8. A header ``abs.attempt`` in the
input is left out: the sink sets its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from abs_clients.arrow import is_bytes, is_text, type_name
from abs_clients.buffers import bytes_of, offsets_of
from abs_clients.kafka.attempts import HEADER as ATTEMPT
from abs_core.errors import SchemaError
from abs_sinks.kafka.headers import Header, encoded_headers, header_bytes
from abs_sinks.refusals import Code, Reason, inside, refuse

COLUMNS = ("key", "value", "headers", "topic", "partition", "timestamp")

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""The type of ``Records.headers``."""

SEGMENT = pa.schema(
    [
        ("abs:key", pa.binary()),
        ("abs:value", pa.binary()),
        ("abs:headers", HEADERS),
        ("abs:topic", pa.string()),
        ("abs:partition", pa.int32()),
        ("abs:timestamp", pa.int64()),
    ]
)
"""Columns of a segment with records of several topics, the option's among them (dead letters).

An older release, which would send all of them to one topic, finds no column ``value`` and refuses.
"""

RECORD_OVERHEAD = 100
"""Upper bound of a record's bytes besides key, value and headers, batch header included."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The input's columns: the index of each that is written, by ``COLUMNS``, and the other names."""

    written: Mapping[str, int]
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Records:
    """Records as normalised columns of ``rows`` entries each; None: the column is absent.

    Args:
        headers: list of struct(key string, value binary).
        topics: without nulls; None: all records go to the option's topic.
        partitions: null: the partitioner chooses.
        timestamps: milliseconds since 1970; null: now.
    """

    values: pa.BinaryArray
    keys: pa.BinaryArray | None
    headers: pa.ListArray | None
    topics: pa.StringArray | None
    partitions: pa.Int32Array | None
    timestamps: pa.Int64Array | None

    @property
    def rows(self) -> int:
        return len(self.values)


def plan_columns(schema: pa.Schema, topic: str | None) -> Columns:
    """Find the columns by name and check their types.

    Raises:
        SchemaError: ``value`` or ``topic`` is missing, a name occurs twice, or a type is wrong.
    """
    places: dict[str, int] = {}
    left_out = []
    for index, field in enumerate(schema):
        name = field.name.lower()
        if name not in COLUMNS:
            left_out.append(field.name)
            continue
        if name in places:
            raise SchemaError(
                f"The column {name} appears twice: {schema.names[places[name]]} and {field.name}.",
                remedy="drop one of them, or rename it.",
            )
        places[name] = index
        _check_type(name, field.type)
    if "value" not in places:
        raise SchemaError(
            f"There is no column value among {', '.join(schema.names)}.",
            remedy="name what goes into the records: select(... AS key, ... AS value).",
        )
    if topic is None and "topic" not in places:
        raise SchemaError(
            "Neither the option topic nor a column topic says where the records go.",
            remedy="set the option topic.",
        )
    if topic is not None and "topic" in places:
        left_out.append(schema.names[places.pop("topic")])
    return Columns(places, tuple(left_out))


def refuse_wall_clock(schema: pa.Schema, columns: Columns) -> None:
    """Raise SchemaError for a record's time without a zone; not for what a log holds already."""
    at = columns.written.get("timestamp")
    if at is not None and schema.field(at).type.tz is None:
        raise SchemaError(
            "The column timestamp is a wall clock (Spark TIMESTAMP_NTZ), and a record's time is a "
            "moment: which one depends on a time zone.",
            remedy="cast it: CAST(timestamp AS TIMESTAMP), by the session's time zone.",
        )


def _check_type(name: str, arrow: pa.DataType) -> None:
    fits, wanted, remedy = _TYPES[name]
    if not fits(arrow):
        raise SchemaError(
            f"The column {name} is of type {type_name(arrow)}, and must be {wanted}.",
            remedy=remedy.format(name),
        )


def _is_either(arrow: pa.DataType) -> bool:
    return is_text(arrow) or is_bytes(arrow)


def _is_headers(arrow: pa.DataType) -> bool:
    if not (pa.types.is_list(arrow) or pa.types.is_large_list(arrow)):
        return False
    item = arrow.value_type
    if not pa.types.is_struct(item) or item.num_fields != 2:
        return False
    return is_text(item.field(0).type) and _is_either(item.field(1).type)


_JSON = "cast it: CAST({0} AS STRING) or CAST({0} AS BINARY); for JSON use to_json."
_TYPES = {
    "key": (_is_either, "a string or a binary", _JSON),
    "value": (_is_either, "a string or a binary", _JSON),
    "headers": (
        _is_headers,
        "an array of struct(key string, value binary)",
        "cast it: CAST(headers AS ARRAY<STRUCT<key: STRING, value: BINARY>>).",
    ),
    "topic": (is_text, "a string", "cast it: CAST(topic AS STRING)."),
    "partition": (pa.types.is_int32, "an int (32 bits)", "cast it: CAST(partition AS INT)."),
    "timestamp": (
        pa.types.is_timestamp,
        "a timestamp",
        "cast it: CAST(timestamp AS TIMESTAMP).",
    ),
}
"""The type check of each column, the type in words, and the remedy."""


def records_of(batch: pa.RecordBatch, columns: Columns) -> Records:
    """Convert a batch to records.

    Raises:
        BadValuesError: a topic or a header's key is null, a partition is negative, or a timestamp is
            not after the start of 1970.
    """
    taken: dict[str, Any] = {name: batch.column(at) for name, at in columns.written.items()}
    if (topics := taken.get("topic")) is not None:
        topics = topics.cast(pa.string())
        refuse(Reason(Code.NULL, "topic", "are NULL", "set the option topic"), topics.is_null())
    if (partitions := taken.get("partition")) is not None:
        negative = pc.less(partitions, 0)
        remedy = "correct the column partition"
        refuse(Reason(Code.PARTITION, "partition", "are negative", remedy), negative)
    return Records(
        values=_binary(taken["value"]),
        keys=_binary(taken["key"]) if "key" in taken else None,
        headers=_headers(taken["headers"]) if "headers" in taken else None,
        topics=topics,
        partitions=partitions,
        timestamps=_millis(taken["timestamp"]) if "timestamp" in taken else None,
    )


def segment_of(records: Records) -> pa.RecordBatch:
    """The records as rows of a segment (``SEGMENT``)."""
    parts = (
        records.keys,
        records.values,
        records.headers,
        records.topics,
        records.partitions,
        records.timestamps,
    )
    columns = [
        pa.nulls(records.rows, field.type) if column is None else column.cast(field.type)
        for column, field in zip(parts, SEGMENT, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SEGMENT)


def records_in(batch: pa.RecordBatch, topic: str | None) -> Records:
    """The records of a segment's batch: of ``SEGMENT``, or of the input's columns.

    Args:
        topic: the option's.
    """
    if batch.schema.names[: len(SEGMENT)] != SEGMENT.names:
        return records_of(batch, plan_columns(batch.schema, topic))
    key, value, *others = batch.columns[: len(SEGMENT)]
    headers, topics, partitions, timestamps = (
        None if column.null_count == len(column) else column for column in others
    )
    return Records(value, key, headers, topics, partitions, timestamps)


def slices(records: Records, rows: int) -> Iterator[Records]:
    """Slices of so many rows."""
    for start in range(0, records.rows, rows):
        yield records if records.rows <= rows else sliced(records, start, rows)


def sliced(records: Records, start: int, count: int) -> Records:
    """A slice of the records, without a copy."""
    return _each_column([records], lambda columns: columns[0].slice(start, count))


def by_topic(records: Records, topic: str) -> Iterator[tuple[str, Records]]:
    """The records of each topic, without the column; ``topic`` is of those that name none."""
    if records.topics is None:
        yield topic, records
        return
    named = records.topics.fill_null(topic)
    for name in pc.unique(named).to_pylist():
        rows = pc.equal(named, name)
        yield name, replace(_each_column([records], partial(_among, rows)), topics=None)


def _among(rows: pa.BooleanArray, columns: list[pa.Array]) -> pa.Array:
    return columns[0].filter(rows)


def joined(parts: Sequence[Records]) -> Records:
    """The records of all parts, which have the same columns."""
    return _each_column(parts, pa.concat_arrays)


def _each_column(parts: Sequence[Records], made: Callable[[list[pa.Array]], pa.Array]) -> Records:
    columns = {
        field.name: [getattr(part, field.name) for part in parts] for field in fields(Records)
    }
    return Records(**{n: None if c[0] is None else made(c) for n, c in columns.items()})


def single(key: bytes, value: bytes | None, *, partition: int) -> Records:
    """One record, for a given partition."""
    # As buffers: pa.array would import pandas, which a commit process needs for nothing else.
    at = pa.Array.from_buffers(pa.int32(), 1, [None, pa.py_buffer(np.int32(partition).tobytes())])
    return Records(_single(value), _single(key), None, None, at, None)


def _single(value: bytes | None) -> pa.BinaryArray:
    data = b"" if value is None else value
    ends = pa.py_buffer(np.array([0, len(data)], np.int32).tobytes())
    valid = pa.py_buffer(b"\0") if value is None else None
    return pa.Array.from_buffers(pa.binary(), 1, [valid, ends, pa.py_buffer(data)])


def header_lists(headers: pa.ListArray) -> list[list[Header] | None]:
    """The headers of each record as confluent-kafka takes them."""
    items = headers.flatten()
    pairs = zip(items.field(0).to_pylist(), items.field(1).to_pylist(), strict=True)
    sizes = pc.list_value_length(headers).fill_null(0).to_pylist()
    return [list(islice(pairs, size)) or None for size in sizes]


def sizes_of(records: Records) -> pa.Int64Array:
    """Bytes of key, value and encoded headers of each record, without Kafka's other overhead."""
    size = _length(records.values)
    if records.keys is not None:
        size = pc.add(size, _length(records.keys))
    if records.headers is not None:
        # As the broker counts them: each with the lengths of its key and value.
        size = pc.add(size, pa.array(header_bytes(encoded_headers(records.headers))))
    return size


def most_bytes(records: Records) -> int | None:
    """An upper bound of ``sizes_of`` at a tenth of its cost; None for records with headers."""
    if records.headers is not None:
        return None
    columns = [records.values] if records.keys is None else [records.keys, records.values]
    return sum(int(np.diff(offsets_of(column)).max(initial=0)) for column in columns)


def _binary(column: pa.Array) -> pa.BinaryArray:
    if pa.types.is_string(column.type):
        return column.view(pa.binary())
    return column.cast(pa.binary())


def _length(column: pa.Array) -> pa.Int64Array:
    return pc.binary_length(column).fill_null(0).cast(pa.int64())


def _millis(column: pa.Array) -> pa.Int64Array:
    plain = column.cast(pa.timestamp("ms"), safe=False) if column.type.tz is None else column
    millis = plain.cast(pa.timestamp("ms", plain.type.tz), safe=False).cast(pa.int64())
    early = pc.less_equal(millis, 0)  # librdkafka takes 0 for the time of sending
    why = "are not after 1970-01-01 00:00:00 UTC"
    remedy = "correct the column timestamp; null is the time of sending"
    refuse(Reason(Code.OUT_OF_RANGE, "timestamp", why, remedy), early)
    return millis


def _headers(column: pa.Array) -> pa.ListArray:
    """The headers without ``abs.attempt``; the struct's fields are taken by position."""
    # A copied ``abs.attempt`` names another attempt: a reader by winners would wait for a decision
    # that never comes, or drop the record as a loser's.
    items = column.flatten()  # leaves out what may lie beneath a null
    keys, values = items.field(0).cast(pa.string()), _binary(items.field(1))
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(column)), lengths)
    if keys.null_count or items.null_count:
        why, remedy = "hold a header without a key", "give each header a key"
        with inside(lambda: rows):
            missing: Any = pc.or_(items.is_null(), keys.is_null())
            refuse(Reason(Code.KEY_MISSING, "headers", why, remedy), missing)
    kept: Any = pc.not_equal(keys, ATTEMPT)
    ends = np.bincount(rows[kept.to_numpy(zero_copy_only=False)], minlength=len(column)).cumsum()
    pairs = pa.StructArray.from_arrays([keys, values], ["key", "value"]).filter(kept)
    offsets = pa.array(np.concatenate(([0], ends)), pa.int32())
    return pa.ListArray.from_arrays(offsets, pairs, mask=column.is_null())


class Digest:
    """A digest of a task's keys and values, in order, batch by batch."""

    def __init__(self) -> None:
        self._hash = xxhash.xxh3_128()

    @property
    def text(self) -> str:
        return f"xxh3_128:{self._hash.hexdigest()}"

    def feed(self, records: Records) -> None:
        for column in (records.keys, records.values):
            if column is not None:
                self._hash.update(pc.binary_length(column).fill_null(-1).to_numpy())
                self._hash.update(bytes_of(column).data)
