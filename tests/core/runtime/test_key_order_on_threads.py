"""On real threads, by `unaligned`, each key keeps its order over restarts, restores and rescaling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from abs_core.runtime import Graph, sources
from abs_core.runtime.elements import TaskId
from abs_core.runtime.graph import Node
from abs_core.runtime.sources import SPLITS
from abs_core.runtime.tables import TableSource
from abs_core.state.codecs import TEXT
from abs_core.state.operator_state import OperatorState
from abs_core.testing.harness import SCHEMA
from tests.core.runtime.bench import Bench
from tests.core.runtime.planted_order_bugs import NeverWaits

SPLITS_ = 4
ROWS, BATCH = 900, 5
"""Of each split; a run is stopped long before it has read them."""
KEYS = 3
"""Of each split; a key is in one split only."""
SLOW = 0.001
"""Seconds for a batch of the slow split: more than the source needs, so its channel is always full."""
WIDTHS = (2, 2, 3, 2)
"""Parallelism of the runs: a plain restart, wider, narrower."""


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
        if batch["value"][0].as_py().startswith("0/"):
            self._pause.wait(SLOW)
        return batch


def graph(bench: Bench, paced: Paced, width: int) -> Graph:
    built = Graph("ordered", parallelism=width)
    read = built.source("in", TableSource(tables(), BATCH)).map("paced", paced)
    read.key_by("value").stateless("same", "map", lambda batch: [batch]).sink("out", bench.sink)
    return built


def run(folder: Path) -> dict[str, list[int]]:
    """All runs until the data has ended; by key, the numbers in the order in which they came."""
    bench, paced = Bench(folder), Paced()
    for number, width in enumerate(WIDTHS):
        stop, decided = Event(), list[int]()

        def observe(
            what: str,
            task: TaskId | None,
            checkpoint: int,
            stop: Event = stop,
            decided: list[int] = decided,
            number: int = number,
        ) -> None:
            if what == "committed":
                decided.append(checkpoint)
                paced.fails = number == 1 and len(decided) == 2
                if number < len(WIDTHS) - 1 and len(decided) == 4:
                    stop.set()

        bench.job(graph(bench, paced, width), "unaligned", observe=observe).run(stop=stop)
    with bench.target.transaction() as db:
        rows = db.execute("SELECT id, value FROM data ORDER BY rowid").fetchall()
    came: dict[str, list[int]] = {}
    for number, key in rows:
        came.setdefault(key, []).append(number)
    assert sorted(number for number, _ in rows) == list(range(SPLITS_ * ROWS))
    assert bench.prepared() == 0
    return came


def out_of_order(came: Mapping[str, Sequence[int]]) -> list[str]:
    return [key for key, numbers in came.items() if list(numbers) != sorted(numbers)]


def test_each_key_keeps_its_order_over_restarts_and_rescaling(tmp_path: Path) -> None:
    assert not out_of_order(run(tmp_path))


def test_splits_that_are_dealt_out_anew_while_logs_stay_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = sources.begin

    def dealt_out_anew(node: Node, tasks: Sequence[OperatorState]) -> bool:
        first = begin(node, tasks)
        lists = [task.list(SPLITS, TEXT) for task in tasks]
        kept = [list(each.get()) for each in lists]
        for each, other in zip(lists, [*kept[1:], kept[0]], strict=True):
            each.put(other)
        return first

    monkeypatch.setattr("abs_core.runtime.assembly.begin", dealt_out_anew)
    monkeypatch.setattr("abs_core.runtime.threads.Task", NeverWaits)
    tries: list[Any] = []
    while not tries or (not tries[-1] and len(tries) < 5):
        tries.append(out_of_order(run(tmp_path / str(len(tries)))))
    assert tries[-1]
