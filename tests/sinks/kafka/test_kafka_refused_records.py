"""A record that its broker refuses is pre-committed by nobody, whoever sends it, in any protocol.

For ``2pc`` see ``test_kafka_bad_input``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pyarrow as pa
import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from abs_clients.kafka.cluster import cluster
from abs_core.contracts import Task, Writer
from abs_core.errors import AbsError
from abs_services import KafkaService
from abs_sinks.kafka import KafkaSink
from abs_testing.case import Case, rows, within
from tests.kit.kafka import TopicHarness, Variant
from tests.kit.kafka_modes import open_attempts, open_log

pytestmark = pytest.mark.services

TASK = Task("0123456789abcdef", "job", 1, 0, 0, "ab")
PLAIN = pa.schema([("value", pa.string())])
LIMIT = "max.message.bytes"

BY_EITHER = pytest.mark.parametrize("producer", ["columnar", "librdkafka"])


@BY_EITHER
def test_an_attempt_with_a_refused_record_is_never_pre_committed(
    kafka: KafkaService, producer: str
) -> None:
    kafka.start()
    with (
        open_attempts(kafka.bootstrap, producer) as harness,
        closing(KafkaSink(harness.options, PLAIN)) as sink,
    ):
        writer = sink.writer(TASK)
        writer.write(pa.record_batch({"value": ["small"]}))
        with _limited(harness), pytest.raises(AbsError):
            _write_and_pre_commit(writer, "x" * 5000)
        writer.abort()
        assert harness.records() == []


@BY_EITHER
def test_an_epoch_with_a_refused_record_is_not_committed_and_then_it_is(
    kafka: KafkaService, producer: str
) -> None:
    kafka.start()
    large = [(7, "x" * 5000)]
    with open_log(kafka.bootstrap, Variant("wal", producer=producer)) as harness:
        case = Case(harness)
        run = case.run()
        shares = run.tasks(0, rows(0, 3), large)
        with _limited(harness), pytest.raises(AbsError):
            run.commit(0, shares)
        assert harness.read() == []
        assert harness.hidden() == 0, "the transaction is left open"
        case.run().epoch(0, rows(0, 3), large)
        case.finished(rows(0, 3), large, when="after the topic took it")
        case.close()


def _write_and_pre_commit(writer: Writer, value: str) -> None:
    writer.write(pa.record_batch({"value": [value]}))
    writer.pre_commit()


@contextmanager
def _limited(harness: TopicHarness) -> Iterator[None]:
    """The topic takes no more than 2,000 bytes at a time; nobody who has looked at it knows."""
    _limit(harness, "2000")
    try:
        yield
    finally:
        _limit(harness, "1048588")


def _limit(harness: TopicHarness, size: str) -> None:
    settings, topic = harness.options.kafka, harness.topic
    cluster(settings).client().alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic, {LIMIT: size})]
    )
    assert within(60, lambda: cluster(settings).admin.configs(topic)[LIMIT] == size)
