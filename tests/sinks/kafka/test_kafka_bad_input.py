"""Records that a topic does not take are refused with their row named, and nothing becomes visible."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from abs_clients.kafka.attempts import side_topic
from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.producer_ids import ProducerState
from abs_clients.kafka.topics import topic_facts
from abs_core.contracts import Task, Writer
from abs_core.errors import AbsError, RowError, SchemaError, TargetError, UnavailableError
from abs_services import KafkaService
from abs_sinks.kafka import KafkaSink
from abs_testing.case import within
from tests.kit.kafka import PARTITIONS, TopicHarness, Variant, make_topic, open_topic, sending

pytestmark = pytest.mark.services

TASK = Task("0123456789abcdef", "job", 1, 0, 0, "ab")
PLAIN = pa.schema([("value", pa.string())])

WriterOf = Callable[..., Writer]


@pytest.fixture(scope="module", params=["librdkafka", "columnar"])
def harness(kafka: KafkaService, request: pytest.FixtureRequest) -> Iterator[TopicHarness]:
    kafka.start()
    variant = Variant("2pc", own_register=False, producer=request.param)
    with open_topic(kafka.bootstrap, variant) as harness:
        yield harness


@pytest.fixture
def writer_of(harness: TopicHarness) -> Iterator[WriterOf]:
    sinks = []

    def make(schema: pa.Schema = PLAIN, *, topic: str | None = "") -> Writer:
        options = harness.options if topic == "" else replace(harness.options, topic=topic)
        sinks.append(KafkaSink(options, schema, co_commit=False))
        return sinks[-1].writer(TASK)

    yield make
    for sink in sinks:
        sink.close()


def batch(**columns: object) -> pa.RecordBatch:
    return pa.record_batch(columns)


def refused(writer: Writer, given: pa.RecordBatch, *named: str) -> AbsError:
    """The error that the writer raises; nothing of it may be in any transaction."""
    with pytest.raises(AbsError) as caught:
        writer.write(given)
    writer.abort()
    for text in named:
        assert text in str(caught.value)
    return caught.value


def test_a_record_that_is_too_large_is_named_before_anything_is_sent(
    harness: TopicHarness, writer_of: WriterOf
) -> None:
    given = batch(value=["a", "b" * 1_100_000, "c"])
    error = refused(writer_of(), given, "row 1 of the task", "too large", "max.message.bytes")
    assert isinstance(error, RowError)
    assert harness.open_ids() == {}


def test_rows_are_counted_over_all_batches_of_a_task(writer_of: WriterOf) -> None:
    writer = writer_of()
    writer.write(batch(value=["a", "b"]))
    refused(writer, batch(value=["c", "d" * 1_100_000]), "row 3 of the task")


def test_a_partition_that_does_not_exist_is_named(writer_of: WriterOf) -> None:
    schema = pa.schema([("value", pa.string()), ("partition", pa.int32())])
    given = batch(value=["a", "b"], partition=pa.array([0, PARTITIONS], pa.int32()))
    error = refused(writer_of(schema), given, "row 1 ", f"it has {PARTITIONS}")
    assert isinstance(error, RowError)


def test_a_topic_that_does_not_exist_is_named(
    writer_of: WriterOf, harness: TopicHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("abs_clients.kafka.timeouts.UNHEARD_PAUSES", ())
    error = refused(writer_of(topic="no-such-topic"), batch(value=["a"]), "no-such-topic")
    assert isinstance(error, SchemaError)
    if harness.options.producer == "columnar":
        return  # it takes no column topic
    schema = pa.schema([("value", pa.string()), ("topic", pa.string())])
    given = batch(value=["a", "b"], topic=[harness.topic, "no-such-topic"])
    error = refused(writer_of(schema, topic=None), given, "row 1 ", "no-such-topic")
    assert isinstance(error, RowError)


@pytest.mark.parametrize("of", ["register", "winners"])
def test_a_row_that_would_go_among_registers_or_winners_is_named(
    harness: TopicHarness, writer_of: WriterOf, of: str
) -> None:
    if harness.options.producer == "columnar":
        return  # it takes no column topic
    name = harness.options.registertopic if of == "register" else side_topic(harness.topic)
    if not topic_facts(harness.options.kafka, [name], again=True):
        make_topic(harness.options.kafka, name)
    schema = pa.schema([("key", pa.string()), ("value", pa.string()), ("topic", pa.string())])
    given = batch(key=["j", "j"], value=["a", "b"], topic=[harness.topic, name])
    error = refused(writer_of(schema, topic=None), given, "row 1 ", "this sink's own")
    assert isinstance(error, RowError)


def test_a_record_without_a_key_is_named_where_its_topic_is_compacted(
    harness: TopicHarness, writer_of: WriterOf
) -> None:
    name = f"{harness.topic}-compacted"
    make_topic(harness.options.kafka, name, 1, {"cleanup.policy": "compact"})
    keyed = pa.schema([("key", pa.string()), ("value", pa.string())])
    given = batch(key=["a", None], value=["v", "w"])
    error = refused(writer_of(keyed, topic=name), given, "row 1 ", "no key", name)
    assert isinstance(error, RowError)
    refused(writer_of(topic=name), batch(value=["v"]), "row 0 ", "no key", name)
    writer_of(keyed, topic=name).write(batch(key=["a"], value=["v"]))
    _configure(harness, name, "cleanup.policy", "delete")  # behind the writers' back
    writer_of(keyed, topic=name).write(given)


def test_a_record_that_the_broker_refuses_is_never_pre_committed(
    harness: TopicHarness, writer_of: WriterOf
) -> None:
    writer = writer_of()
    writer.write(batch(value=["small"]))
    _limit(harness, 2000)  # behind the writer's back: it has looked at the topic
    try:
        if harness.options.producer == "columnar":
            # Of a whole batch: the next attempt knows the topic better, and names the row.
            with pytest.raises(UnavailableError, match=r"max\.message\.bytes"):
                _write_and_pre_commit(writer, batch(value=["x" * 5000]))
            writer.abort()
            writer = writer_of()
        with pytest.raises(RowError, match=r"[Mm]essage size|too large"):
            _write_and_pre_commit(writer, batch(value=["x" * 5000]))
        writer.abort()
    finally:
        _limit(harness, 1_048_588)
    assert harness.read() == []


def test_a_record_that_vanishes_is_missed_when_the_brokers_are_asked(
    harness: TopicHarness, writer_of: WriterOf
) -> None:
    writer = writer_of()
    writer.write(batch(value=["a", "b", "c"]))
    sender = sending(writer)._sender
    assert sender is not None
    sender.rows += 1  # as if one more had been sent, and its failure never reported
    with pytest.raises(TargetError, match="4 records were sent and acknowledged, but the brokers"):
        writer.pre_commit()
    writer.abort()


def test_keys_lie_where_our_own_partitioner_puts_them(
    harness: TopicHarness, writer_of: WriterOf
) -> None:
    from abs_clients.kafka.producer_ids import describe_producers
    from abs_sinks.kafka.columnar.encoder import partitions_of
    from abs_sinks.kafka.open_transaction import OpenTransaction

    keys = [f"key-{n}" for n in range(200)] + ["", "ä"]
    writer = writer_of(pa.schema([("key", pa.string()), ("value", pa.string())]))
    writer.write(batch(key=keys, value=["v"] * len(keys)))
    committable = writer.pre_commit()
    assert committable is not None
    prepared = OpenTransaction.of(committable)
    assert prepared is not None
    places = [(harness.topic, n) for n in range(PARTITIONS)]
    found = describe_producers(harness.options.kafka, places, prepared.producer_id)
    counted = [_records(found[place]) for place in places]
    wanted = partitions_of(pa.array([k.encode() for k in keys], pa.binary()), PARTITIONS).tolist()
    assert counted == [wanted.count(n) for n in range(PARTITIONS)]


def _records(produced: ProducerState | None) -> int:
    return 0 if produced is None else produced.last_sequence + 1


def _write_and_pre_commit(writer: Writer, given: pa.RecordBatch) -> None:
    writer.write(given)
    writer.pre_commit()


def _limit(harness: TopicHarness, size: int) -> None:
    _configure(harness, harness.topic, "max.message.bytes", str(size))


def _configure(harness: TopicHarness, topic: str, name: str, value: str) -> None:
    settings = harness.options.kafka
    cluster(settings).client().alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})]
    )
    assert within(60, lambda: cluster(settings).admin.configs(topic)[name] == value)
