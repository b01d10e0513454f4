"""``python -m benchmarks.snapshot_ways``: run time against snapshot interval, for each way to snapshot.

The job of the ABS paper's evaluation in small: six operators, three shuffles, keyed state, all in one
process. The ways take turns, so that a slow minute of the machine hits all of them. Writes
``results/snapshot_ways.json`` and ``docs/images/snapshot-ways.png``.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abs_core.runtime import Graph, Job, Settings
from abs_core.runtime.tables import TableSource
from abs_core.runtime.trace import Trace, checkpoints, timeline
from abs_core.state.local_store import LocalSnapshotStore
from abs_core.testing.fakes import FakeSink, FakeTarget

WAYS = ("aligned", "unaligned", "drain", "stop_the_world")
INTERVALS = (0.1, 0.3, 1.0, 3.0)
RESULTS = Path(__file__).parent / "results" / "snapshot_ways.json"
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "snapshot-ways.png"


def tables(rows: int, keys: int) -> list[pa.Table]:
    chance = np.random.default_rng(6)
    return [
        pa.table({"key": chance.integers(0, keys, rows), "n": np.arange(rows)}) for _ in range(2)
    ]


def graph(data: list[pa.Table], sink: FakeSink) -> Graph:
    """source, map | count | filter | max | sink: three shuffles, two of them into state."""
    built = Graph("ways", parallelism=2)
    (
        built.source("source", TableSource(data, 8192))
        .map("double", lambda b: b.set_column(1, "n", pc.multiply(b["n"], 2)))
        .key_by("key")
        .reduce("count", "count")
        .key_by("count")
        .filter("some", lambda b: pc.greater(b["count"], 1))
        .key_by("key")
        .reduce("max", "max", "count")
        .map("few", lambda b: b.slice(0, 1))
        .map(
            "text",
            lambda b: pa.record_batch([b["key"], b["max"].cast("string")], names=["id", "value"]),
        )
        .sink("out", sink)
    )
    return built


def once(data: list[pa.Table], way: str, interval: float) -> dict[str, float]:
    """One run: seconds, checkpoints, and the median alignment of a task in milliseconds."""
    with tempfile.TemporaryDirectory(prefix="abs-ways-") as scratch:
        target = FakeTarget(Path(scratch) / "target.db")
        sink = FakeSink(target, "2pc", "append")
        trace = Trace()
        job = Job(
            graph(data, sink),
            LocalSnapshotStore(Path(scratch) / "snapshots"),
            sink.register(),
            way=way,
            settings=Settings(interval=interval),
            observe=trace,
        )
        began = time.monotonic()
        job.run()
        seconds = time.monotonic() - began
        target.close()
    done = checkpoints(trace.moments)
    spans = [s for n in done for s in timeline(trace.moments, n).spans if s.copied is not None]
    aligned = [s.copied - s.first for s in spans if s.copied is not None]
    return {
        "seconds": seconds,
        "checkpoints": len(done),
        "alignment_ms": 1000 * median(aligned) if aligned else 0.0,
    }


def main(rows: int, rounds: int) -> None:
    data = tables(rows, 50_000)
    once(data, "none", 1.0)  # warm
    samples: list[dict[str, object]] = []
    for _ in range(rounds):
        for interval in INTERVALS:
            for way in ("none", *WAYS):
                found = once(data, way, interval)
                samples.append({"way": way, "interval": interval, **found})
                sys.stdout.write(f"{way:15} every {interval:4} s: {found}\n")
    RESULTS.write_text(json.dumps({"rows": 2 * rows, "samples": samples}, indent=1) + "\n")
    draw(samples)


def draw(samples: list[dict[str, object]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for way in ("none", *WAYS):
        points = [
            median(
                float(str(s["seconds"])) for s in samples if (s["way"], s["interval"]) == (way, i)
            )
            for i in INTERVALS
        ]
        axes.plot(
            INTERVALS, points, marker="o", label=way, linestyle="--" if way == "none" else "-"
        )
    axes.set_xscale("log")
    axes.set_xticks(INTERVALS, [str(i) for i in INTERVALS])
    axes.set_xlabel("snapshot interval, seconds")
    axes.set_ylabel("run time, seconds")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.savefig(PICTURE, dpi=120)


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 1_500_000,
        int(sys.argv[2]) if len(sys.argv) > 2 else 1,
    )
