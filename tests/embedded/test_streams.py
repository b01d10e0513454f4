"""Windows, joins, broadcasts and folds on real threads: each record counts once."""

from __future__ import annotations

from collections import Counter
from threading import Event, Timer
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from abs_core.source import Split
from abs_embedded import (
    EventTime,
    Graph,
)
from abs_embedded.tables import TableReader, TableSource
from abs_testing.harness import SCHEMA
from tests.embedded.bench import Bench, as_text
from tests.embedded.jobs.counting import tables


@pytest.mark.parametrize("slide", [None, 5])
def test_windows_hold_what_their_time_says(bench: Bench, slide: int | None) -> None:
    times = [(n * 7) % 10 + n // 10 * 10 for n in range(200)]  # out of order by up to 10
    table = pa.table({"key": [n % 3 for n in range(200)], "ts": times})
    built = Graph("windows", parallelism=2)
    (
        built.source("rows", TableSource([table], 7), event_time=EventTime("ts", 10), parallelism=1)
        .key_by("key")
        .window("windows", "ts", 10, "count", slide=slide)
        .map(
            "text",
            lambda b: pa.record_batch(
                [
                    b["key"],
                    pc.binary_join_element_wise(
                        b["window_start"].cast(pa.string()), b["count"].cast(pa.string()), ":"
                    ),
                ],
                schema=SCHEMA,
            ),
        )
        .sink("out", bench.sink)
    )
    bench.job(built).run()
    due: Counter[tuple[int, int]] = Counter()
    for n, time in enumerate(times):
        for start in range(-10, 210, slide or 10):
            if start <= time < start + 10:
                due[n % 3, start] += 1
    assert sorted(bench.rows()) == sorted((k, f"{s}:{c}") for (k, s), c in due.items())


class Endless(TableSource):
    """One that never says that it is through."""

    def open(self, split: Split) -> TableReader:
        return EndlessReader(self.tables[int(split.source)], split, self.batch_rows)


class EndlessReader(TableReader):
    finished = False

    def read(self, timeout_seconds: float) -> pa.RecordBatch | None:
        return None if super().finished else super().read(timeout_seconds)


def test_event_time_goes_on_where_a_task_of_the_source_has_nothing_to_read(bench: Bench) -> None:
    table = pa.table({"key": [n % 3 for n in range(26)], "ts": range(26)})
    built = Graph("windows", parallelism=2)
    source = Endless([table], 7)
    (
        built.source("rows", source, event_time=EventTime("ts"), bounded=False)
        .key_by("key")
        .window("windows", "ts", 10, "count")
        .map("text", as_text("count"))
        .sink("out", bench.sink)
    )
    stop = Event()

    def observe(what: str, task: object, checkpoint: int) -> None:
        if what == "committed" and len(bench.rows()) == 6:
            stop.set()

    deadline = Timer(30, stop.set)
    deadline.start()
    bench.job(built, observe=observe).run(stop=stop)
    deadline.cancel()
    assert sorted(bench.rows()) == [(0, "3"), (0, "4"), (1, "3"), (1, "4"), (2, "3"), (2, "3")]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_batch_that_a_function_leaves_without_rows_is_nothing_to_fold(
    bench: Bench, parallelism: int
) -> None:
    built = Graph("empty", parallelism=parallelism)
    rows = built.source("rows", TableSource(tables(100), 10))
    late = rows.map("late", lambda batch: batch.filter(pc.greater_equal(batch["id"], 50)))
    summed = (
        late.key_by("id")
        .reduce("sum", "sum", "key")
        .map(
            "text", lambda b: pa.record_batch([b["id"], b["sum"].cast(pa.string())], schema=SCHEMA)
        )
    )
    summed.sink("out", bench.sink)
    bench.job(built).run()
    assert sorted(id_ for id_, _ in bench.rows()) == list(range(50, 100))


def test_a_join_yields_each_pair_once(bench: Bench) -> None:
    left = pa.table({"key": [n % 10 for n in range(100)], "l": list(range(100))})
    right = pa.table({"key": [n % 20 for n in range(60)], "r": list(range(60))})
    built = Graph("join", parallelism=2)
    lefts = built.source("left", TableSource([left], 9)).key_by("key")
    rights = built.source("right", TableSource([right], 9)).key_by("key")
    lefts.join(
        "join", rights, lambda a, b: {"id": a["key"], "value": f"{a['l']}-{b['r']}"}, SCHEMA
    ).sink("out", bench.sink)
    bench.job(built).run()
    due = [(n % 10, f"{n}-{r}") for n in range(100) for r in range(60) if n % 10 == r % 20]
    assert sorted(bench.rows()) == sorted(due)


def test_a_broadcast_reaches_every_task_and_a_rebalanced_batch_one(bench: Bench) -> None:
    def twice(row: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"id": row["id"], "value": text} for text in ("a", "b")] if row["id"] % 2 else []

    def same(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    built = Graph("spread", parallelism=2)
    rows = built.source("rows", TableSource(tables(100), 9)).flat_map_rows("twice", twice, SCHEMA)
    each = rows.rebalance().map("one", same, parallelism=3).broadcast().map("all", same)
    each.sink("out", bench.sink)
    bench.job(built).run()
    due = [(n, text) for n in range(1, 100, 2) for text in "ab"]
    assert sorted(bench.rows()) == sorted(due * 3)  # as many tasks as before, where none is said


def test_reduce_folds_batches(bench: Bench) -> None:
    built = Graph("reduce", parallelism=2)
    rows = built.source("rows", TableSource(tables(1_000), 50)).key_by("key")
    rows.reduce("sum", "sum", "id").map("text", as_text("sum")).sink("out", bench.sink)
    bench.job(built).run()
    final = {key: max(int(v) for k, v in bench.rows() if k == key) for key in range(7)}
    assert final == {key: sum(range(key, 1_000, 7)) for key in range(7)}
