"""Requests and replies of librdkafka that are lost lose and double nothing.

``test_kafka_positions`` loses each request of the other producer, in all protocols and in each way.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from abs_core.model import Outcome, Share, Wrote
from abs_services import KafkaService
from abs_sinks.kafka.columnar.choice import LIBRDKAFKA
from abs_testing.calls import Loss
from abs_testing.case import Case, rows
from tests import sample
from tests.fault_proxy.kafka import Api, LossyBroker
from tests.kit.kafka import TopicHarness, Variant, open_topic
from tests.kit.threads import end_kafka_clients
from tests.sinks.losses import EPOCHS, whole_job

pytestmark = pytest.mark.services

CASES = [
    pytest.param(
        api,
        nth,
        loss,
        id=f"{loss}-{nth}-{api.name.lower()}",
        marks=() if api in (Api.END_TXN, Api.DESCRIBE_TRANSACTIONS) else pytest.mark.campaign,
    )
    for api, nth in (
        (Api.END_TXN, 1),
        (Api.END_TXN, 2),
        (Api.DESCRIBE_TRANSACTIONS, 1),
        (Api.DESCRIBE_TRANSACTIONS, 2),
        (Api.DESCRIBE_PRODUCERS, 1),
        (Api.LIST_TRANSACTIONS, 1),
        (Api.PRODUCE, 1),
        (Api.ADD_PARTITIONS_TO_TXN, 1),
        (Api.INIT_PRODUCER_ID, 1),
    )
    for loss in (Loss.REQUEST, Loss.REPLY)
]


@pytest.fixture
def proxy(kafka: KafkaService) -> Iterator[LossyBroker]:
    kafka.start()
    with LossyBroker(kafka.bootstrap) as proxy:
        yield proxy


@pytest.fixture
def harness(kafka: KafkaService, proxy: LossyBroker) -> Iterator[TopicHarness]:
    variant = Variant("2pc", own_register=False, producer=LIBRDKAFKA)
    with open_topic(kafka.bootstrap, variant) as harness:
        harness.through(proxy.bootstrap)
        yield harness
    end_kafka_clients()  # before the proxy goes: else they would look for it


@sample.cases(4)
@pytest.mark.parametrize(("api", "nth", "loss"), CASES)
def test_a_loss_at_any_request_loses_and_doubles_nothing(
    harness: TopicHarness, proxy: LossyBroker, api: Api, nth: int, loss: Loss
) -> None:
    proxy.lose(loss, api, nth)
    case = Case(harness)
    whole_job(case, starts=3)
    assert proxy.fired, f"there were no {nth} requests {api.name}"
    assert harness.hidden() == 0
    case.close()


def test_a_commit_that_arrives_after_the_id_is_used_again_commits_nothing(
    harness: TopicHarness, proxy: LossyBroker
) -> None:
    case = Case(harness)
    run = case.run()
    shares = run.tasks(0, EPOCHS[0][0])
    proxy.lose(Loss.DELAY, Api.END_TXN)
    run.commit(0, shares)
    assert proxy.fired
    used = {_held(shares)}
    open_now: list[Share] = []
    # Further epochs, until the id of the first is taken again and has a transaction open.
    for epoch in range(1, 6):
        open_now = run.tasks(epoch, rows(10 * epoch, 2))
        if _held(open_now) in used:
            break
        run.commit(epoch, open_now)
    assert _held(open_now) in used, "the id was not used again"
    proxy.release()
    wrote = open_now[0]
    assert isinstance(wrote, Wrote)
    assert wrote.committable is not None
    seen = run.committer.inspect([wrote.committable])[wrote.committable.handle]
    assert seen.outcome is Outcome.PREPARED, "a commit of an older transaction ended a newer one"
    run.commit(epoch, open_now)
    expected = [rows(10 * number, 2) for number in range(1, epoch + 1)]
    case.finished(EPOCHS[0][0], *expected, when="after a commit that arrived late")
    case.close()


def _held(shares: list[Share]) -> object:
    (share,) = shares
    assert isinstance(share, Wrote)
    assert share.committable is not None
    return share.committable.held_as
