"""The snapshot store in S3 keeps the contract of every snapshot store, and a backend runs on it."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import pytest

from abs_clients.s3.client import client
from abs_clients.s3.location import Location
from abs_clients.s3.server import Server
from abs_core.errors import UnavailableError
from abs_embedded.state.contracts import SnapshotStore
from abs_embedded.state.heap import HeapBackend
from abs_embedded.stores.s3 import S3SnapshotStore
from abs_embedded.testing import check_failures as failures
from abs_embedded.testing import check_state as rules
from abs_embedded.testing.check_snapshot_store import check_snapshot_store
from abs_embedded.testing.check_state import check_state
from abs_embedded.testing.state_case import StateSubject
from abs_services import S3Service

Change = Callable[[bytes], bytes] | None
pytestmark = pytest.mark.services


class Place:
    """A folder of stores, and a way to damage what is in them."""

    def __init__(self, bucket: str, prefix: str, server: Server) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._server = server

    def new_store(self) -> S3SnapshotStore:
        path = f"s3://{self._bucket}/{self._prefix}/{secrets.token_hex(4)}"
        return S3SnapshotStore(self._server, Location.parse(path))

    def damage(self, store: SnapshotStore, key: str, change: Change) -> None:
        assert isinstance(store, S3SnapshotStore)
        self._change(store, store._blobs + key, change)

    def damage_record(self, store: SnapshotStore, checkpoint: int, change: Change) -> None:
        assert isinstance(store, S3SnapshotStore)
        self._change(store, store._record(checkpoint), change)

    def _change(self, store: S3SnapshotStore, key: str, change: Change) -> None:
        if change is None:
            store._objects.delete([key])
            return
        body = store._objects.get(key)
        assert body is not None
        store._objects.put(key, change(body.data))


@pytest.fixture
def place(store: S3Service, prefix: str) -> Place:
    return Place(store.bucket, prefix, Server(store.endpoint, store.region, pathstyle=True))


def test_a_snapshot_store_in_s3_keeps_the_contract(place: Place) -> None:
    assert len(check_snapshot_store(place.new_store, place.damage, place.damage_record)) == 8


def test_a_backend_keeps_its_contract_on_s3(place: Place) -> None:
    chosen = [
        rules.increments_add_up_to_the_whole,
        failures.damage_is_named,
        rules.a_sweep_leaves_what_the_kept_checkpoints_need,
        rules.each_key_is_kept_once_over_a_rescale,
    ]
    check_state(StateSubject(HeapBackend, place.new_store, place.damage), chosen)


@pytest.mark.usefixtures("store")  # for the credentials
def test_a_server_that_does_not_answer_is_a_clear_error() -> None:
    nowhere = Server("http://127.0.0.1:9", pathstyle=True, timeout=1.0)
    try:
        with pytest.raises(UnavailableError):
            S3SnapshotStore(nowhere, Location("bucket", "x")).put("1/op.0/a", b"")
    finally:
        client(nowhere).close()
