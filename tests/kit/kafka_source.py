"""The harness of ``abs_testing.check_source`` on a real broker, with transactions."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from abs_clients.kafka.configs import librdkafka_log
from abs_clients.kafka.settings import Settings
from abs_core.source import Limit, Source
from abs_sources.kafka.lookup import lookup
from abs_sources.kafka.options import KafkaSourceOptions
from abs_sources.kafka.source import KafkaSource
from abs_testing.case import within
from abs_testing.harness import Record

PARTITIONS = 2
_PATIENCE_SECONDS = 30.0


class KafkaSourceHarness:
    """A new topic of two partitions.

    Added rows are mixed with aborted records and markers: about every other offset has no row.

    Args:
        options: further ones of the source.
    """

    def __init__(self, bootstrap: str, options: Mapping[str, str] | None = None) -> None:
        self._bootstrap = bootstrap
        self.topic = f"source-{secrets.token_hex(6)}"
        self._options = {"kafka.bootstrap.servers": bootstrap, "subscribe": self.topic}
        self._options |= {"startingOffsets": "earliest", "batchsize": "5", **(options or {})}
        self._admin = AdminClient(
            {"bootstrap.servers": bootstrap, "log_level": 2}, logger=librdkafka_log
        )
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": self.topic, "linger.ms": 0},
            logger=librdkafka_log,
        )
        self._producer.init_transactions(_PATIENCE_SECONDS)
        self._numbers = itertools.count()
        self.create()

    @property
    def limits(self) -> Sequence[tuple[Limit, int]]:
        return [(Limit(rows=9), 9)]

    @property
    def damages(self) -> Mapping[str, Callable[[], None]]:
        return {
            "records are deleted": lambda: self.delete_records({0: 3}),
            "the topic is deleted": self.delete,
            "the topic is made anew": self.make_anew,
        }

    def new_source(self) -> Source:
        return KafkaSource(KafkaSourceOptions.parse(self._options))

    def add(self, rows: int) -> Sequence[Record]:
        """Send rows in one committed transaction, after as many in an aborted one."""
        if rows == 0:
            return []
        for _ in self._sent(rows):
            pass
        self._producer.abort_transaction(_PATIENCE_SECONDS)
        added = list(self._sent(rows))
        self._producer.commit_transaction(_PATIENCE_SECONDS)
        assert within(_PATIENCE_SECONDS, self._all_is_stable)
        return added

    def records(self, batch: pa.RecordBatch) -> Sequence[Record]:
        found: list[bytes] = batch.column("value").to_pylist()
        return found

    def create(self) -> None:
        """Create the topic; waits for a pending deletion, and until the topic is known."""
        topic = NewTopic(self.topic, PARTITIONS, -1)

        def made() -> bool:
            try:
                self._admin.create_topics([topic])[self.topic].result()
            except KafkaException as error:
                if error.args[0].name() == "TOPIC_ALREADY_EXISTS":
                    return False
                raise
            return True

        assert within(_PATIENCE_SECONDS, made)
        # The controller answers before the broker knows.
        client = lookup(KafkaSourceOptions(Settings.of({"bootstrap.servers": self._bootstrap})))
        assert within(_PATIENCE_SECONDS, lambda: len(client.topics([self.topic])) == 1)

    def delete(self) -> None:
        """Delete the topic; returns when no broker knows it."""
        self._admin.delete_topics([self.topic])[self.topic].result()
        assert within(
            _PATIENCE_SECONDS, lambda: self.topic not in self._admin.list_topics(timeout=10).topics
        )

    def make_anew(self) -> None:
        """Recreate the topic with at least as many rows."""
        self.delete()
        self.create()
        self.add(60)

    def delete_records(self, before: Mapping[int, int]) -> None:
        """Delete the records before an offset, by partition."""
        asked = [TopicPartition(self.topic, number, offset) for number, offset in before.items()]
        for answer in self._admin.delete_records(asked).values():
            answer.result()

    def _all_is_stable(self) -> bool:
        """Whether the markers are written: a commit returns before."""
        partitions = [(self.topic, number) for number in range(PARTITIONS)]
        where = {"bootstrap.servers": self._bootstrap}
        stable, written = (
            lookup(KafkaSourceOptions(Settings.of({**where, "isolation.level": level}))).end(
                partitions
            )
            for level in ("read_committed", "read_uncommitted")
        )
        return stable == written

    def _sent(self, rows: int) -> Iterator[bytes]:
        """Send rows in an open transaction, and wait until they are written."""
        self._producer.begin_transaction()
        for number in itertools.islice(self._numbers, rows):
            value = b"%d" % number
            self._producer.produce(self.topic, value=value, partition=number % PARTITIONS)
            yield value
        self._producer.flush(_PATIENCE_SECONDS)


@contextmanager
def open_kafka_source(
    bootstrap: str, options: Mapping[str, str] | None = None
) -> Iterator[KafkaSourceHarness]:
    """A harness on a topic of its own, which is not deleted."""
    yield KafkaSourceHarness(bootstrap, options)
