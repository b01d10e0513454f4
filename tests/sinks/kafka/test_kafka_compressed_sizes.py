"""Records above a topic's limit: taken if they fit compressed, else named in the task.

The largest record that a task takes is looked for by halves, so what is judged is held to what a real
broker does at the very edge: with all codecs, of both producers and of the topic.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from abs_clients.kafka.topics import TopicFacts, topic_facts
from abs_core.contracts import Task
from abs_core.errors import RowError
from abs_services import KafkaService
from abs_sinks.kafka import KafkaOptions, KafkaSink, sizes
from abs_sinks.kafka.records import Records
from abs_sinks.kafka.sizes import Sizes
from tests import sample
from tests.kit.kafka import make_topic
from tests.kit.kafka_reading import messages
from tests.planted import planted

pytestmark = pytest.mark.services

CODECS = ("gzip", "snappy", "lz4", "zstd")
STORED = ("producer", "uncompressed", *CODECS)
LIMIT = 60_000
TASK = Task("0123456789abcdef", "job", 1, 0, 0, "ab")
SCHEMA = pa.schema([("value", pa.binary())])


def value_of(size: int) -> bytes:
    """Text of many kinds: some of it repeats, some is a noise of 64 signs."""
    random = np.random.default_rng(3)
    text = bytearray()
    while len(text) < size:
        text += base64.b64encode(random.bytes(int(random.integers(1, 90))))
        text += b" and the same words again " * int(random.integers(1, 9))
    return bytes(text[:size])


VALUE = value_of(1_500_000)


def options_of(bootstrap: str, topic: str, **more: str) -> KafkaOptions:
    given = {
        "kafka.bootstrap.servers": bootstrap,
        "topic": topic,
        "kafka.message.max.bytes": "2000000",
        "kafka.batch.size": str(LIMIT * 9 // 10),
        **more,
    }
    return KafkaOptions.parse(given)


def largest(judged: Callable[[bytes], bool]) -> int:
    """The length of the longest beginning of ``VALUE`` that is taken."""
    least, most = 0, len(VALUE)
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if judged(VALUE[:middle]) else (least, middle)
    return least


def is_taken(options: KafkaOptions) -> Callable[[bytes], bool]:
    facts = topic_facts(options.kafka, [options.topic or ""])[options.topic or ""]
    judge = Sizes(options.kafka, options.choice.columnar)

    def judged(value: bytes) -> bool:
        column = pa.array([value], pa.binary())
        return judge.too_large(Records(column, None, None, None, None, None), facts) is None

    return judged


def written(options: KafkaOptions, *values: bytes) -> None:
    """An epoch of these records in one partition, committed."""
    with closing(KafkaSink(options, SCHEMA)) as sink:
        writer = sink.writer(replace(TASK, attempt=secrets.token_hex(2)))
        try:
            writer.write(pa.record_batch([pa.array(values, pa.binary())], schema=SCHEMA))
            made = writer.pre_commit()
        finally:
            writer.abort()
        assert made is not None
        sink.committer().commit([made])


@pytest.fixture
def edge(kafka: KafkaService, topic: str) -> Callable[..., tuple[KafkaOptions, int]]:
    """The options, and the length of the largest record that a task takes."""
    kafka.start()

    def looked_for(producer: str, sent: str, stored: str) -> tuple[KafkaOptions, int]:
        more = {"producer": producer, "kafka.compression.type": sent}
        options = options_of(kafka.bootstrap, topic, **more)
        configs = {"max.message.bytes": str(LIMIT), "compression.type": stored}
        make_topic(options.kafka, topic, 1, configs)
        return options, largest(is_taken(options))

    return looked_for


@sample.cases(4)
@pytest.mark.parametrize("producer", ["columnar", "librdkafka"])
@pytest.mark.parametrize(("sent", "stored"), list(product(CODECS, STORED)))
def test_the_largest_record_that_a_task_takes_is_taken_by_the_broker(
    edge: Callable[..., tuple[KafkaOptions, int]], producer: str, sent: str, stored: str
) -> None:
    options, most = edge(producer, sent, stored)
    small = VALUE[:100]
    written(options, small, VALUE[:most], small, VALUE[:most])
    found = messages({"bootstrap.servers": options.kafka.bootstrap}, options.topic or "")
    assert [len(record.value() or b"") for record in found] == [100, most, 100, most]
    assert (most > LIMIT) == (stored != "uncompressed")
    with pytest.raises(RowError, match=r"1 of 2 rows are too large for topic .* is row 1 of the"):
        written(options, small, VALUE[: most + 40])


def test_a_record_that_fits_compressed_is_not_refused_by_a_limit_of_a_sixth(
    edge: Callable[..., tuple[KafkaOptions, int]],
) -> None:
    """The edge lies where the codec puts it, not near the limit."""
    _, most = edge("columnar", "zstd", "producer")
    assert most > 1.5 * LIMIT


def test_what_the_client_does_not_take_is_named_with_its_setting(
    kafka: KafkaService, topic: str
) -> None:
    kafka.start()
    for producer in ("columnar", "librdkafka"):
        more = {"kafka.message.max.bytes": "50000", "producer": producer}
        options = options_of(kafka.bootstrap, topic, **more, **{"kafka.compression.type": "zstd"})
        make_topic(options.kafka, topic, 1) if producer == "columnar" else None
        with pytest.raises(RowError, match=r"too large for kafka\.message\.max\.bytes"):
            written(options, bytes(50_001))


def test_a_record_larger_than_the_queue_is_sent_by_librdkafka(
    kafka: KafkaService, topic: str
) -> None:
    kafka.start()
    more = {"kafka.message.max.bytes": "80000000", "kafka.compression.type": "zstd"}
    options = options_of(kafka.bootstrap, topic, producer="librdkafka", **more)
    make_topic(options.kafka, topic, 1)
    written(options, bytes(70_000_000))


def test_a_judge_that_forgets_the_topics_codec_is_found(
    edge: Callable[..., tuple[KafkaOptions, int]],
) -> None:
    sound = Sizes.codecs

    def of_the_producer(self: Sizes, topic: TopicFacts) -> list[sizes.Codec]:
        """A planted bug: what the broker stores is taken for what was sent."""
        return sound(self, replace(topic, configs=()))

    bug = Sizes, "codecs", of_the_producer
    with planted(bug, by=RowError, match=r"delivering 1 records"):
        options, most = edge("columnar", "zstd", "uncompressed")
        written(options, VALUE[:most])
