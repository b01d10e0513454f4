"""An epoch into a table of the lake on S3, against the same epoch as plain files of the sink abs-s3.

Two writers, one after another, and the commit of a coordinator; without Spark, whose share would hide
the sinks'. The tables are there before. The trend is of small epochs into one table in a folder, with
its own compaction and expiry.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

from abs_core.contracts import Sink, Task
from abs_core.coordinator import Coordinator, Report
from abs_core.model import Wrote
from abs_core.protocol import RunIdentity, Write
from abs_services import S3Service
from abs_sinks.delta import DeltaOptions, DeltaSink
from abs_sinks.iceberg import IcebergOptions, IcebergSink
from abs_sinks.s3 import S3Options, S3Sink
from benchmarks import rows as made
from benchmarks.meter import metered
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import Bar, Sample
from benchmarks.report import Comparison, Result, epoch_times
from benchmarks.s3_folder import fresh_folder

ROWS, TASKS, BATCH = 500_000, 2, 100_000
SMALL, EPOCHS, COMPACTED = 100, 2_000, 100
"""Rows of a small epoch, epochs of the trend, and how often the table is compacted."""
KEPT = "delta.logRetentionDuration"
"""In a folder each load lists the whole log; with its default of 30 days that grew from 22 to 44 ms."""
FILES, DELTA, ICEBERG, PEER = "abs-s3, 2pc", "abs-delta", "abs-iceberg", "deltalake append"
BAR = Bar(low=0.9)


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a job with one sink."""

    sink: Sink

    def epochs(self, batches: list[list[pa.RecordBatch]], count: int) -> Iterator[None]:
        """Write so many epochs of the same batches: a list for each task."""
        sink = self.sink
        who = RunIdentity("job", "lineage", secrets.token_hex(4), sink.target_id, None, None)
        coordinator = Coordinator(who, sink.register(), sink.committer(), is_empty=sink.is_empty)
        for epoch in range(count):
            state, planned = coordinator.begin(epoch)
            assert isinstance(planned, Write)
            shares = []
            for partition, given in enumerate(batches):
                mine = (state.register, "job", state.generation, epoch, partition)
                writer = sink.writer(Task(*mine, secrets.token_hex(6)))
                for batch in given:
                    writer.write(batch)
                shares.append(Wrote(sum(b.num_rows for b in given), writer.pre_commit()))
            coordinator.commit(Report(epoch, shares, None))
            yield


def run(service: S3Service, *, pairs: int, rows: int | None, tell: Tell) -> Iterator[Result]:
    """The ratios of an epoch, then the trend."""
    wanted = rows or ROWS
    share = made.table(wanted // TASKS)
    batches = [share.to_batches(max_chunksize=BATCH)] * TASKS

    def of(opened: Callable[[S3Service], Any]) -> Callable[[], Sample]:
        def once() -> Sample:
            with opened(service) as write, metered() as taken:
                began = time.perf_counter()
                write(batches)
                wall = time.perf_counter() - began
            return Sample(wall, taken.cpu_s, wanted)

        return once

    sides = {FILES: _files, DELTA: _delta, ICEBERG: _iceberg, PEER: _peer}
    samples = interleave(
        [Side(name, of(opened)) for name, opened in sides.items()], pairs=pairs, tell=tell
    )
    yield Result(
        name="lake_s3",
        unit="rows",
        samples=samples,
        comparisons=[
            Comparison(DELTA, FILES, BAR),
            Comparison(ICEBERG, FILES),
            Comparison(DELTA, PEER),
        ],
        facts={
            "rows per epoch": f"{wanted:,}",
            "tasks": TASKS,
            **epoch_times(samples),
            **{f"CPU ms of a small epoch, {kind}": trend(kind) for kind in ("delta", "iceberg")},
        },
        notes=(
            f"small epochs: {SMALL} rows, in a folder; CPU of this process by tenths of {EPOCHS:,}",
            f"the table is compacted, or its snapshots expired, every {COMPACTED} epochs, untimed",
        ),
    )


Writing = Callable[[list[list[pa.RecordBatch]]], None]


def _once(sink: Sink) -> Writing:
    def write(batches: list[list[pa.RecordBatch]]) -> None:
        list(Job(sink).epochs(batches, 1))
        sink.close()

    return write


@contextmanager
def _files(service: S3Service) -> Iterator[Writing]:
    with fresh_folder(service) as folder:
        yield _once(S3Sink(S3Options.parse(folder.options), made.table(1).schema))


@contextmanager
def _delta(service: S3Service) -> Iterator[Writing]:
    with fresh_folder(service) as folder:
        options = DeltaOptions.parse({**folder.options, "createtable": "true"})
        options.address.create(made.table(1).schema, ())
        yield _once(DeltaSink(options, made.table(1).schema))


@contextmanager
def _iceberg(service: S3Service) -> Iterator[Writing]:
    with fresh_folder(service) as folder, tempfile.TemporaryDirectory() as scratch:
        given = dict(folder.options)
        catalog = catalog_in(Path(scratch), given.pop("path"))
        options = IcebergOptions.parse({**given, **catalog})
        options.address.create(made.table(1).schema, ())
        yield _once(IcebergSink(options, made.table(1).schema))


@contextmanager
def _peer(service: S3Service) -> Iterator[Writing]:
    """The library alone: at least once, and all rows in one file."""
    with fresh_folder(service) as folder:
        log = DeltaOptions.parse(folder.options).address
        log.create(made.table(1).schema, ())

        def write(batches: list[list[pa.RecordBatch]]) -> None:
            rows = pa.Table.from_batches([batch for each in batches for batch in each])
            write_deltalake(log.url, rows, mode="append", storage_options=log._storage())

        yield write


def trend(kind: str) -> list[float]:
    """CPU of a small epoch, the median of each tenth."""
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as name:
        folder, taken = Path(name), list[float]()
        schema = made.table(1).schema
        sink: Any
        if kind == "delta":
            place = str(folder / "t")
            DeltaTable.create(place, schema, configuration={KEPT: "interval 5 seconds"})
            sink = DeltaSink(DeltaOptions.parse({"path": place}), schema)
        else:
            sink = IcebergSink(IcebergOptions.parse(catalog_in(folder, f"file://{folder}")), schema)
        batches = [made.table(SMALL // TASKS).to_batches()] * TASKS
        began = time.process_time()
        for number, _ in enumerate(Job(sink).epochs(batches, EPOCHS), 1):
            taken.append(time.process_time() - began)
            if number % COMPACTED == 0:
                _cleaned(kind, folder)
            began = time.process_time()
    tenth = EPOCHS // 10
    parts = (taken[at : at + tenth] for at in range(0, EPOCHS, tenth))
    return [round(median(part) * 1e3, 1) for part in parts]


def catalog_in(folder: Path, warehouse: str) -> dict[str, str]:
    """The options of a table in a new catalog."""
    given = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": warehouse}
    load_catalog("default", **given).create_namespace_if_not_exists("db")
    named = {f"catalog.{name}": value for name, value in given.items()}
    return {"table": "db.t", "createtable": "true", **named}


def _cleaned(kind: str, folder: Path) -> None:
    if kind == "delta":
        log = DeltaTable(str(folder / "t"))
        log.optimize.compact()
        log.vacuum(0, False, False)
        return
    given = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}
    made = load_catalog("default", **given).load_table("db.t")
    old = [each.snapshot_id for each in made.snapshots()[:-10]]
    made.maintenance.expire_snapshots().by_ids(old).commit()
