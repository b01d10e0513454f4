"""`abs watch` tells a running job, a quiet one, one that left handles, and one that is stuck."""

from __future__ import annotations

import io
import json
import time
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from rich.console import Console

from abs_cli import watch
from abs_core.coordinator import Report
from abs_core.errors import UnavailableError
from abs_core.model import Committable, Wrote
from abs_services import PostgresService
from tests.cli.test_cli_state import Job
from tests.kit.command import abs_
from tests.outage import stopped

pytestmark = pytest.mark.services


def looks(url: str, *words: str, times: int = 1) -> list[list[dict[str, Any]]]:
    asked = ["watch", *words, "--url", url, "--json", "--times", str(times), "--every", "0.1"]
    made = abs_(*asked)
    assert made.exit_code == 0, (made.output, made.exception)
    return [json.loads(line) for line in made.stdout.splitlines()]


def aged(url: str, seconds: int) -> None:
    """The register's last change lies so long back."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "update abs.register set changed = changed - make_interval(secs => %s)", (seconds,)
        )


def commit(job: Job, epoch: int, *made: Committable) -> None:
    shares = tuple(Wrote(one.rows, one) for one in made)
    job.coordinator.commit(Report(epoch, shares, None))


def test_a_job_is_running_then_quiet_and_its_epochs_are_counted(database: str) -> None:
    job = Job(database)
    commit(job, 0, job.prepare(0, 1, 2, 3))
    [[line]] = looks(database)
    assert (line["job"], line["frontier"], line["rows"]) == ("flights", 0, 3)
    assert (line["status"], line["in_doubt"], line["do"]) == ("running", 0, "")
    aged(database, 70)
    [[line]] = looks(database, "flights")
    assert (line["status"], line["do"]) == ("quiet", "")
    assert line["quiet"] >= 70
    assert looks(database, "another") == [[]]
    assert [one["per_minute"] for [one] in looks(database, times=2)] == [None, 0.0]


def test_handles_that_nothing_commits_are_in_doubt_and_a_decided_epoch_is_stuck(
    database: str,
) -> None:
    job = Job(database)
    prepared = job.prepare(0, 1)
    [[line]] = looks(database)
    assert (line["status"], line["in_doubt"]) == ("running", 1)
    job.decide(0, prepared)
    aged(database, 200)
    [[line]] = looks(database)
    assert line["status"] == "stuck"
    assert "epoch 0 is decided and not finished" in line["do"]


def test_a_server_that_is_away_is_named_below_the_last_look_until_it_answers(
    database: str, postgres: PostgresService, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(database)
    commit(job, 0, job.prepare(0, 1))
    pauses: list[float] = []

    with ExitStack() as away:

        def pause(seconds: float) -> None:
            """The server is away for each second look."""
            pauses.append(seconds)
            if len(pauses) % 2:
                away.enter_context(stopped(postgres))
            else:
                away.close()

        clock = SimpleNamespace(sleep=pause, monotonic=time.monotonic, time=time.time)
        monkeypatch.setattr(watch, "time", clock)
        asked = ["watch", "--url", database, "--times", "3", "--every", "0.1"]
        shown = abs_(*asked)
        assert (shown.exit_code, len(pauses)) == (0, 2), (shown.output, shown.exception)
        ended = abs_(*asked, "--json")
        assert ended.exit_code != 0
        assert len(pauses) == 3


def test_what_is_shown_while_a_server_is_away_has_the_last_look_and_the_reason() -> None:
    line = watch.Line("payments", 1, 7, 60.0, 5, 0, None, 1.0, "running", "")
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(watch._without_answer([line], 12.3, UnavailableError("the server is away")))
    shown = console.export_text()
    assert "payments" in shown
    assert "no answer for 12 s: the server is away" in shown
