"""`abs in-doubt` on open transactions of a broker: it shows the truth and breaks no promise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import Result

from abs_clients.kafka.cluster import close_clusters
from abs_clients.kafka.transactions import end
from abs_core.errors import HandleLostError, RefusedError
from abs_core.model import Wrote
from abs_services import KafkaService
from abs_sinks.kafka.open_transaction import OpenTransaction
from abs_testing.case import JOB, Case, raises, rows
from abs_testing.cuts import Cut, Halted
from tests.kit.command import abs_
from tests.kit.kafka import TopicHarness, Variant, open_topic
from tests.kit.kafka_modes import AttemptHarness, open_attempts

pytestmark = pytest.mark.services


@pytest.fixture
def harness(kafka: KafkaService) -> Iterator[TopicHarness]:
    kafka.start()
    with open_topic(kafka.bootstrap, Variant("2pc")) as harness:
        yield harness
    close_clusters()


def test_open_transactions_are_listed_committed_and_aborted_as_the_register_says(
    harness: TopicHarness,
) -> None:
    case = Case(harness)
    old = case.run()
    (share,) = old.tasks(0, rows(0, 3))
    assert isinstance(share, Wrote)
    assert share.committable is not None
    held = str(share.committable.held_as)

    (listed,) = found(harness)
    assert (listed["handle"], listed["job"], listed["epoch"]) == (held, JOB, None)
    assert "under way" in listed["fate"]
    table = run(harness, "list").stdout
    assert ":-:" in table
    assert "99999" not in table, "what is no epoch is not shown as one"
    assert harness.topic in listed["detail"]
    assert listed["age_seconds"] < 600
    everywhere = [each for each in listing(harness) if each["job"] == JOB]
    told = run(harness, "abort", JOB)
    assert (told.exit_code, f"{len(everywhere)} left: " in told.stderr) == (0, True)
    assert "--fence" in told.stderr, "the way on is named"
    assert "has committed nothing" in run(harness, "commit", JOB).stderr
    assert [each["handle"] for each in found(harness)] == [held], "its run may be alive"

    halted = case.run(run=old.who.run, cut=Cut("commit"))
    raises(Halted, lambda: halted.commit(0, [share]))
    assert [each["fate"] for each in found(harness)] == ["decided: will be committed"]
    assert run(harness, "abort", JOB).exit_code == 0
    assert run(harness, "commit", JOB).exit_code == 0
    assert found(harness) == []
    case.finished(rows(0, 3), when="after `abs in-doubt commit`")
    case.close()


def test_a_lost_handle_is_listed_with_what_else_of_its_epoch_is_there_until_the_loss_is_accepted(
    harness: TopicHarness,
) -> None:
    case = Case(harness)
    job = case.run()
    kept, lost = (job.task(0, number, rows(10 * number, 3)) for number in (0, 1))
    assert isinstance(lost, Wrote)
    assert lost.committable is not None
    halted = case.run(run=job.who.run, cut=Cut("commit"))
    raises(Halted, lambda: halted.commit(0, [kept, lost]))
    prepared = OpenTransaction.of(lost.committable)
    assert prepared is not None
    end(harness.options.kafka, [prepared.ending], commit=False)  # as its timeout would

    fates = {each["handle"]: each["fate"] for each in found(harness)}
    assert fates[str(lost.committable.handle)] == f"lost: `abs in-doubt accept-loss {JOB} 0`"
    assert min(fates.values()) == "decided: will be committed"

    assert isinstance(run(harness, "commit", JOB).exception, HandleLostError)
    said = run(harness, "list")
    assert said.exit_code == 1
    assert f"Committed of the same epoch: {harness.topic}-" in said.stderr
    assert str(lost.committable.handle) in said.stderr
    assert "accept-loss" in said.stderr

    assert run(harness, "accept-loss", JOB, "0", "--yes").exit_code == 0
    assert found(harness) == []
    case.run().epoch(1, rows(20, 3))
    case.finished(rows(0, 3), rows(20, 3), when="after a loss was accepted")
    case.close()


def found(harness: TopicHarness) -> list[dict[str, Any]]:
    return [each for each in listing(harness) if harness.topic in each["detail"]]


def listing(harness: TopicHarness) -> list[dict[str, Any]]:
    """What other tests have left open on the broker is among it, under other registers."""
    every: list[dict[str, Any]] = json.loads(run(harness, "list", "--json").stdout)
    return every


def run(harness: TopicHarness, *arguments: str) -> Result:
    url = f"kafka://{harness.bootstrap}/{harness.options.registertopic}"
    return abs_("in-doubt", *arguments, "--url", url)


OTHERS, LOST = rows(0, 9), rows(100, 9)
"""So many that each partition has some of each."""


@pytest.fixture
def sent(kafka: KafkaService) -> Iterator[AttemptHarness]:
    kafka.start()
    with open_attempts(kafka.bootstrap) as harness:
        yield harness
    close_clusters()


@pytest.mark.usefixtures("soon_missing")
def test_what_idempotent_has_sent_and_not_decided_is_listed_where_it_is_asked_for(
    sent: AttemptHarness,
) -> None:
    case = Case(sent)
    job = case.run()
    job.epoch(0, OTHERS)
    copy, loser = job.attempt(1).write(*LOST), job.attempt(1).write(*LOST)
    loser.pre_commit()
    job.commit(1, [copy.pre_commit()])
    assert undecided(sent) == [], "winners are decided, and so is who lost to them"

    left = job.attempt(2, partition=7).write(*LOST)
    left.pre_commit()
    unasked = run(sent, "list", "--json")
    others = json.loads(unasked.stdout)  # of other tests on this broker
    assert not any(sent.topic in each["detail"] for each in others)
    assert unasked.exit_code == bool(others)
    assert sent.topic in unasked.stderr, "it is said that the topic was not looked through"

    asked = run(sent, "list", "--json", "--attempts", sent.topic)
    (listed,) = [e for e in json.loads(asked.stdout) if sent.topic in e["detail"]]
    assert asked.exit_code == 1
    assert sent.topic not in asked.stderr
    assert (listed["job"], listed["epoch"], listed["partition"]) == (JOB, 2, 7)
    assert listed["detail"].startswith(f"{len(LOST)} records in topic {sent.topic}")
    assert listed["age_seconds"] < 600
    assert (
        listed["fate"]
        == "undecided: its epoch is under way, or its run died and the next start ends it"
    )
    misspelt = run(sent, "list", "--attempts", f"{sent.topic}-other")
    assert isinstance(misspelt.exception, RefusedError)
    case.close()


def test_an_attempt_is_listed_until_its_job_has_decided_or_it_is_given_up(
    sent: AttemptHarness,
) -> None:
    case = Case(sent)
    job = case.run()
    job.epoch(0, OTHERS)
    job.tasks(1, LOST)
    again = case.run()
    again.tasks(1, [])  # its start supersedes the run before
    (listed,) = undecided(sent)
    assert listed["fate"] == "lost: readers continue when the job decides its next epoch"
    again.epoch(1, OTHERS)
    assert undecided(sent) == []

    again.tasks(2, LOST)
    assert again.store.retire(JOB)  # type: ignore[attr-defined]
    (listed,) = undecided(sent)
    assert listed["fate"] == "unknown: its register is not here"
    gone = ("--attempts", sent.topic, "--orphan", listed["handle"])
    assert run(sent, "abort", JOB, *gone).exit_code == 0
    assert undecided(sent) == []
    case.close()


def undecided(harness: AttemptHarness) -> list[dict[str, Any]]:
    said = run(harness, "list", "--json", "--attempts", harness.topic)
    every: list[dict[str, Any]] = json.loads(said.stdout)
    return [each for each in every if harness.topic in each["detail"]]
