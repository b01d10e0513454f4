"""Guards against what no Spark has shown so far: reports that do not belong together, unnamed tasks."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType

from abs_core.coordinator.certifier import EPOCH
from abs_core.errors import (
    ConfigError,
    IdentityError,
    ProtocolError,
    ReplayMismatchError,
    SchemaError,
)
from abs_core.model import Wrote
from abs_core.patience import Patience
from abs_core.sinkmap import STRIDE
from abs_spark import run as runs
from abs_spark.datasource.batch import BatchWriter
from abs_spark.datasource.stream import EpochMessage, reported_by
from abs_spark.foreach import tasks
from abs_spark.foreach.tasks import shares_of, take_part
from abs_spark.names import Announced, RunName
from abs_spark.process import executor as context
from abs_spark.schema import input_schema
from abs_testing.case import raises

NAME = RunName("job", "lineage", "run")
MINE = EpochMessage(NAME, 3, Wrote(0, None), started=False, announced=Announced())
OTHER_RUN = replace(MINE, name=replace(NAME, run="another"))
OTHER_EPOCH = replace(MINE, epoch=4)


def test_reports_of_one_run_and_epoch_are_taken() -> None:
    assert reported_by([MINE, MINE], 3) == [MINE, MINE]


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([], ConfigError),
        ([None, None], ConfigError),
        ([MINE, None], ProtocolError),
        ([MINE, OTHER_RUN], ProtocolError),
        ([MINE, OTHER_EPOCH], ProtocolError),
        ([OTHER_EPOCH], ProtocolError),
    ],
)
def test_reports_that_do_not_belong_together_decide_nothing(
    messages: list[EpochMessage | None], error: type[ProtocolError]
) -> None:
    raises(error, lambda: reported_by(messages, 3))


def test_rows_without_columns_are_refused_before_an_epoch() -> None:
    """Spark gives a Python sink no batch of them, so that an epoch of three would commit none."""
    assert input_schema(StructType().add("id", LongType())).names == ["id"]
    assert "no columns" in raises(SchemaError, lambda: input_schema(StructType())).what


def test_two_results_of_one_partition_decide_nothing() -> None:
    one, other = (pickle.dumps((number, [Wrote(0, None)], 0.0)) for number in (0, 1))
    assert shares_of([one, other]) == ([Wrote(0, None)] * 2, 0.0)
    assert "two results of partition 0" in raises(ProtocolError, lambda: shares_of([one, one])).what


def test_a_task_makes_no_table_that_is_gone() -> None:
    """Its sink asks before it makes what is missing; the driver had made what may be made."""
    checks: list[Callable[[], None]] = []
    sink = SimpleNamespace(if_missing=checks.append, reach=lambda: None)
    options = SimpleNamespace(patience=Patience(0.0))
    target: Any = SimpleNamespace(sink=lambda *, alone: sink, options=options)
    work: Any = SimpleNamespace(own=True, task=SimpleNamespace(job="job"))
    tasks._reached(target, work)
    (check,) = checks
    raises(IdentityError, check)


def test_more_partitions_than_handles_can_name_are_refused_before_a_row() -> None:
    work: Any = SimpleNamespace()
    batches = iter([pa.record_batch({"a": [1]})])
    error = raises(ProtocolError, lambda: take_part(work, STRIDE, batches))
    assert f"{STRIDE + 1} partitions" in error.what
    assert len(list(batches)) == 1


def _task(properties: Mapping[str, str]) -> Any:
    return SimpleNamespace(
        get=lambda: SimpleNamespace(getLocalProperty=properties.get, partitionId=lambda: 5)
    )


NAMED = {context.QUERY: "query", context.RUN: "run", context.EPOCH: "7"}


def test_a_task_is_named_by_its_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "TaskContext", _task(NAMED))
    assert context.stream_task() == context.StreamTask("query", "run", 7, 5)


@pytest.mark.parametrize(
    "properties", [{}, *({**NAMED, name: ""} for name in NAMED), {**NAMED, context.EPOCH: "-1"}]
)
def test_a_task_that_spark_does_not_name_writes_nothing(
    properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "TaskContext", _task(properties))
    assert "is missing" in raises(ConfigError, context.stream_task).what


def test_a_write_outside_of_a_task_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "TaskContext", SimpleNamespace(get=lambda: None))
    assert "outside of a Spark task" in raises(ConfigError, context.stream_task).what


def test_a_batch_that_was_written_with_other_rows_is_told_as_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def commit(_: object) -> None:
        raise ReplayMismatchError("epoch 0 differs", why="it had 2 rows")

    run = SimpleNamespace(coordinator=SimpleNamespace(commit=commit))
    monkeypatch.setattr(runs, "attach", lambda *_: run)
    writer: Any = SimpleNamespace(target=SimpleNamespace(), name=NAME, _replay="rows")
    error = raises(
        ReplayMismatchError, lambda: BatchWriter.commit(writer, [replace(MINE, epoch=EPOCH)])
    )
    assert error.what.startswith("This batch was written before, with other rows: it had 2 rows")
    assert error.job == "job"
