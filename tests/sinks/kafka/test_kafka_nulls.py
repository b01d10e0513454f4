"""A null is a null and what is empty is empty, through every protocol and back, as in Spark's own sink.

What Spark's own sink (4.2.0) makes of these rows was seen on a broker: the same records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa
import pytest

from abs_core.model import Wrote
from abs_core.source import Limit
from abs_services import KafkaService
from abs_sinks.kafka import KafkaSink
from abs_sinks.kafka.columnar.encoder import partitions_of
from abs_sources.kafka import KafkaSource, KafkaSourceOptions
from abs_testing.engine import Run
from tests import sample
from tests.kit.kafka import PARTITIONS, TopicHarness
from tests.kit.kafka_modes import open_variant

pytestmark = pytest.mark.services

Pair = tuple[bytes | None, bytes | None]

ROWS: list[Pair] = [
    (b"k", b"v"),
    (b"k", None),
    (None, b"v"),
    (None, None),
    (b"", b""),
    (b"k", b""),
    (None, b""),
    (b"", None),
]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ANY_PARTITION = pa.nulls(len(ROWS), pa.int32())

WAYS = ("2pc", "wal", "idempotent", "2pc-librdkafka", "idempotent-librdkafka")


@pytest.fixture(params=sample.members(WAYS, 2, "nulls"))
def harness(kafka: KafkaService, request: pytest.FixtureRequest) -> Iterator[TopicHarness]:
    kafka.start()
    with open_variant(kafka.bootstrap, request.param) as harness:
        yield harness


@sample.cases(1, of="kind")
@pytest.mark.parametrize("kind", [pa.binary(), pa.string()], ids=str)
@pytest.mark.parametrize(
    "more", [{}, {"partition": ANY_PARTITION}], ids=["key and value", "any partition"]
)
def test_nulls_stay_null_what_is_empty_stays_empty_and_keys_lie_where_javas_client_puts_them(
    harness: TopicHarness, kind: pa.DataType, more: dict[str, pa.Array]
) -> None:
    keys, values = zip(*ROWS, strict=True)
    write(harness, columns(keys, kind, values, more))
    # By a second client, and by the source.
    assert by_text(harness.records()) == by_text(ROWS)
    read = source(harness)
    pairs = list(zip(read["key"].to_pylist(), read["value"].to_pylist(), strict=True))
    assert by_text(pairs) == by_text(ROWS)
    keyed = read.filter(read["key"].is_valid())
    asked = partitions_of(keyed["key"].combine_chunks(), PARTITIONS).tolist()
    assert keyed["partition"].to_pylist() == asked


def test_a_column_of_values_that_are_all_null_is_all_tombstones(harness: TopicHarness) -> None:
    keys = [b"%d" % n for n in range(300)]
    write(harness, columns(keys, pa.binary(), [None] * 300, {}))
    assert by_text(harness.records()) == by_text([(key, None) for key in keys])


def test_headers_that_are_null_or_none_are_null_and_a_headers_value_may_be_null(
    harness: TopicHarness,
) -> None:
    given = [None, [], [("a", None), ("b", b""), ("a", b"x")]]
    values, headers = [b"null", b"none", b"some"], pa.array(given, HEADERS)
    write(harness, columns(values, pa.binary(), values, {"headers": headers}))
    read = source(harness)
    found = dict(zip(read["value"].to_pylist(), read["headers"].to_pylist(), strict=True))
    assert found.pop(b"some") == [
        {"key": "a", "value": None},
        {"key": "b", "value": b""},
        {"key": "a", "value": b"x"},
    ]
    assert found == {b"null": None, b"none": None}


def columns(
    keys: Sequence[bytes | None],
    kind: pa.DataType,
    values: Sequence[bytes | None],
    more: dict[str, pa.Array],
) -> pa.RecordBatch:
    taken = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    return pa.record_batch({n: a.cast(kind) for n, a in taken.items()} | more)


def write(harness: TopicHarness, batch: pa.RecordBatch) -> None:
    """One epoch of one task, through register, writer and committer."""
    with closing(KafkaSink(harness.options, batch.schema)) as sink:
        run = Run(sink, "nulls")
        writer = run.attempt(0).writer
        writer.write(batch)
        run.commit(0, [Wrote(batch.num_rows, writer.pre_commit())])


def source(harness: TopicHarness) -> pa.Table:
    """What our source reads of the topic, once all is visible: markers follow a commit's answer."""
    harness.records()
    given = {"kafka.bootstrap.servers": harness.bootstrap, "subscribe": harness.topic}
    given |= {"startingOffsets": "earliest", "includeHeaders": "true"}
    given |= {"winners": "true" if harness.variant.protocol == "idempotent" else "false"}
    source = KafkaSource(KafkaSourceOptions.parse(given))
    start = source.initial()
    batches = []
    for split in source.splits(start, source.latest(start, Limit())):
        with closing(source.open(split)) as reader:
            while not reader.finished:
                batch = reader.read(1.0)
                batches += [] if batch is None else [batch]
    return pa.Table.from_batches(batches, source.schema)


def by_text(pairs: Sequence[Pair]) -> list[str]:
    """In an order that does not depend on partitions."""
    return sorted(map(repr, pairs))
