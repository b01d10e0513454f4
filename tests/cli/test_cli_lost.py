"""Decided handles that are damaged or unknown are listed one by one; the others keep their outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from abs_cli.lost import lost_handles
from abs_core.model import Committable, Decision, HandleName, Inspection, JobState, Outcome
from abs_core.wal import FolderSegments, SegmentWriter
from abs_sinks.kafka.wal import is_whole
from abs_testing.harness import SCHEMA, batch_of


def _segment(store: FolderSegments, task: int) -> Committable:
    writer = SegmentWriter(store, HandleName("0" * 16, "job", 1, 7, task, "ab"), SCHEMA)
    writer.write(batch_of([(1, "one"), (2, "two")]))
    seal = writer.finish()
    assert seal is not None
    return seal.committable()


def test_one_damaged_segment_is_said_and_the_others_are_looked_at(tmp_path: Path) -> None:
    store = FolderSegments(tmp_path)
    whole, damaged, gone = (_segment(store, task) for task in range(3))
    path = tmp_path / f"{damaged.handle}.arrows"
    path.write_bytes(path.read_bytes()[:-1])
    store.delete([gone.handle])

    class Segments:
        def inspect(self, share: Sequence[Committable]) -> Mapping[HandleName, Inspection]:
            outcomes = (Outcome.UNKNOWN, Outcome.PREPARED)
            return {c.handle: Inspection(outcomes[is_whole(store, c)]) for c in share}

    decision = Decision("lineage", 7, 1, (whole, damaged, gone))
    state = JobState("0" * 16, "job", "target", "lineage", 1, "run", open=(decision,))
    stored = SimpleNamespace(state=state)
    registers: Any = SimpleNamespace(
        committer=lambda _: Segments(), register=SimpleNamespace(load=lambda _: stored)
    )
    found = {each.doubt.handle: each for each in lost_handles(registers, state)}
    assert set(found) == {damaged.handle, gone.handle}
    assert "cut short" in found[damaged.handle].text
    assert found[gone.handle].fate.startswith("not found")
