"""An EndTxn that comes again, late: it meets the register's next transaction, and ends nothing of it.

librdkafka repeats it by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial

import pytest

from abs_clients.kafka.transactions import EndTxn, Reply, describe, end
from abs_core.contracts import Conflict, Version
from abs_core.model import JobState
from abs_services import KafkaService
from abs_sinks.kafka.columnar.choice import LIBRDKAFKA
from abs_sinks.kafka.records import single
from abs_sinks.kafka.register.session import Rows, register_id
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.register.topic import Record, StoredCells
from abs_sinks.kafka.sending import TransactionalProducer
from tests.kit.kafka import TopicHarness, Variant, open_topic
from tests.kit.kafka_modes import open_log
from tests.kit.kafka_reading import messages

pytestmark = pytest.mark.services

STATE = JobState("0123456789abcdef", "job", "target", "lineage", 1, "run")
PART = "x" * 700_000
"""A state with it is kept in parts."""


WAYS: dict[str, Callable[[str], AbstractContextManager[TopicHarness]]] = {
    "librdkafka": partial(open_topic, variant=Variant("2pc", producer=LIBRDKAFKA)),
    "column by column": partial(open_log, variant=Variant("wal")),
}
"""Who writes the register."""


@pytest.fixture(params=WAYS)
def harness(kafka: KafkaService, request: pytest.FixtureRequest) -> Iterator[TopicHarness]:
    kafka.start()
    with WAYS[request.param](kafka.bootstrap) as harness:
        yield harness


def rows(
    harness: TopicHarness, values: Sequence[str], between: Callable[[], object] = lambda: None
) -> Rows:
    """Sends a record for each value; ``between`` happens when the first is held."""

    def send(transactions: TransactionalProducer) -> None:
        sender = transactions.to(harness.topic, 10.0)
        for number, value in enumerate(values):
            sender.send(single(value.encode(), value.encode(), partition=number % 2))
            sender.flush()
            if number == 0:
                between()

    return Rows(send)


def test_a_late_end_of_the_epoch_before_does_not_commit_half_of_the_next(
    harness: TopicHarness,
) -> None:
    register, settings = KafkaRegister(harness.options), harness.options.kafka
    first = register.compare_and_set("job", None, STATE, rows=rows(harness, ["a", "b"]))
    assert not isinstance(first, Conflict)
    name = register_id(harness.options.registertopic, "job")
    before = describe(settings, [name])[name]
    assert before is not None
    told: list[Reply] = []

    def late() -> None:
        again = EndTxn(name, before.producer_id, before.epoch)
        told.extend(end(settings, [again], commit=True).values())

    following = rows(harness, ["c", "d"], late)
    second = register.compare_and_set("job", first, replace(STATE, generation=2), rows=following)
    assert not isinstance(second, Conflict)
    assert told[0] is Reply.REFUSED
    found = sorted(value or b"" for _, value in harness.records())
    assert found == [b"a", b"b", b"c", b"d"], "what a reader gets"


def test_a_change_of_a_cell_that_ends_early_leaves_the_cell_before_it_or_after_it(
    harness: TopicHarness,
) -> None:
    sent: list[list[Record]] = []
    register = KafkaRegister(harness.options)
    large = replace(STATE, superseded=(PART, PART))
    states = [STATE, large, large, replace(large, generation=2), STATE]
    version: Version | None = None
    for state in states:
        changed = register.compare_and_set("job", version, state)
        assert not isinstance(changed, Conflict)
        version = changed
        there = messages({"bootstrap.servers": harness.bootstrap}, harness.options.registertopic)
        records = [(message.key() or b"", message.value()) for message in there]
        sent.append(records[sum(map(len, sent)) :])

    assert max(map(len, sent)) > 3, "states are kept in parts"
    held: list[Record] = []
    for records in sent:
        allowed = {_text([*held]), _text([*held, *records])}
        for number in range(len(records)):
            assert _text([*held, *records[:number]]) in allowed
        held += records


def _text(records: Sequence[Record]) -> str | None:
    cells = StoredCells()
    for key, value in records:
        cells.apply(key, value)
    cell = cells.get("job", "here")
    return None if cell is None else cell.text
