"""Sources of the project, read by the embedded runtime."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event

import pyarrow as pa

from abs_core.runtime import Graph
from abs_core.runtime.tables import TableSource
from abs_core.source import Limit, Offsets, Split
from abs_core.testing.harness import SCHEMA
from abs_sources.files import FileOptions, FileSource
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
