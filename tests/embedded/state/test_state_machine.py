"""Histories by chance: what a backend restores is what the last completed checkpoint held."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from abs_embedded.state.contracts import SnapshotStore
from abs_embedded.state.heap import Frozen, HeapBackend, HeapTable
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.state.rocks import RocksBackends, Tuning
from abs_embedded.testing.state_case import StateSubject
from tests.model.state_machine import state_machine
from tests.planted import planted

from .conftest import damage

QUICK = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
LONG = settings(QUICK, max_examples=1000)


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is unplugged here: thousands of files need not reach the disk."""
    monkeypatch.setattr("os.fsync", lambda _: None)


def on_heap(new_store: Callable[[], SnapshotStore], flat: str = "value:bytes") -> Any:
    return state_machine(StateSubject(HeapBackend, new_store, damage, flat=flat))


def on_rocks(new_store: Callable[[], SnapshotStore], folder: Path) -> Any:
    backends = RocksBackends(folder, Tuning(memtable=1 << 16, cache=1 << 20))
    return state_machine(StateSubject(backends, new_store, damage))


@pytest.mark.parametrize("flat", ["value:bytes", "value:int64"])
def test_the_heap_keeps_every_history(
    new_store: Callable[[], LocalSnapshotStore], flat: str
) -> None:
    run_state_machine_as_test(on_heap(new_store, flat), settings=QUICK)


def test_rocksdb_keeps_every_history(
    new_store: Callable[[], LocalSnapshotStore], tmp_path: Path
) -> None:
    run_state_machine_as_test(
        on_rocks(new_store, tmp_path / "rocks"), settings=settings(QUICK, max_examples=6)
    )


def test_a_planted_bug_is_found_by_chance(new_store: Callable[[], LocalSnapshotStore]) -> None:
    stays = (HeapTable, "thaw", lambda self: None)
    newest_alone = (HeapTable, "freeze", lambda self: Frozen(self, self.layers[:1]))
    search = settings(
        QUICK,
        max_examples=100,
        derandomize=True,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        database=None,
    )
    with planted(stays, newest_alone):
        run_state_machine_as_test(on_heap(new_store), settings=search)


@pytest.mark.campaign
@pytest.mark.parametrize("flat", ["value:bytes", "value:int64"])
def test_the_heap_keeps_a_thousand_histories(
    new_store: Callable[[], LocalSnapshotStore], flat: str
) -> None:
    run_state_machine_as_test(on_heap(new_store, flat), settings=LONG)


@pytest.mark.campaign
def test_rocksdb_keeps_two_hundred_histories(
    new_store: Callable[[], LocalSnapshotStore], tmp_path: Path
) -> None:
    run_state_machine_as_test(
        on_rocks(new_store, tmp_path / "rocks"), settings=settings(LONG, max_examples=200)
    )
