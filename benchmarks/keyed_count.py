"""A keyed count in the embedded runtime and in Bytewax, over the same keys.

Ours reads an Arrow table in memory and takes an aligned snapshot each second, with a sink that commits;
Bytewax reads a list of Python strings in memory, without snapshots. Each form keeps the last count of
each key; all must be the same. PyFlink: see ``keyed_count_flink``.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa

from abs_embedded import Graph, Job, Settings
from abs_embedded.keyed import KeyedContext
from abs_embedded.operators import Row
from abs_embedded.state.codecs import INT64
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from abs_testing.fakes import FakeSink, FakeTarget
from benchmarks.meter import metered
from benchmarks.other_spark import Installed, Session, session
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import Bar, Sample
from benchmarks.report import Comparison, Result

ROWS, KEYS, BATCH = 2_000_000, 4_000, 32_768
ARROW_BAR, ROW_BAR = Bar(low=5.0), Bar(low=0.5)
SCHEMA = pa.schema([("key", pa.string()), ("count", pa.int64())])


def keys(rows: int) -> pa.Array:
    """Random ones, the same in each run."""
    names = pa.array([f"user-{key:05}" for key in range(KEYS)])
    return names.take(pa.array(np.random.default_rng(7).integers(0, KEYS, rows)))


def against_bytewax(bytewax: Path, *, pairs: int, rows: int | None, tell: Tell) -> Iterator[Result]:
    """With one and with two workers.

    Args:
        bytewax: an interpreter that has it.
    """
    data = keys(rows or ROWS)
    expected = expected_digest(data)
    with _file(data) as path, session("bytewax_count.py", _peer_at(bytewax, path)) as peer:
        for workers in (1, 2):
            sides = [
                Side("arrow", lambda w=workers: ours("arrow", data, w, expected)),  # type: ignore[misc]
                Side("rows", lambda w=workers: ours("rows", data, w, expected)),  # type: ignore[misc]
                _peer("bytewax, batches", peer, "batch", workers, len(data), expected),
                _peer("bytewax, records", peer, "record", workers, len(data), expected),
            ]
            yield _result(workers, interleave(sides, pairs=pairs, tell=tell))


@contextmanager
def _file(data: pa.Array) -> Iterator[Path]:
    """The keys as lines."""
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as folder:
        path = Path(folder) / "keys.txt"
        path.write_text("\n".join(data.to_pylist()))
        yield path


def _peer_at(python: Path, path: Path) -> Installed:
    return Installed(str(python.absolute()), [str(path)])


def _result(workers: int, samples: Mapping[str, list[Sample]]) -> Result:
    return Result(
        f"keyed_count, {workers} worker{'s' * (workers > 1)}",
        "rows",
        samples,
        [
            Comparison("arrow", "bytewax, batches", ARROW_BAR),
            Comparison("arrow", "bytewax, records"),
            Comparison("rows", "bytewax, records", ROW_BAR),
            Comparison("rows", "bytewax, batches"),
        ],
        {"keys": KEYS, "rows in a batch of ours": BATCH},
    )


def _peer(name: str, peer: Session, form: str, workers: int, rows: int, expected: str) -> Side:
    def once() -> Sample:
        with metered() as reading:
            said = peer.ask({"form": form, "workers": workers})
        assert said["digest"] == expected, f"{name} counted something else"
        return Sample(said["seconds"], reading.cpu_s, rows)

    return Side(name, once)


def ours(form: str, data: pa.Array, workers: int, expected: str) -> Sample:
    """One run of the embedded runtime.

    Args:
        form: ``arrow`` by whole batches, ``rows`` with a Python function for each row.
    """
    share = len(data) // workers
    tables = [pa.table({"key": data[n * share : (n + 1) * share]}) for n in range(workers)]
    kept: list[pa.RecordBatch] = []

    def keep(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        kept.append(batch)
        return []

    with tempfile.TemporaryDirectory(prefix="abs-bench-") as folder:
        target = FakeTarget(Path(folder) / "target.db")
        sink = FakeSink(target, "2pc", "append")
        graph = Graph("count", parallelism=workers)
        keyed = graph.source("keys", TableSource(tables, BATCH)).key_by("key")
        if form == "arrow":
            counted = keyed.reduce("count", "count")
        else:
            counted = keyed.process(
                "count", count_row, SCHEMA, lambda c: {"n": c.value("n", INT64)}
            )
        counted.flat_map("last", keep).sink("out", sink)
        store = LocalSnapshotStore(Path(folder) / "snapshots")
        job = Job(graph, store, sink.register(), settings=Settings(interval=1.0))
        with metered() as reading:
            job.run()
        target.close()
    last = dict[str, int]()
    for batch in kept:
        last.update(zip(batch["key"].to_pylist(), batch["count"].to_pylist(), strict=True))
    assert digest(last) == expected, f"{form} counted something else"
    return Sample(reading.wall_s, reading.cpu_s, len(data))


def count_row(row: Row, context: KeyedContext) -> list[Row]:
    state = context.states["n"]
    count = (state.get(context.key) or 0) + 1
    state.put(context.key, count)
    return [{"key": row["key"], "count": count}]


def digest(counts: dict[str, int]) -> str:
    return sha256(json.dumps(sorted(counts.items())).encode()).hexdigest()


def expected_digest(data: pa.Array) -> str:
    """That of the right counts, by pyarrow."""
    counted = data.value_counts()
    pairs = zip(*(counted.field(n).to_pylist() for n in ("values", "counts")), strict=True)
    return digest(dict(pairs))
