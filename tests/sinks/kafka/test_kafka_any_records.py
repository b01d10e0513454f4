"""Any records through both producers are what two readers read, or are refused by name by both."""

from __future__ import annotations

import secrets
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.consumer.fetcher import ConsumerRecord

from abs_clients.kafka.settings import Settings
from abs_core.contracts import Task
from abs_core.errors import RowError, SchemaError
from abs_core.model import Outcome
from abs_services import KafkaService
from abs_sinks.kafka import KafkaOptions, KafkaSink
from tests.kit.kafka import make_topic
from tests.kit.kafka_reading import all_records, new_reader
from tests.sources.kafka.test_kafka_source_any_records import read_all

pytestmark = [pytest.mark.services, pytest.mark.campaign, pytest.mark.timeout(1800)]

PRODUCERS = ("columnar", "librdkafka")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
EVER = str(2**63 - 1)
ANY_TIME = {f"message.timestamp.{side}.max.ms": EVER for side in ("after", "before")}
LONGEST = 253_402_300_799_999
"""The last millisecond of the year 9999."""

KEY_TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    st.sampled_from(["", "\0", "a\0b", "é", "e\u0301", "\U0001f600", "abs.attempt ", "k" * 300]),
)
HEADER = st.tuples(KEY_TEXT, st.none() | st.binary(max_size=6))
DATA = st.none() | st.binary(max_size=8)
MILLIS = st.none() | st.one_of(st.integers(0, LONGEST), st.sampled_from([0, 1, -1, LONGEST]))


@dataclass(frozen=True)
class Place:
    """Topics of one partition."""

    settings: Settings
    topic: str
    stamping: str


@pytest.fixture(scope="module")
def place(kafka: KafkaService) -> Place:
    kafka.start()
    made = Place(
        Settings.of({"bootstrap.servers": kafka.bootstrap}),
        f"any-{secrets.token_hex(4)}",
        f"stamping-{secrets.token_hex(4)}",
    )
    make_topic(made.settings, made.topic, 1, ANY_TIME)
    make_topic(made.settings, made.stamping, 1, {"message.timestamp.type": "LogAppendTime"})
    return made


def sent(place: Place, topic: str, producer: str, batch: pa.RecordBatch) -> int | str:
    """The offset of the first record; a text is why they are refused."""
    given = {"kafka.bootstrap.servers": place.settings.bootstrap, "topic": topic}
    options = KafkaOptions.parse({**given, "protocol": "2pc", "producer": producer})
    task = Task(secrets.token_hex(8), "job", 1, 0, 0, "ab")
    with closing(KafkaSink(options, batch.schema)) as sink:
        try:
            writer = sink.writer(task)
        except SchemaError as error:
            return error.what
        try:
            writer.write(batch)
            made = writer.pre_commit()
        except (RowError, SchemaError) as error:
            writer.abort()
            return error.what
        assert made is not None
        assert set(sink.committer().commit([made]).values()) == {Outcome.COMMITTED}
        return int(dict(made.extra)["offsets"].split(" from ")[1].split()[0])


def by_python(place: Place, first: int) -> list[ConsumerRecord]:
    # The markers of what is committed may follow.
    reader = new_reader(place.settings.bootstrap, "read_uncommitted")
    try:
        return [r for r in all_records(reader, place.topic, 1) if r.offset >= first]
    finally:
        reader.close()


@given(
    rows=st.lists(
        st.tuples(DATA, DATA, st.none() | st.lists(HEADER, max_size=3)), min_size=1, max_size=5
    )
)
@settings(suppress_health_check=[*HealthCheck], deadline=None)
def test_any_records_are_read_as_they_were_given_or_refused_by_both_producers(
    place: Place, rows: list[tuple[bytes | None, bytes | None, Any]]
) -> None:
    keys, values, headers = zip(*rows, strict=True)
    shown = [h and [{"key": key, "value": value} for key, value in h] for h in headers]
    columns = {
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.array(shown, HEADERS),
    }
    batch = pa.record_batch(columns)
    answers = [sent(place, place.topic, producer, batch) for producer in PRODUCERS]
    if any("\0" in key for some in headers for key, _ in some or ()):
        assert all(isinstance(answer, str) and "header" in answer for answer in answers), answers
        assert answers[0] == answers[1]
        return
    for first in answers:
        assert isinstance(first, int), first
        read = by_python(place, first)[: len(rows)]
        assert [(r.key, r.value, r.headers) for r in read] == [(k, v, h or []) for k, v, h in rows]
        found, refused = read_all(
            place.settings, place.topic, first + len(rows), includeHeaders="true"
        )
        assert not refused
        found = [row for row in found if row[0] >= first]
        assert [row[1:3] for row in found] == [(k, v) for k, v, _ in rows]
        assert [row[4] for row in found] == [s or None for s in shown]


@given(
    millis=st.lists(MILLIS, min_size=1, max_size=4),
    unit=st.sampled_from(["s", "ms", "us", "ns"]),
    zone=st.sampled_from([None, "UTC", "America/New_York", "+05:30", "Asia/Kathmandu"]),
    stamping=st.booleans(),
    more=st.integers(0, 999),
)
@settings(suppress_health_check=[*HealthCheck], deadline=None)
def test_a_records_time_is_the_moment_of_its_column_or_is_refused_by_both_producers(
    place: Place,
    millis: list[int | None],
    unit: str,
    zone: str | None,
    stamping: bool,
    more: int,
) -> None:
    each = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[unit]
    numbers = [None if n is None else n * each // 1000 for n in millis]
    if unit == "us":
        numbers = [None if n is None else n + more for n in numbers]
    if unit == "ns":
        numbers = [None if n is None or n * 10**6 >= 2**63 else n * 10**6 + more for n in millis]
    times = pa.array(numbers, pa.int64()).cast(pa.timestamp(unit, zone))
    batch = pa.record_batch({"value": pa.array([b"x"] * len(times)), "timestamp": times})
    topic = place.stamping if stamping else place.topic
    answers = [sent(place, topic, producer, batch) for producer in PRODUCERS]
    given = [n for n in numbers if n is not None]
    if zone is None:
        wanted = "wall clock"
    elif any(n * 1000 // each <= 0 for n in given):
        wanted = "timestamp"
    elif stamping and given:
        wanted = "LogAppendTime"
    else:
        wanted = ""
    if wanted:
        assert all(isinstance(a, str) and wanted in a for a in answers), (wanted, answers)
        return
    for first in answers:
        assert isinstance(first, int), first
        if stamping:
            continue
        read = by_python(place, first)[: len(times)]
        for record, number in zip(read, numbers, strict=True):
            if number is not None:
                assert record.timestamp == number * 1000 // each, "the broker has another moment"
