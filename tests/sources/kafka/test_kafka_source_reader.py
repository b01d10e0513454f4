"""What a reader does at the edges: open transactions, records that go away, ends that are not there."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from abs_clients.kafka import timeouts
from abs_core.errors import OptionError, RefusedError, ReplayMismatchError, UnavailableError
from abs_core.source import Limit, Offsets, Reader
from abs_services import KafkaService
from abs_sources.kafka import KafkaSource, KafkaSourceOptions
from abs_sources.kafka import lookup as lookups
from abs_sources.kafka import reader as readers
from abs_sources.kafka.lookup import Lookup
from abs_testing.case import within
from abs_testing.harness import Record
from tests.kit.kafka_source import KafkaSourceHarness
from tests.planted import planted

pytestmark = pytest.mark.services


@pytest.fixture
def harness(kafka: KafkaService) -> KafkaSourceHarness:
    kafka.start()
    return KafkaSourceHarness(kafka.bootstrap)


def source(harness: KafkaSourceHarness, kafka: KafkaService, **more: str) -> KafkaSource:
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "startingOffsets": "earliest", **more}
    if "assign" not in given:
        given["subscribe"] = harness.topic
    return KafkaSource(KafkaSourceOptions.parse(given))


def values_of(source: KafkaSource, start: Offsets, end: Offsets) -> list[bytes]:
    found: list[bytes] = []
    for split in source.splits(start, end):
        reader = source.open(split)
        found += rows_of(reader)
        reader.close()
    return found


def rows_of(reader: Reader) -> list[bytes]:
    found: list[bytes] = []
    while not reader.finished:
        batch = reader.read(1.0)
        found += [] if batch is None else batch.column("value").to_pylist()
    return found


def next_of(offsets: Offsets, harness: KafkaSourceHarness) -> dict[str, int]:
    found: dict[str, int] = json.loads(offsets)[harness.topic]["offsets"]
    return found


def test_a_group_id_makes_no_group_keeps_no_offsets_and_divides_nothing(
    harness: KafkaSourceHarness, kafka: KafkaService
) -> None:
    sent = harness.add(20)
    group = f"group-of-{harness.topic}"
    both = [source(harness, kafka, **{"kafka.group.id": group}) for _ in range(2)]
    start = both[0].initial()
    end = both[0].latest(start, Limit())
    opened = [[each.open(split) for split in each.splits(start, end)] for each in both]
    read = [[row for reader in mine for row in rows_of(reader)] for mine in opened]
    assert [Counter(rows) for rows in read] == [Counter(sent)] * 2, "each reads all"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    known = admin.list_consumer_groups(request_timeout=10).result().valid
    assert group not in [each.group_id for each in known], "while both have it open"
    kept = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    assert not kept[group].result(10).topic_partitions
    for reader in (*opened[0], *opened[1]):
        reader.close()


def test_an_open_transaction_bounds_what_is_latest(
    harness: KafkaSourceHarness, kafka: KafkaService
) -> None:
    reads = source(harness, kafka)
    start = reads.initial()
    settings = {"bootstrap.servers": kafka.bootstrap}
    open_one = Producer({**settings, "transactional.id": f"{harness.topic}-open"})
    open_one.init_transactions(30)
    plain = Producer(settings)
    plain.produce(harness.topic, b"before", partition=0)
    plain.flush()
    open_one.begin_transaction()
    open_one.produce(harness.topic, b"open", partition=0)
    open_one.flush()
    plain.produce(harness.topic, b"after", partition=0)
    plain.flush()
    end = reads.latest(start, Limit())
    assert next_of(end, harness) == {"0": 1, "1": 0}
    assert values_of(reads, start, end) == [b"before"]
    level = {"kafka.isolation.level": "read_uncommitted"}
    dirty = source(harness, kafka, **level)
    assert values_of(dirty, start, dirty.latest(start, Limit())) == [b"before", b"open", b"after"]
    open_one.commit_transaction(30)
    harness.add(1)
    later = reads.latest(end, Limit())
    assert values_of(reads, end, later)[:2] == [b"open", b"after"]


def test_a_place_before_the_first_record_is_an_error_or_a_warning(
    harness: KafkaSourceHarness, kafka: KafkaService, caplog: pytest.LogCaptureFixture
) -> None:
    reads = source(harness, kafka)
    start = reads.initial()
    added = harness.add(20)
    end = reads.latest(start, Limit())
    harness.delete_records({0: 15})
    with pytest.raises(ReplayMismatchError, match=f"records 0 to 14 of {harness.topic}-0 are del"):
        reads.latest(start, Limit())
    lossy = source(harness, kafka, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "abs_sources.kafka"):
        assert lossy.latest(start, Limit()) == end
        found = values_of(lossy, start, end)
    assert "records 0 to 14" in caplog.text
    # Offsets 0 to 9 of partition 0 are aborted, 10 is their marker.
    assert found == [*added[0::2][4:], *added[1::2]]


@pytest.mark.parametrize(
    "anew", [0, 4, 40], ids=["gone", "created again", "created again and longer"]
)
@pytest.mark.usefixtures("soon_missing")
def test_of_a_topic_that_is_not_there_any_more_nothing_is_read_where_the_job_goes_on(
    harness: KafkaSourceHarness, kafka: KafkaService, anew: int
) -> None:
    lossy = source(harness, kafka, failOnDataLoss="false")
    first = lossy.initial()
    harness.add(10)
    start = lossy.latest(first, Limit())
    harness.add(10)
    (split, _) = lossy.splits(start, lossy.latest(start, Limit()))
    harness.delete()
    if anew:
        harness.create()
        harness.add(anew)
    reader = lossy.open(split)
    found: list[bytes] = []

    def is_read() -> bool:
        batch = reader.read(1.0)
        found.extend([] if batch is None else batch.column("value").to_pylist())
        return reader.finished

    assert within(60, is_read)
    assert found == []
    reader.close()


def _read_through_a_new_topic(
    harness: KafkaSourceHarness, kafka: KafkaService, transactions: int
) -> tuple[list[bytes], list[Record]]:
    """What a job reads whose topic is made again in the middle of a range, and the new topic's rows."""
    # So that the rest of the range is not fetched before.
    small = {"kafka.queued.min.messages": "1", "kafka.fetch.message.max.bytes": "1"}
    lossy = source(harness, kafka, failOnDataLoss="false", batchsize="2", **small)
    start = lossy.initial()
    for _ in range(12):
        harness.add(4)
    end = lossy.latest(start, Limit())
    reader = lossy.open(lossy.splits(start, end)[0])
    found: list[bytes] = []

    def reads() -> bool:
        batch = reader.read(1.0)
        found.extend([] if batch is None else batch.column("value").to_pylist())
        return bool(found)

    assert within(60, reads)
    harness.delete()
    harness.create()
    added = [row for _ in range(transactions) for row in harness.add(4)]
    assert within(60, lambda: reads() and reader.finished)
    reader.close()
    return [*found, *values_of(lossy, end, lossy.latest(end, Limit()))], added


@pytest.mark.usefixtures("soon_missing")
@pytest.mark.parametrize("transactions", [12, 20], ids=["as long", "longer"])
def test_a_topic_that_is_made_again_while_a_range_is_read_gives_each_row_once(
    harness: KafkaSourceHarness, kafka: KafkaService, transactions: int
) -> None:
    found, added = _read_through_a_new_topic(harness, kafka, transactions)
    assert not [row for row, times in Counter(found).items() if times > 1]
    assert not set(added) - set(found)


def test_rows_of_a_new_topic_that_are_handed_out_for_those_of_the_old_one_are_found(
    harness: KafkaSourceHarness, kafka: KafkaService
) -> None:
    with planted((Lookup, "is_still", lambda *_: True)):
        found, _ = _read_through_a_new_topic(harness, kafka, 20)
        assert not [row for row, times in Counter(found).items() if times > 1]


def test_a_range_that_goes_beyond_the_end_of_its_partition_is_an_error(
    harness: KafkaSourceHarness, kafka: KafkaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "_SHORT_SECONDS", 0.5)
    reads = source(harness, kafka)
    start = reads.initial()
    harness.add(10)
    split = reads.splits(start, reads.latest(start, Limit()))[0]
    reader = reads.open(replace(split, end='{"offset": 1000}'))
    with pytest.raises(ReplayMismatchError, match="and the range that was planned at 1000"):
        rows_of(reader)
    reader.close()


def test_a_range_that_begins_beyond_the_end_of_its_partition_is_an_error_or_a_warning(
    harness: KafkaSourceHarness,
    kafka: KafkaService,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(readers, "_SHORT_SECONDS", 0.5)
    monkeypatch.setattr(timeouts, "UNHEARD_PAUSES", (0.1,))
    harness.add(10)
    place = json.loads(source(harness, kafka, startingOffsets="latest").initial())
    end = place[harness.topic]["offsets"]["1"]
    lost = f"{harness.topic}-1 ends at {end}, and is to be read from {end + 5} on"
    place[harness.topic]["offsets"]["1"] = end + 5
    start = json.dumps(place)
    place[harness.topic]["offsets"]["1"] = end + 9
    planned = json.dumps(place)
    (split,) = source(harness, kafka).splits(start, planned)
    reader = source(harness, kafka).open(split)
    with pytest.raises(ReplayMismatchError, match=lost):
        rows_of(reader)
    reader.close()
    lossy = source(harness, kafka, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "abs_sources.kafka"):
        reader = lossy.open(split)
        assert within(60, lambda: reader.read(1.0) is None and reader.finished)
        reader.close()
    assert lost in caplog.text
    end_now = lossy.latest(planned, Limit())
    assert next_of(end_now, harness)["1"] == end
    added = harness.add(4)
    assert values_of(lossy, end_now, lossy.latest(end_now, Limit())) == [*added[0::2], *added[1::2]]


def test_a_reader_without_an_end_goes_on_where_its_partition_has_lost_its_end(
    harness: KafkaSourceHarness, kafka: KafkaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "_SHORT_SECONDS", 0.5)
    monkeypatch.setattr(timeouts, "UNHEARD_PAUSES", (0.1,))
    harness.add(10)
    place = json.loads(source(harness, kafka, startingOffsets="latest").initial())
    place[harness.topic]["offsets"]["1"] += 5
    lossy = source(harness, kafka, failOnDataLoss="false")
    (split,) = (s for s in lossy.splits(json.dumps(place), None) if s.source.endswith("-1"))
    reader = lossy.open(split)
    assert within(60, lambda: reader.read(1.0) is None and reader.position.start != split.start)
    added = harness.add(4)[1::2]
    found: list[bytes] = []

    def has_all() -> bool:
        batch = reader.read(1.0)
        found.extend([] if batch is None else batch.column("value").to_pylist())
        return len(found) >= len(added)

    assert within(60, has_all)
    assert found == list(added)
    reader.close()


def answer(offset: int) -> Future[Any]:
    """A broker's answer for one partition."""
    future = Future[Any]()
    future.set_result(SimpleNamespace(offset=offset))
    return future


def test_a_place_does_not_go_back_to_an_end_that_a_former_leader_tells(
    harness: KafkaSourceHarness, kafka: KafkaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be read twice from there on."""
    lossy = source(harness, kafka, failOnDataLoss="false")
    start, old = lossy.initial(), [dict(next_of(lossy.initial(), harness))]
    harness.add(10)
    start, ask = lossy.latest(start, Limit()), AdminClient.list_offsets

    def offsets(client: AdminClient, asked: dict[TopicPartition, Any], **more: Any) -> Any:
        if not old:
            return ask(client, asked, **more)
        known = old[0] if next(iter(asked.values())) is lookups._EARLIEST else old.pop()
        return {place: answer(known[str(place.partition)]) for place in asked}

    monkeypatch.setattr(AdminClient, "list_offsets", offsets)
    assert lossy.latest(start, Limit()) == start
    assert not old


def test_a_topic_that_is_away_keeps_its_place_and_is_told_of_once(
    harness: KafkaSourceHarness,
    kafka: KafkaService,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lossy = source(harness, kafka, failOnDataLoss="false")
    harness.add(10)
    start = lossy.latest(lossy.initial(), Limit())
    with monkeypatch.context() as away, caplog.at_level(logging.WARNING, "abs_sources.kafka"):
        # As a broker says that has just started, and has not heard of the topic yet.
        away.setattr(AdminClient, "describe_topics", lambda *_, **__: {})
        away.setattr(timeouts, "UNHEARD_PAUSES", ())
        assert [lossy.latest(start, Limit()) for _ in range(2)] == [start, start]
    assert caplog.text.count(f"the topic {harness.topic} is gone") == 1
    added = harness.add(4)
    assert values_of(lossy, start, lossy.latest(start, Limit())) == [*added[0::2], *added[1::2]]


def test_a_read_that_fails_gives_the_same_rows_again(
    harness: KafkaSourceHarness, kafka: KafkaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = source(harness, kafka)
    start = reads.initial()
    added = harness.add(40)
    split = reads.splits(start, reads.latest(start, Limit()))[0]
    failures = iter([False, True])

    class FailsOnce(Consumer):
        """Its second call fails; all others return few records."""

        def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
            if next(failures, False):
                raise KafkaException(KafkaError(KafkaError._TRANSPORT))
            return super().consume(min(num_messages, 3), timeout)

    monkeypatch.setattr(readers, "Consumer", FailsOnce)
    reader = reads.open(split)
    found: list[bytes] = []
    failed = 0
    while not reader.finished:
        try:
            batch = reader.read(2.0)
        except UnavailableError:
            failed += 1
            continue
        found += [] if batch is None else batch.column("value").to_pylist()
    reader.close()
    assert failed == 1
    assert found == list(added[0::2])


def test_starts_and_ends_by_time_and_by_assignment(
    harness: KafkaSourceHarness, kafka: KafkaService
) -> None:
    now = int(time.time() * 1000)  # what is older is deleted soon, by retention
    plain = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(6):
        plain.produce(harness.topic, b"%d" % number, partition=0, timestamp=now + 10 * number)
    plain.flush()
    more = {"assign": json.dumps({harness.topic: [0]}), "startingTimestamp": str(now + 15)}
    given = {"kafka.bootstrap.servers": kafka.bootstrap, **more, "endingTimestamp": str(now + 40)}
    batch = KafkaSource(KafkaSourceOptions.parse(given, batch=True))
    start = batch.initial()
    assert values_of(batch, start, batch.latest(start, Limit())) == [b"2", b"3"]
    with pytest.raises(OptionError, match="no record with such a time"):
        source(harness, kafka, startingTimestamp=str(now + 99)).initial()


def test_a_pattern_finds_topics_that_come_later(
    harness: KafkaSourceHarness, kafka: KafkaService
) -> None:
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "startingOffsets": "latest"}
    prefix = harness.topic[:12]
    pattern = KafkaSource(KafkaSourceOptions.parse({**given, "subscribePattern": f"{prefix}.*"}))
    harness.add(4)
    start = pattern.initial()
    other = KafkaSourceHarness(kafka.bootstrap)
    other.delete()
    other.topic = f"{harness.topic}-later"
    other.create()
    added = [*other.add(4), *harness.add(2)]
    end = pattern.latest(start, Limit())
    assert sorted(values_of(pattern, start, end)) == sorted(added)  # type: ignore[type-var]


def test_what_is_not_there_is_refused(
    harness: KafkaSourceHarness, kafka: KafkaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "UNHEARD_PAUSES", (0.1,))
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": "nobody-made-this"}
    with pytest.raises(RefusedError, match="there is no topic nobody-made-this"):
        KafkaSource(KafkaSourceOptions.parse(given)).initial()
    with pytest.raises(RefusedError, match=f"there is no partition {harness.topic}-7"):
        source(harness, kafka, assign=json.dumps({harness.topic: [7]})).initial()
    with pytest.raises(OptionError, match="no\\.such\\.setting"):
        source(harness, kafka, **{"kafka.no.such.setting": "1"}).initial()
    monkeypatch.setattr(lookups, "REQUEST_SECONDS", 0.5)
    nowhere = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "patience": "1"}
    with pytest.raises(UnavailableError, match=r"Kafka at 127\.0\.0\.1:1"):
        KafkaSource(KafkaSourceOptions.parse(nowhere)).initial()


def test_a_batch_stays_small_where_records_suddenly_grow(
    harness: KafkaSourceHarness, kafka: KafkaService
) -> None:
    small, large = 20_000, 150
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 50})
    for number in range(small + large):
        size = 8 if number < small else 900_000
        producer.produce(harness.topic, b"%0*d" % (size, number), partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0
    reads = source(harness, kafka)
    start = reads.initial()
    [split] = reads.splits(start, reads.latest(start, Limit()))
    reader, found, sizes = reads.open(split), list[int](), list[int]()
    while not reader.finished:
        batch = reader.read(1.0)
        if batch is not None:
            found += [int(value[-8:]) for value in batch.column("value").to_pylist()]
            sizes.append(batch.nbytes)
    reader.close()
    assert found == list(range(small + large))
    # 16 MiB, and what one call of ``consume`` brings; 129 MiB without a bound.
    assert max(sizes) < 100 * 2**20
