"""`abs doctor`: what it finds of a job's options, server and input; it changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import Result

from abs_cli.doctor import Looked, show
from abs_cli.output import people
from abs_core.errors import ConfigError, OptionError
from abs_sinks.kafka import KafkaOptions
from abs_sinks.kafka.sink import guarantee as kafka_guarantee
from tests.kit.command import abs_

pytestmark = pytest.mark.services


def doctor(*arguments: str) -> Result:
    return abs_("doctor", *arguments)


def found(result: Result, severity: str) -> list[str]:
    document: Any = json.loads(result.stdout)
    return [one["what"] for one in document["findings"] if one["severity"] == severity]


@pytest.fixture
def table(database: str) -> str:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table payments (id int primary key, amount numeric(12,2))")
    return database


def test_a_job_that_would_run_is_shown_with_its_guarantee(table: str) -> None:
    result = doctor("-o", f"url={table}", "-o", "dbtable=payments", "--json")
    assert (result.exit_code, found(result, "error")) == (0, [])
    assert json.loads(result.stdout)["guarantee"]["protocol"] == "2pc"
    with psycopg.connect(table) as connection:
        made = connection.execute("select to_regnamespace('abs')").fetchone()
    assert made == (None,)


def test_people_are_told_what_readers_must_set() -> None:
    options = KafkaOptions.parse({"kafka.bootstrap.servers": "localhost:1", "topic": "t"})
    with people.capture() as shown:
        show(Looked([], kafka_guarantee(options)))
    said = " ".join(shown.get().split())
    assert "readers: set isolation.level=read_committed" in said
    assert "spark.sql.execution.arrow.maxBytesPerBatch to 2147483647" in said


def test_help_shows_what_stands_in_square_brackets() -> None:
    # Rich's own markup would swallow it as the name of a style.
    assert "[sinks.NAME]" in doctor("--help").stdout


def test_the_format_is_told_by_the_options_and_never_guessed() -> None:
    without = doctor("-o", "job=payments", "-o", "protocol=wal").exception
    assert isinstance(without, ConfigError)
    assert "--format" in str(without)
    # An option that only Kafka's sink has: what is missing is said of that sink.
    lacking = doctor("-o", "topic=payments").exception
    assert isinstance(lacking, OptionError)
    assert "kafka.bootstrap.servers" in str(lacking)


def test_a_job_that_would_not_run_is_promised_nothing(table: str) -> None:
    assert "once that is corrected" in doctor("-o", f"url={table}", "-o", "dbtable=paiments").stdout
    assert "once that is" not in doctor("-o", f"url={table}", "-o", "dbtable=payments").stdout


def test_a_missing_table_is_an_error(table: str) -> None:
    result = doctor("-o", f"url={table}", "-o", "dbtable=paiments", "--json")
    assert result.exit_code == 1
    assert "paiments" in found(result, "error")[0]


def test_too_many_tasks_for_the_server_are_an_error(table: str) -> None:
    result = doctor("-o", f"url={table}", "-o", "dbtable=payments", "--tasks", "1000", "--json")
    assert result.exit_code == 1
    assert "1000 tasks" in found(result, "error")[0]


def test_input_that_does_not_fit_is_an_error(table: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), tmp_path / "input.parquet")
    result = doctor(
        "-o", f"url={table}", "-o", "dbtable=payments", "--sample", str(tmp_path), "--json"
    )
    assert result.exit_code == 1
    assert 'column "id": bigint does not fit integer' in found(result, "error")[0]


def test_a_wrong_option_is_refused_with_the_nearest_one(table: str) -> None:
    result = doctor("-o", f"url={table}", "-o", "dbtabel=payments")
    assert isinstance(result.exception, OptionError)
    assert "dbtable" in str(result.exception)
