"""Records that each name their topic: an epoch is exactly once over several topics."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from abs_clients.kafka.cluster import close_clusters
from abs_core.contracts import Task, Writer
from abs_services import KafkaService
from abs_sinks.kafka import KafkaOptions, KafkaSink
from abs_testing import Row
from abs_testing.case import rows
from abs_testing.engine import Run
from tests.fault_proxy.kafka import Api, LossyBroker
from tests.kit.kafka import PARTITIONS, delete_topics, make_topic
from tests.kit.kafka_reading import all_records, new_reader
from tests.kit.reshaping import ReshapingWriter

pytestmark = pytest.mark.services

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.string()), ("topic", pa.string())])
LEFT, RIGHT = rows(0, 40), rows(100, 41)


class RoutedSink(KafkaSink):
    """Rows with an even id go to the first topic, the others to the second."""

    topics: tuple[str, str]

    def writer(self, task: Task) -> Writer:
        return ReshapingWriter(super().writer(task), self._routed)

    def _routed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        ids, values = batch.columns
        names = [self.topics[number % 2] for number in ids.to_pylist()]
        return pa.record_batch([ids.cast(pa.string()), values, pa.array(names)], schema=SCHEMA)


@pytest.fixture
def topics(kafka: KafkaService) -> Iterator[tuple[str, str]]:
    kafka.start()
    named = f"t-{secrets.token_hex(4)}-even", f"t-{secrets.token_hex(4)}-odd"
    settings = KafkaOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap}).kafka
    for name in named:
        make_topic(settings, name)
    yield named
    close_clusters()
    delete_topics(settings, named)


@pytest.fixture
def new_sink(
    kafka: KafkaService, topics: tuple[str, str], topic: str, tmp_path: Path
) -> Callable[..., RoutedSink]:
    def new(protocol: str, bootstrap: str = "") -> RoutedSink:
        given = {
            "kafka.bootstrap.servers": bootstrap or kafka.bootstrap,
            "registertopic": f"{topic}-register",
            "protocol": protocol,
            **({"wal": tmp_path.as_uri()} if protocol == "wal" else {}),
        }
        sink = RoutedSink(KafkaOptions.parse(given), SCHEMA)
        sink.topics = topics
        return sink

    return new


def read(kafka: KafkaService, topic: str, isolation: str = "read_committed") -> list[Row]:
    """What a second client gets, to the end that it is told."""
    with new_reader(kafka.bootstrap, isolation) as consumer:
        found = all_records(consumer, topic, PARTITIONS)
        return sorted((int(record.key), record.value.decode()) for record in found)


def holds(kafka: KafkaService, topics: tuple[str, str], *expected: Row) -> None:
    for remainder, topic in enumerate(topics):
        mine = sorted(row for row in expected if row[0] % 2 == remainder)
        assert read(kafka, topic) == mine


@pytest.mark.parametrize("protocol", ["2pc", "wal"])
def test_each_record_goes_once_to_the_topic_that_it_names(
    kafka: KafkaService,
    topics: tuple[str, str],
    new_sink: Callable[..., RoutedSink],
    protocol: str,
) -> None:
    with closing(new_sink(protocol)) as sink:
        run = Run(sink, "routed")
        shares = run.tasks(0, LEFT, RIGHT)
        holds(kafka, topics)
        run.commit(0, shares)
        holds(kafka, topics, *LEFT, *RIGHT)
    with closing(new_sink(protocol)) as sink:
        Run(sink, "routed").epoch(0, LEFT, RIGHT)  # replayed
    holds(kafka, topics, *LEFT, *RIGHT)


def test_under_wal_an_epoch_is_in_all_its_topics_or_in_none(
    kafka: KafkaService,
    topics: tuple[str, str],
    new_sink: Callable[..., RoutedSink],
) -> None:
    """Also while all records are sent, and the transaction is not committed yet."""
    with LossyBroker(kafka.bootstrap) as broker, closing(new_sink("wal", broker.bootstrap)) as sink:
        run = Run(sink, "routed")
        shares = run.tasks(0, LEFT, RIGHT)

        def sent() -> None:
            there.extend(bool(read(kafka, topic, "read_uncommitted")) for topic in topics)
            holds(kafka, topics)

        there = list[bool]()
        broker.before(Api.END_TXN, sent)
        run.commit(0, shares)
        assert there == [True, True], "nothing was sent"
        close_clusters()
    holds(kafka, topics, *LEFT, *RIGHT)
    with closing(new_sink("wal")) as sink:
        Run(sink, "routed").epoch(0, LEFT, RIGHT)
    holds(kafka, topics, *LEFT, *RIGHT)
