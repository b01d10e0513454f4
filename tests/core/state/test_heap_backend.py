"""The heap backend keeps the contract of every state backend."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from abs_core.state.heap import HeapBackend
from abs_core.state.local_store import LocalSnapshotStore
from abs_core.testing.check_state import Rule, applicable, check_state
from abs_core.testing.state_case import StateSubject

from .conftest import damage

SUBJECT = StateSubject(HeapBackend, lambda: LocalSnapshotStore("unused"), damage)


@pytest.mark.parametrize("rule", applicable(SUBJECT), ids=lambda rule: rule.__name__)
def test_the_heap_backend_keeps(rule: Rule, new_store: Callable[[], LocalSnapshotStore]) -> None:
    check_state(StateSubject(HeapBackend, new_store, damage), [rule])
