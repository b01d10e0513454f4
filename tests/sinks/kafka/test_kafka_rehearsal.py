"""Protocol wal with a register elsewhere: what the brokers refuse is known before it is decided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from abs_clients.kafka.cluster import close_clusters
from abs_clients.kafka.producer_ids import init_producer_id
from abs_core.errors import RefusedError, RowError
from abs_core.wal import FolderSegments
from abs_services import KafkaService
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register.session import register_id
from abs_sinks.kafka.wal import WalCommitter
from abs_testing import Check, Row, run_check
from abs_testing.case import JOB, Case, raises, rows
from abs_testing.checks import CHECKS
from abs_testing.cuts import Cut
from tests.fault_proxy.kafka import Api, LossyBroker
from tests.kit.kafka import Variant, limit
from tests.kit.kafka_modes import LogHarness, open_log
from tests.planted import planted

pytestmark = pytest.mark.services

LEFT, LARGE, MORE = rows(0, 3), [*rows(10, 5), (15, "x" * 5000), *rows(16, 4)], rows(20, 3)
RULES = {check.rule: check for check in CHECKS if check.body.__module__.endswith("refusals")}


@pytest.fixture(params=["columnar", "librdkafka"])
def harness(kafka: KafkaService, request: pytest.FixtureRequest) -> Iterator[LogHarness]:
    kafka.start()
    variant = Variant("wal", own_register=False, producer=request.param)
    with open_log(kafka.bootstrap, variant) as harness:
        yield harness


def test_what_the_broker_refuses_is_named_by_row_and_nothing_is_decided(
    harness: LogHarness,
) -> None:
    with closing(Case(harness)) as case:
        run = case.run()
        shares = run.tasks(0, LEFT, LARGE)
        limit(harness.options.kafka, harness.topic, "2000")  # nobody who has looked knows
        error = raises(RowError, lambda: run.commit(0, shares))
        assert "Row 5 of the task is refused" in error.what
        assert harness.topic in error.what
        assert "Nothing is decided" in error.what
        assert f":{JOB}:" in str(error.handle)
        assert run.state().open == ()
        assert run.state().last_decided is None
        assert harness.read() == []
        assert harness.hidden() == 0, "a rehearsal is left open, and readers wait for it"
        limit(harness.options.kafka, harness.topic, "1048588")
        case.replayed(LEFT, LARGE, when="after the topic takes it")


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_the_rules_of_refusals_hold(kafka: KafkaService, rule: Check) -> None:
    kafka.start()
    variant = Variant("wal", own_register=False)
    assert run_check(lambda: open_log(kafka.bootstrap, variant), rule)


def test_a_decision_without_a_rehearsal_is_found(kafka: KafkaService) -> None:
    kafka.start()
    rule = RULES["what_a_target_no_longer_takes_is_not_decided"]
    variant = Variant("wal", own_register=False)
    bug = WalCommitter, "compose", lambda self, committables: committables
    with planted(bug, match="this one refuses"):
        run_check(lambda: open_log(kafka.bootstrap, variant), rule)


def test_a_commit_that_is_under_way_when_a_loss_is_made_final_commits_nothing(
    harness: LogHarness,
) -> None:
    assert _committed_late(harness) == []


def test_a_loss_that_does_not_fence_the_ledger_is_found(harness: LogHarness) -> None:
    with planted((WalCommitter, "_fence", lambda self, job: None)):
        assert _committed_late(harness) == []


def _committed_late(harness: LogHarness) -> Sequence[Row]:
    """What readers see if a coordinator has sent all, and commits after its handles were given up."""
    with closing(Case(harness)) as case, LossyBroker(harness.bootstrap) as broker:
        run = case.halted(Cut("commit"), LEFT)
        given = run.state().open[0].committables
        # Of another process, which reaches the broker another way.
        given_too = {**harness.given, "kafka.bootstrap.servers": broker.bootstrap}
        options = KafkaOptions.parse(given_too)
        stopped = WalCommitter(options, FolderSegments(harness.folder))
        broker.before(Api.END_TXN, lambda: case.sink().committer().forsake(given))
        stopped.commit(given)
        assert not broker.waits
        close_clusters(options.kafka)
        return list(harness.read())


def test_a_decision_that_the_broker_refuses_ends_by_consent_and_the_rest_is_committed(
    harness: LogHarness,
) -> None:
    with closing(Case(harness)) as case:
        case.halted(Cut("commit"), LEFT, LARGE)
        limit(harness.options.kafka, harness.topic, "2000")
        run = case.run()
        drained = run.tasks(0, LEFT, LARGE)
        error = raises(RefusedError, lambda: run.commit(0, drained))
        assert f"abs in-doubt accept-loss {JOB} 0" in error.remedy
        assert harness.read() == []
        (loss,) = run.coordinator.lost(0)
        assert loss.committable.rows == len(LARGE)
        run.coordinator.accept_loss(0, [loss.committable])
        limit(harness.options.kafka, harness.topic, "1048588")
        case.run().epoch(1, MORE)
        case.finished(LEFT, MORE, when="after the loss was accepted")


def test_two_drivers_that_rehearse_at_once_do_not_end_each_other(
    harness: LogHarness,
) -> None:
    name = register_id(harness.options.registertopic, f"{JOB}+rehearsal")
    other = lambda: init_producer_id(harness.options.kafka, name)  # noqa: E731 - what it does
    with LossyBroker(harness.bootstrap) as broker:
        harness.through(broker.bootstrap)
        with closing(Case(harness)) as case:
            broker.before(Api.PRODUCE, other)
            case.run().epoch(0, LEFT)
            assert not broker.waits
            case.finished(LEFT, when="after another driver has rehearsed meanwhile")
        close_clusters()


def test_alone_on_its_own_register_records_travel_once(kafka: KafkaService) -> None:
    kafka.start()
    used = []
    for own in (True, False):
        with (
            open_log(kafka.bootstrap, Variant("wal", own_register=own)) as harness,
            closing(Case(harness)) as case,
        ):
            case.run().epoch(0, LEFT)
            case.finished(LEFT, when="after an epoch")
            used.append(harness.offsets_used())
    alone, rehearsed = used
    assert rehearsed >= 2 * len(LEFT) + 2, "records and marker of the rehearsal, and of the commit"
    assert len(LEFT) < alone <= len(LEFT) + 3


def test_a_loss_that_the_ledger_refuses_deletes_nothing(harness: LogHarness) -> None:
    with closing(Case(harness)) as case:
        run = case.halted(Cut("commit"), LEFT)
        given = run.state().open[0].committables
        limit(harness.options.kafka, harness.options.registertopic, "120")
        raises(RefusedError, lambda: case.sink().committer().forsake(given))
        limit(harness.options.kafka, harness.options.registertopic, "1048588")
        case.replayed(LEFT, when="after the ledger takes it")
