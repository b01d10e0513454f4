"""When producers are made, and what a writer's look at its own transaction tells."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from abs_clients.kafka import timeouts
from abs_clients.kafka.producer_ids import init_producer_id
from abs_clients.kafka.transactions import describe_open
from abs_core.contracts import Task
from abs_core.errors import NotPreparedError, TargetError, UnavailableError
from abs_core.model import Committable, Outcome
from abs_services import KafkaService
from abs_sinks.kafka import librdkafka, producer_pools
from abs_sinks.kafka.columnar.sender import ColumnarProducer
from abs_sinks.kafka.librdkafka import LibrdkafkaProducer
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.producer_pool import ProducerPool, Use
from abs_sinks.kafka.records import plan_columns, records_of
from abs_sinks.kafka.twophase import TwoPhaseCommitter, TwoPhaseWriter
from abs_testing.calls import Loss
from abs_testing.case import within
from tests.fault_proxy.kafka import Api, LossyBroker
from tests.kit.kafka import TopicHarness, Variant, open_topic, send_now
from tests.kit.threads import end_kafka_clients, living

pytestmark = pytest.mark.services

TASK = Task("0123456789abcdef", "producers", 1, 0, 0, "0123456789ab")
SCHEMA = pa.schema([("value", pa.string())])


@pytest.fixture
def harness(kafka: KafkaService) -> Iterator[TopicHarness]:
    with open_topic(kafka.bootstrap, Variant("2pc")) as harness:
        yield harness


@pytest.fixture
def pool(harness: TopicHarness) -> Iterator[ProducerPool]:
    pool = ProducerPool(harness.options, TASK.register, TASK.job, TASK.generation)
    yield pool
    pool.close()


def test_while_a_task_writes_no_producer_is_made(pool: ProducerPool) -> None:
    slot = pool.take(TASK)
    assert not within(0.3, lambda: _uses(pool)[Use.READY] > 0)
    pool.prepared(slot)
    assert within(60, lambda: _uses(pool)[Use.READY] == 1)


def test_a_writer_that_waits_gets_one_although_another_writes(pool: ProducerPool) -> None:
    first, second = pool.take(TASK), pool.take(replace(TASK, partition=1))
    assert first.name != second.name
    # Writers follow one another here: from now on the next one is made ahead.
    assert within(60, lambda: _uses(pool)[Use.READY] > 0)


def test_an_abort_waits_for_no_writer(pool: ProducerPool) -> None:
    first = pool.take(TASK)
    pool.prepared(first)
    assert within(60, lambda: _uses(pool)[Use.READY] == 1)
    pool.take(replace(TASK, partition=1))
    assert within(60, pool._work.empty), "the next one's making waits for the writer"
    assert pool.abort(TASK.handle)
    assert first.use is not Use.PREPARED
    assert not first.aborting


def test_what_a_failed_task_wrote_is_aborted_before_its_process_may_end(
    harness: TopicHarness, pool: ProducerPool
) -> None:
    writer = TwoPhaseWriter(harness.options, SCHEMA, TASK, pool)
    writer.write(pa.record_batch({"value": ["a", "b", "c"]}, schema=SCHEMA))
    send_now(writer)
    assert harness.open_ids()
    writer.abort()
    assert not harness.open_ids()
    assert harness.hidden() == 0, "readers would wait at its first record"


def test_what_was_guessed_wrong_is_looked_up(harness: TopicHarness, pool: ProducerPool) -> None:
    writer = TwoPhaseWriter(harness.options, SCHEMA, TASK, pool)
    writer.write(pa.record_batch({"value": ["a", "b", "c"]}, schema=SCHEMA))
    (slot,) = [s for s in pool._slots if s.use is Use.WRITING]
    pool.written = [("there is no such topic", 0), (harness.topic, 0)]
    assert writer.pre_commit() is not None
    assert {topic for topic, _ in pool.written} == {harness.topic}
    for guess in ((), pool.written, [("there is no such topic", 0)], [(harness.topic, 0)]):
        looked = describe_open(harness.options.kafka, str(slot.name), guess)
        assert looked.found is not None
        assert sum(p.last_sequence + 1 for p in looked.found.values() if p) == 3


def test_records_of_an_older_transaction_stand_in_for_none_of_this_one(
    harness: TopicHarness, pool: ProducerPool
) -> None:
    """The producer id is the same: a partition that lost records still has those of before."""
    writer = TwoPhaseWriter(harness.options, SCHEMA, TASK, pool)
    writer.write(pa.record_batch({"value": ["a", "b", "c"]}, schema=SCHEMA))
    send_now(writer)
    (slot,) = [s for s in pool._slots if s.use is Use.WRITING]
    looked = describe_open(harness.options.kafka, str(slot.name), ())
    assert looked.now is not None
    later = replace(looked.now, epoch=looked.now.epoch + 1)
    with pytest.raises(TargetError, match=r"3 records were sent and .* brokers have 0"):
        writer._count(later, replace(looked, now=later), 3)
    assert writer._count(looked.now, looked, 3)
    writer.abort()
    assert harness.records() == []


def test_no_failure_to_make_a_producer_keeps_the_next_task_from_one(
    harness: TopicHarness,
) -> None:
    fails = iter([False, True, False, False])

    def opener(name: str) -> Any:
        if next(fails):
            raise RuntimeError("can't start new thread")
        return ColumnarProducer(harness.options.kafka, name, harness.topic)

    pool = ProducerPool(harness.options, TASK.register, TASK.job, TASK.generation, opener=opener)
    pool.prepared(pool.take(TASK))
    assert within(60, lambda: _uses(pool)[Use.MAKING] == 0), "it waits for one that nobody makes"
    assert pool.take(replace(TASK, partition=1)).producer is not None
    pool.close()


def test_a_closed_pool_looks_for_no_brokers(harness: TopicHarness) -> None:
    asked: list[str] = []

    def opener(name: str) -> Any:
        asked.append(name)
        if len(asked) > 1:
            raise UnavailableError("planted: no broker can be reached.")
        return ColumnarProducer(harness.options.kafka, name, harness.topic)

    pool = ProducerPool(harness.options, TASK.register, TASK.job, TASK.generation, opener=opener)
    pool.prepared(pool.take(TASK))
    assert within(60, lambda: len(asked) > 2), "it looks for them again"
    pool.close()
    assert within(60, lambda: not living("abs-kafka-init")), "its thread goes on"


def test_an_init_that_was_not_answered_and_comes_late_aborts_nothing_that_is_decided(
    harness: TopicHarness,
) -> None:
    """It aborts what is open under its id: so what is written next has another id."""
    asked: list[str] = []

    def opener(name: str) -> Any:
        asked.append(name)
        if len(asked) == 1:
            raise UnavailableError("The request is under way, and its connection is gone.")
        return ColumnarProducer(harness.options.kafka, name, harness.topic)

    pool = ProducerPool(harness.options, TASK.register, TASK.job, TASK.generation, opener=opener)
    writer = TwoPhaseWriter(harness.options, SCHEMA, TASK, pool)
    writer.write(pa.record_batch({"value": ["a", "b", "c"]}, schema=SCHEMA))
    committable = writer.pre_commit()
    assert committable is not None
    init_producer_id(harness.options.kafka, asked[0])  # it arrives
    committer = TwoPhaseCommitter(harness.options, lambda: [pool])
    assert committer.commit([committable]) == {TASK.handle: Outcome.COMMITTED}
    assert len(harness.records()) == 3
    pool.close()


@pytest.mark.parametrize("then", ["asked again at once", "asked again later", "over meanwhile"])
def test_an_abort_that_was_not_answered_and_comes_late_aborts_nothing_that_is_decided(
    harness: TopicHarness, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """It aborts what is open under its id whenever it comes, so the id is left."""
    with LossyBroker(harness.bootstrap) as broker:
        options = _through(broker, harness)
        pool = ProducerPool(options, TASK.register, TASK.job, TASK.generation)
        _pre_committed(options, pool, TASK)
        assert within(60, lambda: _uses(pool)[Use.READY] == 1), "the abort's request is the next"
        (name,) = harness.open_ids()
        broker.lose(Loss.REQUEST, Api.INIT_PRODUCER_ID)
        with monkeypatch.context() as away:
            if then != "asked again at once":
                away.setattr(timeouts, "GIVE_UP_SECONDS", 0.0)
                with pytest.raises(UnavailableError, match="abort"):
                    pool.abort(TASK.handle)
            if then != "over meanwhile":
                assert pool.abort(TASK.handle)
        assert broker.fired
        later = replace(TASK, epoch=1, frontier=0)
        # Each id of the pool has one.
        made = [_pre_committed(options, pool, replace(later, partition=n)) for n in (1, 2)]
        init_producer_id(harness.options.kafka, name)  # it arrives
        committer = TwoPhaseCommitter(options, lambda: [pool])
        assert set(committer.commit(made).values()) == {Outcome.COMMITTED}
        pool.close()
        end_kafka_clients()  # before the relay goes: else they would look for it
    assert len(harness.records()) == 2


def _pre_committed(options: KafkaOptions, pool: ProducerPool, task: Task) -> Committable:
    writer = TwoPhaseWriter(options, SCHEMA, task, pool)
    writer.write(pa.record_batch({"value": ["a"]}, schema=SCHEMA))
    committable = writer.pre_commit()
    assert committable is not None
    return committable


def test_tasks_that_wait_for_their_producers_do_not_wake_each_other(
    harness: TopicHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_be_made = threading.Event()
    may_be_made.set()

    def opener(name: str) -> Any:
        assert may_be_made.wait(60)
        return ColumnarProducer(harness.options.kafka, name, harness.topic)

    pool = ProducerPool(harness.options, TASK.register, TASK.job, TASK.generation, opener=opener)
    pool.take(TASK)
    may_be_made.clear()
    waits: list[float | None] = []
    wait = threading.Condition.wait

    def counted(condition: threading.Condition, timeout: float | None = None) -> bool:
        if condition is pool._changed:
            waits.append(timeout)
        return wait(condition, timeout)

    monkeypatch.setattr(threading.Condition, "wait", counted)
    with ThreadPoolExecutor(2) as threads:
        taken = [threads.submit(pool.take, replace(TASK, partition=n)) for n in (1, 2)]
        assert within(60, lambda: len(waits) >= 2)
        assert not within(0.3, lambda: len(waits) > 20)
        may_be_made.set()
        assert len({each.result(60).name for each in taken}) == 2
    pool.close()


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.REPLY])
def test_a_coordinator_that_is_away_for_a_moment_does_not_leave_readers_waiting(
    harness: TopicHarness, loss: Loss
) -> None:
    with LossyBroker(harness.bootstrap) as broker:
        options = _through(broker, harness)
        pool = ProducerPool(options, TASK.register, TASK.job, TASK.generation)
        pool.take(replace(TASK, partition=1))
        writer = TwoPhaseWriter(options, SCHEMA, TASK, pool)
        writer.write(pa.record_batch({"value": ["a", "b", "c"]}, schema=SCHEMA))
        send_now(writer)
        assert within(60, lambda: _uses(pool)[Use.READY] == 1), "the abort's request is the next"
        broker.lose(loss, Api.INIT_PRODUCER_ID)
        writer.abort()
        assert broker.fired
        assert not harness.open_ids()
        pool.close()
        end_kafka_clients()  # before the relay goes: else they would look for it


def test_an_abort_that_is_not_done_says_so_and_can_be_repeated(
    harness: TopicHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LossyBroker(harness.bootstrap) as broker:
        options = _through(broker, harness)
        pool = ProducerPool(options, TASK.register, TASK.job, TASK.generation)
        _pre_committed(options, pool, TASK)
        assert within(60, lambda: _uses(pool)[Use.READY] == 1), "the abort's request is the next"
        broker.lose(Loss.REQUEST, Api.INIT_PRODUCER_ID)
        with monkeypatch.context() as away:
            away.setattr(timeouts, "GIVE_UP_SECONDS", 0.0)
            with pytest.raises(UnavailableError, match="abort"):
                pool.abort(TASK.handle)
        assert harness.open_ids()
        assert TASK.handle in pool.held().values(), "the next sweep finds it"
        assert pool.abort(TASK.handle)
        assert not harness.open_ids()
        assert not pool.abort(TASK.handle)
        pool.close()
        end_kafka_clients()  # before the relay goes: else they would look for it


def test_a_transaction_that_another_ends_before_it_is_looked_at_is_not_prepared(
    harness: TopicHarness,
) -> None:
    with LossyBroker(harness.bootstrap) as broker:
        options = _through(broker, harness)
        pool = ProducerPool(options, TASK.register, TASK.job, TASK.generation)
        writer = TwoPhaseWriter(options, SCHEMA, TASK, pool)
        writer.write(pa.record_batch({"value": ["a"]}, schema=SCHEMA))
        send_now(writer)
        (name,) = harness.open_ids()
        broker.before(
            Api.DESCRIBE_TRANSACTIONS, lambda: init_producer_id(harness.options.kafka, name)
        )
        with pytest.raises(NotPreparedError, match="not open any more"):
            writer.pre_commit()
        assert not broker.waits
        writer.abort()
        pool.close()
        end_kafka_clients()  # before the relay goes: else they would look for it


def test_tasks_that_begin_at_once_share_the_producers_of_their_process(
    harness: TopicHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[ProducerPool] = []
    mine = producer_pools.ProducerPools()

    class Slow(ProducerPool):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            if threading.current_thread() is threading.main_thread():
                options = harness.options
                faster = threading.Thread(target=lambda: found.append(mine.of(options, TASK)))
                faster.start()
                faster.join(60)

    monkeypatch.setattr(producer_pools, "ProducerPool", Slow)
    found.append(mine.of(harness.options, replace(TASK, partition=1)))
    assert within(60, lambda: len(found) == 2)
    assert found[0] is found[1], "what one has pre-committed the sink's committer must find"
    assert mine.all() == found[:1]
    mine.close()


def _through(broker: LossyBroker, harness: TopicHarness) -> KafkaOptions:
    pairs = {**dict(harness.options.kafka.pairs), "bootstrap.servers": broker.bootstrap}
    settings = replace(harness.options.kafka, pairs=tuple(sorted(pairs.items())))
    return replace(harness.options, kafka=settings)


def test_a_broker_that_stops_when_its_producer_is_initialised_ends_no_task(
    harness: TopicHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known of the topic ahead of its records is looked up again when they come."""

    class Stopping(Producer):
        def list_topics(self, *_: object) -> Any:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(librdkafka, "Producer", Stopping)
    producer = LibrdkafkaProducer(harness.options.kafka, str(TASK.handle), harness.topic, 60.0)
    producer.begin()
    sending = producer.to(harness.topic, 20.0)
    batch = pa.record_batch({"value": ["v"]})
    sending.send(records_of(batch, plan_columns(SCHEMA, harness.topic)))
    sending.flush()
    assert sending.rows == 1


def _uses(pool: ProducerPool) -> dict[Use, int]:
    with pool._changed:
        return {use: sum(slot.use is use for slot in pool._slots) for use in Use}
