"""Whatever is in a topic is read exactly, or refused with topic, partition, offset and a way on."""

from __future__ import annotations

import json
import random
import re
from contextlib import closing
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from abs_audit.kafka import KafkaTopic
from abs_clients.kafka.settings import Settings
from abs_core.errors import CorruptionError, DataError
from abs_core.source import Limit
from abs_services import KafkaService
from abs_services.native.kafka import NativeKafka
from abs_sources.kafka import KafkaSource, KafkaSourceOptions, columns, options
from tests import sample
from tests.kit.kafka import make_topic
from tests.kit.kafka_raw import RawRecord, append, batch_bytes

pytestmark = pytest.mark.services

MOST = (2**63 - 1) // 1000
"""The greatest record time, in milliseconds, that microseconds can hold."""

TIMES: tuple[int, ...] = (
    0,
    1,
    -1,
    1_700_000_000_000,
    1_700_000_000_000_000,
    MOST,
    MOST + 1,
    -MOST,
    -MOST - 1,
)
TIMES += (1_700_000_000_000_000_000, 2**63 - 1, -(2**62))
KEYS = (b"", b"key", b"\xff\xfe", b"\xc3", "ключ".encode(), b"\0", b"abs.attempts", b"k" * 3000)
VALUES = (None, b"", b"value", bytes(range(256)), b"v" * 200_000)


def any_records(seed: int, count: int) -> list[RawRecord]:
    chosen = random.Random(seed)

    def headers() -> tuple[tuple[bytes, bytes | None], ...]:
        many = chosen.choice((0, 0, 1, 2, 30))
        return tuple((chosen.choice(KEYS), chosen.choice(VALUES[:4])) for _ in range(many))

    def time() -> int:
        return chosen.choice(TIMES) if chosen.random() < 0.3 else 1_700_000_000_000

    return [
        RawRecord(chosen.choice(VALUES), chosen.choice(VALUES), headers(), time())
        for _ in range(count)
    ]


def is_text(record: RawRecord) -> bool:
    """Whether the headers' keys are UTF-8."""
    return all(key.decode("utf-8", "replace").encode() == key for key, _ in record.headers)


def in_range(record: RawRecord) -> bool:
    return -MOST <= record.time <= MOST


Row = tuple[Any, ...]


def row_of(offset: int, record: RawRecord, *, headers: bool) -> Row:
    # librdkafka gives out a key as a text of C, which ends at a zero byte: the page says so.
    named = ((key.split(b"\0")[0].decode(), value) for key, value in record.headers)
    shown = [{"key": key, "value": value} for key, value in named] if headers else []
    return offset, record.key, record.value, record.time * 1000, shown or None


def read_all(
    settings: Settings, topic: str, end: int, **options: str
) -> tuple[list[Row], dict[int, str]]:
    """The rows that are read, and the errors by offset: each is followed to the letter."""
    rows: list[Row] = []
    refused: dict[int, str] = {}
    given = options
    while (error := _read_on(settings, topic, end, given, rows)) is not None:
        found = re.search(rf"at offset (\d+) of {topic}-0 ", error.what)
        assert found is not None, error
        told = re.search(r"set skipOffsets=(\{\S+\}) and restart on the same", error.remedy)
        assert told is not None, error
        assert json.loads(told[1]) == {topic: {"0": [int(found[1])]}}
        assert int(found[1]) not in refused, "it was to be left out"
        refused[int(found[1])] = error.what
        given = {**options, "skipOffsets": json.dumps({topic: {"0": sorted(refused)}})}
        rows.clear()  # the epoch was not written: it is read again from its begin
    return rows, refused


def _read_on(
    settings: Settings, topic: str, end: int, options: dict[str, str], rows: list[Row]
) -> DataError | None:
    """Read from the first record on; what ends the read before its end."""
    given = {f"kafka.{name}": text for name, text in settings.pairs} | options
    given |= {"subscribe": topic, "endingOffsets": f'{{"{topic}":{{"0":{end}}}}}'}
    given |= {"startingOffsets": f'{{"{topic}":{{"0":0}}}}', "batchsize": "1"}
    source = KafkaSource(KafkaSourceOptions.parse(given, batch=True))
    begin = source.initial()
    try:
        for split in source.splits(begin, source.latest(begin, Limit())):
            with closing(source.open(split)) as reader:
                while not reader.finished:
                    batch = reader.read(5.0)
                    rows += [] if batch is None else rows_of(batch)
    except DataError as error:
        return error
    return None


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    times = batch.column("timestamp").view(pa.int64()).to_pylist()
    names = ["offset", "key", "value"]
    headers = (
        batch.column("headers").to_pylist()
        if "headers" in batch.schema.names
        else [None] * batch.num_rows
    )
    return list(
        zip(*(batch.column(name).to_pylist() for name in names), times, headers, strict=True)
    )


@pytest.fixture(scope="module")
def settings(kafka: KafkaService) -> Settings:
    kafka.start()
    return Settings.of({"bootstrap.servers": kafka.bootstrap})


@pytest.fixture(scope="module")
def written(settings: Settings) -> tuple[str, list[RawRecord]]:
    """A topic of one partition with records of any kind, in batches of several sizes and codecs."""
    topic, records = "any-records", any_records(sample.seed(), 60)
    limits = {f"message.timestamp.{side}.max.ms": str(2**63 - 1) for side in ("after", "before")}
    make_topic(settings, topic, 1, limits)
    at, chosen = 0, random.Random(sample.seed())
    while at < len(records):
        batch = records[at : at + chosen.choice((1, 2, 5))]
        append(settings, topic, 0, batch_bytes(batch, chosen.choice((0, 1))), len(batch))
        at += len(batch)
    return topic, records


@pytest.mark.parametrize(
    ("options", "headers"),
    [({}, False), ({"includeHeaders": "true"}, True), ({"winners": "false"}, False)],
)
def test_any_record_is_read_exactly_or_refused_by_its_offset(
    settings: Settings,
    written: tuple[str, list[RawRecord]],
    options: dict[str, str],
    headers: bool,
) -> None:
    topic, records = written
    rows, refused = read_all(settings, topic, len(records), **options)
    readable = {n: r for n, r in enumerate(records) if in_range(r) and (is_text(r) or not headers)}
    assert sorted(refused) == sorted(set(range(len(records))) - set(readable))
    # `skipOffsets` leaves out what could not be read, and nothing else.
    assert rows == [row_of(n, record, headers=headers) for n, record in readable.items()]


def test_with_winners_a_record_whose_headers_cannot_be_read_is_refused(
    settings: Settings, written: tuple[str, list[RawRecord]]
) -> None:
    topic, records = written
    _, refused = read_all(settings, topic, len(records), winners="true")
    assert {n for n, record in enumerate(records) if not is_text(record)} <= set(refused)


def test_a_time_that_wraps_and_headers_that_are_dropped_are_found(
    settings: Settings, written: tuple[str, list[RawRecord]], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, records = written
    monkeypatch.setattr(columns, "_MAX_MILLIS", np.iinfo(np.int64).max)
    rows, _ = read_all(settings, topic, len(records))
    assert rows != [row_of(n, r, headers=False) for n, r in enumerate(records) if in_range(r)]

    monkeypatch.undo()
    monkeypatch.setattr(columns, "UNREADABLE", None)  # as if there were none
    rows, refused = read_all(settings, topic, len(records), includeHeaders="true")
    assert len(rows) + len(refused) == len(records)
    assert {n for n, record in enumerate(records) if not is_text(record)} - set(refused)


def test_an_audit_reads_any_record_exactly_or_names_the_one_it_cannot(
    kafka: KafkaService, settings: Settings
) -> None:
    limits = {f"message.timestamp.{side}.max.ms": str(2**63 - 1) for side in ("after", "before")}
    make_topic(settings, "audited", 2, limits)
    records = any_records(sample.seed() + 1, 60)
    topic = KafkaTopic(kafka.bootstrap, "audited", value="raw")
    good = [record for record in records if is_text(record)]
    bad = next(record for record in records if not is_text(record))
    for partition, at in product((0, 1), range(0, len(good), 2)):
        some = good[at : at + 2]
        append(settings, "audited", partition, batch_bytes(some), len(some))
    assert _audited(topic) == sorted(_pair(each) for each in (*good, *good))
    append(settings, "audited", 1, batch_bytes([*good[:3], bad]), 4)
    with pytest.raises(DataError, match=f"offset {len(good) + 3} of partition 1: "):
        _audited(topic)


def _audited(topic: KafkaTopic) -> list[tuple[bytes, bytes]]:
    found = [each for batch in topic._batches() for each in batch]
    return sorted(_pair(RawRecord(each.key, each.value)) for each in found)


def _pair(record: RawRecord) -> tuple[bytes, bytes]:
    return tuple(b"none" if each is None else b"." + each for each in (record.key, record.value))  # type: ignore[return-value]


def test_a_damaged_batch_is_refused_by_its_offset(
    kafka: KafkaService, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(settings, "damaged", 1)
    good, hurt = RawRecord(b"key", b"good"), RawRecord(b"key", b"a" * 100 + b"hurt")
    for record in (good, hurt, good):
        append(settings, "damaged", 0, batch_bytes([record]), 1)
    _damage(kafka, "damaged", b"hurt", b"HURT")

    def read() -> list[Any]:
        rows: list[Row] = []
        error = _read_on(settings, "damaged", 3, {}, rows)
        return [value for _, _, value, *_ in rows] + ([] if error is None else [error])

    with pytest.raises(CorruptionError, match="damaged-0 at offset 1"):
        read()
    monkeypatch.setitem(options._DEFAULTS, "check.crcs", False)
    assert read()[1] == b"a" * 100 + b"HURT", "without the check its bytes are taken as they are"


def _damage(kafka: KafkaService, topic: str, old: bytes, new: bytes) -> None:
    """Change bytes of a topic's log, as a bad disk would."""
    if not isinstance(kafka, NativeKafka):
        pytest.skip("the broker's disk is not ours")
    (log,) = (kafka.folder / "data" / f"{topic}-0").glob("*.log")
    content = log.read_bytes()
    assert content.count(old) == 1
    with log.open("r+b") as file:
        file.seek(content.index(old))
        file.write(new)
