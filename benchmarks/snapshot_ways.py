"""Run time against snapshot interval, for each way to take snapshots.

The job of the ABS paper's evaluation in small (Carbone et al. 2015, fig. 6): six operators and a sink,
three shuffles, keyed state, two tasks each, all in one process. The ways take turns, each run in a
process of its own: none gets its memory as another one has left it.

At 3 seconds snapshots go to the local disk. In the sweep they go to a store that answers as late as an
object store does: a way that stops waits for the store, and on a local disk that is not long.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abs_embedded import Graph, Job, Settings
from abs_embedded.state.contracts import BlobRef
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from abs_embedded.trace import Trace, checkpoints, timeline
from abs_testing.fakes import FakeSink, FakeTarget
from benchmarks.meter import metered
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import NO_BAR, Bar, Sample
from benchmarks.report import Comparison, Result

WAYS = ("none", "aligned", "unaligned", "drain", "stop_the_world")
ROWS_AT = {0.1: 1_500_000, 0.3: 1_500_000, 1.0: 3_000_000, 3.0: 8_000_000}
"""For each interval, in seconds, so many rows that a run spans three checkpoints or more."""
KEYS, BATCH, CAPACITY = 20_000, 8192, 4
ANSWER_S = 0.05
"""By how much the sweep's store answers later than the disk: 20 to 100 ms are usual for a put to S3."""
AT_3_S, BELOW_1_S = Bar(low=0.97), Bar(high=0.9)
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "snapshot-ways.png"


def at_3_seconds(*, pairs: int, rows: int | None, tell: Tell) -> Result:
    """Aligned snapshots against none, at the interval of the paper's scaling figure."""
    sides = _sides(rows or ROWS_AT[3.0], 3.0, ("none", "aligned"), LocalSnapshotStore)
    samples = interleave(sides, pairs=pairs, tell=tell)
    comparisons = [Comparison("aligned", "none", AT_3_S)]
    return _result("snapshot_ways, aligned every 3 s", samples, comparisons)


def sweep(*, pairs: int, rows: int | None, tell: Tell) -> Iterator[Result]:
    """Every way at every interval, in a third of the rounds; then the picture."""
    found: dict[float, Mapping[str, list[Sample]]] = {}
    for interval, enough in ROWS_AT.items():
        rounds = max(1, pairs // 3)
        sides = _sides(rows or enough, interval, WAYS, LateStore)
        found[interval] = interleave(sides, pairs=rounds, warm_up=0, tell=tell)
        behind = BELOW_1_S if interval < 1 else NO_BAR
        yield _result(
            f"snapshot_sweep, every {interval:g} s",
            found[interval],
            [
                *(Comparison(way, "none") for way in WAYS[1:]),
                Comparison("stop_the_world", "aligned", behind),
            ],
        )
    draw(found)


class LateStore(LocalSnapshotStore):
    """Every write takes ``ANSWER_S`` longer."""

    def put(self, key: str, content: bytes) -> BlobRef:
        time.sleep(ANSWER_S)
        return super().put(key, content)

    def complete(self, checkpoint: int, record: bytes, blobs: Iterable[BlobRef]) -> None:
        time.sleep(ANSWER_S)
        super().complete(checkpoint, record, blobs)


def _sides(
    rows: int, interval: float, ways: tuple[str, ...], store: type[LocalSnapshotStore]
) -> list[Side]:
    def side(way: str) -> Side:
        return Side(way, lambda: _apart(rows, way, interval, store))

    return [side(way) for way in ways]


def _apart(rows: int, way: str, interval: float, store: type[LocalSnapshotStore]) -> Sample:
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(_run, rows, way, interval, store).result()


def _run(rows: int, way: str, interval: float, store: type[LocalSnapshotStore]) -> Sample:
    return once(tables(rows), way, interval, store)


def _result(
    name: str, samples: Mapping[str, list[Sample]], comparisons: list[Comparison]
) -> Result:
    facts = {
        f"{part} of {way} (median)": round(median(dict(s.parts)[part] for s in taken), 2)
        for way, taken in samples.items()
        if way != "none"
        for part in ("checkpoints", "ms of a checkpoint", "ms of alignment")
    }
    return Result(name, "rows", samples, comparisons, facts)


def tables(rows: int) -> list[pa.Table]:
    """Two tables of random keys, one for each task of the source."""
    chance = np.random.default_rng(6)
    half = rows // 2
    return [
        pa.table({"key": chance.integers(0, KEYS, half), "n": np.arange(half)}) for _ in range(2)
    ]


def graph(data: list[pa.Table], sink: FakeSink) -> Graph:
    """source, map | count | filter | max, map: three shuffles, two of them into state."""
    built = Graph("ways", parallelism=2)
    (
        built.source("source", TableSource(data, BATCH))
        .map("double", lambda b: b.set_column(1, "n", pc.multiply(b["n"], 2)))
        .key_by("key")
        .reduce("count", "count")
        .key_by("count")
        .filter("some", lambda b: pc.greater(b["count"], 1))
        .key_by("key")
        .reduce("max", "max", "count")
        .map("few", few)
        .sink("out", sink)
    )
    return built


def few(batch: pa.RecordBatch) -> pa.RecordBatch:
    """One row of each batch: the sink is not what is measured."""
    one = batch.slice(0, 1)
    return pa.record_batch([one["key"], one["max"].cast("string")], names=["id", "value"])


def once(
    data: list[pa.Table],
    way: str,
    interval: float,
    store: type[LocalSnapshotStore] = LocalSnapshotStore,
) -> Sample:
    """One run; its parts say how many checkpoints there were, and how long one took."""
    with tempfile.TemporaryDirectory(prefix="abs-ways-") as scratch:
        target = FakeTarget(Path(scratch) / "target.db")
        sink = FakeSink(target, "2pc", "append")
        trace = Trace()
        job = Job(
            graph(data, sink),
            store(Path(scratch) / "snapshots"),
            sink.register(),
            strategy=way,
            settings=Settings(interval=interval),
            capacity=CAPACITY,
            observe=trace,
        )
        with metered() as reading:
            job.run()
        target.close()
    rows = sum(table.num_rows for table in data)
    return Sample(reading.wall_s, reading.cpu_s, rows, tuple(_checkpoints(trace).items()))


def _checkpoints(trace: Trace) -> dict[str, float]:
    # The last one comes after the data: nobody waits for it.
    lines = [timeline(trace.moments, number) for number in checkpoints(trace.moments)][:-1]
    spans = [span for line in lines for span in line.spans]
    aligned = [span.copied - span.first for span in spans if span.copied is not None]
    took = [dict(line.marks)["committed"] for line in lines]
    return {
        "checkpoints": len(lines),
        "ms of a checkpoint": 1e3 * median(took) if took else 0.0,
        "ms of alignment": 1e3 * median(aligned) if aligned else 0.0,
    }


def draw(found: Mapping[float, Mapping[str, list[Sample]]]) -> None:
    """Run time in times of that without snapshots in the same round: median, least and most."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for turn, way in enumerate(WAYS[1:]):
        times = [
            [a.wall_s / b.wall_s for a, b in zip(taken[way], taken["none"], strict=True)]
            for taken in found.values()
        ]
        middle = [median(one) for one in times]
        spread = [
            [m - min(one) for m, one in zip(middle, times, strict=True)],
            [max(one) - m for m, one in zip(middle, times, strict=True)],
        ]
        beside = [at * 1.04 ** (turn - 1.5) for at in found]
        axes.errorbar(beside, middle, spread, marker="o", capsize=3, label=way.replace("_", " "))
    axes.axhline(1, color="gray", linestyle="--", label="none")
    axes.set_xscale("log")
    axes.set_xticks(list(found), [f"{at:g}" for at in found], minor=False)
    axes.minorticks_off()
    axes.set_xlabel("snapshot interval, seconds")
    axes.set_ylabel("run time / run time without snapshots")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.savefig(PICTURE, dpi=120)
