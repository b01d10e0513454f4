"""Topics that are read without an end, over stops and starts: no record is left out in silence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Thread

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewPartitions,
    NewTopic,
)

from abs_core.errors import AbsError, ConfigError, ReplayMismatchError
from abs_embedded import Graph, Job, Settings
from abs_services import KafkaService
from abs_sources.kafka import KafkaSource, KafkaSourceOptions
from abs_testing.case import within
from abs_testing.harness import SCHEMA
from tests.embedded.bench import Bench

EARLIEST = {"startingOffsets": "earliest"}

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]


class Topics:
    """Makes topics, and sends records that are numbers.

    Args:
        name: what the names of all of them begin with.
    """

    def __init__(self, kafka: KafkaService, name: str) -> None:
        self.name = name
        self.bootstrap = kafka.bootstrap
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def make(self, more: str = "") -> str:
        name = f"{self.name}{more}"
        self._create(name)
        return name

    def remake(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result()
        self._create(topic)

    def _create(self, topic: str) -> None:
        """It may still be being deleted; and a broker without CPU for 2 s is fenced for a moment."""

        def made() -> bool:
            return self._admin.create_topics([NewTopic(topic, 1, 1)])[topic].exception() is None

        assert within(60, made)

    def widen(self, topic: str) -> None:
        def wide() -> bool:
            self._admin.create_partitions([NewPartitions(topic, 2)])[topic].exception()
            # The controller answers before the broker knows.
            return len(self._admin.list_topics(topic, 60).topics[topic].partitions) == 2

        assert within(60, wide)

    def send(self, topic: str, numbers: range, partition: int = 0) -> None:
        failed: list[object] = []
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "delivery.report.only.error": True,
                "on_delivery": lambda error, _: failed.append(error),
            }
        )  # it knows new partitions
        for number in numbers:
            producer.produce(topic, str(number).encode(), partition=partition)
        assert producer.flush(60) == 0
        assert not failed


@pytest.fixture
def topics(kafka: KafkaService, topic: str) -> Topics:
    return Topics(kafka, topic)


def parsed(batch: pa.RecordBatch) -> pa.RecordBatch:
    numbers = [int(value) for value in batch["value"].to_pylist()]
    return pa.record_batch([pa.array(numbers, pa.int64()), ["x"] * len(numbers)], schema=SCHEMA)


def graph(
    bench: Bench,
    topics: Topics,
    options: Mapping[str, str],
    function: Callable[[pa.RecordBatch], pa.RecordBatch] = parsed,
    *,
    bounded: bool = False,
) -> Graph:
    given = {"kafka.bootstrap.servers": topics.bootstrap, **options}
    built = Graph("endless")
    source = KafkaSource(KafkaSourceOptions.parse(given))
    built.source("in", source, bounded=bounded).map("parsed", function).sink("out", bench.sink)
    return built


@contextmanager
def running(job: Job) -> Iterator[None]:
    stop, thread = Event(), None
    try:
        thread = Thread(target=job.run, kwargs={"stop": stop}, daemon=True)
        thread.start()
        yield
    finally:
        stop.set()
        assert thread is not None
        thread.join(120)


def until(bench: Bench, wanted: range) -> None:
    def found() -> list[int]:
        return sorted(id_ for id_, _ in bench.rows())

    assert within(200, lambda: found() == [*wanted]), f"{found()}, not {wanted}"


def test_a_restart_reads_partitions_that_were_added(bench: Bench, topics: Topics) -> None:
    name = topics.make()
    topics.send(name, range(10))
    with running(bench.job(graph(bench, topics, {**EARLIEST, "subscribe": name}))):
        until(bench, range(10))
    topics.widen(name)
    topics.send(name, range(10, 20), 1)
    topics.send(name, range(20, 30), 0)
    for _ in range(2):  # they are found once
        with running(bench.job(graph(bench, topics, {"subscribe": name}))):
            until(bench, range(30))


def test_a_restart_reads_topics_that_match_since(bench: Bench, topics: Topics) -> None:
    topics.send(topics.make("-a"), range(10))
    options = {**EARLIEST, "subscribePattern": f"{topics.name}-.*"}
    with running(bench.job(graph(bench, topics, options))):
        until(bench, range(10))
    topics.send(topics.make("-b"), range(10, 20))
    with running(bench.job(graph(bench, topics, options))):
        until(bench, range(20))


@pytest.mark.parametrize("bounded", [False, True])
def test_a_topic_that_is_not_read_to_its_end_is_not_exchanged_for_another(
    bench: Bench, topics: Topics, *, bounded: bool
) -> None:
    old, new = topics.make("-old"), topics.make("-new")
    topics.send(old, range(10))
    topics.send(new, range(100, 110))
    stop = Event()

    def stops(batch: pa.RecordBatch) -> pa.RecordBatch:
        stop.wait(0.2)
        return parsed(batch)

    def observe(what: str, task: object, checkpoint: int) -> None:
        if what == "committed":
            stop.set()

    options = {**EARLIEST, "batchsize": "2"}
    before = graph(bench, topics, {**options, "subscribe": old}, stops, bounded=bounded)
    bench.job(before, observe=observe, capacity=1).run(stop=stop)
    after = graph(bench, topics, {**options, "subscribe": new}, bounded=bounded)
    with pytest.raises(ReplayMismatchError, match=r"old.*(among|unread records)"):
        bench.job(after).run()
    assert all(id_ < 100 for id_, _ in bench.rows())


def test_a_topic_that_is_made_anew_while_it_is_read_is_not_taken_for_the_old_one(
    bench: Bench, topics: Topics
) -> None:
    """librdkafka reads on at the offset that it was at: what lies before it would be left out."""
    name, errors = topics.make(), list[AbsError]()
    topics.send(name, range(10))
    options = {**EARLIEST, "subscribe": name}

    def run() -> None:
        try:
            bench.job(graph(bench, topics, options)).run()
        except AbsError as error:
            errors.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    until(bench, range(10))
    topics.remake(name)
    topics.send(name, range(10, 40))
    thread.join(120)
    assert isinstance(errors[0], ReplayMismatchError)
    until(bench, range(10))
    with running(bench.job(graph(bench, topics, {**options, "failOnDataLoss": "false"}))):
        until(bench, range(40))


def test_a_topic_that_was_read_to_an_end_is_not_read_on_without_one(
    bench: Bench, topics: Topics
) -> None:
    name = topics.make()
    topics.send(name, range(10))
    options = {**EARLIEST, "subscribe": name}
    bench.job(graph(bench, topics, options, bounded=True)).run()
    topics.send(name, range(10, 20))
    with pytest.raises(ConfigError, match="started as `bounded`"):
        bench.job(graph(bench, topics, options)).run()
    until(bench, range(10))


def test_a_topic_that_was_read_without_an_end_does_not_get_one(
    bench: Bench, topics: Topics
) -> None:
    """The job would never end."""
    name = topics.make()
    topics.send(name, range(10))
    options = {**EARLIEST, "subscribe": name}
    with running(bench.job(graph(bench, topics, options))):
        until(bench, range(10))
    with pytest.raises(ConfigError, match="started without an end"):
        bench.job(graph(bench, topics, options, bounded=True)).run()


def test_a_job_that_begins_at_the_end_keeps_to_where_it_began(bench: Bench, topics: Topics) -> None:
    """Its region fails on the first record, and was asked again where the end is."""
    name, failed, went_on = topics.make(), Event(), Event()
    topics.send(name, range(-5, 0))

    def fails_once(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not failed.is_set():
            failed.set()
            assert went_on.wait(60)
            raise OSError("planted")
        return parsed(batch)

    begun = Event()

    def observe(what: str, task: object, checkpoint: int) -> None:
        if what == "committed":
            begun.set()

    built, seldom = (
        graph(bench, topics, {"subscribe": name}, fails_once),
        Settings(interval=3_600.0),
    )
    with running(bench.job(built, settings=seldom, observe=observe)):
        assert begun.wait(60), "a checkpoint holds where it begins"
        topics.send(name, range(10))
        assert failed.wait(60)
        topics.send(name, range(10, 20))
        went_on.set()
    with running(bench.job(graph(bench, topics, {"subscribe": name}))):
        until(bench, range(20))
