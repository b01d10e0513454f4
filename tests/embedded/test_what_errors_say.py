"""A mistake of the user, or a fault, is named: which operator of which job, what, and what to do."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from abs_core.errors import (
    AbsError,
    ConfigError,
    OptionError,
    RefusedError,
    RowError,
    SchemaError,
    UnavailableError,
)
from abs_embedded import Graph, Restore, Settings, Stream
from abs_embedded.context import TaskContext
from abs_embedded.operators import Emit, Operator
from abs_embedded.state.codecs import INT64, PICKLE, TEXT
from abs_embedded.state.contracts import BlobRef
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from abs_testing.harness import SCHEMA
from tests.embedded.bench import OFTEN, Bench
from tests.embedded.jobs.counting import graph

ROWS = pa.table({"id": range(10), "value": [f"v{n}" for n in range(10)]}, SCHEMA)


def rows(built: Graph, table: pa.Table = ROWS) -> Stream:
    return built.source("rows", TableSource([table], 3))


def raising(batch: pa.RecordBatch) -> pa.RecordBatch:
    raise ValueError("planted")


def states(context: Any) -> dict[str, Any]:
    return {"a": context.value("n", INT64), "b": context.value("n", TEXT)}


NULL = pa.table({"id": [1, None], "value": ["a", "b"]}, SCHEMA)

MISTAKES: dict[str, tuple[type[AbsError], str, Callable[[Graph], Stream]]] = {
    "a function raises": (
        *(UnavailableError, "wrong/0: ValueError: planted"),
        lambda g: rows(g).map("wrong", raising),
    ),
    "no batch comes out": (
        *(UnavailableError, "next/0: .*NoneType"),
        lambda g: rows(g).map("wrong", lambda b: None).filter("next", lambda b: b["id"]),
    ),
    "a column is missing": (
        *(SchemaError, "wrong/0: No sum of n by id"),
        lambda g: rows(g).key_by("id").reduce("wrong", "sum", "n"),
    ),
    "a key is null": (
        *(RowError, "wrong/0: A key is null"),
        lambda g: rows(g, NULL).key_by("id").reduce("wrong", "count"),
    ),
    "the key is missing": (
        *(SchemaError, "rows/0: The key"),
        lambda g: rows(g).key_by("key").reduce("wrong", "count", parallelism=2),
    ),
    "there is no such fold": (
        *(OptionError, "wrong/0: There is no fold 'mean'"),
        lambda g: rows(g).key_by("id").reduce("wrong", "mean", "id"),
    ),
    "a window has no length": (
        *(OptionError, "wrong/0: A window of 10 every 0"),
        lambda g: rows(g).key_by("id").window("wrong", "id", 10, "count", slide=0),
    ),
    "two states have one name": (
        *(ConfigError, "wrong/0: The state 'n'"),
        lambda g: rows(g).key_by("id").process("wrong", lambda row, at: (), SCHEMA, states),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_names_operator_job_and_remedy(bench: Bench, mistake: str) -> None:
    kind, what, stream = MISTAKES[mistake]
    built = Graph("mistaken")
    stream(built).sink("out", bench.sink)
    with pytest.raises(kind, match=f"Operator {what}") as told:
        bench.job(built, restarts=0).run()
    assert type(told.value) is kind
    assert told.value.job == "mistaken"
    assert told.value.remedy


def test_a_graph_without_a_sink_is_told_to_get_one(bench: Bench) -> None:
    built = Graph("open")
    rows(built)
    with pytest.raises(ConfigError, match=r"rows.*goes nowhere.*sink"):
        bench.job(built).run()


def test_each_restore_is_logged_with_its_cause(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    built = Graph("failing")
    rows(built).map("wrong", raising).sink("out", bench.sink)
    with pytest.raises(UnavailableError, match="planted"):
        bench.job(built, restarts=2).run()
    told = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert ["wrong/0: ValueError: planted" in one for one in told] == [True, True]
    assert "restore 2 of 2 in a row" in told[1]


class Full(LocalSnapshotStore):
    """A disk with no room."""

    def put(self, key: str, content: Any) -> BlobRef:
        raise RefusedError("No space left on device.")


def test_a_checkpoint_that_fails_is_logged_also_where_any_number_may(
    bench: Bench, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    stop = Event()
    failed: list[int] = []

    def observe(what: str, task: object, checkpoint: int) -> None:
        if what == "aborted":
            failed.append(checkpoint)
            if len(failed) == 3:
                stop.set()

    bench.store = Full(tmp_path / "full")
    bench.job(graph(bench.sink, rows=2_000), settings=OFTEN, observe=observe).run(stop=stop)
    told = [r.getMessage() for r in caplog.records if "No space left" in r.getMessage()]
    assert len(told) >= 3
    assert all("count/" in one and "checkpoint" in one for one in told)


def test_too_many_failed_checkpoints_name_the_task_and_the_cause(
    bench: Bench, tmp_path: Any
) -> None:
    bench.store = Full(tmp_path / "full")
    settings = Settings(interval=0.02, tolerated=1)
    with pytest.raises(UnavailableError, match=r"2 checkpoints.*count/\d.*No space left"):
        bench.job(graph(bench.sink, rows=2_000), settings=settings).run()


def joined(bench: Bench, **codec: Any) -> Graph:
    left = pa.table({"id": [1, 2], "at": [datetime(2026, 1, n, tzinfo=UTC) for n in (1, 2)]})
    built = Graph("joined")
    (
        rows(built, left)
        .key_by("id")
        .join(
            "wrong",
            built.source("right", TableSource([ROWS])).key_by("id"),
            lambda a, b: {"id": a["id"], "value": f"{a['at']:%d} {b['value']}"},
            SCHEMA,
            **codec,
        )
        .sink("out", bench.sink)
    )
    return built


def test_a_join_keeps_what_its_codec_can_say(bench: Bench) -> None:
    with pytest.raises(RowError, match=r"wrong/0: .*json.*datetime.*codec"):
        bench.job(joined(bench)).run()
    bench.job(joined(bench, codec=PICKLE)).run()
    assert sorted(bench.rows()) == [(1, "01 v1"), (2, "02 v2")]


def test_a_state_that_the_code_does_not_declare_is_refused_or_dropped_for_good(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """One under a new name begins anew: nobody would see it otherwise."""

    def counted(name: str) -> Graph:
        def text(batch: pa.RecordBatch) -> pa.RecordBatch:
            return pa.record_batch([batch[name], batch["value"]], ["id", "value"])

        built = Graph("renamed")
        kept = rows(built).key_by("value").reduce("counted", "count", out=name)
        kept.map("text", text).sink("out", bench.sink)
        return built

    bench.job(counted("seen")).run()
    before = bench.rows()
    with pytest.raises(ConfigError, match=r"'seen' of operator counted.*drop_state"):
        bench.job(counted("met")).run()
    assert bench.rows() == before
    bench.job(counted("seen")).run()
    bench.job(counted("met")).run(Restore(drop_state=True))
    assert "job renamed drops states that its code does not declare: 'seen'" in caplog.text
    bench.job(counted("met")).run()


def test_a_list_that_the_code_does_not_declare_is_refused_or_dropped_for_good(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    failures: list[Exception] = []

    class Lists(Operator):
        def __init__(self, context: TaskContext, name: str) -> None:
            self.seen = context.lists.list(name, TEXT)

        def on_batch(self, port: int, batch: pa.RecordBatch, emit: Emit) -> None:
            self.seen.add(str(batch.num_rows))
            emit(batch)

        def on_end(self, emit: Emit) -> None:
            if failures:
                raise failures.pop()

    def kept(name: str) -> Graph:
        built = Graph("lists")
        rows(built).apply("kept", "lists", lambda context: Lists(context, name)).sink(
            "out", bench.sink
        )
        return built

    bench.job(kept("sizes")).run()
    with pytest.raises(ConfigError, match=r"'sizes' of operator kept.*drop_state"):
        bench.job(kept("counts")).run()
    failures.append(OSError("planted"))  # it is restored once more from where it began
    bench.job(kept("counts")).run(Restore(drop_state=True))
    assert caplog.text.count("does not declare: 'sizes' of operator kept") == 2
    bench.job(kept("counts")).run()
