"""A job with sinks in PostgreSQL, Kafka and S3: its register, and its handles in doubt."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest

from abs_core import consent
from abs_core.errors import ConfigError, IdentityError, UnavailableError
from abs_core.patience import Patience
from abs_core.protocol import RunIdentity
from abs_services import KafkaService, S3Service
from abs_spark.open_sinks import joined
from tests.cli.several import JOB, NAMES, Several, everywhere, parsed
from tests.kit.command import abs_
from tests.spark.bucket import Bucket

pytestmark = pytest.mark.services


def test_the_register_is_shown_with_all_targets(job: Several) -> None:
    job.epoch(job.run(), 0, "a")
    shown = parsed("register", "show", JOB, "--sinks", job.file())
    assert [(one["number"], one["name"]) for one in shown["sinks"]] == list(enumerate(NAMES))
    assert shown["sinks"][2]["target"] == job.bucket.options["path"]
    assert (shown["frontier"], shown["moved_to"]) == (0, None)
    told = abs_("register", "show", JOB, "--url", job.url).stdout
    assert "2 items: s3://" in told


def test_what_is_decided_is_listed_and_committed_in_all_targets(job: Several) -> None:
    job.decided(job.run(), 0, "a", "b")
    listed = parsed("in-doubt", "list", "--sinks", job.file())
    assert {one["fate"] for one in listed} == {"decided: will be committed"}
    assert len(listed) == 3
    alone = abs_("in-doubt", "commit", JOB, "--url", job.url)
    assert isinstance(alone.exception, ConfigError)
    assert "--sinks" in str(alone.exception)
    assert not any(job.values().values()), "by its own register's place alone nothing is committed"
    done = abs_("in-doubt", "commit", JOB, "--sinks", job.file())
    assert done.exit_code == 0, (done.output, done.exception)
    assert job.values() == everywhere("a", "b")
    assert abs_("in-doubt", "list", "--sinks", job.file()).exit_code == 0


def test_what_no_decision_can_name_is_aborted_in_all_targets(job: Several) -> None:
    zombie, newer = job.run(), job.run()
    job.write(zombie, 0, "a")
    state = job.state(zombie)
    # A newer run that dies before it sweeps.
    raised = replace(state, generation=2, run="run-9", superseded=(state.run,))
    stored = newer.targets.register().load(JOB)
    assert stored is not None
    newer.targets.register().compare_and_set(JOB, stored.version, raised)
    listed = parsed("in-doubt", "list", "--sinks", job.file())
    assert [one["fate"] for one in listed] == ["will be aborted"] * 3
    assert abs_("in-doubt", "abort", JOB, "--sinks", job.file()).exit_code == 0
    assert parsed("in-doubt", "list", "--sinks", job.file()) == []
    assert not any(job.values().values())


def test_a_file_that_names_another_target_is_refused(job: Several) -> None:
    job.decided(job.run(), 0, "a")
    with psycopg.connect(job.url, autocommit=True) as connection:
        connection.execute("create table other (key text, value text)")
    refused = abs_("in-doubt", "commit", JOB, "--sinks", job.file(dbtable="other"))
    assert isinstance(refused.exception, ConfigError)
    assert "payments writes to" in str(refused.exception)
    assert not any(job.values().values())


@pytest.fixture
def second(job: Several, store: S3Service, prefix: str) -> Several:
    """Another job in the same register, whose sinks of the same names write elsewhere."""
    with psycopg.connect(job.url, autocommit=True) as connection:
        connection.execute("create table others (key text, value text)")
    folder = job.folder / "second"
    (folder / "checkpoint").mkdir(parents=True)
    bucket = Bucket(store, f"{prefix}-second")
    return Several(job.url, job.topic, bucket, folder, name="others", table="others")


def test_a_file_is_of_its_job_and_of_no_other_in_the_register(
    job: Several, second: Several
) -> None:
    for one in (job, second):
        one.decided(one.run(), 0, one.name)
    for one, other in ((job, second), (second, job)):
        told = abs_("in-doubt", "list", "--sinks", one.file())
        assert (told.exit_code, told.exception.__class__) == (1, SystemExit), told.exception
        assert f"not checked: lost handles of job {other.name}; the file is of" in told.stderr
        told = abs_("in-doubt", "list", "--sinks", one.file(names_the_job=False))
        assert (told.exit_code, told.exception.__class__) == (1, SystemExit), told.exception
        assert f"not checked: lost handles of job {other.name}: In the file, sink" in told.stderr
    for one in (job, second):
        assert abs_("in-doubt", "commit", one.name, "--sinks", one.file()).exit_code == 0
        assert one.values()["items"] == one.values()["payments"] == [one.name]
    for one in (job, second):
        assert abs_("in-doubt", "list", "--sinks", one.file()).exit_code == 0


def test_a_file_that_fits_no_job_of_the_register_is_refused(job: Several, second: Several) -> None:
    job.decided(job.run(), 0, "a")
    wrong = abs_("in-doubt", "list", "--sinks", second.file(names_the_job=False))
    assert isinstance(wrong.exception, ConfigError)
    assert "In the file, sink payments writes to" in str(wrong.exception)


@pytest.mark.parametrize("to", ["alerts", "items"])
def test_a_register_is_moved_with_what_is_decided_committed_first(job: Several, to: str) -> None:
    old = job.run()
    job.epoch(old, 0, "a")
    job.decided(old, 1, "b")
    moved = abs_("register", "move", JOB, "--sinks", job.file(), "--to-sink", to)
    assert moved.exit_code == 0, (moved.output, moved.exception)
    assert job.values() == everywhere("a", "b")
    with pytest.raises(IdentityError, match="was moved to"):
        job.run().begin(2)
    run = job.run()
    who = RunIdentity(JOB, run.name.lineage, run.name.run, joined(run.targets.identities(JOB)))
    job.adopt = consent.to_adopt(job.state(run), who, 2)
    with pytest.raises(IdentityError, match="was moved to"):
        job.run().begin(2)
    job.adopt = None
    job.register = to
    job.epoch(job.run(), 2, "c")
    assert job.values() == everywhere("a", "b", "c")
    assert parsed("register", "show", JOB, "--sinks", job.file())["frontier"] == 2
    assert parsed("register", "show", JOB, "--url", job.url)["moved_to"] is not None


@pytest.mark.parametrize(
    "command",
    [["register", "rename", JOB, "renamed"], ["job", "reset", JOB, "--yes"]],
    ids=["rename", "reset"],
)
def test_a_file_of_sinks_counts_and_not_the_address_in_the_environment(
    job: Several, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job.epoch(job.run(), 0, "a")
    monkeypatch.setenv("ABS_REGISTER_URL", "kafka://127.0.0.1:1/abs-register")  # nobody answers
    done = abs_(*command, "--sinks", job.file())
    assert done.exit_code == 0, (done.output, done.exception)
    assert job.values() == everywhere("a")
    listed = [each["job"] for each in parsed("register", "list", "--url", job.url)]
    assert listed == (["renamed"] if command[1] == "rename" else [])


def test_a_register_is_not_moved_while_a_system_is_away(
    job: Several, kafka: KafkaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = job.run()
    job.decided(run, 0, "a")
    before = job.state(run)
    job.patience = "2"
    file = job.file()
    kafka.kill()
    try:
        with monkeypatch.context() as patch:
            patch.setattr("abs_cli.moving.BY_HAND", Patience(seconds=2.0))
            refused = abs_("register", "move", JOB, "--sinks", file, "--to-sink", "items")
    finally:
        kafka.start()
    assert isinstance(refused.exception, UnavailableError), (refused.output, refused.exception)
    job.patience = None
    file = job.file()
    left = job.state(run)
    assert left.moved_to is None
    assert left.open == before.open
    assert abs_("register", "move", JOB, "--sinks", file, "--to-sink", "items").exit_code == 0
    assert job.values() == everywhere("a")
