"""On real threads, by `unaligned`, each key keeps its order over restarts, restores and rescaling."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest

from abs_core.barriers.elements import TaskId
from abs_embedded import Graph, Settings, assembly, threads
from abs_embedded.graph import Node
from abs_embedded.sources import SPLITS, begin
from abs_embedded.state.codecs import TEXT
from abs_embedded.state.operator_state import OperatorState
from abs_embedded.tables import TableSource
from abs_testing.harness import SCHEMA
from tests.embedded.bench import Bench
from tests.embedded.planted_order_bugs import NeverWaits, NoCheckpointBetween
from tests.planted import Defect, planted

SPLITS_ = 4
ROWS, BATCH = 750, 5
"""Of each split; a run is stopped long before it has read them."""
KEYS = 3
"""Of each split; a key is in one split only."""
SLOW, PAUSE = 1, 0.002
"""A split, and seconds for each of its batches: more than the source needs, so channels are full."""


def tables() -> list[pa.Table]:
    return [
        pa.table(
            {
                "id": [split + SPLITS_ * n for n in range(ROWS)],
                "value": [f"{split}/{n % KEYS}" for n in range(ROWS)],
            },
            schema=SCHEMA,
        )
        for split in range(SPLITS_)
    ]


class Paced:
    """Slow for what one split has; fails when it is told to."""

    def __init__(self) -> None:
        self.fails = False
        self._pause = Event()

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.fails:
            self.fails = False
            raise OSError("planted")
        if batch["value"][0].as_py().startswith(f"{SLOW}/"):
            self._pause.wait(PAUSE)
        return batch


@dataclass(frozen=True)
class Life:
    """One run of the job.

    Args:
        width: its parallelism.
        stops: after so many checkpoints; None: with the end of the data.
        fails: a function of it fails once, and its region is restored.
        bugs: planted while it runs.
        interval: seconds between checkpoints.
    """

    width: int
    stops: int | None = None
    fails: bool = False
    bugs: Sequence[Defect] = ()
    interval: float = 0.02


LIVES = (Life(2, 4), Life(2, 4, fails=True), Life(3, 1), Life(3, 4), Life(2))
"""A plain restart, wider, again so before the log is through, narrower."""


def dealt_out_anew(node: Node, tasks: Sequence[OperatorState]) -> bool:
    """As ``sources.begin``; but each task of a source has the splits of the next one."""
    first = begin(node, tasks)
    lists = [task.list(SPLITS, TEXT) for task in tasks]
    kept = [list(each.get()) for each in lists]
    for each, other in zip(lists, [*kept[1:], kept[0]], strict=True):
        each.put(other)
    return first


NEVER_WAITS = (threads, "Task", NeverWaits)
NO_CHECKPOINT = (threads, "Task", NoCheckpointBetween)
MOVES = (assembly, "begin", dealt_out_anew)

PLANTED: dict[str, tuple[Sequence[Life], bool]] = {
    "splits dealt out anew while logs stay": (
        (Life(2, 4), Life(2, bugs=[NEVER_WAITS, MOVES])),
        True,
    ),
    "no wait for the log after rescaling": ((Life(2, 4), Life(3, bugs=[NEVER_WAITS])), True),
    "no wait for the log after a plain restart": (
        (Life(2, 4), Life(3, 1), Life(3, bugs=[NEVER_WAITS])),
        True,
    ),
    "no checkpoint between the log and what is new": (
        (Life(3, 4), Life(2, bugs=[NO_CHECKPOINT], interval=0.3)),
        False,
    ),
}
"""The lives that show it, and whether records go to the sink by key."""


def graph(bench: Bench, paced: Paced, width: int, *, keyed: bool) -> Graph:
    built = Graph("ordered", parallelism=width)
    # Two hops: while one task replays its log, the next one's channel fills, and is in the snapshot.
    rows = built.source("in", TableSource(tables(), BATCH)).map("first", lambda batch: batch)
    read = rows.map("paced", paced)
    if keyed:
        read = read.key_by("value").stateless("same", "map", lambda batch: [batch])
    read.sink("out", bench.sink)
    return built


class Job:
    """Its lives, one after the other, on one target."""

    def __init__(self, folder: Path, *, keyed: bool) -> None:
        self._bench, self._paced, self._keyed = Bench(folder), Paced(), keyed

    def live(self, life: Life) -> None:
        built = graph(self._bench, self._paced, life.width, keyed=self._keyed)
        live(self._bench, built, self._paced, life)

    def check(self) -> None:
        """Assert that the target has all rows, and those of each key in order."""
        with self._bench.target.transaction() as db:
            rows = db.execute("SELECT id, value FROM data ORDER BY rowid").fetchall()
        assert sorted(number for number, _ in rows) == list(range(SPLITS_ * ROWS))
        assert self._bench.prepared() == 0
        came: dict[str, list[int]] = {}
        for number, key in rows:
            came.setdefault(key, []).append(number)
        wrong = [key for key, numbers in came.items() if numbers != sorted(numbers)]
        assert not wrong, f"keys are out of order: {wrong}"


def live(bench: Bench, built: Graph, paced: Paced, life: Life) -> None:
    stop, decided = Event(), list[int]()

    def observe(what: str, task: TaskId | None, checkpoint: int) -> None:
        if what == "committed":
            decided.append(checkpoint)
            paced.fails = life.fails and len(decided) == 2
            if len(decided) == life.stops:
                stop.set()

    settings = Settings(interval=life.interval)
    bench.job(built, "unaligned", observe=observe, settings=settings).run(stop=stop)


@pytest.mark.parametrize("keyed", [True, False])
def test_each_key_keeps_its_order_over_restarts_and_rescaling(keyed: bool, tmp_path: Path) -> None:
    job = Job(tmp_path, keyed=keyed)
    for life in LIVES:
        job.live(life)
    job.check()


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found_by_the_order_of_each_key(bug: str, tmp_path: Path) -> None:
    (*before, last), keyed = PLANTED[bug]
    for number in range(10):  # chance decides which of them shows it
        job = Job(tmp_path / str(number), keyed=keyed)
        for life in before:
            job.live(life)
        with suppress(pytest.fail.Exception):
            with planted(*last.bugs, match="keys are out of order"):
                job.live(last)
                job.check()
            return
    pytest.fail("ten tries do not show it")
