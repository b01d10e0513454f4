"""On real threads, by `unaligned`, each key keeps its order over restarts, restores and rescaling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest

from abs_core.barriers.elements import TaskId
from abs_embedded import Graph, Settings
from abs_embedded.graph import Node
from abs_embedded.sources import SPLITS, begin
from abs_embedded.state.codecs import TEXT
from abs_embedded.state.operator_state import OperatorState
from abs_embedded.tables import TableSource
from abs_embedded.task import Task
from abs_testing.harness import SCHEMA
from tests.embedded.bench import Bench
from tests.embedded.planted_order_bugs import NeverWaits, NoCheckpointBetween

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
        task: with a planted bug.
        moves: splits are dealt out anew when it begins: a planted bug.
        interval: seconds between checkpoints.
    """

    width: int
    stops: int | None = None
    fails: bool = False
    task: type[Task] = Task
    moves: bool = False
    interval: float = 0.02


LIVES = (Life(2, 4), Life(2, 4, fails=True), Life(3, 1), Life(3, 4), Life(2))
"""A plain restart, wider, again so before the log is through, narrower."""

PLANTED: dict[str, tuple[Sequence[Life], bool]] = {
    "splits dealt out anew while logs stay": (
        (Life(2, 4), Life(2, task=NeverWaits, moves=True)),
        True,
    ),
    "no wait for the log after rescaling": ((Life(2, 4), Life(3, task=NeverWaits)), True),
    "no wait for the log after a plain restart": (
        (Life(2, 4), Life(3, 1), Life(3, task=NeverWaits)),
        True,
    ),
    "no checkpoint between the log and what is new": (
        (Life(3, 4), Life(2, task=NoCheckpointBetween, interval=0.3)),
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


def run(folder: Path, lives: Sequence[Life] = LIVES, *, keyed: bool = True) -> list[str]:
    """Run all lives; the keys that are out of order in the target then, whose rows are all there."""
    bench, paced = Bench(folder), Paced()
    for life in lives:
        with pytest.MonkeyPatch.context() as planted:
            planted.setattr("abs_embedded.threads.Task", life.task)
            if life.moves:
                planted.setattr("abs_embedded.assembly.begin", dealt_out_anew)
            live(bench, graph(bench, paced, life.width, keyed=keyed), paced, life)
    with bench.target.transaction() as db:
        rows = db.execute("SELECT id, value FROM data ORDER BY rowid").fetchall()
    assert sorted(number for number, _ in rows) == list(range(SPLITS_ * ROWS))
    assert bench.prepared() == 0
    came: dict[str, list[int]] = {}
    for number, key in rows:
        came.setdefault(key, []).append(number)
    return [key for key, numbers in came.items() if numbers != sorted(numbers)]


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


def dealt_out_anew(node: Node, tasks: Sequence[OperatorState]) -> bool:
    """As ``sources.begin``; but each task of a source has the splits of the next one."""
    first = begin(node, tasks)
    lists = [task.list(SPLITS, TEXT) for task in tasks]
    kept = [list(each.get()) for each in lists]
    for each, other in zip(lists, [*kept[1:], kept[0]], strict=True):
        each.put(other)
    return first


def test_each_key_keeps_its_order_over_restarts_and_rescaling(tmp_path: Path) -> None:
    assert not run(tmp_path / "by key", keyed=True)
    assert not run(tmp_path / "straight", keyed=False)


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found_by_the_order_of_each_key(bug: str, tmp_path: Path) -> None:
    lives, keyed = PLANTED[bug]
    tries = (run(tmp_path / str(number), lives, keyed=keyed) for number in range(10))
    assert any(tries), "ten tries do not show it"
