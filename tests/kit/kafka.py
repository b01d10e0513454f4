"""A topic on a real broker, for ``abs_testing.check_sink``: proves the sink where it will run.

    check_sink(partial(open_topic, "127.0.0.1:9092", Variant("2pc")))

Topics are made on the cluster, and deleted again. It is read by kafka-python, a client that has no
code in common with librdkafka, which writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined] # it is there
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from abs_clients.kafka.cluster import close_clusters, cluster
from abs_clients.kafka.codes import UNHEARD
from abs_clients.kafka.producer_ids import init_producer_id
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.topics import topic_facts, topic_ids
from abs_clients.kafka.transactions import State, describe, listed
from abs_core.contracts import Sink, Task, Writer
from abs_core.patience import Patience
from abs_sinks.kafka.columnar.choice import AUTO
from abs_sinks.kafka.open_transaction import parse_id
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register.session import session_of
from abs_sinks.kafka.sink import KafkaSink
from abs_sinks.kafka.twophase import TwoPhaseWriter
from abs_testing import Row
from abs_testing.case import within
from tests.kit.kafka_log import committed
from tests.kit.kafka_reading import ENDING, READ_SECONDS, new_reader, records_to
from tests.kit.reshaping import ReshapingWriter

PARTITIONS = 3
"""Of a harness's topic, unless ``TopicHarness.widen`` is called."""

KEYED = pa.schema([pa.field("key", pa.string()), pa.field("value", pa.string())])

_numbers = count()


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to use the sink."""

    protocol: str
    own_register: bool = True
    producer: str = AUTO

    @property
    def name(self) -> str:
        more = ["foreign-register"] * (not self.own_register)
        more += [self.producer] * (self.producer != AUTO)
        return "-".join([self.protocol, *more])


class KeyedSink(KafkaSink):
    """Takes the checks' batches: ``id`` becomes the key."""

    def writer(self, task: Task) -> Writer:
        return ReshapingWriter(super().writer(task), _keyed)


def _keyed(batch: pa.RecordBatch) -> pa.RecordBatch:
    ids, values = batch.columns
    return pa.record_batch([ids.cast(pa.string()), values], schema=KEYED)


def sending(writer: object) -> TwoPhaseWriter:
    """The writer that sends, below those that hand over to it."""
    while not isinstance(writer, TwoPhaseWriter):
        writer = writer._writer  # type: ignore[attr-defined]
    return writer


def send_now(writer: object) -> None:
    """Have the broker hold what was written: a client gathers records for a while."""
    sender = sending(writer)._sender
    assert sender is not None
    sender.flush()


class TopicHarness:
    """A topic of its own: what ``check_sink`` drives, and looks into.

    Args:
        more: options besides those of the variant.
    """

    def __init__(
        self, bootstrap: str, variant: Variant, more: Mapping[str, str] | None = None
    ) -> None:
        self.own_register = variant.own_register
        self.variant = variant
        self.bootstrap = bootstrap
        self.topic = f"t{next(_numbers)}-{time.time_ns():x}"
        self.given = {
            "kafka.bootstrap.servers": bootstrap,
            "topic": self.topic,
            "registertopic": f"{self.topic}-register",
            "protocol": variant.protocol,
            "producer": variant.producer,
            **(more or {}),
        }
        self.options = KafkaOptions.parse(self.given)
        self.new_sink: Callable[[], Sink] = self.sink_for(self.options)
        self._through = self.options
        make_topic(self.options.kafka, self.topic)
        self.partitions = PARTITIONS
        self._consumer: KafkaConsumer | None = None
        self._uncommitted: KafkaConsumer | None = None

    def sink_for(self, options: KafkaOptions) -> Callable[[], Sink]:
        """What builds a sink on the harness's topic with other options; picklable."""
        return partial(KeyedSink, options, KEYED, co_commit=self.variant.own_register)

    def through(self, bootstrap: str) -> None:
        """Let sinks reach the broker by another address; this look at it does not."""
        pairs = {**dict(self.options.kafka.pairs), "bootstrap.servers": bootstrap}
        settings = replace(self.options.kafka, pairs=tuple(sorted(pairs.items())))
        self._through = replace(self.options, kafka=settings)
        self.new_sink = self.sink_for(self._through)

    def let_go(self) -> None:
        """Close what this process has open for its sinks, before the other address goes."""
        session_of(self._through).close()
        close_clusters(self._through.kafka)

    def read(self) -> Sequence[Row]:
        return [(int(key or b""), (value or b"").decode()) for key, value in self.records()]

    def records(self) -> list[tuple[bytes | None, bytes | None]]:
        """Keys and values, as a reader with read_committed gets them, to the end.

        Where an open transaction would hold such a reader up, the log itself is read: what its
        markers say is committed is there, though that reader gets it later.
        """
        self._await_markers()
        places = [TopicPartition(self.topic, number) for number in range(self.partitions)]
        stable, last = self._ends(places)
        if stable == last:
            return self._read_committed(places, stable)
        return [
            (record.key, record.value)
            for place in places
            for record in committed(self.options.kafka, self.topic, place.partition, last[place])
        ]

    def _read_committed(
        self, places: list[TopicPartition], ends: Mapping[TopicPartition, int]
    ) -> list[tuple[bytes | None, bytes | None]]:
        found = records_to(self._reader(), {place: ends[place] for place in places})
        return [(record.key, record.value) for record in found]

    def _ends(
        self, places: list[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Last stable offset and end of each partition."""
        if self._uncommitted is None:
            self._uncommitted = new_reader(self.bootstrap, "read_uncommitted")
        stable, last = (
            consumer.end_offsets(places, timeout_ms=READ_SECONDS * 1000)
            for consumer in (self._reader(), self._uncommitted)
        )
        return stable, last

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """See ``abs_testing.Refusing``: the topic takes no record that is longer than a marker.

        Who has looked before does not know.
        """
        limit(self.options.kafka, self.topic, "80")  # the marker of an abort has 78
        try:
            yield
        finally:
            limit(self.options.kafka, self.topic, "1048588")

    def widen(self, partitions: int) -> None:
        """Give the topic so many partitions, before anything is written to it."""
        client = cluster(self.options.kafka).admin.opened()
        for answer in client.create_partitions([NewPartitions(self.topic, partitions)]).values():
            answer.result(READ_SECONDS)

        def is_wide() -> bool:
            facts = topic_facts(self.options.kafka, [self.topic], again=True)
            return facts[self.topic].partitions == partitions

        assert within(READ_SECONDS, is_wide), "the topic does not get its partitions"
        self.partitions = partitions

    def remake(self) -> None:
        """See ``abs_testing.Remaking``."""
        settings = self.options.kafka
        before = topic_ids(settings, [self.topic])
        delete_topics(settings, [self.topic])
        assert within(READ_SECONDS, lambda: not topic_ids(settings, [self.topic]))
        make_topic(settings, self.topic, self.partitions)
        assert topic_ids(settings, [self.topic]) != before
        self.look_anew()

    def ends(self) -> dict[int, int]:
        """The end of each partition, when no marker is under way."""
        self._await_markers()
        places = [TopicPartition(self.topic, number) for number in range(self.partitions)]
        return {place.partition: end for place, end in self._ends(places)[1].items()}

    def add(self, partition: int, records: int) -> None:
        """Write to a partition as somebody else does."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for _ in range(records):
            producer.produce(self.topic, b"", b"0", partition)
        assert producer.flush(READ_SECONDS) == 0

    def look_anew(self) -> None:
        """Let new readers do the next look: they know nothing of brokers that have gone since."""
        for consumer in (self._consumer, self._uncommitted):
            if consumer is not None:
                consumer.close()
        self._consumer = self._uncommitted = None

    def hidden(self) -> int:
        """How many offsets open transactions hold back, over all partitions."""
        self._await_markers()
        places = [TopicPartition(self.topic, number) for number in range(self.partitions)]
        stable, last = self._ends(places)
        return sum(last[place] - stable[place] for place in places)

    def topics(self) -> tuple[str, ...]:
        """Those that a reader of the rows reads."""
        return (self.topic,)

    def open_ids(self, states: Sequence[State] = (State.ONGOING, *ENDING)) -> dict[str, State]:
        """Transactional ids whose transaction has written to these topics, and is in such a state."""
        topics = self.topics()
        kafka = self.options.kafka
        # A broker that was away is back before its coordinator is.
        now = Patience(seconds=READ_SECONDS).retry(
            lambda: describe(kafka, list(listed(kafka, states)))
        )
        return {
            text: seen.state
            for text, seen in now.items()
            if seen is not None
            and seen.state in states
            and any(topic in topics for topic, _ in seen.partitions)
        }

    def leftovers(self, job: str) -> Sequence[str]:
        return [
            f"transaction {text} ({state})"
            for text, state in self.open_ids().items()
            if (name := parse_id(text)) is not None and name.job == job
        ]

    def close(self) -> None:
        """Remove the topic, and end what is open."""
        self.look_anew()
        for text in self.open_ids((State.ONGOING,)):
            if (name := parse_id(text)) is not None:
                init_producer_id(self.options.kafka, str(name))
        session_of(self.options).close()
        made = [self.topic, self.options.registertopic]
        there = topic_facts(self.options.kafka, made, again=True)
        delete_topics(self.options.kafka, [name for name in made if name in there])

    def _await_markers(self) -> None:
        deadline = time.monotonic() + READ_SECONDS
        while self.open_ids(ENDING):
            assert time.monotonic() < deadline, "a transaction does not get its markers"
            time.sleep(0.002)

    def _reader(self) -> KafkaConsumer:
        if self._consumer is None:
            self._consumer = new_reader(self.bootstrap)
        return self._consumer


def limit(settings: Settings, topic: str, size: str, name: str = "max.message.bytes") -> None:
    """Set a limit of the topic, and return when the broker says so."""
    given = [ConfigResource(ConfigResourceType.TOPIC, topic, {name: size})]
    cluster(settings).client().alter_configs(given)
    configs = cluster(settings).admin.configs
    assert within(READ_SECONDS, lambda: configs(topic)[name] == size), f"{name} does not change"


def make_topic(
    settings: Settings,
    name: str,
    partitions: int = PARTITIONS,
    configs: Mapping[str, str] | None = None,
) -> None:
    """Make a topic, and return when the brokers know it."""
    cluster(settings).admin.create(name, partitions, configs or {})
    there = within(READ_SECONDS, lambda: name in topic_facts(settings, [name], again=True))
    assert there, f"topic {name} does not appear"


def delete_topics(settings: Settings, names: Sequence[str]) -> None:
    """Delete these; one that has gone meanwhile is none's concern."""
    client = cluster(settings).admin.opened()
    for answer in client.delete_topics(list(names)).values() if names else ():
        error = answer.exception(READ_SECONDS)
        if error is not None and error.args[0].code() not in UNHEARD:
            raise error


def open_topic(
    bootstrap: str, variant: Variant, more: Mapping[str, str] | None = None
) -> closing[TopicHarness]:
    """A harness on a new, empty topic.

    Args:
        bootstrap: host:port of a broker where topics may be made.
        more: options besides those of the variant.
    """
    return closing(TopicHarness(bootstrap, variant, more))
