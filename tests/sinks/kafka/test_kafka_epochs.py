"""A producer's epochs are used up: at the last ones, and past them, an outcome is still proof."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from kafka.protocol.producer.transaction import InitProducerIdRequest

from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.producer_ids import init_producer_id
from abs_clients.kafka.routing import coordinators_of
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.transactions import describe
from abs_core.model import Outcome, Share, Wrote
from abs_services import KafkaService
from abs_sinks.kafka.open_transaction import OpenTransaction
from abs_sinks.kafka.register.session import register_id
from abs_testing.case import Case, rows
from tests.kit.kafka import TopicHarness, Variant, open_topic

pytestmark = [pytest.mark.services, pytest.mark.campaign, pytest.mark.timeout(1200)]

LAST = 32_766
"""The last epoch that a producer gets; 32,767 is kept for the fence that follows it."""


@pytest.fixture
def harness(kafka: KafkaService) -> Iterator[TopicHarness]:
    kafka.start()
    with open_topic(kafka.bootstrap, Variant("2pc")) as harness:
        yield harness


def test_epochs_that_are_used_up_lose_and_double_nothing(harness: TopicHarness, case: Case) -> None:
    settings = harness.options.kafka
    run = case.run()
    first = run.tasks(0, rows(0, 2))
    run.commit(0, first)
    # Finished: its id may be used again, and nobody asks for its proof.
    name = str(_prepared(first).held_as)
    _use_up(settings, name, LAST - 2)
    seen, older = [], None
    for epoch in range(1, 10):
        shares = run.tasks(epoch, rows(10 * epoch, 2))
        held = _prepared(shares)
        if older is not None and str(held.held_as) == name and held.producer_id != older[0]:
            # The commit of the last epoch, come late, while the next producer writes.
            (committable,) = older[1]
            assert run.committer.commit([committable])[committable.handle] is Outcome.UNKNOWN
        run.commit(epoch, shares)
        committables = [s.committable for s in shares if isinstance(s, Wrote) and s.committable]
        again = run.committer.commit(committables)
        assert set(again.values()) == {Outcome.COMMITTED}, "a commit that is sent twice"
        if str(held.held_as) == name:
            seen.append((held.producer_id, held.epoch))
            older = held.producer_id, committables
    producers = sorted({producer for producer, _ in seen})
    assert len(producers) == 2, f"the id was to get a new producer: {seen}"
    assert seen[:2] == [(producers[0], LAST - 1), (producers[0], LAST)]
    assert [epoch for producer, epoch in seen if producer == producers[1]][:2] == [0, 1]
    written = [rows(10 * number, 2) for number in range(10)]
    case.finished(*written, when="after the epochs of a producer were used up")
    assert harness.hidden() == 0


def test_what_is_open_in_the_last_epoch_is_swept_by_the_next_run(
    harness: TopicHarness, case: Case
) -> None:
    run = case.run()
    first = run.tasks(0, rows(0, 2))
    run.commit(0, first)
    name = str(_prepared(first).held_as)
    _use_up(harness.options.kafka, name, LAST - 1)
    shares = _until_it_holds(run, name)
    assert _prepared(shares).epoch == LAST
    epoch = run.state().frontier
    assert epoch is not None
    case.run().begin(epoch + 1)
    (share,) = shares
    assert isinstance(share, Wrote)
    assert share.committable is not None
    found = run.committer.inspect([share.committable])[share.committable.handle]
    # By the time that the fence is done the id has a new producer.
    assert found.outcome in (Outcome.ABORTED, Outcome.UNKNOWN), "it was to be swept"
    case.run().epoch(epoch + 1, rows(1000, 2))
    committed = [rows(10 * number, 2) for number in range(epoch + 1)]
    case.finished(*committed, rows(1000, 2), when="after a sweep in the last epoch")
    assert harness.hidden() == 0


def test_a_register_whose_producer_has_used_up_its_epochs_goes_on(
    harness: TopicHarness, case: Case
) -> None:
    settings = harness.options.kafka
    run = case.run()
    run.epoch(0, rows(0, 2))
    name = register_id(harness.options.registertopic, run.job)
    _use_up(settings, name, LAST - 2)
    producers = set()
    for epoch in range(1, 5):
        run.epoch(epoch, rows(10 * epoch, 2))
        now = describe(settings, [name])[name]
        assert now is not None
        producers.add(now.producer_id)
        init_producer_id(settings, name)  # as another process that opens the cell
    assert len(producers) == 2
    assert run.state().frontier == 4
    case.finished(
        *(rows(10 * n, 2) for n in range(5)), when="after the register's producer changed"
    )


def _until_it_holds(run: Any, name: str) -> list[Share]:
    """Epochs pass until one is written under this id; that one is left open."""
    for epoch in range(1, 10):
        shares: list[Share] = run.tasks(epoch, rows(10 * epoch, 2))
        if str(_prepared(shares).held_as) == name:
            return shares
        run.commit(epoch, shares)
    raise AssertionError("the id was not used again")


def _prepared(shares: Sequence[Share]) -> OpenTransaction:
    (share,) = shares
    assert isinstance(share, Wrote)
    assert share.committable is not None
    prepared = OpenTransaction.of(share.committable)
    assert prepared is not None
    return prepared


def _use_up(settings: Settings, name: str, epoch: int) -> None:
    """Initialise the id again and again, until its producer is at this epoch."""

    async def work(manager: Any) -> int:
        node = (await coordinators_of(manager, [name]))[name]
        now = -1
        while now < epoch:
            sent = [
                manager.send(
                    InitProducerIdRequest(
                        transactional_id=name, transaction_timeout_ms=60_000, max_version=5
                    ),
                    node_id=node,
                )
                for _ in range(min(32, epoch - now) if now >= 0 else 1)
            ]
            for future in sent:
                now = max(now, (await future).producer_epoch)
        return now

    reached = 0
    while reached < epoch:
        # In pieces: a call may take no longer than the client waits for any.
        reached = cluster(settings).run("using epochs up", work)
    assert reached == epoch
