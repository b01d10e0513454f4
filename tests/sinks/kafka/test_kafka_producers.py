"""When producers are made, and what a writer's look at its own transaction tells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from abs_core.contracts import Task
from abs_core.testing.case import within
from abs_services import KafkaService
from abs_sinks.kafka.looking import look
from abs_sinks.kafka.producers import Producers, Use
from abs_sinks.kafka.testing import TopicHarness, Variant, open_topic
from abs_sinks.kafka.writer_2pc import TransactionWriter

pytestmark = pytest.mark.services

TASK = Task("0123456789abcdef", "job", 1, 0, 0, "0123456789ab")
SCHEMA = pa.schema([("value", pa.string())])


@pytest.fixture
def harness(kafka: KafkaService) -> Iterator[TopicHarness]:
    with open_topic(kafka.bootstrap, Variant("2pc")) as harness:
        yield harness


@pytest.fixture
def pool(harness: TopicHarness) -> Iterator[Producers]:
    pool = Producers(harness.options, TASK.register, TASK.job, TASK.generation)
    yield pool
    pool.close()


def test_while_a_task_writes_no_producer_is_made(pool: Producers) -> None:
    slot = pool.take(TASK)
    assert not within(0.3, lambda: _uses(pool)[Use.READY] > 0)
    pool.prepared(slot)
    assert within(20, lambda: _uses(pool)[Use.READY] == 1)


def test_a_writer_that_waits_gets_one_although_another_writes(pool: Producers) -> None:
    first, second = pool.take(TASK), pool.take(replace(TASK, partition=1))
    assert first.name != second.name
    # Writers follow one another here: from now on the next one is made ahead.
    assert within(20, lambda: _uses(pool)[Use.READY] > 0)


def test_an_abort_waits_for_no_writer(pool: Producers) -> None:
    first = pool.take(TASK)
    pool.prepared(first)
    assert within(20, lambda: _uses(pool)[Use.READY] == 1)
    pool.take(replace(TASK, partition=1))
    assert pool.abort(TASK.handle)
    assert first.use is not Use.PREPARED
    assert not first.aborting


def test_what_was_guessed_wrong_is_looked_up(harness: TopicHarness, pool: Producers) -> None:
    writer = TransactionWriter(harness.options, SCHEMA, TASK, pool)
    writer.write(pa.record_batch({"value": ["a", "b", "c"]}, schema=SCHEMA))
    (slot,) = [s for s in pool._slots if s.use is Use.WRITING]
    pool.written = [("there is no such topic", 0), (harness.topic, 0)]
    assert writer.pre_commit() is not None
    assert {topic for topic, _ in pool.written} == {harness.topic}
    for guess in ((), pool.written, [("there is no such topic", 0)], [(harness.topic, 0)]):
        looked = look(harness.options.kafka, str(slot.name), guess)
        assert looked.found is not None
        assert sum(p.last_sequence + 1 for p in looked.found.values() if p) == 3


def _uses(pool: Producers) -> dict[Use, int]:
    with pool._changed:
        return {use: sum(slot.use is use for slot in pool._slots) for use in Use}
