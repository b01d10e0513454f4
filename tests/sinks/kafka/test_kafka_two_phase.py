"""Transactions without a timeout (KIP-939): nothing expires between pre-commit and commit, and all that
no decision names is ended, by the driver after the epoch or by the next run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from kafka.protocol.admin.acl import CreateAclsRequest

from abs_clients.kafka.cluster import close_clusters, cluster
from abs_clients.kafka.producer_ids import init_producer_id
from abs_clients.kafka.setting_table import TWO_PHASE
from abs_clients.kafka.transactions import NEVER_MS, State, describe
from abs_core.coordinator import Report
from abs_core.errors import (
    FencedError,
    HandleLostError,
    ProtocolError,
    RefusedError,
)
from abs_core.model import Committable, Severity, Share, Wrote
from abs_core.patience import Patience
from abs_services import KafkaService
from abs_sinks.kafka import KafkaOptions, preflight
from abs_sinks.kafka.producer_pool import ProducerPool
from abs_testing import Opener, applicable, run_check
from abs_testing.case import JOB, Case, raises, rows, within
from abs_testing.cuts import Cut, Halted
from abs_testing.engine import Run
from tests.kit.command import abs_
from tests.kit.kafka import KEYED, KeyedSink, TopicHarness, Variant, open_topic, send_now
from tests.kit.kafka_secured import SecuredKafka
from tests.planted import planted
from tests.sinks.kafka.secured import Principals, allow

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]

LEFT, RIGHT, MORE = rows(0, 3), rows(10, 3), rows(20, 3)

TIMEOUT_SECONDS = 5
ALLOWED = {
    TWO_PHASE: "true",
    "unstable.api.versions.enable": "true",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
}
ASKED = {f"kafka.{TWO_PHASE}": "true"}
SHORT = {"kafka.transaction.timeout.ms": str(TIMEOUT_SECONDS * 1000)}
CARELESS = Patience(seconds=0.0, request=0.0)
"""Any time left will do for it."""


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredKafka]:
    kafka = SecuredKafka()
    kafka.settings |= ALLOWED
    with kafka:
        yield kafka
        close_clusters()


@pytest.fixture
def harness(broker: SecuredKafka) -> Iterator[TopicHarness]:
    with open_topic(broker.bootstrap, Variant("2pc"), ASKED | SHORT) as harness:
        yield harness


def committable(share: Share) -> Committable:
    assert isinstance(share, Wrote)
    assert share.committable is not None
    return share.committable


def state(harness: TopicHarness, share: Share) -> State | None:
    name = str(committable(share).held_as)
    now = describe(harness.options.kafka, [name])[name]
    return None if now is None else now.state


def commit(run: Run, epoch: int, *shares: Share) -> None:
    """As Spark does, which begins an epoch after the last one's commit."""
    run.coordinator.commit(Report(epoch, shares, None, alone=True))


@pytest.mark.parametrize(
    "away", [2 * TIMEOUT_SECONDS, pytest.param(60, marks=pytest.mark.campaign)]
)
def test_a_decided_transaction_outlives_its_timeout_and_a_killed_broker_and_its_twin_is_lost(
    broker: SecuredKafka, harness: TopicHarness, case: Case, away: float
) -> None:
    decided = {}
    with open_topic(broker.bootstrap, Variant("2pc"), SHORT) as other:
        twin = Case(other)
        for each in (case, twin):
            run = each.run()
            shares = run.tasks(0, LEFT)
            sink, more = each.sink(), {"run": run.who.run, "cut": Cut("commit")}
            halted = Run(sink, JOB, patience=CARELESS, store=run.store, **more)  # type: ignore[arg-type]
            raises(Halted, partial(halted.commit, 0, shares))
            decided[each] = shares[0]
        end = time.monotonic() + away
        assert within(60, lambda: state(other, decided[twin]) is State.COMPLETE_ABORT)
        assert within(away + 60, lambda: time.monotonic() > end)
        assert state(harness, decided[case]) is State.ONGOING
        broker.kill()
        broker.start()
        for opened in (harness, other):
            opened.look_anew()
        again = Patience(seconds=60.0)
        case.run(patience=again).epoch(0, LEFT)
        case.finished(LEFT, when="after the driver was away for longer than the timeout")
        error = raises(HandleLostError, lambda: twin.run(patience=again).epoch(0, LEFT))
        assert "accept-loss" in str(error)
        twin.holds(when="after the broker has timed it out")
        twin.close()


def test_what_is_undecided_is_swept_by_the_next_run(harness: TopicHarness, case: Case) -> None:
    share = case.run().task(0, 0, LEFT)
    assert committable(share).extra != ()
    assert dict(committable(share).extra)["timeout_ms"] == str(NEVER_MS)
    assert harness.hidden() > 0
    case.run().epoch(0, RIGHT)
    assert state(harness, share) is not State.ONGOING
    assert harness.hidden() == 0
    case.finished(RIGHT, when="after the sweep")


def test_a_zombie_is_fenced_by_its_successor(case: Case) -> None:
    zombie = case.run().attempt(0).write(*LEFT)
    send_now(zombie.writer)
    case.run().begin(0)
    error = raises(FencedError, lambda: zombie.write(*RIGHT).pre_commit())
    assert "timeout" not in str(error)
    zombie.writer.abort()
    case.run().epoch(0, MORE)
    case.finished(MORE, when="after a zombie was fenced")


@pytest.mark.parametrize("prepared", [False, True], ids=["writing", "prepared"])
def test_the_driver_ends_a_lost_attempt_of_another_process_once_its_epoch_is_finished(
    harness: TopicHarness, case: Case, prepared: bool
) -> None:
    run = case.run()
    lost = case.run(run=run.who.run).attempt(0, 0).write(*LEFT)  # its sink has ids of its own
    if prepared:
        lost.pre_commit()
    else:
        send_now(lost.writer)
    share = run.task(0, 0, LEFT)
    assert len(harness.open_ids()) == 2
    run.commit(0, [share])
    assert len(harness.open_ids()) == 1, "another engine may have begun the next epoch"
    commit(run, 0, share)
    assert harness.open_ids() == {}
    assert harness.hidden() == 0, "no reader waits"
    lost.writer.abort()
    commit(run, 1, run.task(1, 0, RIGHT))
    case.finished(LEFT, RIGHT, when="after an attempt was lost")


def test_an_id_is_used_again_after_its_commit_and_never_after_another_end(case: Case) -> None:
    run, rival = (case.run(run="one") for _ in range(2))
    ids, lost = set(), set()
    for epoch in range(4):
        winner = run.task(epoch, 0, rows(10 * epoch, 3))
        loser = rival.task(epoch, 0, rows(10 * epoch, 3))
        failed = rival.attempt(epoch, 1).write(*MORE)
        send_now(failed.writer)
        failed.writer.abort()
        ids.add(committable(winner).held_as)
        lost.add(committable(loser).held_as)
        commit(run, epoch, winner)
    assert len(ids) == 2, "two take turns"
    assert len(lost) == 4
    case.finished(*(rows(10 * epoch, 3) for epoch in range(4)), when="after four epochs")


def late_end_of_a_lost_attempt(harness: TopicHarness, case: Case) -> None:
    run, rival = (case.run(run="one") for _ in range(2))
    lost = committable(rival.task(0, 0, LEFT)).held_as
    run.commit(0, [run.task(0, 0, LEFT)])
    # The first of them finds the producer that was made ahead.
    wrote = [rival.task(1, number, rows(10 + 10 * number, 3)) for number in range(4)]
    assert lost not in {committable(each).held_as for each in wrote}
    init_producer_id(harness.options.kafka, str(lost))  # what a driver has sent, and arrives now
    run.commit(1, wrote)
    case.holds(LEFT, rows(10, 3), rows(20, 3), rows(30, 3), rows(40, 3), when="after a late end")


def test_a_late_end_of_a_lost_attempt_ends_no_later_epochs_transaction(
    harness: TopicHarness, case: Case
) -> None:
    late_end_of_a_lost_attempt(harness, case)


def test_an_id_that_a_lost_attempt_has_used_and_that_is_used_again_is_found(
    harness: TopicHarness, case: Case
) -> None:
    with planted((ProducerPool, "_leave_unless_committed", lambda *_: None)):
        late_end_of_a_lost_attempt(harness, case)


def test_what_has_no_timeout_is_shown_by_age_and_its_job_is_not_retired(
    broker: SecuredKafka,
    harness: TopicHarness,
    case: Case,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = f"job-{harness.topic}"
    share = case.run(job).task(0, 0, LEFT)
    held = str(committable(share).held_as)
    url = f"kafka://{broker.bootstrap}/{harness.options.registertopic}"
    listed = json.loads(abs_("in-doubt", "list", "--url", url, "--json").stdout)
    (mine,) = [each for each in listed if each["handle"] == held]
    assert "no timeout" in mine["detail"]
    refused = abs_("register", "retire", job, "--yes", "--url", url)
    assert isinstance(refused.exception, ProtocolError)
    assert f"abs job reset {job}" in str(refused.exception)

    young = _warnings(harness)
    assert not any(held in what for what in young)
    monkeypatch.setattr(preflight, "OLD_MS", 0)
    assert any(held in what and job in what for what in _warnings(harness))
    settings = [f"kafka.bootstrap.servers={broker.bootstrap}", f"topic={harness.topic}"]
    told = abs_("doctor", *(part for each in settings for part in ("-o", each)), "--json")
    assert any(held in each["what"] for each in json.loads(told.stdout)["findings"])

    assert abs_("job", "reset", job, "--yes", "--url", url).exit_code == 0
    assert state(harness, share) is not State.ONGOING
    assert not any(held in what for what in _warnings(harness))


def _warnings(harness: TopicHarness) -> list[str]:
    found = preflight.preflight(harness.options, KEYED)
    return [each.what for each in found if each.severity is Severity.WARNING]


def test_brokers_that_do_not_allow_it_are_told_by_both_of_their_settings(
    kafka: KafkaService,
) -> None:
    kafka.start()
    with open_topic(kafka.bootstrap, Variant("2pc"), ASKED) as harness:
        with closing(harness.new_sink()) as sink:
            errors = [f for f in sink.preflight(JOB) if f.severity is Severity.ERROR]
            told = [str(raises(RefusedError, lambda: Run(sink, JOB).epoch(0, LEFT)))]
        told += [f"{each.what} {each.remedy}" for each in errors]
        assert len(told) > 1
        for text in told:
            assert f"{TWO_PHASE}=true" in text
            assert "unstable.api.versions.enable=true" in text
        assert harness.open_ids() == {}
        assert harness.records() == []


def test_the_right_to_it_is_named_where_it_is_missing(
    broker: SecuredKafka, harness: TopicHarness
) -> None:
    principals = Principals(broker)
    client = principals.new(
        allow("TOPIC", harness.topic, "READ", "WRITE", "DESCRIBE"),
        allow("TRANSACTIONAL_ID", "abs1:*", "WRITE", "DESCRIBE"),
        allow("TRANSACTIONAL_ID", "abs-register.*", "WRITE", "DESCRIBE"),
        allow("TOPIC", "reg-2pc", "CREATE", "READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS"),
    )
    given = {f"kafka.{name}": value for name, value in client.items()} | ASKED
    options = KafkaOptions.parse(given | {"topic": harness.topic, "registertopic": "reg-2pc"})
    with closing(KeyedSink(options, KEYED)) as sink:
        wrong = [f"{f.what} {f.remedy}" for f in sink.preflight("acl") if f.severity == "error"]
        assert [
            ("TWO_PHASE_COMMIT" in each, client["sasl.username"] in each) for each in wrong
        ] == [(True, True)]
        error = raises(RefusedError, lambda: Run(sink, "acl").epoch(0, LEFT))
        assert "TWO_PHASE_COMMIT" in str(error)
        _allow_two_phase(harness, client["sasl.username"])
        assert [f for f in sink.preflight("acl") if f.severity is Severity.ERROR] == []
        Run(sink, "acl").epoch(0, LEFT)
    assert sorted(harness.read()) == LEFT


def _allow_two_phase(harness: TopicHarness, user: str) -> None:
    """By the protocol's own numbers: neither client knows the operation's name."""
    transactional_id, prefixed, two_phase_commit, allowed = 5, 4, 15, 3
    asked = CreateAclsRequest(
        creations=[
            CreateAclsRequest.AclCreation(
                resource_type=transactional_id,
                resource_name="abs1:",
                resource_pattern_type=prefixed,
                principal=f"User:{user}",
                host="*",
                operation=two_phase_commit,
                permission_type=allowed,
            )
        ]
    )

    async def work(manager: Any) -> list[int]:
        return [each.error_code for each in (await manager.send(asked)).results]

    assert cluster(harness.options.kafka).run("allowing", work) == [0]


@pytest.fixture
def opener(broker: SecuredKafka) -> Opener:
    return partial(open_topic, broker.bootstrap, Variant("2pc"), ASKED | SHORT)


@pytest.mark.campaign
def test_the_sink_keeps_every_rule(opener: Opener) -> None:
    rules = applicable(opener)
    assert len(rules) > 30
    for rule in rules:
        run_check(opener, rule)
