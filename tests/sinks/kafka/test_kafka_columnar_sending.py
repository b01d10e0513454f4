"""What is sent column by column arrives once, in order, readable by librdkafka; failures are told."""

from __future__ import annotations

import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from typing import Any

import kafka.errors
import numpy as np
import pyarrow as pa
import pytest
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions
from kafka.future import Future
from kafka.net.manager import KafkaConnectionManager
from kafka.protocol.producer import ProduceRequest

from abs_clients.kafka import timeouts
from abs_clients.kafka.cluster import Channel, close_clusters, cluster
from abs_clients.kafka.private import manager_of
from abs_clients.kafka.producer_ids import init_producer_id
from abs_clients.kafka.topics import topic_facts
from abs_clients.kafka.transactions import EndTxn, describe, end
from abs_core.errors import ContentionError, FencedError, RowError, UnavailableError
from abs_core.model import HandleName
from abs_core.patience import Patience
from abs_services import KafkaService
from abs_sinks.kafka import KafkaOptions
from abs_sinks.kafka.columnar import encoder, transport
from abs_sinks.kafka.columnar.encoder import partitions_of
from abs_sinks.kafka.columnar.outbox import FLYING
from abs_sinks.kafka.columnar.recordbatch import ProducerIdentity
from abs_sinks.kafka.columnar.sender import ColumnarProducer
from abs_sinks.kafka.columnar.transport import Transport
from abs_sinks.kafka.open_transaction import id_name
from abs_sinks.kafka.records import plan_columns, records_of
from abs_testing.calls import Loss
from abs_testing.case import raises, within
from tests import sample
from tests.fault_proxy.kafka import Api, LossyBroker
from tests.kit.kafka import PARTITIONS, make_topic
from tests.kit.kafka_reading import messages
from tests.planted import planted

pytestmark = pytest.mark.services

Sent = tuple[bytes | None, bytes | None]
SECONDS = 60.0


class Line:
    """One transaction on a topic of its own."""

    def __init__(self, options: KafkaOptions, name: HandleName, patience: float) -> None:
        self.options = options
        # A new broker's coordinator is still loading: the sink opens its producers with patience, too.
        self.producer = Patience(timeouts.INIT_SECONDS).retry(
            lambda: ColumnarProducer(options.kafka, str(name), options.topic)
        )
        self.sender = self.producer.to(options.topic, patience)

    @property
    def id(self) -> str:
        assert self.producer.who.transactional_id is not None
        return self.producer.who.transactional_id

    @property
    def topic(self) -> str:
        assert self.options.topic is not None
        return self.options.topic

    def send(self, *batches: pa.RecordBatch) -> None:
        for batch in batches:
            self.sender.send(records_of(batch, plan_columns(batch.schema, self.topic)))

    def commit(self) -> list[list[Sent]]:
        """Flush and commit; what lies in each partition then, in its order."""
        self.sender.flush()
        who = self.producer.who
        ending = EndTxn(self.id, who.producer_id, who.epoch)
        end(self.options.kafka, [ending], commit=True)
        return _committed(self.options, self.sender.rows)


LineOf = Callable[..., Line]


@pytest.fixture
def line_of(kafka: KafkaService, topic: str) -> Iterator[LineOf]:
    """Makes lines; ``more`` are settings of librdkafka."""
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic, "producer": "columnar"}
    plain = KafkaOptions.parse(given)
    make_topic(plain.kafka, topic)
    names: list[HandleName] = []

    def make(*, name: HandleName | None = None, patience: float = SECONDS, **more: str) -> Line:
        options = KafkaOptions.parse(
            given | {f"kafka.{n.replace('_', '.')}": text for n, text in more.items()}
        )
        names.append(name or _name())
        return Line(options, names[-1], patience)

    yield make
    for name in names:
        init_producer_id(plain.kafka, str(name))  # a transaction that a test has left open
    cluster(plain.kafka).client().delete_topics([topic])


@pytest.fixture
def proxy(kafka: KafkaService) -> Iterator[LossyBroker]:
    with LossyBroker(kafka.bootstrap) as proxy:
        yield proxy
        close_clusters()  # before the proxy goes: else the clients would look for it


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_nulls_stay_null_and_what_is_empty_stays_empty_with_any_codec(
    line_of: LineOf, codec: str
) -> None:
    keys = [b"k", b"", None, b"k2", None, b"", b"\0\xff"]
    values = [b"v", b"", b"x", None, None, b"y", b"z" * 5000]
    line = line_of(compression_type=codec)
    line.send(pa.record_batch({"key": pa.array(keys), "value": pa.array(values)}))
    assert _sorted(line.commit()) == sorted(zip(keys, values, strict=True), key=str)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_of_a_megabyte_are_read_whatever_the_codec_and_the_bytes(
    line_of: LineOf, codec: str
) -> None:
    noise = np.random.default_rng(1)
    texts = [b"%06d " % n * 100 if n % 5 else noise.bytes(700) for n in range(6_000)]
    line = line_of(compression_type=codec)
    line.send(pa.record_batch({"value": texts, "partition": pa.array([1] * 6_000, pa.int32())}))
    assert line.commit()[1] == [(None, text) for text in texts]


def test_slices_and_all_kinds_of_text_arrive_as_they_are(line_of: LineOf) -> None:
    line = line_of()
    whole = pa.record_batch(
        {"key": [f"k{n}" for n in range(9)], "value": ["ä" * n for n in range(9)]}
    )
    kinds = (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary())
    wanted: list[Sent] = []
    for number, kind in enumerate(kinds):
        part = whole.slice(number, 4)
        line.send(pa.record_batch([c.cast(kind) for c in part.columns], part.schema.names))
        wanted += [(f"k{n}".encode(), ("ä" * n).encode()) for n in range(number, number + 4)]
    assert _sorted(line.commit()) == sorted(wanted, key=str)


@sample.cases(1)
@pytest.mark.parametrize("size", ["1000", "1000000"])
def test_keys_decide_the_partition_as_in_java_and_order_in_it_is_kept(
    line_of: LineOf, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    # Small batches, sent in many requests; and large ones.
    monkeypatch.setattr(encoder, "GATHERED_BYTES", 20 * int(size))
    line = line_of(batch_size=size)
    batches = _numbered(40_000, keys=500)
    line.send(*batches)
    table = pa.Table.from_batches(batches)
    keys, values = (table[name].combine_chunks() for name in ("key", "value"))
    wanted: list[list[Sent]] = [[] for _ in range(PARTITIONS)]
    for place, *row in zip(
        partitions_of(keys, PARTITIONS).tolist(), keys.to_pylist(), values.to_pylist(), strict=True
    ):
        wanted[place].append((row[0], row[1]))
    assert line.commit() == wanted


def test_records_without_keys_get_to_all_partitions_each_once(line_of: LineOf) -> None:
    line = line_of()
    line.send(pa.record_batch({"value": [b"%d" % n for n in range(10_000)]}))
    found = line.commit()
    assert all(found)
    assert _sorted(found) == sorted(((None, b"%d" % n) for n in range(10_000)), key=str)


def test_partitions_that_were_added_are_the_next_transactions_too(line_of: LineOf) -> None:
    first = line_of()
    batch = pa.record_batch({"key": [f"{n}" for n in range(100)], "value": ["v"] * 100})
    first.send(batch)
    first.sender.flush()
    cluster(first.options.kafka).client().create_partitions(
        {first.topic: NewPartitions(2 * PARTITIONS)}
    )
    wanted = set(partitions_of(batch["key"].view(pa.binary()), 2 * PARTITIONS).tolist())

    def written() -> bool:  # brokers learn of new partitions one after another
        line = line_of()
        line.send(batch)
        line.sender.flush()
        now = describe(line.options.kafka, [line.id])[line.id]
        return now is not None and {number for _, number in now.partitions} == wanted

    assert within(SECONDS, written)


def test_what_a_broker_refuses_of_one_record_is_told_and_of_many_tried_in_smaller_batches(
    line_of: LineOf,
) -> None:
    one, many = line_of(), line_of()
    topic_facts(one.options.kafka, [one.topic])  # looked at, before it changes
    resource = ConfigResource(ConfigResourceType.TOPIC, one.topic, {"max.message.bytes": "1000"})
    cluster(one.options.kafka).client().alter_configs([resource])
    one.send(pa.record_batch({"key": ["one"], "value": ["b" * 2000]}))
    with pytest.raises(RowError, match=f"delivering 1 records to {one.topic}-"):
        one.sender.flush()
    many.send(pa.record_batch({"value": ["b" * 300] * 20}))
    with pytest.raises(UnavailableError, match=r"max\.message\.bytes"):
        many.sender.flush()
    again = line_of()
    again.send(pa.record_batch({"value": ["b" * 300] * 20}))
    assert len(_sorted(again.commit())) == 20


def test_a_fenced_sender_sends_nothing_more(line_of: LineOf) -> None:
    name = _name()
    older = line_of(name=name)
    older.send(pa.record_batch({"value": ["before"]}))
    older.sender.flush()
    newer = line_of(name=name)
    older.send(*_numbered(100, keys=3))
    with pytest.raises(FencedError):
        older.sender.flush()
    newer.send(pa.record_batch({"key": ["k"], "value": ["after"]}))
    assert _sorted(newer.commit()) == [(b"k", b"after")]


@sample.cases(1, of="loss")
@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.REPLY])
@pytest.mark.parametrize("nth", [1, 2, FLYING, FLYING + 1])
def test_a_request_that_is_lost_among_many_is_sent_again_once_and_in_order(
    proxy: LossyBroker, line_of: LineOf, monkeypatch: pytest.MonkeyPatch, loss: Loss, nth: int
) -> None:
    monkeypatch.setattr(encoder, "GATHERED_BYTES", 1)  # a request for each batch
    line = line_of(bootstrap_servers=proxy.bootstrap)
    proxy.lose(loss, Api.PRODUCE, nth)
    batches = [
        pa.record_batch({"key": [b"k"] * 10, "value": [b"%d-%d" % (n, m) for m in range(10)]})
        for n in range(20)
    ]
    line.send(*batches)
    found = line.commit()
    assert proxy.fired
    values = [value for part in found for _, value in part]
    assert values == [v for b in batches for v in b["value"].to_pylist()]


def test_brokers_that_do_not_answer_are_given_up_in_time(
    kafka: KafkaService, line_of: LineOf
) -> None:
    with LossyBroker(kafka.bootstrap) as proxy:
        line = line_of(bootstrap_servers=proxy.bootstrap, patience=5)
        line.send(pa.record_batch({"value": ["a"]}))
        line.sender.flush()  # the topic is known, and its partition part of the transaction
    line.send(pa.record_batch({"value": ["b"]}))
    began = time.monotonic()
    with pytest.raises(UnavailableError):
        line.sender.flush()
    assert 5 <= time.monotonic() - began < SECONDS
    close_clusters()


def test_a_partition_that_may_or_may_not_be_added_ends_the_attempt(
    proxy: LossyBroker, line_of: LineOf
) -> None:
    """A request for it that comes after the commit would begin another transaction."""
    line = line_of(bootstrap_servers=proxy.bootstrap)
    proxy.lose(Loss.REPLY, Api.ADD_PARTITIONS_TO_TXN)
    line.send(pa.record_batch({"value": ["a"]}))
    with pytest.raises(UnavailableError, match="adding partitions"):
        line.sender.flush()


class Gone:
    """A connection to a broker that goes just after it was reached."""

    connected, paused = False, None

    def __await__(self) -> Generator[Any, None, Gone]:
        yield from ()
        return self

    def send_request(self, *_: Any, **__: Any) -> Any:
        return Future().failure(kafka.errors.KafkaConnectionError("111 ECONNREFUSED"))


def test_a_coordinator_that_goes_before_it_is_asked_is_asked_again(
    line_of: LineOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was sent to it, so nothing can come late."""
    line = line_of()
    first, second = (
        pa.record_batch({"value": [value], "partition": pa.array([number], pa.int32())})
        for number, value in enumerate("ab")
    )
    line.send(first)
    line.sender.flush()  # where the coordinator is, is known from here on
    manager = manager_of(cluster(line.options.kafka).client(Channel.DATA))
    get_connection, gone = KafkaConnectionManager.get_connection, [Gone(), Gone()]

    def connection(asked: KafkaConnectionManager, *given: Any, **more: Any) -> Any:
        is_first = asked is manager and gone
        return gone.pop() if is_first else get_connection(asked, *given, **more)

    monkeypatch.setattr(KafkaConnectionManager, "get_connection", connection)
    line.send(second)
    found = line.commit()
    assert not gone
    assert [value for part in found for _, value in part] == [b"a", b"b"]


def test_records_on_a_connection_that_is_closed_meanwhile_are_sent_again(
    line_of: LineOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kafka-python raises no error of its own there."""
    line = line_of()
    line.send(pa.record_batch({"value": ["a"], "partition": pa.array([0], pa.int32())}))
    line.sender.flush()
    manager = manager_of(cluster(line.options.kafka).client(Channel.DATA))
    send, lost = KafkaConnectionManager.send, [RuntimeError("Transport closed for writes")]

    def sent(asked: KafkaConnectionManager, request: Any, *given: Any, **more: Any) -> Any:
        if lost and asked is manager and isinstance(request, ProduceRequest):
            raise lost.pop()
        return send(asked, request, *given, **more)

    monkeypatch.setattr(KafkaConnectionManager, "send", sent)
    line.send(pa.record_batch({"value": ["b"], "partition": pa.array([0], pa.int32())}))
    found = line.commit()
    assert not lost
    assert [value for part in found for _, value in part] == [b"a", b"b"]


def _name() -> HandleName:
    return id_name("0123456789abcdef", "columnar", 1, 0, secrets.token_hex(6))


def _numbered(count: int, keys: int) -> list[pa.RecordBatch]:
    """Records whose values tell their order, in batches of several sizes, with nulls among them."""
    table = pa.table(
        {
            "key": [b"key %d" % (n % keys) for n in range(count)],
            "value": [None if n % 97 == 5 else b"%d" % n for n in range(count)],
        }
    )
    return [
        *table.slice(0, count // 3).to_batches(max_chunksize=7_000),
        *table.slice(count // 3).to_batches(max_chunksize=1_000),
    ]


def _sorted(parts: list[list[Sent]]) -> list[Sent]:
    return sorted((row for part in parts for row in part), key=str)


def _committed(options: KafkaOptions, rows: int) -> list[list[Sent]]:
    """What librdkafka reads with read_committed, by partition; to the last record, and no further."""
    assert options.topic is not None
    given, deadline = {"bootstrap.servers": options.kafka.bootstrap}, time.monotonic() + SECONDS
    while len(read := messages(given, options.topic)) < rows:
        assert time.monotonic() < deadline, f"{read} of {rows}"
    found: dict[int | None, list[Sent]] = defaultdict(list)
    for message in read:
        found[message.partition()].append((message.key(), message.value()))
    return [found[number] for number in range(PARTITIONS)]


def asking_for_a_forgotten_producer(kafka: KafkaService) -> None:
    """As one that waits in a pool for longer than transactional.id.expiration.ms."""
    topic = f"forgotten-{secrets.token_hex(4)}"
    options = KafkaOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic})
    make_topic(options.kafka, topic)
    forgotten = ProducerIdentity(f"forgotten-{secrets.token_hex(4)}", 4711, 0)
    error = raises(ContentionError, lambda: Transport(options.kafka, forgotten, topic).add([0]))
    assert error.retryable


def test_a_producer_that_its_coordinator_has_forgotten_is_not_asked_for_again(
    kafka: KafkaService,
) -> None:
    asking_for_a_forgotten_producer(kafka)


def test_a_forgotten_producer_that_is_waited_for_is_found(kafka: KafkaService) -> None:
    with planted((transport, "ContentionError", ()), match="was not raised"):
        asking_for_a_forgotten_producer(kafka)
