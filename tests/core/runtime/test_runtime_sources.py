"""Sources of the project, read by the embedded runtime."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from abs_core.errors import ReplayMismatchError, UnavailableError
from abs_core.runtime import EventTime, Graph
from abs_core.runtime.channel import Channel
from abs_core.runtime.elements import Watermark
from abs_core.runtime.sources import SourceOperator, begin, first_entries
from abs_core.runtime.tables import TableReader, TableSource
from abs_core.source import Limit, Offsets, Split
from abs_core.state.codecs import TEXT
from abs_core.state.contracts import BlobRef
from abs_core.state.local_store import LocalSnapshotStore
from abs_core.state.operator_state import OperatorState
from abs_core.testing.harness import SCHEMA
from abs_sources.files import FileOptions, FileSource
from abs_sources.files import log as logs
from tests.core.runtime.bench import Bench


def test_files_are_read_once_each_over_stops_and_starts(tmp_path: Path) -> None:
    bench, folder = Bench(tmp_path), tmp_path / "in"
    folder.mkdir()
    for number in range(5):
        lines = [json.dumps({"id": number * 100 + n, "value": "x"}) for n in range(100)]
        (folder / f"{number}.json").write_text("\n".join(lines) + "\n")
    given = {"path": str(folder), "fileformat": "json"}
    for _ in range(2):
        source = FileSource(FileOptions.parse(given, streaming=False), SCHEMA)
        built = Graph("files", parallelism=2)
        built.source("in", source).sink("out", bench.sink)
        bench.job(built).run()
    assert sorted(id_ for id_, _ in bench.rows()) == list(range(500))


def test_a_source_under_the_id_that_another_operator_had_begins_at_its_beginning(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    table = pa.table({"id": range(300), "value": ["x"] * 300})
    before = Graph("ids")
    before.source("rows", TableSource([table])).map("more", lambda b: b).sink("out", bench.sink)
    bench.job(before).run()
    after = Graph("ids")
    rows = after.source("rows", TableSource([table]))
    rows.union("both", after.source("more", TableSource([table]))).sink("out", bench.sink)
    bench.job(after).run()
    assert sorted(id_ for id_, _ in bench.rows()) == sorted([*range(300), *range(300)])


def test_the_log_of_an_endless_job_is_folded_up_to_what_a_kept_snapshot_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("KEPT", 2), ("_FOLD_AFTER", 4), ("_FOLD_ANYWAY", 4)):
        monkeypatch.setattr(logs, name, value)
    bench, folder, log = Bench(tmp_path), tmp_path / "in", tmp_path / "log"
    folder.mkdir()
    given = {"path": str(folder), "fileformat": "json", "log": str(log)}
    for start in (0, 20):
        options = FileOptions.parse(given, streaming=True)
        source = FileSource(replace(options, poll_seconds=0.005, readers=2), SCHEMA)
        built = Graph("files", parallelism=2)
        built.source("in", source, bounded=False).sink("out", bench.sink)
        stop = Event()
        job = Thread(target=bench.job(built).run, kwargs={"stop": stop})
        job.start()
        try:
            for number in range(start, start + 20):
                (tmp_path / "new").write_text(json.dumps({"id": number, "value": "x"}) + "\n")
                (tmp_path / "new").rename(folder / f"{number}.json")
                _until(lambda: len(bench.rows()) > number)  # noqa: B023
            _until(lambda: _entries(log) < 15)
        finally:
            stop.set()
            job.join()
        assert sorted(id_ for id_, _ in bench.rows()) == list(range(start + 20))


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
        _until(lambda: len(bench.rows()) >= 3)
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


def test_a_batch_that_is_cut_goes_on_from_its_middle_after_a_restart() -> None:
    """By the rows that were emitted of it, also where it is read in other pieces then."""
    table = pa.table({"id": range(100)})
    seen: list[int] = []
    start: tuple[str, ...] = (json.dumps(["0", "0", "100", None]),)
    for batch_rows in (100, 7, 40, 1, 100, 100, 100, 100, 100, 100):
        positions = OperatorState().list("splits", TEXT)
        positions.put(start)
        reader = SourceOperator(TableSource([table], batch_rows), positions, None, 11)
        for _ in range(1 if batch_rows > 11 else 3):
            reader.poll(lambda batch: seen.extend(batch["id"].to_pylist()))
        reader.pre_commit(0)
        start = tuple(positions.get())
    assert seen == list(range(len(seen)))
    assert len(seen) > 80


def test_a_channel_never_holds_more_rows_than_its_bound(tmp_path: Path) -> None:
    """Also where the source gives a million at once: they are cut."""
    bench, most = Bench(tmp_path), 1_000
    put, seen = Channel.put, list[int]()

    def watched(channel: Channel, element: Any) -> None:
        put(channel, element)
        seen.append(channel.rows)

    table = pa.table({"id": range(100_000), "value": ["x"] * 100_000})
    built = Graph("wide", parallelism=2)
    rows = built.source("in", TableSource([table, table], 100_000), parallelism=1)
    rows.key_by("id").stateless("slow", "map", lambda batch: [batch]).sink("out", bench.sink)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Channel, "put", watched)
        bench.job(built, rows=most).run()
    assert len(bench.rows()) == 200_000
    assert most / 2 < max(seen) <= most


def _entries(log: Path) -> int:
    return sum(path.name.startswith("entry-") for path in log.iterdir())


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class _Growing(TableSource):
    """Has one more table each time that it is asked for its latest offsets."""

    def latest(self, start: Offsets, limit: Limit) -> Offsets:
        asked.append(len(asked))
        return str(min(len(asked) + 1, len(self.tables)))

    def splits(self, start: Offsets, end: Offsets | None) -> list[Split]:
        return list(super().splits(start, end))[: int(end or 0)]


asked: list[int] = []


def test_a_source_is_asked_once_where_a_job_begins_for_all_of_its_tasks(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    tables = [pa.table({"id": [n], "value": ["x"]}, schema=SCHEMA) for n in range(8)]
    built = Graph("growing", parallelism=3)
    built.source("in", _Growing(tables)).sink("out", bench.sink)
    bench.job(built).run(stop=Event())
    assert sorted(bench.rows()) == [(0, "x"), (1, "x")]


@dataclass(frozen=True)
class _Topic(TableSource):
    """As a topic that is read from its end on: it begins where it ends whenever it is asked."""

    asked: list[int] = field(default_factory=list)

    def initial(self) -> Offsets:
        self.asked.append(len(self.asked))
        return str(100 * self.asked[-1])

    def splits(self, start: Offsets, end: Offsets | None) -> list[Split]:
        return [Split("0", start, str(self.tables[0].num_rows))]


class _NoRoom(LocalSnapshotStore):
    """Makes nothing durable before it is told to."""

    room = Event()

    def put(self, key: str, content: bytes) -> BlobRef:
        raise AssertionError("this job has no blobs")

    def complete(self, checkpoint: int, record: bytes, blobs: Iterable[BlobRef]) -> None:
        if not self.room.is_set():
            raise UnavailableError("planted: no room")
        super().complete(checkpoint, record, blobs)


def test_an_endless_source_is_read_from_where_the_first_snapshot_says(tmp_path: Path) -> None:
    """A region fails, and then the process, before anything was decided."""
    bench, asked, begun = Bench(tmp_path), list[int](), list[int]()
    bench.store = store = _NoRoom(tmp_path / "none")
    table = pa.table({"id": range(400), "value": ["x"] * 400}, SCHEMA)

    def fails_once(batch: pa.RecordBatch) -> pa.RecordBatch:
        begun.append(batch["id"][0].as_py())
        if len(begun) == 1:
            raise OSError("planted")
        return batch

    def job(stop: Event) -> Thread:
        built = Graph("topic")
        source = built.source("in", _Topic([table], 10, asked), bounded=False)
        source.map("fails", fails_once).sink("out", bench.sink)
        running = Thread(target=bench.job(built).run, kwargs={"stop": stop})
        running.start()
        return running

    first, stop = Event(), Event()
    running = job(first)
    _until(lambda: asked == [0])
    first.set()
    running.join()
    assert not begun, "a record was read before a snapshot held where it was"
    store.room.set()
    job(stop).join(120)
    store.room.clear()
    assert begun[0] == 100
    assert asked == [0, 1], "a restored region asked once more"
    assert sorted(id_ for id_, _ in bench.rows()) == list(range(100, 400))


def test_a_restart_reads_what_came_to_a_source_and_drops_what_left_it() -> None:
    table = pa.table({"id": range(40)})

    @dataclass(frozen=True)
    class Growing(TableSource):
        def resumed(self, left: list[Split]) -> list[Split]:
            return [each for each in left if each.source != "1"] + [Split("2", "0", None)]

    def entry(source: str, start: str, *more: object) -> str:
        return json.dumps([source, start, None, *more])

    built = Graph("grows", parallelism=2)
    built.source("in", Growing([table] * 3), bounded=False)
    kept = [[entry("0", "7", 12, 3)], [entry("1", "9", None)]]
    states = []
    for entries in kept:
        state = OperatorState()
        state.list("splits", TEXT).put(entries)
        states.append(OperatorState(state.snapshot()))
    assert not begin(built.nodes["in"], states), "it begins where the snapshot says"
    found = [state.list("splits", TEXT).get() for state in states]
    assert found == [[entry("0", "7", 12, 3)], [entry("2", "0", None)]]


def test_a_reader_that_may_find_less_the_next_time_is_asked_for_small_batches() -> None:
    """A place in the middle of a batch would be a number of rows; compaction makes it another place."""

    class Compacted(TableReader):
        def at_most(self, rows: int) -> None:
            self._batch_rows = rows

    @dataclass(frozen=True)
    class Topic(TableSource):
        def open(self, split: Split) -> Compacted:
            return Compacted(self.tables[0], split, 20)

    positions = OperatorState().list("splits", TEXT)
    positions.put([json.dumps(["0", "0", "40", None])])
    emitted: list[Any] = []
    reader = SourceOperator(Topic([pa.table({"id": range(40)})]), positions, rows=6)
    reader.poll(emitted.append)
    reader.pre_commit(0)
    assert [len(each) for each in emitted] == [6]
    assert positions.get() == [json.dumps(["0", "6", "40", -(1 << 63)])]


def test_a_place_is_kept_only_once_its_reader_was_asked_about_it() -> None:
    """Its name may have been taken by another topic meanwhile."""

    class Remade(TableReader):
        def check(self) -> None:
            raise ReplayMismatchError("planted: another topic.")

    @dataclass(frozen=True)
    class Topic(TableSource):
        def open(self, split: Split) -> Remade:
            return Remade(self.tables[0], split, 20)

    positions = OperatorState().list("splits", TEXT)
    positions.put([json.dumps(["0", "0", "20", None])])
    reader = SourceOperator(Topic([pa.table({"id": range(20)})]), positions)
    reader.poll(lambda batch: None)
    assert reader.finished
    with pytest.raises(ReplayMismatchError, match="planted"):
        reader.pre_commit(0)
    assert positions.get() == [json.dumps(["0", "0", "20", None])]


def test_a_source_that_cannot_be_asked_fails_the_checkpoint_and_not_the_job(tmp_path: Path) -> None:
    """Its servers are away for a while: there is nothing to read, and nothing to restore."""
    bench, asked, what_was = Bench(tmp_path), list[int](), list[str]()

    class Away(TableReader):
        def check(self) -> None:
            asked.append(len(asked))
            if len(asked) < 4:
                raise UnavailableError("planted: no answer.")

    @dataclass(frozen=True)
    class Topic(TableSource):
        def open(self, split: Split) -> Away:
            return Away(self.tables[0], split, 20)

    built = Graph("away")
    table = pa.table({"id": range(200), "value": ["x"] * 200}, SCHEMA)
    built.source("in", Topic([table])).sink("out", bench.sink)
    bench.job(built, restarts=0, observe=lambda what, *_: what_was.append(what)).run()
    assert sorted(id_ for id_, _ in bench.rows()) == list(range(200))
    assert what_was.count("aborted") == 3
    assert "restored" not in what_was
