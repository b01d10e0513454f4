"""What a dead job sent and never decided: a person gives it up, and readers by winners go on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from abs_cli.main import app
from abs_clients.kafka.attempts import NO_DECISION, Decided, Winners, side_topic
from abs_core.errors import ConfigError, FencedError
from abs_core.model import HandleName, Wrote
from abs_services import KafkaService
from abs_testing.case import Case, raises, rows
from tests.kit.kafka_modes import AttemptHarness, open_attempts

pytestmark = pytest.mark.services

OTHERS, LOST, AGAIN = rows(0, 9), rows(100, 9), rows(200, 9)
"""So many that each partition has some of each."""


@pytest.fixture
def harness(kafka: KafkaService) -> Iterator[AttemptHarness]:
    kafka.start()
    with open_attempts(kafka.bootstrap) as harness:
        yield harness


def give_up(harness: AttemptHarness, job: str, *more: str) -> Result:
    url = f"kafka://{harness.bootstrap}/{harness.options.registertopic}"
    arguments = ["in-doubt", "abort", job, "--url", url, "--attempts", harness.topic, *more]
    return CliRunner().invoke(app, arguments)


def test_readers_go_on_and_what_was_given_up_can_never_be_decided(
    case: Case, harness: AttemptHarness
) -> None:
    dead = case.run("dead")
    shares = dead.tasks(0, LOST)
    case.run("other").epoch(0, OTHERS)
    assert len(harness.read()) < len(OTHERS), "they wait at the first record of the dead job"

    said = give_up(harness, "dead")
    assert said.exit_code == 0, said
    assert sorted(harness.read()) == sorted(OTHERS)
    raises(FencedError, lambda: dead.commit(0, shares))
    assert sorted(harness.read()) == sorted(OTHERS), "it was alive after all, and came too late"

    case.run("dead").epoch(0, AGAIN)
    assert sorted(harness.read()) == sorted([*OTHERS, *AGAIN]), "the job may be started again"


def test_the_record_that_gives_up_says_who_did_it(case: Case, harness: AttemptHarness) -> None:
    case.run("dead").tasks(0, LOST)
    assert give_up(harness, "dead").exit_code == 0
    (record,) = harness._records(side_topic(harness.topic), 1)
    decided = Decided.from_bytes(record.value)
    assert (decided.epoch, decided.winners) == (NO_DECISION, ())
    assert "given up by" in decided.note


@pytest.mark.parametrize("protocol", ["2pc", "wal"])
def test_an_attempt_that_a_change_of_protocol_cut_off_is_a_loser_for_readers_after_the_change_back(
    case: Case, harness: AttemptHarness, tmp_path: Path, protocol: str
) -> None:
    case.run().epoch(0, OTHERS)
    cut_off = case.run()
    shares = cut_off.tasks(1, LOST)
    own = harness.options
    wal = tmp_path.as_uri() if protocol == "wal" else None
    common = replace(own.common, protocol=protocol)
    harness.new_sink = harness.sink_for(replace(own, common=common, wal=wal))
    case.run().epoch(1, LOST)
    assert sorted(harness.read()) == sorted([*OTHERS, *LOST]), "readers wait for nothing"
    raises(FencedError, lambda: cut_off.commit(1, shares))
    harness.new_sink = harness.sink_for(own)
    case.run().epoch(2, AGAIN)
    assert sorted(harness.read()) == sorted([*OTHERS, *LOST, *AGAIN])


def test_what_was_decided_before_stays(case: Case, harness: AttemptHarness) -> None:
    run = case.run("dead")
    run.epoch(0, OTHERS)
    run.tasks(1, LOST)
    assert give_up(harness, "dead").exit_code == 0
    assert sorted(harness.read()) == sorted(OTHERS)


def test_an_attempt_whose_register_is_gone_is_given_up_by_its_name(
    case: Case, harness: AttemptHarness
) -> None:
    dead = case.run("dead")
    (share,) = dead.tasks(0, LOST)
    assert isinstance(share, Wrote)
    assert share.committable is not None
    name = str(share.committable.handle)
    here = give_up(harness, "dead", "--orphan", name)
    assert isinstance(here.exception, ConfigError), "its register is here: it needs no name"
    assert dead.store.retire("dead")  # type: ignore[attr-defined]
    unnamed = give_up(harness, "dead")
    assert isinstance(unnamed.exception, ConfigError)
    case.run("other").epoch(0, OTHERS)
    assert give_up(harness, "dead", "--orphan", name).exit_code == 0
    assert sorted(harness.read()) == sorted(OTHERS)


def test_a_record_without_winners_makes_losers_of_lower_generations_only() -> None:
    def attempt(generation: int) -> HandleName:
        return HandleName("0" * 16, "job", generation, 7, 0, "ab")

    none = Decided("0" * 16, "job", 3, NO_DECISION, (), "given up")
    winners = Winners().read([none.to_bytes()])
    assert [winners.counts(attempt(g)) for g in (1, 2, 3, 4)] == [False, False, None, None]
    elsewhere = HandleName("1" * 16, "job", 1, 7, 0, "ab")
    assert winners.counts(elsewhere) is None, "another register's"
