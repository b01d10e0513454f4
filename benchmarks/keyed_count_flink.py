"""The keyed count in the embedded runtime and in PyFlink at its steady rate, over the same keys.

A job of PyFlink takes seconds to start, whatever it reads, and the first reading of each key's state is
a round trip between Python and the JVM. So each sample of PyFlink is two jobs: a short one, which meets
nearly every key, and the whole one. The difference of their seconds, CPU and rows is its steady rate.

What that leaves out is in PyFlink's favour: ours is a whole job with its start, a snapshot each second
and one at the end; PyFlink's takes none. Ours emits a count for each row, or for each key of a batch;
PyFlink's function only the last one. Against PyFlink is that it reads files of lines, which the page
cache holds, where ours has an Arrow table in memory: for SQL that is part of what is compared.

Like is compared with like: a Python function for each row, and what no Python sees.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pyarrow as pa
from pyarrow import csv

from benchmarks.keyed_count import KEYS, expected_digest, keys, ours
from benchmarks.meter import metered
from benchmarks.other_spark import Installed, Session, session
from benchmarks.pairs import Side, Tell, interleave
from benchmarks.ratios import UNMETERED, Sample
from benchmarks.report import Comparison, Result

SHORT_ROWS = 40_000
WORKERS = {"_python_worker_execution_mode": "process"}
"""As on a cluster: in a local job, PyFlink's workers would else be threads of one process."""
FILES = 2
"""As many as there are workers at most: a worker reads a whole one."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A form of PyFlink's, and the form of ours that it is compared with.

    Args:
        rows: so many that the whole job takes PyFlink seconds more than the short one.
    """

    theirs: str
    ours: str
    title: str
    rows: int


KINDS = (
    Kind("function", "rows", "a Python function", 600_000),
    Kind("sql", "arrow", "SQL", 16_000_000),
)


def run(flink: Path, *, pairs: int, rows: int | None, tell: Tell) -> Iterator[Result]:
    """Both kinds with one and with two workers; a third of the rounds, as one takes long.

    Args:
        flink: an interpreter that has PyFlink; ``java`` is on the path.
        rows: of the whole job, instead of each kind's own number; more than ``SHORT_ROWS``.

    Raises:
        ValueError: the rows are too few.
    """
    if rows is not None and rows <= SHORT_ROWS:
        raise ValueError(f"a job over {rows} rows is no longer than the short one ({SHORT_ROWS})")
    with session("flink_count.py", Installed(str(flink.absolute())), WORKERS) as peer:
        for kind in KINDS:
            data = keys(rows or kind.rows)
            with _job(peer, kind, data[:SHORT_ROWS]) as short, _job(peer, kind, data) as whole:
                for workers in (1, 2):
                    yield _compared(kind, workers, data, short, whole, max(1, pairs // 3), tell)


@dataclass(frozen=True, slots=True)
class FlinkJob:
    """The count over one folder, by PyFlink."""

    peer: Session
    form: str
    folder: Path
    rows: int
    expected: str

    def run(self, workers: int) -> Sample:
        """A job from its submission to its end; its counts are the right ones."""
        asked = {"form": self.form, "workers": workers, "folder": str(self.folder)}
        with metered() as reading:
            said = self.peer.ask(asked)
        assert said["digest"] == self.expected, f"flink, {self.form} counted something else"
        # What Python workers used is lost: they outlive the shell that started them, and its count.
        cpu_s = UNMETERED if self.form == "function" else reading.cpu_s
        return Sample(said["seconds"], cpu_s, self.rows)


def steady(short: Sample, whole: Sample) -> Sample:
    """What the rows took that the whole job has more; its part ``start`` is what is left out.

    Raises:
        ValueError: the whole job did not take longer, so there is no such rate.
    """
    rows, seconds = whole.amount - short.amount, whole.wall_s - short.wall_s
    if rows <= 0 or seconds <= 0:
        raise ValueError(
            f"{whole.amount} rows took {whole.wall_s:.3f} s and {short.amount} rows "
            f"{short.wall_s:.3f} s: the difference says nothing; give more rows"
        )
    left_out = short.wall_s - seconds / rows * short.amount
    return Sample(seconds, max(0.0, whole.cpu_s - short.cpu_s), rows, (("start", left_out),))


def _compared(
    kind: Kind,
    workers: int,
    data: pa.Array,
    short: FlinkJob,
    whole: FlinkJob,
    rounds: int,
    tell: Tell,
) -> Result:
    theirs = f"flink, {kind.title}"
    sides = [
        Side(kind.ours, lambda: ours(kind.ours, data, workers, whole.expected)),
        Side(theirs, lambda: steady(short.run(workers), whole.run(workers))),
    ]
    samples = interleave(sides, pairs=rounds, warm_up=1, tell=tell)
    start = median(dict(sample.parts)["start"] for sample in samples[theirs])
    return Result(
        f"keyed_count_flink, {kind.title}, {workers} worker{'s' * (workers > 1)}",
        "rows",
        samples,
        [Comparison(kind.ours, theirs)],
        {
            "keys": KEYS,
            "rows of the whole job": whole.rows,
            "rows of PyFlink's short job": short.rows,
            "s that PyFlink takes to start, left out (median)": round(start, 2),
        },
        ["PyFlink: whole job less short job, files, no checkpoints; ours: whole job, snapshots."],
    )


@contextmanager
def _job(peer: Session, kind: Kind, data: pa.Array) -> Iterator[FlinkJob]:
    """The keys as lines of files in a folder."""
    with tempfile.TemporaryDirectory(prefix="abs-bench-") as folder:
        share = -(-len(data) // FILES)
        for number in range(FILES):
            csv.write_csv(
                pa.table({"key": data[number * share : (number + 1) * share]}),
                Path(folder) / f"keys-{number}.txt",
                csv.WriteOptions(include_header=False, quoting_style="none"),
            )
        yield FlinkJob(peer, kind.theirs, Path(folder), len(data), expected_digest(data))
