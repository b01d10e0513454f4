"""A task counts what the broker counts, and names the row: sizes with headers, times, topics."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from abs_clients.kafka.producer_ids import init_producer_id
from abs_clients.kafka.topics import BEFORE
from abs_core.contracts import Task
from abs_core.errors import RowError, SchemaError
from abs_core.model import Committable
from abs_services import KafkaService
from abs_sinks.kafka import KafkaOptions, KafkaSink
from abs_sinks.kafka.records import RECORD_OVERHEAD
from tests.kit.kafka import make_topic

pytestmark = pytest.mark.services

TASK = Task("0123456789abcdef", "job", 1, 0, 0, "ab")
HOUR = 3_600_000
MAX_BYTES = 20_000
LIMIT = "max.message.bytes"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

Write = Callable[..., Committable | None]


@pytest.fixture(params=["2pc", "wal", "wal-foreign", "idempotent"])
def options(
    kafka: KafkaService, topic: str, tmp_path: Path, request: pytest.FixtureRequest
) -> KafkaOptions:
    kafka.start()
    protocol = request.param.partition("-")[0]
    given = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "topic": topic,
        "registertopic": f"{topic}-register",
        "protocol": protocol,
        **({"wal": tmp_path.as_uri()} if protocol == "wal" else {}),
    }
    options = KafkaOptions.parse(given)
    make_topic(options.kafka, topic, 1, {LIMIT: str(MAX_BYTES), BEFORE: str(24 * HOUR)})
    return options


@pytest.fixture
def write(options: KafkaOptions, request: pytest.FixtureRequest) -> Write:
    """Pre-commits one batch, in a task of its own."""
    foreign = request.node.callspec.params["options"] == "wal-foreign"

    def writing(of: KafkaOptions = options, **columns: object) -> Committable | None:
        batch = pa.record_batch(columns)
        with closing(KafkaSink(of, batch.schema, co_commit=not foreign)) as sink:
            writer = sink.writer(TASK)
            try:
                writer.write(batch)
                return writer.pre_commit()
            finally:
                writer.abort()

    return writing


def times(*hours: float | None) -> pa.Array:
    """So many hours from now."""
    now = time.time_ns() // 1_000_000
    millis = [None if h is None else int(now + h * HOUR) for h in hours]
    return pa.array(millis, pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))


def test_a_time_that_the_topic_does_not_take_is_named(write: Write) -> None:
    for name, hours in (("after", 2), ("before", -48)):
        with pytest.raises(RowError, match=rf"are times that .*{name}\.max\.ms.* is row 1 of"):
            write(value=["a", "b", "c"], timestamp=times(0, hours, 0))
    made = write(value=["a", "b", "c"], timestamp=times(0.9, -23, 0))
    assert made is not None
    assert made.rows == 3


def test_a_time_that_the_broker_would_replace_is_refused(
    options: KafkaOptions, write: Write
) -> None:
    own = replace(options, topic=f"{options.topic}-own")
    make_topic(
        options.kafka, f"{options.topic}-own", 1, {"message.timestamp.type": "LogAppendTime"}
    )
    with pytest.raises(SchemaError, match=r"LogAppendTime.*drop the column timestamp"):
        write(own, value=["a"], timestamp=times(0))
    assert write(own, value=["a"]) is not None
    assert write(own, value=["a"], timestamp=times(None)) is not None
    told = KafkaSink(own, pa.schema([("value", pa.string()), ("timestamp", times(0).type)]))
    assert any("LogAppendTime" in each.what for each in told.preflight("job"))


def test_a_wall_clock_is_no_records_time(write: Write) -> None:
    with pytest.raises(SchemaError, match=r"CAST\(timestamp AS TIMESTAMP\)"):
        write(value=["a"], timestamp=pa.array([10**15], pa.timestamp("us")))


@pytest.mark.parametrize("producer", ["columnar", "librdkafka"])
def test_a_header_whose_key_has_a_nul_is_named(
    options: KafkaOptions, write: Write, producer: str
) -> None:
    headers = pa.array([None, [("a", b""), ("a\0b", b"1")], []], HEADERS)
    with pytest.raises(RowError, match=r"key has a NUL.* first is row 1 of"):
        write(replace(options, producer=producer), value=["a", "b", "c"], headers=headers)


def test_a_topic_that_the_brokers_keep_for_themselves_is_named(
    options: KafkaOptions, write: Write
) -> None:
    if options.protocol == "idempotent":
        return  # it takes no column topic
    # The brokers make their topic.
    options.patience.retry(partial(init_producer_id, options.kafka, f"{options.topic}-warm"))
    with pytest.raises(RowError, match=r"go to topic __transaction_state.* first is row 1 of"):
        write(
            replace(options, topic=None),
            value=["a", "b"],
            topic=[options.topic, "__transaction_state"],
        )


@pytest.mark.parametrize("count", [0, 1, 10, 40, 200])
def test_a_record_at_the_edge_of_the_limit_is_taken_and_one_beyond_it_named(
    options: KafkaOptions, write: Write, count: int
) -> None:
    one = [(f"name-{number}", b"v" * (number % 70)) for number in range(count)]
    framed = sum(len(key) + 1 + len(value) + (1 if len(value) < 64 else 2) for key, value in one)
    framed += 1 if count < 64 else 2  # their number
    if not count:
        framed = 1
    left = MAX_BYTES - RECORD_OVERHEAD - framed
    if options.protocol == "idempotent":
        left -= 100  # its own header; how long it is stands elsewhere

    def of(size: int) -> dict[str, object]:
        return {"value": [b"small", b"x" * size], "headers": pa.array([one, one], HEADERS)}

    made = write(**of(left))
    assert made is not None
    assert made.rows == 2
    with pytest.raises(RowError, match=r"1 of 2 rows are too large .* first is row 1 of the task"):
        write(**of(left + 1 + (100 if options.protocol == "idempotent" else 0)))
