"""How long the barriers of a checkpoint take: against the state's size, shuffles and parallelism.

Expected (Carbone et al., VLDB 2017, section 5): the time does not depend on the size of the state, as
it is copied when the barriers have passed; it grows in a line with the number of shuffles. With the
parallelism p it grows in a line where each task has a core of its own; here all tasks share one
interpreter, so one core's work: there are p times as many tasks, and p * p channels a shuffle to take a
barrier from. So a power of p is fitted, and said.

Sources read as fast as they can, so every channel is full and a barrier waits behind the data in it. A
sample is the median over the checkpoints of one run, from the trigger to the last task's copy. The fits
are least squares over all samples (of a power: of the logarithms). CPU is not metered: the job's own
work is going on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Event
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from abs_embedded import Graph, Job, Settings
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.tables import TableSource
from abs_embedded.trace import Trace, checkpoints, timeline
from abs_testing.fakes import FakeSink, FakeTarget
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import NO_BAR, UNMETERED, Bar, Sample
from benchmarks.report import Comparison, Result

SIZES, SHUFFLES, PARALLELISMS = (10_000, 100_000, 1_000_000), (1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 6, 8)
CHANGING, BATCH, CAPACITY = 5_000, 2048, 4
WARM, COUNTED = 2, 6
"""Checkpoints of a run that are left out, and those that count."""
FLAT = Bar(low=1 / 2)
"""The largest state's alignment is at most twice as long as the smallest's: the rest is the machine."""
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "alignment.png"


@dataclass(frozen=True, slots=True)
class Setting:
    """One job to measure."""

    shuffles: int = 1
    parallelism: int = 2
    entries: int = CHANGING


def run(*, pairs: int, tell: Tell) -> Iterator[Result]:
    """One result for each axis; then the picture."""
    found = []
    for axis in AXES:
        sides = [_side(axis, value) for value in axis.values]
        samples = interleave(sides, pairs=max(2, pairs // 3), warm_up=0, tell=tell)
        by_value = {v: samples[s.name] for v, s in zip(axis.values, sides, strict=True)}
        facts: dict[str, object] = {
            f"ms with {name} (median)": round(1e3 * median(s.wall_s for s in taken), 1)
            for name, taken in samples.items()
        }
        if axis.fit is not None:
            facts["fit"] = axis.fit(by_value).text(axis.name)
        bar = FLAT if axis.fit is None else NO_BAR
        ends = Comparison(sides[-1].name, sides[0].name, bar)
        yield Result(f"alignment, {axis.name}", "checkpoints", samples, [ends], facts)
        found.append((axis, by_value))
    draw(found)


def _side(axis: Axis, value: int) -> Side:
    return Side(f"{value:,} {axis.name}", lambda: once(axis.setting(value)))


class Fit(Protocol):
    """What goes through samples, in milliseconds."""

    def text(self, name: str) -> str: ...

    def title(self) -> str: ...

    def at(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]: ...


@dataclass(frozen=True, slots=True)
class Line:
    """A line, and how much of the samples' variance it explains."""

    start: float
    slope: float
    r2: float

    def text(self, name: str) -> str:
        return f"{self.start:.1f} ms + {self.slope:.1f} ms x {name}, R2 = {self.r2:.3f}"

    def title(self) -> str:
        return f"a line, R2 = {self.r2:.2f}"

    def at(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return self.start + self.slope * values


@dataclass(frozen=True, slots=True)
class Power:
    """A power of the value: a line through the logarithms."""

    factor: float
    exponent: float
    r2: float

    def text(self, name: str) -> str:
        return (
            f"{self.factor:.1f} ms x {name} ^ {self.exponent:.2f}, R2 of logarithms = {self.r2:.3f}"
        )

    def title(self) -> str:
        return f"p ^ {self.exponent:.1f} (one core), R2 = {self.r2:.2f}"

    def at(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return self.factor * values**self.exponent


def fit(samples: dict[int, list[Sample]]) -> Line:
    """Least squares over all samples."""
    return Line(*_least_squares(*_points(samples)))


def power(samples: dict[int, list[Sample]]) -> Power:
    """Least squares over the logarithms of all samples."""
    start, exponent, r2 = _least_squares(*map(np.log, _points(samples)))
    return Power(float(np.exp(start)), exponent, r2)


def _points(samples: dict[int, list[Sample]]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    points = [(value, 1e3 * one.wall_s) for value, taken in samples.items() for one in taken]
    x, y = np.array(points).T
    return x, y


def _least_squares(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> tuple[float, float, float]:
    slope, start = np.polyfit(x, y, 1)
    left = ((y - (start + slope * x)) ** 2).sum()
    return float(start), float(slope), float(1 - left / ((y - y.mean()) ** 2).sum())


@dataclass(frozen=True, slots=True)
class Axis:
    """What is varied while all else stays."""

    name: str
    values: Sequence[int]
    setting: Callable[[int], Setting]
    fit: Callable[[dict[int, list[Sample]]], Fit] | None


AXES = (
    Axis("entries of state", SIZES, lambda n: Setting(entries=n), fit=None),
    Axis("shuffles", SHUFFLES, lambda n: Setting(shuffles=n), fit=fit),
    Axis("parallelism", PARALLELISMS, lambda n: Setting(shuffles=2, parallelism=n), fit=power),
)


def once(setting: Setting) -> Sample:
    """One run until enough checkpoints have come after the state has grown to its size."""
    grown, stop = Event(), Event()
    trace = Trace()
    begun: list[int] = []

    def observe(what: str, task: object, checkpoint: int) -> None:
        trace(what, task, checkpoint)  # type: ignore[arg-type]
        if what == "begin" and grown.is_set():
            begun.append(checkpoint)
        elif what == "committed" and len(begun) > WARM + COUNTED:
            stop.set()

    with tempfile.TemporaryDirectory(prefix="abs-align-") as scratch:
        target = FakeTarget(Path(scratch) / "target.db")
        sink = FakeSink(target, "2pc", "append")
        job = Job(
            graph(setting, sink, grown),
            LocalSnapshotStore(Path(scratch) / "snapshots"),
            sink.register(),
            settings=Settings(interval=0.25),
            capacity=CAPACITY,
            observe=observe,
        )
        job.run(stop=stop)
        target.close()
    done = set(checkpoints(trace.moments))
    counted = [n for n in begun[WARM : WARM + COUNTED] if n in done]
    assert counted, "the data ended before the state had grown"
    took = [max(span.copied or 0.0 for span in timeline(trace.moments, n).spans) for n in counted]
    return Sample(median(took), UNMETERED, 1)


def graph(setting: Setting, sink: FakeSink, grown: Event) -> Graph:
    """A source, operators that pass rows on over shuffles, and a count by key as the last of them."""
    built = Graph("alignment", parallelism=setting.parallelism)
    stream = built.source("source", TableSource(tables(setting), BATCH))
    for number in range(1, setting.shuffles):
        stream = stream.key_by("key").map(f"step{number}", lambda batch: batch)

    def nothing(batch: pa.RecordBatch) -> pa.Array:
        # A key is met again only when every key has been met.
        if not grown.is_set() and pc.max(batch["count"]).as_py() > 1:
            grown.set()
        return pa.array(np.zeros(batch.num_rows, bool))

    stream.key_by("key").reduce("count", "count").filter("none", nothing).sink("out", sink)
    return built


def tables(setting: Setting) -> list[pa.Table]:
    """For each task of the source: its share of all keys once, then few of them over and over."""
    share = setting.entries // setting.parallelism
    few = CHANGING // setting.parallelism
    made = []
    for task in range(setting.parallelism):
        all_keys = pa.table({"key": np.arange(task * share, (task + 1) * share)})
        again = pa.table({"key": np.tile(np.arange(task * share, task * share + few), 40)})
        made.append(pa.concat_tables([all_keys, *[again] * 400]))
    return made


def draw(found: Sequence[tuple[Axis, dict[int, list[Sample]]]]) -> None:
    """One graph for each axis, with its line."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), layout="constrained")
    for axes, (axis, samples) in zip(figure.subplots(1, len(found)), found, strict=True):
        for value, taken in samples.items():
            axes.plot([value] * len(taken), [1e3 * s.wall_s for s in taken], "o", color="tab:blue")
        if axis.fit is not None:
            found_fit = axis.fit(samples)
            at = np.linspace(axis.values[0], axis.values[-1], 50)
            axes.plot(at, found_fit.at(at), "--", color="gray")
            axes.set_title(found_fit.title())
        else:
            axes.set_xscale("log")
        axes.set_xlabel(axis.name)
        axes.set_ylim(bottom=0)
    figure.axes[0].set_ylabel("ms from trigger to last copy")
    figure.savefig(PICTURE, dpi=120)
