"""Sources of the project, read by jobs of the embedded runtime."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pytest

from abs_core.errors import UnavailableError
from abs_core.source import Limit, Offsets, Split
from abs_embedded import Graph
from abs_embedded.channel import Channel
from abs_embedded.state.contracts import BlobRef
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableReader, TableSource
from abs_sources.files import FileOptions, FileSource
from abs_sources.files import log as logs
from abs_testing.harness import SCHEMA
from tests.embedded.bench import Bench, until


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
    monkeypatch.setattr(logs, "KEPT", 2)
    monkeypatch.setattr(logs, "_FOLD_AFTER", 4)
    monkeypatch.setattr(logs, "_FOLD_ANYWAY", 4)
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
                until(lambda: len(bench.rows()) > number)  # noqa: B023
            until(lambda: _entries(log) < 15)
        finally:
            stop.set()
            job.join()
        assert sorted(id_ for id_, _ in bench.rows()) == list(range(start + 20))


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
    until(lambda: asked == [0])
    first.set()
    running.join()
    assert not begun, "a record was read before a snapshot held where it was"
    store.room.set()
    job(stop).join(120)
    store.room.clear()
    assert begun[0] == 100
    assert asked == [0, 1], "a restored region asked once more"
    assert sorted(id_ for id_, _ in bench.rows()) == list(range(100, 400))


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
