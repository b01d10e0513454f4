"""What small batches with large content take: the memory of a process that reads them, by its peak.

librdkafka unpacks all batches of an answer at once. Figures: docs/reference/kafka-source.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from abs_services import KafkaService
from abs_sinks.kafka.options import KafkaOptions
from abs_sources.kafka.reader import _FIRST_PIECE, _PIECE
from tests.kit.kafka import delete_topics, make_topic

pytestmark = [pytest.mark.services, pytest.mark.campaign]

RECORD = 1_000_000
BATCHES, IN_ONE = 40, 8
"""320 MB of zeros in batches of 8 MB: by zstd they are less than the megabyte of one answer."""

CONTENT = BATCHES * IN_ONE * RECORD >> 20
"""In MiB."""

READS = """
import json, resource, sys
from abs_core.patience import Patience
from abs_core.reading import rest_of
from abs_core.source import Limit
from abs_sources.kafka import reader as reading
from abs_sources.kafka.options import KafkaSourceOptions
from abs_sources.kafka.source import KafkaSource

reading._FIRST_PIECE = int(sys.argv[2])
source = KafkaSource(KafkaSourceOptions.parse(json.loads(sys.argv[1])))
start = source.initial()
before, rows = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
for split in source.splits(start, source.latest(start, Limit(rows=None))):
    reader = source.open(split)
    for batch in rest_of(reader, Patience(seconds=60), lambda: reader.finished):
        rows += batch.num_rows
    reader.close()
print(rows, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.fixture(params=["zstd", "gzip", "lz4"])
def topic(request: pytest.FixtureRequest, kafka: KafkaService) -> Iterator[dict[str, str]]:
    kafka.start()
    servers = {"kafka.bootstrap.servers": kafka.bootstrap}
    name = f"packed-{request.param}"
    settings = KafkaOptions.parse({**servers, "topic": name}).kafka
    make_topic(settings, name, 1)
    packed = {"compression.type": request.param, "linger.ms": 60_000, "batch.num.messages": IN_ONE}
    sizes = {"message.max.bytes": 2 * IN_ONE * RECORD, "batch.size": 2 * IN_ONE * RECORD}
    producer = Producer({"bootstrap.servers": kafka.bootstrap, **packed, **sizes})
    for _ in range(BATCHES):
        for _ in range(IN_ONE):
            producer.produce(name, bytes(RECORD))
        assert producer.flush(60) == 0
    yield {**servers, "subscribe": name, "startingOffsets": "earliest", "winners": "false"}
    delete_topics(settings, [name])


def peak(options: dict[str, str], first: int = _FIRST_PIECE) -> int:
    """The MiB that a process needs to read all.

    Args:
        first: messages that are turned into columns before their size is known.
    """
    done = subprocess.run(
        [sys.executable, "-c", READS, json.dumps(options), str(first)],
        capture_output=True,
        text=True,
        check=True,
    )
    rows, mib = map(int, done.stdout.split())
    assert rows == BATCHES * IN_ONE
    return mib


def test_an_answer_of_small_batches_is_unpacked_as_a_whole_unless_answers_are_small(
    topic: dict[str, str],
) -> None:
    whole, small = peak(topic), peak({**topic, "kafka.fetch.message.max.bytes": "1024"})
    print(f"{topic['subscribe']}: {whole} MiB, {small} MiB with small answers")
    assert whole < 2 * CONTENT, "the columns of an answer were made at once, too"
    assert small < 2 * whole // 3
    assert small < CONTENT
    if "zstd" in topic["subscribe"]:  # planted: as many messages as fit in the processor's cache
        assert peak(topic, first=_PIECE) >= 2 * CONTENT
