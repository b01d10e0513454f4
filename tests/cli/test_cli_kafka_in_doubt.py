"""`abs in-doubt` on open transactions of a broker: it shows the truth and breaks no promise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from abs_cli.main import app
from abs_core.model import Wrote
from abs_core.testing.case import JOB, Case, raises, rows
from abs_core.testing.cuts import Cut, Halted
from abs_services import KafkaService
from abs_sinks.kafka.control import close_all
from abs_sinks.kafka.register_session import close_sessions
from abs_sinks.kafka.testing import TopicHarness, Variant, open_topic

pytestmark = pytest.mark.services


@pytest.fixture
def harness(kafka: KafkaService) -> Iterator[TopicHarness]:
    kafka.start()
    with open_topic(kafka.bootstrap, Variant("2pc")) as harness:
        yield harness
    close_sessions()
    close_all()


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
    assert harness.topic in listed["detail"]
    assert listed["age_seconds"] < 600
    assert run(harness, "abort", JOB).exit_code == 0
    assert [each["handle"] for each in found(harness)] == [held], "its run may be alive"

    halted = case.run(run=old.who.run, cut=Cut("commit"))
    raises(Halted, lambda: halted.commit(0, [share]))
    assert [each["fate"] for each in found(harness)] == ["decided: will be committed"]
    assert run(harness, "abort", JOB).exit_code == 0
    assert run(harness, "commit", JOB).exit_code == 0
    assert found(harness) == []
    case.finished(rows(0, 3), when="after `abs in-doubt commit`")
    case.close()


def found(harness: TopicHarness) -> list[dict[str, Any]]:
    every: list[dict[str, Any]] = json.loads(run(harness, "list", "--json").stdout)
    return [each for each in every if harness.topic in each["detail"]]


def run(harness: TopicHarness, *arguments: str) -> Result:
    url = f"kafka://{harness.bootstrap}/{harness.options.registertopic}"
    return CliRunner().invoke(app, ["in-doubt", *arguments, "--url", url])
