"""The heap and RocksDB backends keep the contract of every state backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from abs_embedded.state.heap import HeapBackend
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.state.rocks import RocksBackends, Tuning
from abs_embedded.testing.check_state import RULES, RULES_OF_SEVERAL, Rule, check_state
from abs_embedded.testing.state_case import StateSubject

from .conftest import damage


@pytest.fixture(params=["value:bytes", "value:int64", "rocksdb"])
def subject(
    request: pytest.FixtureRequest, new_store: Callable[[], LocalSnapshotStore], tmp_path: Path
) -> StateSubject:
    """Each backend that keeps state in this process: the heap has columns for integers."""
    if request.param != "rocksdb":
        return StateSubject(HeapBackend, new_store, damage, flat=request.param)
    backends = RocksBackends(tmp_path / "rocks", Tuning(memtable=1 << 20, cache=1 << 20))
    return StateSubject(backends, new_store, damage)


@pytest.mark.parametrize("rule", [*RULES, *RULES_OF_SEVERAL], ids=lambda rule: rule.__name__)
def test_a_backend_keeps(rule: Rule, subject: StateSubject, tmp_path: Path) -> None:
    check_state(subject, [rule])
    left = list((tmp_path / "rocks").iterdir()) if (tmp_path / "rocks").exists() else []
    assert not left, "a closed backend has left its folder"
