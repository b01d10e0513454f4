"""How far a source was read is kept, and read on from there: no record is lost or read twice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from abs_core.errors import ReplayMismatchError
from abs_core.source import Split
from abs_embedded import Graph
from abs_embedded.sources import SourceOperator, begin
from abs_embedded.state.codecs import TEXT
from abs_embedded.state.operator_state import OperatorState
from abs_embedded.tables import TableReader, TableSource


def test_a_batch_that_is_cut_goes_on_from_its_middle_after_a_restart() -> None:
    """By the rows that were emitted of it, also where it is read in other pieces then."""
    table = pa.table({"id": range(100)})
    seen: list[int] = []
    start: tuple[str, ...] = (json.dumps(["0", "0", "100", None]),)
    for batch_rows in (100, 7, 40, 1, 100, 100, 100, 100, 100, 100):
        positions = OperatorState().list("splits", TEXT)
        positions.put(start)
        reader = SourceOperator(TableSource([table], batch_rows), positions, None, 11)
        for _ in range(1 if batch_rows > 11 else 3):
            reader.poll(lambda batch: seen.extend(batch["id"].to_pylist()))
        reader.pre_commit(0)
        start = tuple(positions.get())
    assert seen == list(range(len(seen)))
    assert len(seen) > 80


def test_a_restart_reads_what_came_to_a_source_and_drops_what_left_it() -> None:
    table = pa.table({"id": range(40)})

    @dataclass(frozen=True)
    class Growing(TableSource):
        def resumed(self, left: Sequence[Split]) -> list[Split]:
            return [each for each in left if each.source != "1"] + [Split("2", "0", None)]

    def entry(source: str, start: str, *more: object) -> str:
        return json.dumps([source, start, None, *more])

    built = Graph("grows", parallelism=2)
    built.source("in", Growing([table] * 3), bounded=False)
    kept = [[entry("0", "7", 12, 3)], [entry("1", "9", None)]]
    states = []
    for entries in kept:
        state = OperatorState()
        state.list("splits", TEXT).put(entries)
        states.append(OperatorState(state.snapshot()))
    assert not begin(built.nodes["in"], states), "it begins where the snapshot says"
    found = [state.list("splits", TEXT).get() for state in states]
    assert found == [[entry("0", "7", 12, 3)], [entry("2", "0", None)]]


def test_a_reader_that_may_find_less_the_next_time_is_asked_for_small_batches() -> None:
    """A place in the middle of a batch would be a number of rows; compaction makes it another place."""

    class Compacted(TableReader):
        def at_most(self, rows: int) -> bool:
            self._batch_rows = rows
            return True

    @dataclass(frozen=True)
    class Topic(TableSource):
        def open(self, split: Split) -> Compacted:
            return Compacted(self.tables[0], split, 20)

    positions = OperatorState().list("splits", TEXT)
    positions.put([json.dumps(["0", "0", "40", None])])
    emitted: list[Any] = []
    reader = SourceOperator(Topic([pa.table({"id": range(40)})]), positions, rows=6)
    reader.poll(emitted.append)
    reader.pre_commit(0)
    assert [len(each) for each in emitted] == [6]
    assert positions.get() == [json.dumps(["0", "6", "40", -(1 << 63)])]


def test_a_place_is_kept_only_once_its_reader_was_asked_about_it() -> None:
    """Its name may have been taken by another topic meanwhile."""

    class Remade(TableReader):
        def check(self) -> None:
            raise ReplayMismatchError("planted: another topic.")

    @dataclass(frozen=True)
    class Topic(TableSource):
        def open(self, split: Split) -> Remade:
            return Remade(self.tables[0], split, 20)

    positions = OperatorState().list("splits", TEXT)
    positions.put([json.dumps(["0", "0", "20", None])])
    reader = SourceOperator(Topic([pa.table({"id": range(20)})]), positions)
    reader.poll(lambda batch: None)
    assert reader.finished
    with pytest.raises(ReplayMismatchError, match="planted"):
        reader.pre_commit(0)
    assert positions.get() == [json.dumps(["0", "0", "20", None])]
