"""The heap and RocksDB backends keep the contract of every state backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from abs_core.state.contracts import NewBackend
from abs_core.state.heap import HeapBackend
from abs_core.state.local_store import LocalSnapshotStore
from abs_core.state.rocks import RocksBackends, Tuning
from abs_core.state.testing.check_state import RULES, RULES_OF_SEVERAL, Rule, check_state
from abs_core.state.testing.state_case import StateSubject

from .conftest import damage


@pytest.fixture(params=["heap", "rocksdb"])
def new_backend(request: pytest.FixtureRequest, tmp_path: Path) -> NewBackend:
    """Each backend that keeps state in this process."""
    if request.param == "heap":
        return HeapBackend
    return RocksBackends(tmp_path / "rocks", Tuning(memtable=1 << 20, cache=1 << 20))


@pytest.mark.parametrize("flat", ["value:bytes", "value:int64"])
@pytest.mark.parametrize("rule", [*RULES, *RULES_OF_SEVERAL], ids=lambda rule: rule.__name__)
def test_a_backend_keeps(
    rule: Rule,
    flat: str,
    new_backend: NewBackend,
    new_store: Callable[[], LocalSnapshotStore],
    tmp_path: Path,
) -> None:
    check_state(StateSubject(new_backend, new_store, damage, flat=flat), [rule])
    left = list((tmp_path / "rocks").iterdir()) if (tmp_path / "rocks").exists() else []
    assert not left, "a closed backend has left its folder"
