"""What an epoch function refuses and tells in the driver's process; it needs no Spark to run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyspark
import pytest

from abs_core.errors import ConfigError
from abs_spark.foreach.query import running
from abs_spark.foreach.run import EpochRun
from abs_spark.foreach.targets import Targets
from abs_spark.formats import sink_format
from abs_spark.names import RunName
from abs_spark.target import Target

SCHEMA = pa.schema([("id", pa.int64())])
LEFT_OUT = "the sink notes ("


@contextmanager
def started(url: str, folder: Path, start: int, names: Sequence[str]) -> Iterator[EpochRun]:
    """A run of the job, with a table for each of these sinks, that has begun an epoch."""
    kind = sink_format("abs-postgres")
    made = [Target(kind, kind.parse({"url": url, "dbtable": name}), SCHEMA) for name in names]
    targets = Targets(names, made, names[0])
    run = EpochRun(RunName("job", "query", f"run-{start}"), targets, str(folder), None)
    try:
        run.begin(0)
        yield run
    finally:
        run.close()


@pytest.mark.services
def test_a_sink_that_is_left_out_of_the_list_is_told_of_once(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table payments (id bigint)")
        connection.execute("create table notes (id bigint)")

    def told(start: int, *names: str) -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.WARNING), started(database, tmp_path, start, names):
            return [r.getMessage() for r in caplog.records if LEFT_OUT in r.getMessage()]

    assert told(1, "payments", "notes") == []
    (warning,) = told(2, "payments")
    assert "is left out from now on" in warning
    assert "`abs in-doubt abort job`" in warning
    assert told(3, "payments") == []


def test_pyspark_3_under_connect_is_refused_as_it_loses_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", "3.5.7")
    connected: Any = object()  # a session of Connect has no SparkContext
    with pytest.raises(ConfigError, match="loses the errors of foreachBatch under Spark Connect"):
        running(connected, 0, str(tmp_path), "process")
