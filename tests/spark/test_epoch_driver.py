"""What an epoch function refuses and tells in the driver's process; it needs no Spark to run."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pyarrow as pa
import pyspark
import pytest
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.util import PythonEvalType

import abs_spark
from abs_core.errors import (
    ConfigError,
    EpochGapError,
    IdentityError,
    OptionError,
    ProtocolError,
    ReplayMismatchError,
)
from abs_core.model import Recent
from abs_sinks.door import format_named
from abs_spark.checkpoint.failures import FailedBatch
from abs_spark.foreach.function import Epoch
from abs_spark.foreach.process import Known
from abs_spark.foreach.query import output_mode, running
from abs_spark.foreach.run import EpochRun
from abs_spark.names import RunName
from abs_spark.open_sinks import OpenSinks
from abs_spark.sink_spec import SinkSpec
from abs_testing.case import raises

SCHEMA = pa.schema([("id", pa.int64())])
LEFT_OUT = "the sink notes ("


@contextmanager
def started(
    url: str, folder: Path, start: int, tables: Sequence[str] | dict[str, str], epoch: int = 0
) -> Iterator[EpochRun]:
    """A run of the job that has begun an epoch, with a sink for each of these tables.

    Args:
        tables: by the sinks' names, or those too.
    """
    named = tables if isinstance(tables, dict) else {name: name for name in tables}
    kind = format_named("abs-postgres")
    options = [{"url": url, "dbtable": table} for table in named.values()]
    made = [SinkSpec(kind, kind.parse(given), SCHEMA) for given in options]
    targets = OpenSinks([*named], made, next(iter(named)))
    with closing(
        EpochRun(RunName("job", "query", f"run-{start}"), targets, str(folder), None)
    ) as run:
        run.begin(epoch)
        yield run


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


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ({"Job": "j"}, r"abs_spark\.epoch\(\.\.\., job"),
        ({"epoch": "7"}, "a stream counts its own epochs"),
        ({"adopt": "token"}, r"abs_spark\.epoch\(\.\.\., adopt"),
        ({"checkpointLocation": "/c"}, r"abs_spark\.epoch\(\.\.\., checkpointLocation"),
        ({"Replay": " Token "}, "leave it out, or use replay=count"),
    ],
    ids=str,
)
def test_an_option_that_is_none_of_a_sink_in_an_epoch_is_refused(
    option: dict[str, str], remedy: str
) -> None:
    with pytest.raises(OptionError, match=remedy):
        abs_spark.sink("abs-postgres", {"url": "postgresql://h/d", "dbtable": "t", **option})


POSTGRES = {"url": "postgresql://h/d", "dbtable": "t"}


def test_a_sinks_options_are_checked_when_it_is_described() -> None:
    with pytest.raises(OptionError, match="protocol=2pc cannot upsert"):
        abs_spark.sink("abs-postgres", {**POSTGRES, "write": "upsert", "key": "id"})
    log = {"kafka.bootstrap.servers": "h:9092", "topic": "t", "protocol": "wal"}
    assert abs_spark.sink("abs-kafka", log).format == "abs-kafka", (
        "the epoch knows where the log is"
    )


@pytest.mark.parametrize(
    ("options", "place", "mode", "why"),
    [
        ({"protocol": "idempotent", "write": "upsert", "key": "id"}, "/c", None, "beside other"),
        ({}, "/c", "complete", "cannot replace its content"),
    ],
)
def test_what_does_not_fit_an_epoch_is_refused_when_it_is_described(
    options: dict[str, str], place: str, mode: str | None, why: str
) -> None:
    sinks = [
        abs_spark.sink("abs-postgres", {**POSTGRES, **options}, name="one"),
        abs_spark.sink("abs-postgres", {**POSTGRES, "dbtable": "u"}, name="two"),
    ]
    with pytest.raises(OptionError, match=why):
        abs_spark.epoch(sinks, checkpointLocation=place, outputMode=mode)


def test_a_log_beside_a_checkpoint_that_cannot_hold_it_is_refused_when_it_is_described() -> None:
    log = {"kafka.bootstrap.servers": "h:9092", "topic": "t", "protocol": "wal"}
    with pytest.raises(OptionError, match="protocol=wal needs the option wal"):
        abs_spark.epoch(abs_spark.sink("abs-kafka", log), checkpointLocation="hdfs://h/c")


@pytest.mark.parametrize(("release", "bound"), [("4.3.0", "pandas>=2.2"), ("3.5.9", "pandas<3")])
def test_without_pandas_which_pyspark_asks_for_an_epoch_is_refused_when_it_is_described(
    monkeypatch: pytest.MonkeyPatch, release: str, bound: str
) -> None:
    sink = abs_spark.sink("abs-postgres", POSTGRES)
    monkeypatch.setitem(sys.modules, "pandas", None)  # as if it were not installed
    with pytest.raises(ImportError, match=r"Pandas >= .* must be installed"):
        pandas_udf(print, "id long", PythonEvalType.SQL_MAP_ARROW_ITER_UDF)  # type: ignore[call-overload]
    monkeypatch.setattr(pyspark, "__version__", release)
    with pytest.raises(ConfigError, match="only where pandas is installed") as refused:
        abs_spark.epoch(sink, checkpointLocation="/c")
    assert bound in refused.value.remedy


class Jvm(SimpleNamespace):
    """Like Py4J's, it can be the key of a cache."""

    __hash__ = object.__hash__  # type: ignore[assignment]


@pytest.mark.parametrize("spelled", ["{}", "file:{}"])
def test_a_location_that_is_no_querys_checkpoint_is_refused_and_nothing_is_made_there(
    tmp_path: Path, spelled: str
) -> None:
    session = of_classic("0b54d2ac-5d1e-4b2f-9a55-6a0e2f3a4b5c")
    text = SimpleNamespace
    query = SimpleNamespace(
        runId=lambda: text(toString=lambda: "run"),
        outputMode=lambda: text(toString=lambda: "Append"),
        resolvedCheckpointRoot=lambda: f"file:{tmp_path}/real",
    )
    session._jvm = Jvm(java=text(util=text(UUID=text(fromString=str))))
    active = text(activeStreamingQueries=lambda: text(get=lambda uuid: query))
    session._jsparkSession = text(sharedState=lambda: active)
    other = tmp_path / "other"
    with pytest.raises(OptionError, match=f"This query's is file:{tmp_path}/real"):
        running(session, 0, spelled.format(other), "process")
    assert not other.exists()
    query.resolvedCheckpointRoot = lambda: "hdfs://h/real"  # a path can be in there
    assert running(session, 0, str(other), "process").run == "run"


def test_another_querys_checkpoint_is_refused_and_both_queries_are_named(tmp_path: Path) -> None:
    session = of_classic("0b54d2ac-5d1e-4b2f-9a55-6a0e2f3a4b5c")
    other = tmp_path / "other"
    other.mkdir()
    (other / "metadata").write_text('{"id":"61aa7b80-6b0c-4f0c-8f8e-6a2d0d1c9e11"}')
    with pytest.raises(OptionError, match="the checkpoint of another query") as refused:
        running(session, 0, str(other), "process")
    for named in (str(other), "61aa7b80-6b0c", "5a0ec7f7-a3e8"):
        assert named in refused.value.what
    (other / "metadata").write_text('{"id":"5a0ec7f7-a3e8-4a5e-8d7c-3a6a9a2a1f10"}')
    assert (
        running(session, 0, str(other), "process").query == "5a0ec7f7-a3e8-4a5e-8d7c-3a6a9a2a1f10"
    )


def test_pyspark_3_under_connect_is_refused_as_it_loses_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", "3.5.7")
    connected: Any = object()  # a session of Connect has no SparkContext
    with pytest.raises(ConfigError, match="loses the errors of foreachBatch under Spark Connect"):
        running(connected, 0, str(tmp_path), "process")


def of_classic(group: str) -> Any:
    """A session of a batch 0 in a thread with this job group; it tells no query's run."""
    told = {
        "sql.streaming.queryId": "5a0ec7f7-a3e8-4a5e-8d7c-3a6a9a2a1f10",
        "spark.jobGroup.id": group,
        "streaming.sql.batchId": "0",
    }
    return SimpleNamespace(_sc=SimpleNamespace(getLocalProperty=told.get))


def test_a_job_group_that_a_function_has_set_is_never_taken_for_the_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has set the job group 'ours'") as refused:
        running(of_classic("ours"), 0, str(tmp_path), "process")
    assert "setJobGroup" in str(refused.value.remedy)
    of_spark = "0b54d2ac-5d1e-4b2f-9a55-6a0e2f3a4b5c"
    assert running(of_classic(of_spark), 0, str(tmp_path), "process").run == of_spark


@pytest.mark.parametrize(("group", "batch"), [("", 0), ("0b54d2ac-5d1e-4b2f-9a55-6a0e2f3a4b5c", 1)])
def test_a_call_that_spark_does_not_name_is_refused(tmp_path: Path, group: str, batch: int) -> None:
    with pytest.raises(ConfigError, match="outside of that batch of a streaming query"):
        running(of_classic(group), batch, str(tmp_path), "process")


def of_connect(folder: Path, *more: str) -> tuple[Any, Path]:
    """A batch as Connect hands it over, and the checkpoint of its query, with these folders more."""
    (folder / "offsets").mkdir()
    (folder / "offsets" / "0").write_text("v1")
    (folder / "metadata").write_text('{"id":"5a0ec7f7-a3e8-4a5e-8d7c-3a6a9a2a1f10"}')
    for name in more:
        (folder / name).mkdir()
    return SimpleNamespace(sparkSession=object()), folder


def test_under_connect_a_batch_is_known_by_its_querys_checkpoint_only(tmp_path: Path) -> None:
    batch, checkpoint = of_connect(tmp_path)
    with pytest.raises(ConfigError, match="outside of that batch of a streaming query"):
        running(batch.sparkSession, 1, str(checkpoint), "process")
    (checkpoint / "metadata").unlink()
    with pytest.raises(ConfigError, match="found by its checkpoint, which cannot be read"):
        running(batch.sparkSession, 0, str(checkpoint), "process")


def to_a_table(checkpoint: Path, mode: str | None) -> Epoch:
    sink = abs_spark.sink("abs-postgres", {"url": "postgresql://127.0.0.1/none", "dbtable": "t"})
    return abs_spark.epoch(sink, checkpointLocation=str(checkpoint), outputMode=mode)


def test_where_the_mode_is_not_told_a_query_with_state_is_refused_before_it_is_looked_at(
    tmp_path: Path,
) -> None:
    batch, checkpoint = of_connect(tmp_path, "state")
    with pytest.raises(OptionError, match="keeps state, and Spark does not report its output mode"):
        to_a_table(checkpoint, None)(batch, 0)


@pytest.mark.parametrize(
    ("told", "given", "state", "mode"),
    [
        ("complete", None, True, "complete"),
        ("update", "update", True, "update"),
        (None, None, False, "append"),
        (None, "append", True, "append"),
        (None, "update", True, "update"),
        (None, "complete", True, "complete"),
    ],
)
def test_the_mode_is_spark_s_or_else_the_user_s(
    tmp_path: Path, told: str | None, given: str | None, state: bool, mode: str
) -> None:
    _, checkpoint = of_connect(tmp_path, *(["state"] if state else []))
    assert output_mode(told, given, str(checkpoint)) == mode


@pytest.mark.parametrize(
    ("told", "given", "why"),
    [("append", "update", "which is append"), (None, "complete", "has no aggregation")],
)
def test_a_mode_that_cannot_be_true_is_refused(
    tmp_path: Path, told: str | None, given: str, why: str
) -> None:
    _, checkpoint = of_connect(tmp_path)
    with pytest.raises(OptionError, match=why):
        output_mode(told, given, str(checkpoint))


def test_a_mode_that_spark_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no outputMode 'replace'"):
        to_a_table(tmp_path, "replace")


@pytest.mark.services
def test_a_run_warns_once_that_the_checkpoint_does_not_tell_an_epoch_s_input(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table payments (id bigint)")
    with started(database, tmp_path, 1, ["payments"]) as run:
        caplog.clear()
        assert run.fingerprint(0) is run.fingerprint(1) is None
    warned = [r.getMessage() for r in caplog.records if "checkpoint's offsets" in r.getMessage()]
    (warning,) = warned
    assert warning.startswith("job job: the driver cannot read the checkpoint's offsets")


def test_a_run_that_has_failed_or_written_an_epoch_goes_on_past_neither() -> None:
    Known().check("job", 0)
    Known().check_not_written("job", 0)
    failed = Known().and_failed(3, ValueError("bad")).and_failed(4, ValueError("worse"))
    with pytest.raises(ProtocolError, match="Batch 3 failed in this run") as refused:
        failed.check("job", 4)
    assert "ValueError: bad" in refused.value.what
    assert refused.value.epoch == 4
    written = Known().and_finished(3).and_finished(4)
    written.check_not_written("job", 2)
    with pytest.raises(ProtocolError, match="has already written batch 3 for this job"):
        written.check_not_written("job", 3)


@pytest.mark.services
def test_a_run_refuses_what_it_cannot_go_on_with_before_a_row_is_written(
    database: str, tmp_path: Path
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table payments (id bigint); create table notes (id bigint)")
    one = ["payments"]
    with started(database, tmp_path, 1, one) as run:
        finished = replace(run.begin(0)[0], frontier=0, recent=(Recent(0, None, 3),))
        run.check_rows(finished, 0, 3)
        raises(ReplayMismatchError, lambda: run.check_rows(finished, 0, 2))
    refused = raises(IdentityError, started(database, tmp_path, 2, {"payments": "notes"}).__enter__)
    assert "The sink 'payments' wrote to" in refused.what
    refused = raises(IdentityError, started(database, tmp_path, 3, {"": "payments"}).__enter__)
    assert "have names (payments), and this one has none" in refused.what
    FailedBatch(str(tmp_path), "job").note(1)
    with started(database, tmp_path, 4, one, epoch=1):
        pass
    gap = raises(EpochGapError, started(database, tmp_path, 5, one, epoch=2).__enter__)
    assert "failed and was not written" in gap.what


CHANGED = {"protocol": "wal", "write": "changes", "sequenceby": "at", "positions": "side"}
DROP_POSITIONS = """do $$ declare name text; begin
  for name in select oid::regclass from pg_class where relname like 'positions%' and relkind = 'r'
  loop execute 'drop table ' || name; end loop; end $$"""
OTHERS = [CHANGED, {"protocol": "wal", "write": "upsert", "key": "id"}, {"protocol": "2pc"}]


@pytest.mark.services
@pytest.mark.parametrize(
    ("spelled", "other"),
    [(name, CHANGED) for name in ("copy", '"copy"', "public.copy", "COPY")]
    + [(table, other) for table in ("public.copy", "part") for other in OTHERS[1:]],
)
def test_two_sinks_on_one_table_of_which_one_writes_changes_are_refused(
    database: str, spelled: str, other: dict[str, str]
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table copy (id bigint primary key, v text)")
        connection.execute("create table apart (id bigint primary key, v text)")
        connection.execute("create table part (primary key (id)) inherits (copy)")
    kind = format_named("abs-postgres")
    names = [("id", pa.int64()), ("at", pa.int64()), ("op", pa.string()), ("v", pa.string())]

    def spec(table: str, given: dict[str, str]) -> SinkSpec:
        place = {"url": database, "dbtable": table, "schemachange": "ignore"}
        return SinkSpec(kind, kind.parse(place | given), pa.schema(names))

    def identities(*targets: SinkSpec) -> tuple[tuple[str, str], ...]:
        with closing(OpenSinks(["one", "two"], targets, "one")) as opened:
            return opened.identities("job")

    for both in ((CHANGED, other), (other, CHANGED)):
        with pytest.raises(OptionError, match=r"The sinks (one and two|two and one)") as caught:
            identities(spec("copy", both[0]), spec(spelled, both[1]))
        assert "let one sink write the rows of both" in caught.value.remedy
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(DROP_POSITIONS)
    assert len(identities(spec("copy", CHANGED), spec("apart", other))) == 2
