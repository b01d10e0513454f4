"""`abs explain-error`: outages that are planted here are solved by the commands that it prints."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from typer.testing import Result

from abs_cli.explain_error import Case, _page, cases, kinds, reported
from abs_core.coordinator import Report
from abs_core.errors import (
    AbsError,
    ConfigError,
    ContentionError,
    EpochGapError,
    FencedError,
    HandleLostError,
    IdentityError,
    NotPreparedError,
    OptionError,
    ReplayMismatchError,
    SchemaError,
    UnavailableError,
)
from abs_core.model import Committable, Wrote
from abs_spark.hooks import sentence_of
from tests.cli.test_cli_state import Job
from tests.kit.command import abs_

pytestmark = pytest.mark.services


def ran(*words: str, answer: str = "y") -> Result:
    return abs_(*words, answer=f"{answer}\n")


def explained(error: BaseException | str, url: str) -> dict[str, Any]:
    made = ran("explain-error", str(error), "--url", url, "--json")
    assert made.exit_code == 0, (made.output, made.exception)
    found: dict[str, Any] = json.loads(made.stdout)
    return found


def followed(error: BaseException | str, url: str) -> list[Result]:
    """Run each command of the steps that names nothing but what the error and the URL say."""
    results = []
    for step in explained(error, url)["do"]:
        for command in re.findall(r"`abs ([^`]+)`", step):
            words = [url if word == "URL" else word for word in command.split()]
            if not any(re.fullmatch(r"[A-Z]{3,}(=.*)?", word) for word in words):
                results.append(ran(*words))
    return results


def raised(kind: type[AbsError], call: Callable[[], object]) -> AbsError:
    with pytest.raises(kind) as caught:
        call()
    assert f"[{kind.code}" in str(caught.value)
    return caught.value


def report(epoch: int, *made: Committable, fingerprint: str | None = None) -> Report:
    return Report(epoch, tuple(Wrote(one.rows, one) for one in made), fingerprint)


def whole(job: Job, epoch: int, *ids: int, fingerprint: str | None = None) -> None:
    job.coordinator.commit(report(epoch, job.prepare(epoch, *ids), fingerprint=fingerprint))


def rolled_back(url: str, committable: Committable) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"rollback prepared '{committable.handle}'")


def test_a_lost_handle(database: str) -> None:
    job = Job(database)
    lost, kept = job.prepare(0, 1), job.prepare(0, 2, partition=1)
    job.decide(0, lost, kept)
    rolled_back(database, lost)
    error = raised(HandleLostError, lambda: job.coordinator.roll_forward())
    assert any("epoch 0 is decided" in line for line in explained(error, database)["now"])
    assert [one.exit_code for one in followed(error, database)] == [1, 0]
    whole(Job(database, "run-2"), 1, 3)
    assert job.rows() == [2, 3]
    whole(Job(database, "again"), 2, 1)  # the lost row, written again
    assert job.rows() == [1, 2, 3]


def test_an_older_run(database: str) -> None:
    old, new = Job(database), Job(database, "run-2")
    made = old.prepare(0, 1)
    new.coordinator.begin(0)
    error = raised(FencedError, lambda: old.coordinator.commit(report(0, made)))
    assert "; run 2" in explained(error, database)["now"][0]
    [shown] = followed(error, database)
    assert shown.exit_code == 0
    whole(new, 0, 1)
    assert new.rows() == [1]


def test_a_handle_that_was_gone_before_the_decision(database: str) -> None:
    job = Job(database)
    made = job.prepare(0, 1)
    rolled_back(database, made)
    error = raised(NotPreparedError, lambda: job.coordinator.commit(report(0, made)))
    assert explained(error, database)["now"][0].startswith("job flights has committed nothing")
    whole(Job(database, "run-2"), 0, 1)
    assert job.rows() == [1]


def test_an_epoch_that_was_left_out(database: str) -> None:
    job = Job(database)
    whole(job, 0, 1)
    error = raised(EpochGapError, lambda: Job(database, "run-2").coordinator.begin(7))
    [shown] = followed(error, database)
    assert "up to epoch 0" in explained(error, database)["now"][0]
    assert shown.exit_code == 0
    whole(Job(database, "run-3"), 1, 2)  # by the checkpoint that belongs to the job
    assert job.rows() == [1, 2]


def test_a_checkpoint_that_was_deleted(database: str) -> None:
    job = Job(database)
    whole(job, 0, 1)
    stranger = Job(database, lineage="another")
    error = raised(IdentityError, lambda: stranger.coordinator.begin(0))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("delete from t")  # "clean the target"
    assert [one.exit_code for one in followed(error, database)] == [0]
    whole(Job(database, lineage="another"), 0, 1)
    assert job.rows() == [1]


def test_a_replay_with_other_rows(database: str) -> None:
    job = Job(database)
    whole(job, 0, 1, fingerprint="input 0")
    state, _ = job.coordinator.begin(0)
    assert state.frontier == 0
    error = raised(
        ReplayMismatchError, lambda: job.coordinator.commit(Report(0, (), "another input"))
    )
    [shown] = followed(error, database)
    assert shown.exit_code == 0
    whole(Job(database, "run-2"), 1, 2, fingerprint="input 1")
    assert job.rows() == [1, 2]


def test_a_lock_of_an_orphan(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table t (id bigint primary key)")
    job = Job(database, locktimeout="1")
    job.prepare(0, 1)  # its process dies here, and another attempt begins
    error = raised(ContentionError, lambda: job.prepare(0, 1, partition=1))
    assert [one.exit_code for one in followed(error, database)] == [1]  # the orphan is listed
    whole(Job(database, "run-2"), 0, 1)
    assert job.rows() == [1]


def doctor(*options: str) -> Result:
    return ran("doctor", *(word for option in options for word in ("-o", option)))


def words_of(result: Result) -> str:
    return result.output + (str(result.exception) if result.exception else "")


def test_a_table_that_is_missing(database: str) -> None:
    given = (f"url={database}", "dbtable=missing")
    told = doctor(*given)
    assert (told.exit_code, "createtable" in told.output) == (1, True)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table missing (id bigint)")
    assert doctor(*given).exit_code == 0


def test_an_option_that_is_misspelt(database: str) -> None:
    Job(database)
    told = doctor(f"url={database}", "dbtabel=t")
    assert explained(words_of(told), database)["code"] == OptionError.code
    assert "dbtable" in words_of(told)
    assert doctor(f"url={database}", "dbtable=t").exit_code == 0


def test_a_server_that_is_away(database: str) -> None:
    Job(database)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        away = make_conninfo(database, host="127.0.0.1", port=str(taken.getsockname()[1]))
        told = doctor(f"url={away}", "dbtable=t", "patience=1s")
        assert explained(words_of(told), database)["code"] == UnavailableError.code
    assert doctor(f"url={database}", "dbtable=t").exit_code == 0


def test_columns_that_do_not_fit(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table t (id smallint)")
    error = raised(SchemaError, lambda: Job(database))
    assert explained(error, database)["code"] == SchemaError.code
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("alter table t alter id type bigint")  # "or alter the target"
    whole(Job(database), 0, 40_000)


@pytest.mark.parametrize("last_line", ["", "\nabs-sinks: {}"], ids=["no last line", "last line"])
def test_the_last_error_of_a_log_is_taken_with_job_epoch_and_handle(
    database: str, last_line: str
) -> None:
    named = "ABS-HANDLE-LOST, job pay, epoch 7, handle abs1:a:b, on executor h"
    log = (
        f"26/11/26 INFO x\n{OptionError('First.', remedy='a.')}\n"
        f"  abs_core.errors.HandleLostError: 1 of 4 handles. [{named}] What to do: look.\n"
        "\tat org.apache.spark\n"
        + last_line.format(f"HandleLostError: 1 of 4 handles. [{named}] What to do: look.\n")
    )
    found = explained(log, database)
    assert {name: found[name] for name in ("code", "what", "job", "epoch", "handle")} == {
        "code": "ABS-HANDLE-LOST",
        "what": "1 of 4 handles.",
        "job": "pay",
        "epoch": 7,
        "handle": "abs1:a:b",
    }
    assert found["now"] == [f"no register of job pay at {found['now'][0].split(' at ')[1]}"]
    none = ran("explain-error", "java.lang.NullPointerException")
    assert isinstance(none.exception, ConfigError)


def test_every_kind_of_error_has_a_code_of_its_own_and_is_explained() -> None:
    codes = [kind.code for kind in kinds()]
    assert len(set(codes)) == len(codes)
    assert {case.code for case in cases() if not case.sign} == set(codes)


def test_a_code_never_changes() -> None:
    assert " ".join(sorted(kind.code.removeprefix("ABS-") for kind in kinds())) == (
        "ABANDONED CONFIG CONTENTION CORRUPTION DATA DEAD-LETTERS EPOCH-GAP ERROR FENCED "
        "HANDLE-LOST HUNG IDENTITY JOB-GONE MISCOUNT NOT-PREPARED NOT-YET OPTION PREFLIGHT PROTOCOL "
        "REFUSED REGISTER-LOST REPLAY-MISMATCH ROW SCHEMA SOURCE-WENT-BACK TARGET TARGET-WENT-BACK "
        "UNAVAILABLE UNKNOWN-PROTOCOL"
    )


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (pattern_.format(quoted), code)
        for quoted, code in (
            ("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.", "ABS-FENCED"),
            ("[UNSUPPORTED_TIME_TYPE] The data type TIME is not supported.", "ABS-CONFIG"),
            ("Data source abs-kafka does not support Update mode.", "ABS-OPTION"),
        )
        for pattern_ in ("{}", "pyspark.errors.X: {}\n\tat org.apache.spark", "OK [ABS-CONFIG]\n{}")
    ],
)
def test_an_error_that_spark_itself_raised_is_known_in_its_words_and_in_ours(
    said: str, code: str
) -> None:
    ours = sentence_of(RuntimeError(said))
    assert ours is not None
    for text in (said, f"{said}\n\nabs-sinks: {ours}", f"abs-sinks: {ours}"):
        told = reported(text)
        assert told.code == code
        assert told.what in ours
        assert not told.what.startswith(("abs-sinks", "FencedError", "ConfigError", "OptionError"))


def test_an_error_that_stands_after_sparks_own_is_the_one_that_counts() -> None:
    told = reported(
        f"[CONCURRENT_STREAM_LOG_UPDATE] x\n{OptionError('no such option', remedy='x')}"
    )
    assert told.code == "ABS-OPTION"


@pytest.mark.parametrize("code", sorted({case.code for case in cases()}))
def test_a_code_alone_shows_all_that_it_may_mean(code: str) -> None:
    shown = ran("explain-error", code).stdout
    assert [case.meaning in shown for case in cases() if case.code == code].count(False) == 0


def test_each_page_that_is_named_is_a_file_on_this_machine() -> None:
    assert {case.more for case in cases() if not Path(_page(case).split("#")[0]).is_file()} == set()


def test_a_page_that_is_nowhere_is_found() -> None:
    # The planted bug: an address that only a clone of another release has.
    planted = Case("ABS-ERROR", "", (), more="how-to/nowhere.md#x")
    assert not Path(_page(planted).split("#")[0]).is_file()
