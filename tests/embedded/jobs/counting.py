"""A small job as a process of its own: counts rows by key, and writes what each row was the n-th of.

Usage: counting.py FOLDER STRATEGY [POSTGRES_URL]; prints ``done`` when everything is committed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa

from abs_core.contracts import Sink
from abs_core.eventlog import VARIABLE, to_file
from abs_core.events import ignore
from abs_embedded import Graph, Job, Settings
from abs_embedded.keyed import KeyedContext
from abs_embedded.operators import Row
from abs_embedded.sinks import Sinks
from abs_embedded.state.codecs import INT64
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from abs_testing.fakes import FakeSink, FakeTarget
from abs_testing.harness import SCHEMA

KEYS, ROWS, SPLITS = 7, 6_000, 4


def tables(rows: int = ROWS) -> list[pa.Table]:
    ids = [range(split, rows, SPLITS) for split in range(SPLITS)]
    return [pa.table({"id": list(i), "key": [n % KEYS for n in i]}) for i in ids]


def count(row: Row, at: KeyedContext) -> list[Row]:
    n = (at.states["count"].get(at.key) or 0) + 1
    at.states["count"].put(at.key, n)
    return [{"id": row["id"], "value": f"{row['key']}:{n}"}]


def graph(
    sink: Sink | Sinks, *, parallelism: int = 2, rows: int = ROWS, batch_rows: int = 20
) -> Graph:
    built = Graph("counting", parallelism=parallelism)
    (
        built.source("rows", TableSource(tables(rows), batch_rows))
        .key_by("key")
        .process("count", count, SCHEMA, lambda c: {"count": c.value("count", INT64)})
        .sink("out", sink)
    )
    return built


def expected(rows: int = ROWS) -> tuple[list[int], list[str]]:
    """All ids, and all values, sorted."""
    counts = [len(range(key, rows, KEYS)) for key in range(KEYS)]
    values = [f"{key}:{n + 1}" for key, total in enumerate(counts) for n in range(total)]
    return list(range(rows)), sorted(values)


def main(folder: Path, strategy: str, url: str | None) -> None:
    if url is None:
        sink: Sink = FakeSink(FakeTarget(folder / "target.db"), "2pc", "append")
    else:
        from abs_sinks.postgres.options import PostgresOptions
        from abs_sinks.postgres.sink import PostgresSink

        sink = PostgresSink(PostgresOptions.parse({"url": url, "dbtable": "counted"}), SCHEMA)
    Job(
        graph(sink, parallelism=int(os.environ.get("PARALLELISM", "2"))),
        LocalSnapshotStore(folder / "snapshots"),
        sink.register(),
        strategy=strategy,
        settings=Settings(interval=0.05),
        events=to_file() if os.environ.get(VARIABLE) else ignore,
    ).run()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)
