"""What librdkafka is given arrives once and in order; what it does not deliver is told."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.configs import producer_settings
from abs_core.errors import (
    FencedError,
    RowError,
    TargetError,
    UnavailableError,
)
from abs_services import KafkaService
from abs_sinks.kafka import KafkaOptions
from abs_sinks.kafka.columnar.encoder import partitions_of
from abs_sinks.kafka.librdkafka import CHUNK, Failures, LibrdkafkaSender
from abs_sinks.kafka.records import plan_columns, records_of
from tests.kit.kafka import PARTITIONS, make_topic
from tests.kit.kafka_reading import all_records, new_reader

pytestmark = pytest.mark.services

Sent = tuple[bytes | None, bytes | None]
MANY = 2 * CHUNK + 100
NOBODY = "127.0.0.1:1"


@dataclass
class Line:
    """A producer with its sender, on a topic of its own."""

    topic: str
    producer: Producer
    sender: LibrdkafkaSender
    bootstrap: str

    def send(self, *batches: pa.RecordBatch) -> None:
        for batch in batches:
            self.sender.send(records_of(batch, plan_columns(batch.schema, self.topic)))

    def deliver(self, *batches: pa.RecordBatch) -> None:
        self.send(*batches)
        self.sender.flush()

    def arrived(self) -> list[list[Sent]]:
        """What lies in each partition, in its order."""
        found: list[list[Sent]] = [[] for _ in range(PARTITIONS)]
        with new_reader(self.bootstrap, "read_uncommitted") as reader:
            for record in all_records(reader, self.topic, PARTITIONS):
                found[record.partition].append((record.key, record.value))
        return found


LineOf = Callable[..., Line]


@pytest.fixture
def line_of(kafka: KafkaService, topic: str) -> Iterator[LineOf]:
    """Makes lines; ``more`` are settings of librdkafka, ``largest`` the topic's limit of a record."""
    options = KafkaOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic})
    make_topic(options.kafka, topic)
    made = [topic]

    def make(
        *,
        name: str | None = None,
        patience: float = 30.0,
        more: dict[str, str] | None = None,
        largest: int | None = None,
    ) -> Line:
        at = topic
        if largest is not None:
            # Made with it: a broker tells a changed setting before its partitions go by it.
            made.append(at := f"{topic}-{len(made)}")
            make_topic(options.kafka, at, configs={"max.message.bytes": str(largest)})
        failures = Failures(options.kafka)
        settings = {
            **producer_settings(options.kafka, name, failures.report, options.patience.seconds),
            **(more or {}),
        }
        producer = Producer(settings)
        if name is not None:
            producer.init_transactions(30)
            producer.begin_transaction()
        return Line(
            at, producer, LibrdkafkaSender(producer, failures, at, patience), kafka.bootstrap
        )

    yield make
    cluster(options.kafka).client().delete_topics(made)


def test_nulls_stay_null_and_what_is_empty_stays_empty(line_of: LineOf) -> None:
    keys = [b"k", b"", None, b"k2", None, b"", b"\0\xff"]
    values = [b"v", b"", b"x", None, None, b"y", b"z" * 5000]
    line = line_of()
    line.deliver(pa.record_batch({"key": pa.array(keys), "value": pa.array(values)}))
    assert _flat(line.arrived()) == _sorted(zip(keys, values, strict=True))


def test_columns_of_nothing_but_nulls_or_empties_arrive(line_of: LineOf) -> None:
    line = line_of()
    nothing = pa.array([None, None], pa.binary())
    line.deliver(
        pa.record_batch({"key": nothing, "value": nothing}),
        pa.record_batch({"key": ["", ""], "value": ["", ""]}),
        pa.record_batch({"value": ["no key"]}),
    )
    assert _flat(line.arrived()) == _sorted(
        [(None, None)] * 2 + [(b"", b"")] * 2 + [(None, b"no key")]
    )


def test_slices_and_all_kinds_of_text_arrive_as_they_are(line_of: LineOf) -> None:
    line = line_of()
    whole = pa.record_batch(
        {"key": [f"k{n}" for n in range(9)], "value": ["ä" * n for n in range(9)]}
    )
    kinds = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary())
    wanted: list[tuple[bytes, bytes]] = []
    for number, kind in enumerate(kinds):
        part = whole.slice(number, 4)
        line.send(pa.record_batch([c.cast(kind) for c in part.columns], part.schema.names))
        wanted += [(f"k{n}".encode(), ("ä" * n).encode()) for n in range(number, number + 4)]
    line.sender.flush()
    assert line.sender.rows == len(wanted)
    assert _flat(line.arrived()) == _sorted(wanted)


def test_keys_decide_the_partition_as_in_java_and_order_in_it_is_kept(line_of: LineOf) -> None:
    line = line_of()
    batches = _numbered(MANY, keys=500)
    line.deliver(*batches)
    assert line.arrived() == _wanted(batches)


def test_a_partition_that_is_asked_for_is_taken_and_null_leaves_it_to_the_key(
    line_of: LineOf,
) -> None:
    line = line_of()
    keys = pa.array([b"%d" % n for n in range(300)])
    asked = pa.array([None if n % 4 == 3 else n % 3 for n in range(301)], pa.int32()).slice(1)
    batch = pa.record_batch({"key": keys, "value": keys, "partition": asked})
    line.deliver(batch)
    by_key = partitions_of(keys, PARTITIONS).tolist()
    places = [k if a is None else a for a, k in zip(asked.to_pylist(), by_key, strict=True)]
    rows = list(zip(places, keys.to_pylist(), strict=True))
    assert line.arrived() == [[(k, k) for p, k in rows if p == n] for n in range(PARTITIONS)]


@pytest.mark.parametrize(
    "full",
    [
        {"queue.buffering.max.messages": "37"},
        {"queue.buffering.max.messages": "1"},
        {"queue.buffering.max.kbytes": "4"},
    ],
    ids=str,
)
def test_a_queue_that_fills_up_loses_doubles_and_mixes_up_nothing(
    line_of: LineOf, full: dict[str, str]
) -> None:
    count = 30 if full == {"queue.buffering.max.messages": "1"} else 2000
    line = line_of(more={**full, "linger.ms": "0"})
    batches = _numbered(count, keys=50)
    line.deliver(*batches)
    assert line.arrived() == _wanted(batches)


def test_a_queue_that_stays_full_is_an_error_in_time(line_of: LineOf) -> None:
    more = {"queue.buffering.max.messages": "10", "bootstrap.servers": NOBODY}
    line = line_of(patience=0.2, more=more)
    with pytest.raises(UnavailableError, match=r"full for 0\.2 s"):
        line.send(*_numbered(20, keys=2))


def test_what_is_not_acknowledged_in_time_is_an_error(line_of: LineOf) -> None:
    line = line_of(patience=0.2, more={"bootstrap.servers": NOBODY})
    line.send(*_numbered(20, keys=2))
    with pytest.raises(UnavailableError, match="20 records are not acknowledged"):
        line.sender.flush()


def test_records_that_time_out_are_all_reported(line_of: LineOf) -> None:
    line = line_of(more={"bootstrap.servers": NOBODY, "message.timeout.ms": "300"})
    line.send(*_numbered(20, keys=2))
    with pytest.raises(UnavailableError, match="timed out"):
        line.sender.flush()
    assert line.sender._failures.count == 20


def test_what_the_client_finds_too_large_is_refused(line_of: LineOf) -> None:
    line = line_of(more={"message.max.bytes": "1000"})
    with pytest.raises(RowError, match="too large"):
        line.send(pa.record_batch({"value": ["a", "b" * 2000, "c"]}))


@pytest.mark.parametrize("name", [None, "abs1:sending"], ids=["plain", "in a transaction"])
def test_what_the_broker_refuses_is_reported_with_its_key(
    line_of: LineOf, name: str | None
) -> None:
    line = line_of(name=name and f"{name}-{secrets.token_hex(4)}", largest=1000)
    line.send(pa.record_batch({"key": ["one"], "value": ["b" * 2000]}))
    with pytest.raises(RowError, match=f"with key b'one' of 2003 bytes to {line.topic}-"):
        line.sender.flush()
    assert line.sender._failures.count == 1


def test_a_partition_that_is_not_there_is_refused(line_of: LineOf) -> None:
    line = line_of()
    line.deliver(pa.record_batch({"value": ["the topic is known"]}))
    batch = pa.record_batch({"value": ["a"], "partition": pa.array([99], pa.int32())})
    with pytest.raises(RowError, match=r"[Pp]artition"):
        line.deliver(batch)


def test_a_fenced_producer_sends_nothing_more(line_of: LineOf) -> None:
    name = f"abs1:fenced-{secrets.token_hex(4)}"
    older = line_of(name=name)
    older.deliver(pa.record_batch({"value": ["before"]}))
    newer = line_of(name=name)
    with pytest.raises(FencedError):
        older.deliver(*_numbered(100, keys=3))
    with pytest.raises(FencedError):
        older.send(*_numbered(100, keys=3))
    newer.deliver(pa.record_batch({"key": ["k"], "value": ["after"]}))
    assert newer.sender._failures.count == 0


def test_nothing_is_queued_outside_a_transaction(line_of: LineOf) -> None:
    line = line_of(name=f"abs1:outside-{secrets.token_hex(4)}")
    line.deliver(pa.record_batch({"value": ["inside"]}))
    line.producer.commit_transaction(30)
    # reason_of, which is asked for the cause, begins a transaction where there is none
    with pytest.raises(TargetError, match="queueing records"):
        line.send(pa.record_batch({"value": ["outside"]}))
    assert [value for _, value in _flat(line.arrived())] == [b"inside"]


def _numbered(count: int, keys: int) -> list[pa.RecordBatch]:
    """Records whose values tell their order, in batches of several sizes, with nulls among them."""
    table = pa.table(
        {
            "key": [b"key %d" % (n % keys) for n in range(count)],
            "value": [None if n % 97 == 5 else b"%d" % n for n in range(count)],
        }
    )
    ends = [0, count // 3, count // 2, count]
    return [
        batch
        for first, last in pairwise(ends)
        for batch in table.slice(first, last - first).to_batches()
    ]


def _wanted(batches: list[pa.RecordBatch]) -> list[list[Sent]]:
    """Partition by partition, by our own partitioner."""
    table = pa.Table.from_batches(batches).combine_chunks()
    places = partitions_of(table["key"].chunk(0), PARTITIONS).tolist()
    rows = list(zip(places, table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    return [[(k, v) for p, k, v in rows if p == number] for number in range(PARTITIONS)]


def _flat(partitions: list[list[Sent]]) -> list[Sent]:
    return _sorted(row for rows in partitions for row in rows)


def _sorted(rows: object) -> list[Sent]:
    return sorted(rows, key=repr)  # type: ignore[call-overload,no-any-return]
