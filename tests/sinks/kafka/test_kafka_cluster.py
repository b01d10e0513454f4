"""Three brokers, of which one dies or is stopped: leaders and coordinators move, jobs go on."""

from __future__ import annotations

import random
import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Timer

import pytest

from abs_clients.kafka.cluster import cluster
from abs_clients.kafka.routing import coordinators_of, leaders_of
from abs_clients.kafka.topics import topic_facts
from abs_clients.kafka.transactions import describe
from abs_core.contracts import Conflict, Stored
from abs_core.errors import AbsError
from abs_core.model import JobState, Severity
from abs_core.patience import Patience
from abs_services.native.kafka import NativeKafka
from abs_sinks.kafka.open_transaction import OpenTransaction
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.register.session import register_id
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.kafka.register.topic import need_two, partition_of
from abs_sinks.kafka.sink import KafkaSink
from abs_testing.case import JOB, Case, rows, within
from abs_testing.engine import Run
from abs_testing.harness import Row
from tests import sample
from tests.kit.kafka import (
    KEYED,
    PARTITIONS,
    TopicHarness,
    make_topic,
)
from tests.kit.kafka_cluster import NativeKafkaCluster
from tests.kit.kafka_modes import open_variant
from tests.outage import standing_still
from tests.sinks.crashes import through

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]

MODES = ["2pc", "2pc-librdkafka", "wal", "idempotent"]
LEFT, RIGHT, NEXT = rows(0, 30), rows(100, 30), rows(200, 30)
DEATHS = 5
WAYS = [f"{mode}-{end}" for mode in MODES for end in ("kill", "stop")]

AWAY_SECONDS = 8.0

PATIENT = Patience(seconds=60.0)
"""A broker is missed after 2 s, and its coordinators then read their logs elsewhere."""


def test_of_several_replicas_two_must_have_what_is_decided(brokers: NativeKafkaCluster) -> None:
    """Also where the broker's default is one; a topic that is there and takes one is refused."""
    with open_variant(brokers.bootstrap, "2pc") as harness:
        settings, name = harness.options.kafka, harness.options.registertopic
        weak = {"cleanup.policy": "compact", "min.insync.replicas": "1"}
        make_topic(settings, name, 4, weak)
        told = [f.what for f in harness.new_sink().preflight(JOB) if f.severity is Severity.ERROR]
        assert [what for what in told if f"topic {name} is 1, with 3 replicas" in what] == told
        assert len(told) == 1
        need_two(settings, topic_facts(settings, [name], again=True)[name])
        assert within(
            120, lambda: cluster(settings).admin.configs(name)["min.insync.replicas"] == "2"
        )

        def is_sound() -> bool:
            """Brokers hear of it one after another."""
            findings = harness.new_sink().preflight(JOB)
            return not [f for f in findings if f.severity is Severity.ERROR]

        assert within(120, is_sound)


@pytest.mark.parametrize("mode", sample.members(MODES, 1, "a dead broker"))
def test_an_epoch_is_committed_and_the_next_one_written_while_a_broker_is_dead(
    brokers: NativeKafkaCluster, mode: str
) -> None:
    """The one that led a partition and, with ``2pc``, coordinated a transaction that is prepared."""
    with open_variant(brokers.bootstrap, mode) as harness, Case(harness) as case:
        run = _run(case)
        shares = run.tasks(0, LEFT, RIGHT)
        prepared = [OpenTransaction.of(c) for s in shares if (c := getattr(s, "committable", None))]
        ids = [str(p.held_as) for p in prepared if p is not None]
        dead = _coordinator(brokers, harness, ids[0]) if ids else _leader(brokers, harness)
        dead.kill()
        run.commit(0, shares)
        case.holds(LEFT, RIGHT, when="with a broker dead since the pre-commit")
        _run(case).epoch(1, NEXT, [])
        case.finished(LEFT, RIGHT, NEXT, when="with a broker dead")
        brokers.start()
        _run(case).epoch(2, rows(300, 3))
        case.finished(LEFT, RIGHT, NEXT, rows(300, 3), when="after the broker came back")
        assert harness.hidden() == 0


@pytest.mark.parametrize("way", sample.members(WAYS, 1, "a new leader"))
def test_a_task_goes_on_writing_to_the_new_leader(brokers: NativeKafkaCluster, way: str) -> None:
    """``stop`` hands leaders over first: the old one then says that it is none any more."""
    mode, end = way.rsplit("-", 1)
    with open_variant(brokers.bootstrap, mode) as harness, Case(harness) as case:
        run = _run(case)
        run.epoch(0, LEFT)
        attempt = run.attempt(1).write(*RIGHT)
        old = _leader(brokers, harness)
        getattr(old, end)()
        share = attempt.write(*NEXT).pre_commit()
        run.commit(1, [share])
        case.finished(LEFT, RIGHT, NEXT, when=f"after {end} of a leader in the midst of a task")
        brokers.start()
        assert harness.hidden() == 0


def test_three_replicas_leave_preflight_nothing_to_warn_of(brokers: NativeKafkaCluster) -> None:
    with open_variant(brokers.bootstrap, "2pc") as harness:
        sink = KafkaSink(harness.options, KEYED)
        _run(Case(harness)).epoch(0, LEFT)  # the register's topic is there
        found = [
            each for each in sink.preflight(JOB, tasks=4) if each.severity is not Severity.NOTE
        ]
        assert not found
        sink.close()


@pytest.mark.campaign
@pytest.mark.parametrize("mode", MODES)
def test_without_a_majority_nothing_is_committed_and_nothing_is_lost_until_it_is_back(
    brokers: NativeKafkaCluster, mode: str
) -> None:
    """With one of three nothing can be acknowledged, and no leader and no controller be found.

    The commit fails and can be tried again, or waits for the brokers.
    """
    with open_variant(brokers.bootstrap, mode) as harness, Case(harness) as case:
        _run(case).epoch(0, LEFT)
        run = Run(case.sink(), JOB, patience=Patience(seconds=3.0))
        shares = run.tasks(1, RIGHT, NEXT)
        for broker in brokers.brokers[:2]:
            broker.kill()
        doctor = Timer(AWAY_SECONDS, brokers.start)
        doctor.start()
        failed: AbsError | None = None
        try:
            run.commit(1, shares)
        except AbsError as error:
            failed = error
        back = not doctor.is_alive()
        doctor.join()
        if failed is None:
            # Only brokers that are back can have acknowledged it; then it is there, without a retry.
            assert back, "a commit was reported done while most brokers were dead"
            case.holds(LEFT, RIGHT, NEXT, when="after a commit that waited for the brokers")
        else:
            assert failed.retryable, failed
        _run(case).epoch(1, RIGHT, NEXT)
        case.finished(LEFT, RIGHT, NEXT, when="after most brokers were dead, and came back")
        assert harness.hidden() == 0


@pytest.mark.campaign
@pytest.mark.parametrize("mode", MODES)
def test_five_deaths_of_brokers_in_a_run_lose_and_double_nothing(
    brokers: NativeKafkaCluster, mode: str
) -> None:
    """At any moment of an epoch; the dead one comes back an epoch later, and then another dies."""
    chance = random.Random(7)
    with open_variant(brokers.bootstrap, mode) as harness, Case(harness) as case:
        run = _run(case)
        written: list[list[Row]] = []
        for epoch in range(2 * DEATHS + 1):
            parts = [rows(1000 * epoch, 200), [], rows(1000 * epoch + 500, 200)]
            if epoch % 2:
                killer = Timer(chance.uniform(0, 1), chance.choice(brokers.brokers).kill)
                killer.start()
                run = through(lambda: _run(case), run, epoch, parts)
                killer.join()
            else:
                run = through(lambda: _run(case), run, epoch, parts)
                brokers.start()
            written += parts
        case.finished(*written, when=f"after {DEATHS} deaths of brokers")
        assert harness.hidden() == 0


@pytest.mark.campaign
def test_who_asks_a_broker_that_was_stopped_does_not_overwrite_the_register(
    brokers: NativeKafkaCluster,
) -> None:
    """It goes on with a question, and answers it before it hears that another leads the partition."""
    given = {"topic": "data", "registertopic": f"register-{secrets.token_hex(4)}"}
    given["kafka.bootstrap.servers"] = brokers.bootstrap
    # With connections of their own, as two processes have them.
    mine, theirs = (KafkaOptions.parse({**given, "kafka.client.id": n}) for n in ("one", "two"))
    state = JobState("0" * 16, "job", "target", "lineage", 1, "run")
    old = PATIENT.retry(lambda: KafkaRegister(mine).compare_and_set("job", None, state))
    assert not isinstance(old, Conflict)
    places, name = (
        [(mine.registertopic, partition_of("job"))],
        register_id(mine.registertopic, "job"),
    )

    def leader() -> int:
        looking = cluster(theirs.kafka).run
        return next(
            iter(PATIENT.retry(lambda: looking("looking", lambda m: leaders_of(m, places))))
        )

    def epoch() -> tuple[int, int]:
        seen = PATIENT.retry(lambda: describe(theirs.kafka, [name]))[name]
        assert seen is not None
        return seen.producer_id, seen.epoch

    stopped, newer = leader(), replace(state, generation=2)
    with ThreadPoolExecutor(1) as pool:
        with standing_still(brokers.broker(stopped)):
            assert within(60, lambda: leader() != stopped)
            new = PATIENT.retry(lambda: KafkaRegister(theirs).compare_and_set("job", old, newer))
            before = epoch()
            late = partial(
                KafkaRegister(mine).compare_and_set, "job", old, replace(state, run="late")
            )
            zombie = pool.submit(PATIENT.retry, late)
            # It has opened the cell's producer, and reads the cell.
            assert within(60, lambda: epoch() != before)
        assert isinstance(zombie.result(), Conflict)
    assert PATIENT.retry(lambda: KafkaRegister(theirs).load("job")) == Stored(newer, str(new))


def _run(case: Case) -> Run:
    return Run(case.sink(), JOB, patience=PATIENT)


def _leader(brokers: NativeKafkaCluster, harness: TopicHarness) -> NativeKafka:
    """The broker that leads most of the topic's partitions."""
    places = [(harness.topic, number) for number in range(PARTITIONS)]
    leaders = cluster(harness.options.kafka).run("looking", lambda m: leaders_of(m, places))
    return brokers.broker(max(leaders, key=lambda node: len(leaders[node])))


def _coordinator(brokers: NativeKafkaCluster, harness: TopicHarness, text: str) -> NativeKafka:
    nodes = cluster(harness.options.kafka).run("looking", lambda m: coordinators_of(m, [text]))
    return brokers.broker(nodes[text])
