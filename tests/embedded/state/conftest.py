"""What tests of state share: a snapshot store in a folder, and how it is damaged."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from abs_embedded.state.contracts import SnapshotStore
from abs_embedded.state.local_store import LocalSnapshotStore

Change = Callable[[bytes], bytes] | None


def damage(store: SnapshotStore, key: str, change: Change) -> None:
    """Change a blob of a local store behind its back, or delete it."""
    assert isinstance(store, LocalSnapshotStore)
    path = store.folder / "blobs" / key
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))


@pytest.fixture
def new_store(tmp_path: Path) -> Callable[[], LocalSnapshotStore]:
    """Makes empty stores."""
    return lambda: LocalSnapshotStore(tmp_path / secrets.token_hex(4))
