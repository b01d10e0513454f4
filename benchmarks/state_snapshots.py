"""Keyed state: the logical copy against the size of the state, increments against whole snapshots.

    python -m benchmarks.state_snapshots [--entries 1000000]

What is expected (Carbone et al., VLDB 2017, fig. 8): the logical copy, all that the barrier waits for,
does not grow with the state; an increment costs what changed, a whole snapshot what there is. Each
point is a state of its own; before each copy the same number of entries changes. The store is a folder,
with fsync. A second part fills RocksDB with more than it may hold in memory, in a process of its own.
Writes ``results/state_snapshots.json`` and ``.png``.
"""

from __future__ import annotations

import resource
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import matplotlib as mpl
import numpy as np
import typer

from abs_core.state.contracts import NewBackend, Place, StateHandle
from abs_core.state.heap import HeapBackend
from abs_core.state.keygroups import GroupRange
from abs_core.state.local_store import LocalSnapshotStore
from abs_core.state.rocks import RocksBackends
from benchmarks.machine import load
from benchmarks.report import save

RESULTS = Path(__file__).parent / "results"
CHANGED = 10_000
COPIES = 7
BATCH = 10_000
PLACE = Place("bench", "op", 0, GroupRange(0, 128), 128)
FLAT = 3.0
"""Bar: the copy of the largest state takes at most this many times as long as that of the smallest.

Below a millisecond, scheduling makes more of a difference than this.
"""
LARGE_VALUE, LARGE_ENTRIES = 1000, 600_000


@dataclass(frozen=True)
class Point:
    """Medians at one size of the state. Times in milliseconds.

    Args:
        copy: the logical copy; ``worst`` the slowest one.
        increment, whole: persisting ``CHANGED`` changed entries, and all of them; with the bytes.
        puts, gets: entries per second, in batches of ``BATCH``.
    """

    backend: str
    entries: int
    copy: float
    worst: float
    increment: float
    increment_bytes: int
    whole: float
    whole_bytes: int
    puts: float
    gets: float


def main(
    entries: Annotated[int, typer.Option(help="Entries of the largest state.")] = 1_000_000,
    large: Annotated[bool, typer.Option(help="Also fill RocksDB with more than memory.")] = True,
    json: Annotated[Path, typer.Option(help="Where to.")] = RESULTS / "state_snapshots.json",
) -> None:
    """Measure, print, write JSON and picture. Exit code 1 where the bar is missed."""
    before = load()
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as folder:
        list(_measure(BATCH // 100, Path(folder)))  # warm-up
        points = [
            point
            for size in (entries // 100, entries // 10, entries)
            for point in _measure(size, Path(folder))
        ]
    memory = _in_own_process() if large else {}
    missed = [name for name in ("heap", "rocksdb") if not _is_flat(points, name)]
    for point in points:
        typer.echo(
            f"{point.backend:8} {point.entries:>9,} entries: copy {point.copy:7.3f} ms (worst "
            f"{point.worst:.3f}), increment {point.increment:6.0f} ms {point.increment_bytes:>11,} B,"
            f" whole {point.whole:6.0f} ms {point.whole_bytes:>11,} B, puts {point.puts:,.0f}/s, "
            f"gets {point.gets:,.0f}/s"
        )
    typer.echo(f"larger than memory: {memory or 'not measured'}")
    found: dict[str, object] = {
        "points": [asdict(point) for point in points],
        "larger than memory": memory,
    }
    found |= {"changed": CHANGED, "load before": before, "load after": load(), "missed": missed}
    save(json, {"state_snapshots": found})
    _draw(points, json.with_suffix(".png"))
    if missed:
        raise typer.Exit(1)


def _measure(size: int, folder: Path) -> Iterator[Point]:
    makers: dict[str, NewBackend] = {"heap": HeapBackend, "rocksdb": RocksBackends(folder / "db")}
    for name, new in makers.items():
        store = LocalSnapshotStore(folder / secrets.token_hex(4))
        backend = new(store, PLACE)
        table = backend.table("counts", "value:int64")
        keys = [key.to_bytes(8, "little") for key in range(size)]
        began = time.perf_counter()
        for start in range(0, size, BATCH):
            table.put_many(keys[start : start + BATCH], keys[start : start + BATCH])
        puts = size / (time.perf_counter() - began)
        whole, handle = _persisted(backend, 1)
        whole_bytes = sum(ref.size for ref in handle.blobs)
        rng = np.random.default_rng(size)
        copies, increments, sizes, gets = [], [], [], []
        seen = {ref.key for ref in handle.blobs}
        for number in range(2, 2 + COPIES):
            chosen = [keys[n] for n in rng.integers(0, size, CHANGED)]
            began = time.perf_counter()
            table.get_many(chosen)
            gets.append(CHANGED / (time.perf_counter() - began))
            table.put_many(chosen, [number.to_bytes(8, "little")] * CHANGED)
            began = time.perf_counter()
            snapshot = backend.snapshot(number)
            copies.append((time.perf_counter() - began) * 1e3)
            began = time.perf_counter()
            handle = snapshot.persist()
            increments.append((time.perf_counter() - began) * 1e3)
            snapshot.close()
            backend.notify_complete(number)
            sizes.append(sum(ref.size for ref in handle.blobs if ref.key not in seen))
            seen |= {ref.key for ref in handle.blobs}
        backend.close()
        yield Point(
            name,
            size,
            statistics.median(copies),
            max(copies),
            statistics.median(increments),
            int(statistics.median(sizes)),
            whole,
            whole_bytes,
            puts,
            statistics.median(gets),
        )


def _persisted(backend: Any, number: int) -> tuple[float, StateHandle]:
    snapshot = backend.snapshot(number)
    began = time.perf_counter()
    handle = snapshot.persist()
    taken = (time.perf_counter() - began) * 1e3
    snapshot.close()
    backend.notify_complete(number)
    return taken, handle


def _is_flat(points: list[Point], backend: str) -> bool:
    mine = [point for point in points if point.backend == backend]
    return mine[-1].copy <= max(FLAT * mine[0].copy, 1.0)


def _in_own_process() -> dict[str, float]:
    program = "from benchmarks.state_snapshots import larger_than_memory as f; print(f())"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    names = "state MB", "memory MB", "memory MB after a restore"
    return dict(zip(names, map(float, done.stdout.split()), strict=True))


def larger_than_memory() -> str:
    """Fill RocksDB, take a checkpoint, restore it: the state's size, and what memory that took."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as folder:
        store = LocalSnapshotStore(Path(folder) / "store")
        backend = RocksBackends(Path(folder) / "db")(store, PLACE)
        table = backend.table("large", "value:bytes")
        for start in range(0, LARGE_ENTRIES, 2000):
            keys = [n.to_bytes(8, "little") for n in range(start, start + 2000)]
            table.put_many(keys, [rng.bytes(LARGE_VALUE) for _ in keys])
        _, handle = _persisted(backend, 1)
        backend.close()
        filled = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        again = RocksBackends(Path(folder) / "db")(store, PLACE)
        again.restore([handle])
        table = again.table("large", "value:bytes")
        last = (LARGE_ENTRIES - 1).to_bytes(8, "little")
        assert all(len(v or b"") == LARGE_VALUE for v in table.get_many([bytes(8), last]))
        again.close()
    restored = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    state = sum(ref.size for ref in handle.blobs) / 1e6
    return f"{state:.0f} {(filled - before) / 1024:.0f} {(restored - before) / 1024:.0f}"


def _draw(points: list[Point], path: Path) -> None:
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
    for name, colour in (("heap", "tab:blue"), ("rocksdb", "tab:orange")):
        mine = [point for point in points if point.backend == name]
        sizes = [point.entries for point in mine]
        left.plot(sizes, [p.copy for p in mine], "o-", color=colour, label=f"{name}: logical copy")
        right.plot(sizes, [p.whole for p in mine], "s--", color=colour, label=f"{name}: whole")
        right.plot(
            sizes, [p.increment for p in mine], "o-", color=colour, label=f"{name}: increment"
        )
    left.set_title(f"What the barrier waits for ({CHANGED:,} entries changed)")
    right.set_title("What is written in the background")
    for axes in (left, right):
        axes.set(xscale="log", yscale="log", xlabel="entries in the state", ylabel="ms")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    typer.run(main)
