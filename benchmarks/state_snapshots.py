"""Keyed state: the logical copy against the size of the state, increments against whole snapshots.

What is expected (Carbone et al., VLDB 2017, fig. 8): the logical copy, all that the barrier waits for,
does not grow with the state; an increment costs what changed, a whole snapshot what there is. Before
each copy the same number of entries changes. An increment is what a checkpoint writes; a whole snapshot
is a savepoint, which is in one format for all backends. The stores are folders, with fsync.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import TypeVar

import numpy as np

from abs_embedded.state.contracts import (
    NewBackend,
    Snapshot,
    StateBackend,
    StateHandle,
    StateOwner,
    StateTable,
)
from abs_embedded.state.heap import HeapBackend
from abs_embedded.state.keygroups import GroupRange
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.state.rocks import RocksBackends
from benchmarks.pairs import Tell
from benchmarks.ratios import NO_BAR, Bar, Sample
from benchmarks.report import Comparison, Result

CHANGED, BATCH, ENTRIES, PLACE = (
    10_000,
    10_000,
    1_000_000,
    StateOwner("b", "op", 0, GroupRange(0, 128), 128),
)
FLAT = Bar(low=1 / 3)
"""The copy of the largest state takes at most three times as long as that of the smallest."""
CHEAPER = Bar(low=2.0)
"""At the largest state an increment is at least twice as fast as a whole snapshot."""
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "state-snapshots.png"
T = TypeVar("T")
PARTS = ("copy", "increment", "whole")


class Filled:
    """A backend with so many entries, all of them in a checkpoint already."""

    def __init__(self, new: NewBackend, folder: Path, size: int) -> None:
        self.store = LocalSnapshotStore(folder / secrets.token_hex(4))
        self.saved = LocalSnapshotStore(folder / secrets.token_hex(4))
        self.backend: StateBackend = new(self.store, PLACE)
        self.table: StateTable = self.backend.table("counts", "value:int64")
        self.size, self.number = size, 0
        self._chance = np.random.default_rng(size)
        for start in range(0, size, BATCH):
            self.change(range(start, min(start + BATCH, size)))
        self.bytes_of: dict[str, int] = {}
        self.seen: set[str] = set()
        self.checkpoint()

    def change(self, numbers: Iterator[int] | range) -> None:
        keys = [int(n).to_bytes(8, "little") for n in numbers]
        self.table.put_many(keys, [self.number.to_bytes(8, "little")] * len(keys))

    def checkpoint(self) -> dict[str, float]:
        """Seconds of the copy, of persisting what changed, and of a savepoint."""
        self.number += 1
        taken: dict[str, float] = {}
        snapshot: Snapshot = timed(taken, "copy", lambda: self.backend.snapshot(self.number))
        handle: StateHandle = timed(taken, "increment", snapshot.persist)
        whole: StateHandle = timed(taken, "whole", lambda: snapshot.savepoint(self.saved))
        snapshot.close()
        self.backend.notify_complete(self.number)
        fresh = [ref for ref in handle.blobs if ref.key not in self.seen]
        self.seen |= {ref.key for ref in handle.blobs}
        self.bytes_of = {
            "increment": sum(ref.size for ref in fresh),
            "whole": sum(ref.size for ref in whole.blobs),
        }
        self.saved.delete([ref.key for ref in whole.blobs])
        return taken

    def round(self) -> dict[str, float]:
        """Change some entries and take a checkpoint."""
        self.change(iter(self._chance.integers(0, self.size, CHANGED)))
        return self.checkpoint()


def timed(taken: dict[str, float], name: str, work: Callable[[], T]) -> T:
    began = time.perf_counter()
    done = work()
    taken[name] = time.perf_counter() - began
    return done


def run(
    *, pairs: int, entries: int | None, tell: Tell, picture: Path | None = PICTURE
) -> Iterator[Result]:
    """One result for each backend; then the picture."""
    largest = entries or ENTRIES
    sizes = [largest // 100, largest // 10, largest]
    found = []
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as folder:
        makers: dict[str, NewBackend] = {
            "heap": HeapBackend,
            "rocksdb": RocksBackends(Path(folder) / "db"),
        }
        for name, new in makers.items():
            filled = [Filled(new, Path(folder), size) for size in sizes]
            samples = _rounds(filled, pairs, tell)
            bytes_ = {f"bytes, {one.size:,}": one.bytes_of for one in filled}
            for one in filled:
                one.backend.close()
            yield Result(f"state_snapshots, {name}", "snapshots", samples, _ratios(sizes), bytes_)
            found.append((name, sizes, samples))
    if picture is not None:
        draw(found, picture)


def _rounds(filled: list[Filled], pairs: int, tell: Tell) -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = {}
    for number in range(pairs):
        for one in filled:
            for part, seconds in one.round().items():
                sample = Sample(seconds, 0.0, 1)
                samples.setdefault(f"{part}, {one.size:,}", []).append(sample)
                tell(f"{number + 1} of {pairs}", f"{part}, {one.size:,}", sample)
    return samples


def _ratios(sizes: list[int]) -> list[Comparison]:
    first, last = f"{sizes[0]:,}", f"{sizes[-1]:,}"
    return [
        Comparison(f"copy, {last}", f"copy, {first}", FLAT),
        Comparison(f"increment, {last}", f"increment, {first}", NO_BAR),
        Comparison(f"increment, {last}", f"whole, {last}", CHEAPER),
        Comparison(f"increment, {first}", f"whole, {first}", NO_BAR),
    ]


def draw(found: list[tuple[str, list[int], dict[str, list[Sample]]]], path: Path) -> None:
    """Medians against size: what the barrier waits for, and what is written in the background."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for (name, sizes, samples), colour in zip(found, ("tab:blue", "tab:orange"), strict=True):
        for part, style in zip(PARTS, ("o-", "o-", "s--"), strict=True):
            times = [1e3 * median(s.wall_s for s in samples[f"{part}, {n:,}"]) for n in sizes]
            axes = left if part == "copy" else right
            axes.plot(sizes, times, style, color=colour, label=f"{name}: {part}")
    left.set_title(f"What the barrier waits for ({CHANGED:,} entries changed)")
    right.set_title("What is written in the background")
    for axes in (left, right):
        axes.set(xscale="log", yscale="log", xlabel="entries in the state", ylabel="ms")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=110)
