"""What observers are told of each epoch: figures, and lineage at a collector of OpenLineage."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from openlineage.client import OpenLineageClient
from openlineage.client.transport.http import HttpConfig, HttpTransport
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

import abs_spark
from abs_core.crash import CrashPoint
from abs_core.errors import ConfigError
from abs_core.events import Committed, PreCommitted, RolledForward, Skipped, Written
from abs_spark import observers
from abs_spark.progress import observer
from abs_spark.query_listener import BatchDone, QueryEnded
from tests.spark.drivers import Driver, killed_at, until
from tests.spark.epoch_world import SCHEMA, EpochWorld
from tests.spark.lineage import SPEC, Collector, off_schema
from tests.spark.world import World

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "watching.md"
DONE = Committed("j", 7, 5, 1, 0.1, targets=(Written("", 5, 40, "s3://b/x"),), id="r:q:7")


def lineage(collector: Collector, **more: Any) -> Callable[[Any], object]:
    client = OpenLineageClient(transport=HttpTransport(HttpConfig(url=collector.url, **more)))
    return abs_spark.openlineage(inputs=[("file", "/in")], client=client)


@contextmanager
def added(spark: SparkSession, *listeners: Any) -> Iterator[None]:
    """They hear what happens in here, and not of a query before whose end Spark has yet to tell."""
    context: Any = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty(120_000)
    for each in listeners:
        spark.streams.addListener(each)
    try:
        yield
    finally:
        for each in listeners:
            spark.streams.removeListener(each)
            each.close()


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.always
def test_a_listener_is_told_each_epoch_once_and_lineage_names_all_targets(
    spark: SparkSession, world: EpochWorld
) -> None:
    events: list[Any] = []
    with Collector() as collector:
        with added(spark, abs_spark.listener(events.append, lineage(collector))):
            world.files.add_files(range(2))
            world.run(spark)
            world.files.forget_commits(1)
            world.run(spark)
            until(lambda: sum(isinstance(one, QueryEnded) for one in events) == 2, "both end")
        done = [one for one in events if isinstance(one, Committed)]
        assert [(one.epoch, one.frontier, one.rows, one.in_doubt) for one in done] == [
            (0, 0, 120, 0),
            (1, 1, 120, 0),
        ]
        assert [one.epoch for one in events if isinstance(one, Skipped)] == [1]
        for one in done:
            assert {target.sink: target.rows for target in one.targets} == {
                "payments": 40,
                "alerts": 40,
                "items": 40,
            }
            assert one.bytes == sum(target.bytes or 0 for target in one.targets) > 0
            steps = one.write_seconds, one.pre_commit_seconds, one.decide_seconds
            assert min(*steps, one.commit_seconds) > 0
        assert [one.epoch for one in events if isinstance(one, BatchDone)] == [0, 1, 1]
        assert {(one.job, one.why) for one in events if isinstance(one, QueryEnded)} == {
            ("job", None)
        }
        assert collector.wrong() == []
        assert [list(run.values()) for run in collector.outputs()] == [[40, 40, 40]] * 2
        names = sorted(collector.outputs()[0])
        host, *_ = world.kafka.bootstrap.split(",")
        assert names[0] == f"kafka://{host}/{world.kafka.topic}"
        assert names[1].startswith("postgres://")
        assert names[1].endswith(".public.t")
        assert names[2].startswith(world.bucket.options["path"].rpartition("/")[0])


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.always
def test_the_pages_snippets_print_and_tell_lineage(
    spark: SparkSession,
    world: EpochWorld,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    told: list[Any] = []
    program = {"spark": SimpleNamespace(streams=SimpleNamespace(addListener=told.append))}
    with Collector() as collector:
        monkeypatch.setenv("OPENLINEAGE_URL", collector.url)
        for snippet in snippets:
            if "abs_spark.listener(" in snippet:
                exec(snippet.replace("> 10", "> 0"), program)
        with added(spark, *told):
            world.files.add_files(range(1))
            world.run(spark, world.epoch(world.postgres()))
        assert len(told) == 2
        assert (
            "epoch 0 of job: 0 retries, (Written(sink='payments', rows=40"
            in capsys.readouterr().out
        )
        assert collector.wrong() == []
        assert [list(run.values()) for run in collector.outputs()] == [[40]]
        assert {event["inputs"][0]["name"] for event in collector.events} == {"payments"}


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.always
def test_a_listener_is_told_why_a_query_has_ended(spark: SparkSession, world: EpochWorld) -> None:
    events: list[Any] = []
    with added(spark, abs_spark.listener(events.append)):
        world.files.add_files(range(1))
        world.files.alter("add check (id < 0)")
        with pytest.raises(StreamingQueryException):
            world.run(spark, world.epoch(world.postgres()))
        until(lambda: any(isinstance(one, QueryEnded) for one in events), "the listener is told")
    [ended] = [one for one in events if isinstance(one, QueryEnded)]
    assert ended.job == "job"
    assert str(ended.why).startswith("RefusedError: ")
    assert "What to do: " in str(ended.why)


class Late(StreamingQueryListener):
    """Hears of a query's start when Spark tells it, and of the rest once ``catch_up`` is called.

    Spark calls a listener before a query's first batch, and sends all other events to Python some time
    later: of a short query when it has gone.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._missed: list[partial[None]] = []

    def onQueryStarted(self, event: Any) -> None:
        self._inner.onQueryStarted(event)

    def onQueryProgress(self, event: Any) -> None:
        self._missed.append(partial(self._inner.onQueryProgress, event))

    def onQueryIdle(self, event: Any) -> None:
        """Nothing has been written."""

    def onQueryTerminated(self, event: Any) -> None:
        self._missed.append(partial(self._inner.onQueryTerminated, event))

    @property
    def ended(self) -> int:
        """How many queries' ends have come."""
        return sum(one.func == self._inner.onQueryTerminated for one in self._missed)

    def catch_up(self) -> None:
        for hear in self._missed:
            hear()

    def close(self) -> None:
        self._inner.close()


@pytest.mark.spark
@pytest.mark.services
def test_events_that_come_when_their_query_has_gone_name_its_jobs(
    spark: SparkSession, new_world: Callable[[str], World], tmp_path: Path
) -> None:
    """Formats with and without a job, a function with two jobs, and a query that fails."""
    world, events = new_world("wal"), list[Any]()
    world.add_files(range(1))
    late = Late(abs_spark.listener(events.append))
    rows = spark.readStream.schema(SCHEMA).parquet(world.job.input)
    options = {"url": world.url, "dbtable": "t", "protocol": "wal"}

    def sink(job: str, place: str) -> Any:
        one = abs_spark.sink("abs-postgres", options)
        return abs_spark.epoch(one, job=job, checkpointLocation=place)

    def started(name: str) -> Any:
        place = str(tmp_path / name)
        return rows.writeStream.queryName(name).option("checkpointLocation", place)

    def end(writer: Any) -> str:
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return str(query.id)

    with added(spark, late):
        end(started("a").format("abs-postgres").options(**options).option("JOB", "of-a-format"))
        unnamed = end(started("b").format("abs-postgres").options(**options))
        place = str(tmp_path / "c")
        functions = [sink("first", place), sink("second", place)]
        end(started("c").foreachBatch(lambda df, epoch: [each(df, epoch) for each in functions]))
        functions.clear()
        end(started("d").format("noop"))
        world.alter("add check (id < 0) not valid")
        with pytest.raises(StreamingQueryException):
            end(started("e").format("abs-postgres").options(**options).option("job", "failing"))
        until(lambda: late.ended == 5, "Spark has told all ends")
        assert not spark.streams.active
        late.catch_up()
    done = [one.job for one in events if isinstance(one, BatchDone)]
    assert done == ["of-a-format", unnamed, "first", "second"]
    ended = [(one.job, one.why is None) for one in events if isinstance(one, QueryEnded)]
    assert ended == [*((job, True) for job in done), ("failing", False)]


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.long
def test_lineage_of_a_format_that_is_killed_after_its_decision_has_one_run_for_each_epoch(
    new_world: Callable[[str], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = new_world("2pc")
    world.add_files(range(3))
    with Collector() as collector:
        monkeypatch.setenv("ABS_OBSERVE", "abs_spark:openlineage")
        monkeypatch.setenv("OPENLINEAGE_URL", collector.url)
        killed_at(CrashPoint.AFTER_DECIDE, 2, world.job, world.folder / "died", world.url)
        # One more, if Spark has ended the run, which commits the decision, before it is killed.
        assert len(collector.outputs()) in (1, 2)
        with Driver(world.job, world.folder / "again", world.url) as driver:
            assert driver.end() == 0, driver.log[-3000:]
        assert collector.wrong() == []
        assert [list(run.values()) for run in collector.outputs()] == [[40]] * 3
        assert len({event["run"]["runId"] for event in collector.events}) == 3


def test_an_epoch_that_is_told_again_is_the_same_run_and_a_replayed_one_is_none() -> None:
    with Collector() as collector:
        tell = lineage(collector)
        tell(DONE)
        tell(Skipped("j", 7, 5))
        tell(PreCommitted("j", 8, 0, 5, 0.1))
        tell(RolledForward("j", 7, 1, (Written("", None, None, "s3://b/x"),), DONE.id))
        runs = [event["run"]["runId"] for event in collector.events]
        assert (len(runs), len(set(runs))) == (4, 1)
        assert [list(run.values()) for run in collector.outputs()] == [[5], [None]]


def test_the_collectors_check_finds_a_run_that_is_told_twice() -> None:
    with Collector() as collector:
        tell = lineage(collector)
        tell(DONE)
        assert collector.wrong() == []
        tell(DONE)
        assert len(collector.wrong()) == 1


@pytest.mark.campaign
@pytest.mark.skipif(SPEC is None, reason="ABS_OPENLINEAGE_SPEC names no folder of schemas")
def test_openlineages_own_schemas_accept_an_event_and_find_what_is_wrong_with_one() -> None:
    with Collector() as collector:
        lineage(collector)(DONE)
    assert SPEC is not None
    assert off_schema(collector.events, Path(SPEC)) == []
    wrong: list[Callable[[dict[str, Any]], object]] = [
        lambda event: event["run"].pop("runId"),
        lambda event: event["run"].update(runId="7"),
        lambda event: event.update(eventType="DONE"),
        lambda event: event["outputs"][0].pop("namespace"),
        lambda event: event["outputs"][0]["outputFacets"]["outputStatistics"].update(rowCount="5"),
        lambda event: event["run"]["facets"]["processing_engine"].pop("version"),
        lambda event: event["job"]["facets"]["jobType"].pop("integration"),
    ]
    for spoil in wrong:
        event = json.loads(json.dumps(collector.events[1]))
        spoil(event)
        assert off_schema([event], Path(SPEC)), event


def test_a_collector_that_does_not_answer_costs_lineage_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Collector() as collector:
        tell = lineage(collector, retry={"total": 1})
    tell(DONE)
    until(lambda: "is not told to OpenLineage" in caplog.text, "it is said", 60)


def test_an_observer_that_raises_is_logged_and_the_others_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events: list[Any] = []

    def broken(event: object) -> None:
        raise ValueError(event)

    caplog.set_level(logging.ERROR)
    mine = [broken, events.append]
    observers.added.extend(mine)
    try:
        observer("2pc")(DONE)
    finally:
        observers.added[:] = [one for one in observers.added if one not in mine]
    assert events == [DONE]
    assert "an observer failed on Committed; the job goes on" in caplog.text


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("no_such_module:observer", "ModuleNotFoundError"),
        ("json:no_such", "AttributeError"),
        ("tests.spark.test_spark_observed:nothing", "returns a NoneType"),
    ],
)
def test_an_observer_that_cannot_be_made_stops_the_job_before_it_writes(
    monkeypatch: pytest.MonkeyPatch, name: str, told: str
) -> None:
    monkeypatch.setenv(observers.VARIABLE, name)
    observers.told.cache_clear()
    try:
        with pytest.raises(ConfigError, match=told):
            observer("2pc")
    finally:
        observers.told.cache_clear()


def nothing() -> None:
    """Returns no observer."""
