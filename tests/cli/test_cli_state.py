"""`abs register` and `abs in-doubt` on a real server: they show the truth and break no promise."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY
from urllib.parse import urlsplit

import psycopg
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from abs_cli.main import app
from abs_core.contracts import Task
from abs_core.coordinator import Coordinator, Report
from abs_core.errors import AbsError, ConfigError, IdentityError, OptionError, RefusedError
from abs_core.events import Event, SweepFailed
from abs_core.model import Committable, HandleName, Share, Wrote
from abs_core.protocol import RunIdentity, decide
from abs_sinks.door import format_named, format_names
from abs_sinks.postgres import PostgresOptions, PostgresSink
from abs_testing.behind import CommitterBehind
from abs_testing.fault_injection import Wire
from tests.kit.command import abs_

pytestmark = pytest.mark.services

NO_URL = {"ABS_REGISTER_URL": None, "ABS_POSTGRES_URL": None}
SCHEMA = pa.schema([("id", pa.int64())])


class Job:
    """One run of a job that appends to the table ``t``, step by step."""

    def __init__(
        self,
        url: str,
        run: str = "run-1",
        more: str = "",
        lineage: str = "lineage",
        **options: str,
    ) -> None:
        self.url = url
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("create table if not exists t (id bigint)")
        self.sink = PostgresSink(
            PostgresOptions.parse({"url": url, "dbtable": "t", **options}), SCHEMA
        )
        who = RunIdentity("flights", lineage, run, more + self.sink.target_id)
        self.coordinator = Coordinator(who, self.sink.register(), self.sink.committer())

    def prepare(self, epoch: int, *ids: int, partition: int = 0) -> Committable:
        state, _ = self.coordinator.begin(epoch)
        task = Task(state.register, state.job, state.generation, epoch, partition, "ab")
        writer = self.sink.writer(task)
        writer.write(pa.record_batch([pa.array(ids, pa.int64())], schema=SCHEMA))
        committable = writer.pre_commit()
        assert committable is not None
        return committable

    def decide(self, epoch: int, *committables: Committable) -> None:
        """What a coordinator does before it dies: the decision and no more."""
        store = self.sink.register()
        stored = store.load("flights")
        assert stored is not None
        shares: list[Share] = [Wrote(one.rows, one) for one in committables]
        verdict = decide(
            stored.state,
            stored.state.generation,
            epoch,
            committables,
            fingerprint=None,
            rows=sum(share.rows for share in shares),
        )
        store.compare_and_set("flights", stored.version, verdict.state)  # type: ignore[union-attr]

    def rows(self) -> list[int]:
        with psycopg.connect(self.url) as connection:
            return [row[0] for row in connection.execute("select id from t order by id")]

    def prepared(self) -> list[str]:
        with psycopg.connect(self.url) as connection:
            query = "select gid from pg_prepared_xacts where database = current_database()"
            return [row[0] for row in connection.execute(query)]


def parsed(*arguments: str) -> Any:
    return json.loads(abs_(*arguments, "--json").stdout)


def test_what_is_undecided_is_shown_as_under_way_and_left_alone(database: str) -> None:
    job = Job(database)
    committable = job.prepare(0, 1, 2)
    listed = parsed("in-doubt", "list", "--url", database)
    assert [one["handle"] for one in listed] == [str(committable.handle)]
    assert (
        listed[0]["fate"]
        == "undecided: its epoch is under way, or its run died and the next start ends it"
    )
    abs_("in-doubt", "abort", "flights", "--url", database)
    assert job.prepared() == [str(committable.handle)]
    abs_("in-doubt", "commit", "flights", "--url", database)
    assert job.rows() == []


def test_what_is_decided_is_committed_and_never_aborted(database: str) -> None:
    job = Job(database)
    job.decide(0, job.prepare(0, 1, 2))
    assert parsed("in-doubt", "list", "--url", database)[0]["fate"] == "decided: will be committed"
    abs_("in-doubt", "abort", "flights", "--url", database)
    assert len(job.prepared()) == 1
    assert abs_("in-doubt", "commit", "flights", "--url", database).exit_code == 0
    assert (job.rows(), job.prepared()) == ([1, 2], [])
    assert abs_("in-doubt", "list", "--url", database).exit_code == 0
    assert parsed("register", "show", "flights", "--url", database)["frontier"] == 0


def test_a_handle_of_a_protocol_that_is_not_known_here_is_listed_and_left_alone(
    database: str,
) -> None:
    job = Job(database)
    known = job.prepare(0, 1)
    made = job.prepare(0, 2, partition=1)
    later = replace(made, extra=(("protocol", "later"),), release="9.8.7")
    job.decide(0, known, later)
    result = abs_("in-doubt", "list", "--url", database, "--json")
    assert result.exit_code == 1
    fates = {one["handle"]: one["fate"] for one in json.loads(result.stdout)}
    assert fates == {
        str(known.handle): "decided: will be committed",
        str(later.handle): "unknown: protocol 'later' is not known to this version",
    }
    assert "use abs-sinks 9.8.7, which wrote it, or a newer release" in result.stderr
    assert abs_("in-doubt", "commit", "flights", "--url", database).exit_code != 0
    abs_("in-doubt", "abort", "flights", "--url", database)
    assert len(job.prepared()) == 2


def test_what_an_older_run_left_is_aborted(database: str) -> None:
    Job(database).prepare(0, 1)
    successor = Job(database, "run-2")
    # The successor's start sweeps; a zombie of the older run prepares after it.
    store = successor.sink.register()
    successor.coordinator.begin(0)
    stored = store.load("flights")
    assert stored is not None
    zombie = Task(stored.state.register, "flights", 1, 0, 0, "cd")
    writer = successor.sink.writer(zombie)
    writer.write(pa.record_batch([pa.array([7], pa.int64())], schema=SCHEMA))
    writer.pre_commit()
    assert parsed("in-doubt", "list", "--url", database)[0]["fate"] == "will be aborted"
    abs_("in-doubt", "abort", "flights", "--url", database)
    assert (successor.rows(), successor.prepared()) == ([], [])


def test_a_handle_without_register_is_aborted_only_by_name(database: str) -> None:
    job = Job(database)
    committable = job.prepare(0, 1)
    assert abs_("register", "retire", "flights", "--yes", "--url", database).exit_code == 0
    assert parsed("register", "list", "--url", database) == []
    unnamed = abs_("in-doubt", "abort", "flights", "--url", database)
    assert isinstance(unnamed.exception, ConfigError)
    assert "--orphan" in str(unnamed.exception)
    assert job.prepared() == [str(committable.handle)]
    wrong = HandleName("0" * 16, "flights", 1, 0, 0, "ab")
    refused = abs_("in-doubt", "abort", "flights", "--orphan", str(wrong), "--url", database)
    assert refused.exit_code != 0
    handle = str(committable.handle)
    assert (
        abs_("in-doubt", "abort", "flights", "--orphan", handle, "--url", database).exit_code == 0
    )
    assert job.prepared() == []


def test_a_lost_handle_is_accepted_only_by_consent_and_the_rest_is_committed(database: str) -> None:
    job = Job(database)
    committable = job.prepare(0, 1)
    job.decide(0, committable)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"rollback prepared '{committable.handle}'")
    assert isinstance(abs_("in-doubt", "commit", "flights", "--url", database).exception, AbsError)
    listed = json.loads(abs_("in-doubt", "list", "--url", database, "--json").stdout)
    assert [each["fate"] for each in listed] == [
        "not found: `abs in-doubt commit flights` says more"
    ]
    asked = abs_("in-doubt", "accept-loss", "flights", "0", "--url", database, answer="n\n")
    assert (asked.exit_code, "1 rows of 1 handles" in asked.stdout) == (1, True)
    assert parsed("register", "show", "flights", "--url", database)["frontier"] is None
    accepted = abs_("in-doubt", "accept-loss", "flights", "0", "--yes", "--url", database)
    assert accepted.exit_code == 0
    assert parsed("register", "show", "flights", "--url", database)["frontier"] == 0
    assert job.prepare(1, 2).rows == 1


def test_of_a_job_with_another_target_elsewhere_nothing_is_taken_for_lost(database: str) -> None:
    """An embedded job with two sinks: the register's system knows nothing of the other's handles."""
    job = Job(database, more="kafka:a-cluster/flights + ")
    committable = job.prepare(0, 1)
    job.decide(0, committable)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"rollback prepared '{committable.handle}'")
    listed = abs_("in-doubt", "list", "--url", database)
    assert listed.exit_code == 0
    assert "not checked: handles of job flights at kafka:a-cluster/flights" in listed.stderr
    for command in (["commit", "flights"], ["accept-loss", "flights", "0", "--yes"]):
        refused = abs_("in-doubt", *command, "--url", database)
        assert isinstance(refused.exception, ConfigError)
        assert "kafka:a-cluster/flights" in str(refused.exception)
    assert parsed("register", "show", "flights", "--url", database)["frontier"] is None


def test_what_only_another_role_may_abort_stops_no_job(database: str) -> None:
    """After a change of credentials, say: the old role's orphan stays, and is reported."""
    job = Job(database)
    job.prepare(0, 1)
    seen: list[Event] = []
    successor = Job(database, "run-2")
    committer = OfAnotherRole(successor.sink.committer(), Wire())
    who = RunIdentity("flights", "lineage", "run-2", successor.sink.target_id)
    coordinator = Coordinator(who, successor.sink.register(), committer, observe=seen.append)
    successor.coordinator = coordinator
    committable = successor.prepare(0, 5)
    coordinator.commit(Report(0, [Wrote(1, committable)], None))
    assert successor.rows() == [5]
    assert [type(event) for event in seen].count(SweepFailed) == 2


class OfAnotherRole(CommitterBehind):
    """Its role may abort nothing."""

    def abort(self, handles: Sequence[HandleName]) -> None:
        raise RefusedError("only the role that prepared it may", handle=str(handles[0]))


def test_a_register_with_an_open_decision_is_not_retired(database: str) -> None:
    job = Job(database)
    job.decide(0, job.prepare(0, 1))
    assert abs_("register", "retire", "flights", "--yes", "--url", database).exit_code != 0
    assert parsed("register", "show", "flights", "--url", database)["open"][0]["epoch"] == 0


def test_an_unknown_job_is_an_error_that_lists_the_known_ones(database: str) -> None:
    Job(database).prepare(0, 1)
    for command in (["register", "show"], ["in-doubt", "commit"], ["in-doubt", "abort"]):
        result = abs_(*command, "flihgts", "--url", database)
        assert isinstance(result.exception, ConfigError)
        assert "name one of the jobs here: flights" in str(result.exception)


def test_where_no_job_has_a_register_an_unknown_one_is_looked_for_elsewhere(database: str) -> None:
    result = abs_("register", "show", "flights", "--url", database)
    assert "look at the URL: no job is here" in str(result.exception)


def test_an_empty_list_says_where_it_looked_and_no_password(database: str) -> None:
    parts = urlsplit(database)
    host = f"{parts.hostname}:{parts.port}"
    secret = f"postgresql://{parts.username}:{parts.password}@{host}{parts.path}"
    result = CliRunner().invoke(app, ["in-doubt", "list"], env={"ABS_POSTGRES_URL": secret})
    assert result.exit_code == 0
    assert result.stdout == f"nothing in doubt at postgresql://{host}{parts.path}\n"


def test_names_are_listed_whole_on_one_line(database: str) -> None:
    """They are what other commands want; a test's terminal has 80 columns."""
    job = Job(database)
    job.coordinator = Coordinator(
        RunIdentity("j" * 90, "lineage", "run-1", job.sink.target_id),
        job.sink.register(),
        job.sink.committer(),
    )
    handle = str(job.prepare(0, 1).handle)
    assert "j" * 90 in abs_("register", "list", "--url", database).stdout
    assert handle in abs_("in-doubt", "list", "--url", database).stdout


def test_an_unknown_scheme_is_answered_with_the_known_ones() -> None:
    result = abs_("register", "list", "--url", "kafk://user:geheim@broker:9092/registers")
    assert isinstance(result.exception, OptionError)
    known = ", ".join(f"{format_named(name).schemes[0]}:" for name in format_names())
    assert f"begin it with one of {known};" in str(result.exception)
    assert "geheim" not in str(result.exception)


def test_a_url_that_is_missing_is_asked_for_by_the_name_of_its_option() -> None:
    result = CliRunner().invoke(app, ["register", "list"], env=NO_URL)
    assert result.exit_code == 2
    assert "--url" in result.stderr
    assert "['" not in result.stderr


def test_registers_are_shown_with_the_time_of_their_last_change(database: str) -> None:
    job = Job(database)
    job.decide(0, job.prepare(0, 1))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("update abs.register set changed = '2026-11-20 06:00:07Z'")
    assert [one["changed"] for one in parsed("register", "list", "--url", database)] == [
        "2026-11-20T06:00:07+00:00"
    ]
    shown = parsed("register", "show", "flights", "--url", database)
    assert shown["changed"] == "2026-11-20T06:00:07+00:00"
    assert "2026-11-20T06:00:07+00:00" in abs_("register", "list", "--url", database).stdout
    abs_("in-doubt", "commit", "flights", "--url", database)
    later = parsed("register", "show", "flights", "--url", database)["changed"]
    assert later > "2026-11-20T06:00:07+00:00"


def test_a_command_that_changes_something_tells_programs_what(database: str) -> None:
    job = Job(database)
    job.decide(0, job.prepare(0, 1))
    at = ("--url", database)
    committed = parsed("in-doubt", "commit", "flights", *at)
    assert committed == {
        "did": "committed",
        "job": "flights",
        "epochs": [0],
        "handles": 1,
        "frontier": 0,
    }
    renamed = parsed("register", "rename", "flights", "trips", *at)
    assert renamed == {"did": "renamed", "job": "flights", "to": "trips", "frontier": 0}
    assert parsed("job", "reset", "trips", *at, "--yes") == {
        "did": "reset",
        "job": "trips",
        "frontier": 0,
    }
    again = Job(database, "run-2")
    again.coordinator.begin(0)
    gone = parsed("register", "retire", "flights", *at, "--yes")
    assert gone == {"did": "retired", "job": "flights"}


def test_a_fence_names_what_it_aborts_before_and_after_and_notes_it(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trail = tmp_path / "trail.jsonl"
    monkeypatch.setenv("ABS_TRAIL", str(trail))
    job = Job(database)
    decided, left = job.prepare(0, 1), job.prepare(0, 2, partition=1)
    job.decide(0, decided)
    command = ("in-doubt", "abort", "flights", "--fence", "--url", database)
    foretold = parsed(*command, "--dry-run")
    assert len(job.prepared()) == 2, "a dry run ends nothing"
    ended = abs_(*command, "--json")
    assert [one["handle"] for one in foretold] == [str(left.handle)]
    assert json.loads(ended.stdout) == [{**foretold[0], "age_seconds": ANY, "fate": "aborted"}]
    assert "aborted 1 handles; 0 left" in ended.stderr
    assert (job.rows(), job.prepared()) == ([1], [])
    noted = [json.loads(line) for line in trail.read_text().splitlines()]
    assert [one["handles"] for one in noted if one["act"] == "abort"] == [[str(left.handle)]] * 2


def test_the_note_of_a_moved_register_is_retired_only_by_a_consent_that_names_the_place(
    database: str,
) -> None:
    Job(database).prepare(0, 1)
    here = ("flights", "--url", database)
    to = ("--to", database, "--to-stateschema", "other")
    assert abs_("register", "move", *here, *to).exit_code == 0
    for command in (("job", "reset"), ("job", "remove")):
        refused = abs_(*command, *here, "--yes")
        assert isinstance(refused.exception, IdentityError), command
        assert "it was moved to" in str(refused.exception)
    with pytest.raises(IdentityError, match="it was moved to"):
        Job(database, "run-2").coordinator.begin(0)
    asked = abs_("register", "retire", *here, answer="n\n")
    assert asked.exit_code == 1
    assert "was moved to" in asked.output
    assert "may begin from nothing there" in " ".join(asked.output.split())
    there = ("flights", "--url", database, "--stateschema", "other")
    for place in (there, here):
        assert abs_("register", "retire", *place, "--yes").exit_code == 0
    assert parsed("register", "list", "--url", database) == []
