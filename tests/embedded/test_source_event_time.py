"""Event time of a source: no split that is behind, idle or empty holds it up or is passed."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from abs_core.barriers.elements import Watermark
from abs_core.source import Offsets, Split
from abs_embedded import EventTime, Graph
from abs_embedded.sources import SourceOperator, first_entries
from abs_embedded.state.codecs import TEXT
from abs_embedded.state.operator_state import OperatorState
from abs_embedded.tables import TableReader, TableSource
from abs_sources.files import FileOptions, FileSource
from abs_testing.harness import SCHEMA
from tests.embedded.bench import Bench, until


def test_event_time_keeps_up_with_what_is_read_of_files_that_follow_one_another(
    tmp_path: Path,
) -> None:
    """Each split is a stretch of the files, so of time."""
    stamped = pa.schema([("id", pa.int64())])
    files, rows = 64, 10
    for number in range(files):
        table = pa.table({"id": range(number * rows, (number + 1) * rows)}, stamped)
        parquet.write_table(table, tmp_path / f"{number:02}.parquet")
    options = FileOptions.parse({"path": str(tmp_path)}, streaming=False)
    built = Graph("files")
    source = FileSource(replace(options, partitions=8), stamped)
    built.source("in", source, event_time=EventTime("id"))
    positions = OperatorState().list("splits", TEXT)
    positions.put(first_entries(built.nodes["in"]))
    stretches = len(positions.get())
    assert stretches >= 8
    reader = SourceOperator(source, positions, EventTime("id"))
    emitted: list[Any] = []
    seen, behind = 0, []
    while not reader.finished:
        reader.poll(emitted.append)
        seen = sum(len(one) for one in emitted if not isinstance(one, Watermark))
        behind.append(seen - max((m.time for m in emitted if isinstance(m, Watermark)), default=0))
    assert seen == files * rows
    assert max(behind) <= (stretches + 1) * rows, "of each, a file and no more is read ahead"


def test_splits_without_an_end_are_read_in_turn_however_far_each_is() -> None:
    """One that is behind may have nothing for a long time."""
    tables = [pa.table({"id": range(first, first + 40)}) for first in (0, 1_000)]
    source = TableSource(tables, 10)
    positions = OperatorState().list("splits", TEXT)
    positions.put(json.dumps([str(n), "0", None, None]) for n in (0, 1))
    reader = SourceOperator(source, positions, EventTime("id"))
    emitted: list[Any] = []
    for _ in range(6):
        reader.poll(emitted.append)
    read = [one["id"][0].as_py() for one in emitted if not isinstance(one, Watermark)]
    assert read == [0, 1_000, 10, 1_010, 20, 1_020]


def _endless(tables: list[pa.Table], time: EventTime) -> tuple[SourceOperator, list[Any]]:
    positions = OperatorState().list("splits", TEXT)
    positions.put(json.dumps([str(n), "0", None, None]) for n in range(len(tables)))
    return SourceOperator(_Open(tables, 1), positions, time), []


@dataclass(frozen=True)
class _Open(TableSource):
    """Its splits have no end: more may come to a table."""

    tables: list[pa.Table]

    def open(self, split: Split) -> _OpenReader:
        return _OpenReader(self.tables, split)


class _OpenReader(TableReader):
    finished = False

    def __init__(self, tables: list[pa.Table], split: Split) -> None:
        self._tables, self._number = tables, int(split.source)
        self._split, self._at = split, int(split.start)

    def read(self, timeout_seconds: float) -> pa.RecordBatch | None:
        left = self._tables[self._number].slice(self._at, 1)
        self._at += left.num_rows
        return left.to_batches()[0] if left.num_rows else None

    def close(self) -> None:
        pass


def test_an_idle_split_does_not_stop_event_time_and_holds_it_back_again_once_it_has_data() -> None:
    now = [0.0]
    time = EventTime("id", idle_after=5.0, clock=lambda: now[0])
    tables = [pa.table({"id": [10, 20, 30, 40]}), pa.table({"id": pa.array([], pa.int64())})]
    reader, emitted = _endless(tables, time)

    def marks() -> list[Watermark]:
        while reader.poll(emitted.append):
            pass
        told = [one for one in emitted if isinstance(one, Watermark)]
        emitted.clear()
        return told

    assert marks() == [], "the empty split holds event time back at first"
    now[0] = 4.9
    tables[0] = pa.table({"id": [10, 20, 30, 40, 41]})
    assert marks() == []
    now[0] = 5.0
    assert marks() == [Watermark(41)]
    tables[1] = pa.table({"id": [25, 60]})
    tables[0] = pa.table({"id": [10, 20, 30, 40, 41, 45, 55]})
    assert marks() == [Watermark(45), Watermark(55)], "it is back, and is waited for"
    now[0] = 11.0
    assert marks() == [Watermark(60, idle=True)], "nobody waits for this task"
    tables[1] = pa.table({"id": [25, 60, 61]})
    reader.poll(emitted.append)
    assert emitted[0] == Watermark(60), "before the data, so that nobody goes past it"


def test_windows_close_although_a_partition_never_has_data(tmp_path: Path) -> None:
    """Of a source with two tasks, one has an empty split only."""
    bench, stop = Bench(tmp_path), Event()
    tables = [
        pa.table({"key": [1] * 40, "at": range(40)}),
        pa.table({"key": pa.array([], pa.int64()), "at": pa.array([], pa.int64())}),
    ]
    built = Graph("idle", parallelism=2)
    source = _Endless(tables, 1)
    rows = built.source("in", source, event_time=EventTime("at", idle_after=0.1), bounded=False)
    windows = rows.key_by("key").window("windows", "at", 10, "count")
    windows.map("shape", _as_rows).sink("out", bench.sink)
    job = Thread(target=bench.job(built).run, kwargs={"stop": stop})
    job.start()
    try:
        until(lambda: len(bench.rows()) >= 3)
    finally:
        stop.set()
        job.join()
    assert sorted(bench.rows()) == [(0, "10"), (10, "10"), (20, "10")]


class _Endless(_Open):
    def splits(self, start: Offsets, end: Offsets | None) -> list[Split]:
        return [Split(str(n), "0", None) for n in range(len(self.tables))]


def _as_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [batch["window_start"], batch["count"].cast(pa.string())]
    return pa.record_batch(columns, schema=SCHEMA)
