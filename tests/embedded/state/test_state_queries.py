"""Queryable state over Flight: labelled, by token only, on loopback by default."""

from __future__ import annotations

import operator as operators
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyarrow import flight

from abs_core.errors import ConfigError, RefusedError, UnavailableError
from abs_embedded.state.codecs import INT64, JSON
from abs_embedded.state.contracts import StateOwner, Version
from abs_embedded.state.heap import HeapBackend
from abs_embedded.state.keygroups import GroupRange, encode_key, key_group
from abs_embedded.state.local_store import LocalSnapshotStore
from abs_embedded.state.query import QueryClient, QueryServer
from abs_embedded.state.states import MapState, ReducingState, ValueState

TOKEN = "t0p-s3cret"
NAMES = [f"user{n}" for n in range(50)]
KEYS = pa.record_batch({"name": NAMES})


@pytest.fixture
def subtasks(new_store: Callable[[], LocalSnapshotStore]) -> list[tuple[StateOwner, HeapBackend]]:
    places = [StateOwner("job", "count", n, GroupRange.of(n, 3, 16), 16) for n in range(3)]
    return [(place, HeapBackend(new_store(), place)) for place in places]


@pytest.fixture
def server(subtasks: list[tuple[StateOwner, HeapBackend]]) -> Iterator[QueryServer]:
    with QueryServer(TOKEN) as server:
        server.publish("count", subtasks)
        yield server


@pytest.fixture
def client(server: QueryServer) -> Iterator[QueryClient]:
    client = QueryClient(server.address, TOKEN)
    yield client
    client.close()


def add(subtasks: list[tuple[StateOwner, HeapBackend]], amount: int) -> None:
    for place, backend in subtasks:
        state = ReducingState(backend, "total", INT64, operators.add)
        for n, name in enumerate(NAMES[:40]):
            if key_group(encode_key(name), 16) in place.groups:
                state.add(encode_key(name), n * amount)


def complete(subtasks: list[tuple[StateOwner, HeapBackend]], number: int) -> None:
    for _, backend in subtasks:
        backend.snapshot(number).persist()
        backend.notify_complete(number)


def test_live_and_committed_values_are_told_apart(
    subtasks: list[tuple[StateOwner, HeapBackend]], client: QueryClient
) -> None:
    add(subtasks, 1)
    complete(subtasks, 1)
    add(subtasks, 10)
    committed = client.read("count", "total", KEYS)
    live = client.read("count", "total", KEYS, Version.LIVE)
    assert committed["name"].to_pylist() == live["name"].to_pylist() == NAMES
    assert committed["value"].to_pylist() == [*range(40), *[None] * 10]
    assert live["value"].to_pylist() == [*(11 * n for n in range(40)), *[None] * 10]
    assert committed.schema.metadata == {b"version": b"committed", b"dirty": b"false"}
    assert live.schema.metadata == {b"version": b"live", b"dirty": b"true"}
    assert live.schema.field("value").type == pa.int64()


def test_what_there_is_can_be_listed(
    subtasks: list[tuple[StateOwner, HeapBackend]], client: QueryClient
) -> None:
    add(subtasks, 1)
    ValueState(subtasks[0][1], "last", JSON)
    assert client.states() == {"count": {"total": "value:int64", "last": "value:json"}}


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x"])
def test_without_the_token_nothing_is_told(server: QueryServer, token: str) -> None:
    client = QueryClient(server.address, token)
    for call in (lambda: client.read("count", "total", KEYS), client.states):
        with pytest.raises(RefusedError) as caught:
            call()
        assert TOKEN not in f"{caught.value}{caught.value.__cause__}"
    client.close()


class Stranger(flight.FlightServerBase):  # type: ignore[misc]
    """Another program's Flight server at the address that was given."""

    told = b""

    def do_action(self, context: object, action: object) -> list[bytes]:
        return [self.told]


@pytest.mark.parametrize("told", [b"\xff", b"[" * 100_000, b"[]", b'{"count": 7}'])
def test_another_programs_answer_is_a_typed_error(told: bytes) -> None:
    with Stranger("grpc://127.0.0.1:0") as stranger:
        stranger.told = told
        client = QueryClient(f"grpc://127.0.0.1:{stranger.port}", TOKEN)
        with pytest.raises(UnavailableError, match="does not serve queryable state") as caught:
            client.states()
        assert caught.value.remedy
        client.close()


def test_what_is_not_there_is_a_clear_error(
    subtasks: list[tuple[StateOwner, HeapBackend]], client: QueryClient
) -> None:
    add(subtasks, 1)
    MapState(subtasks[0][1], "deep", INT64, INT64)
    with pytest.raises(ConfigError, match="choose one of count"):
        client.read("other", "total", KEYS)
    for state in ("nothing", "deep"):
        with pytest.raises(ConfigError, match="choose one of total"):
            client.read("count", state, KEYS)
    with pytest.raises(ConfigError, match=r"cannot be queried: deep \(map\)"):
        client.read("count", "deep", KEYS)
    with pytest.raises(ConfigError, match="can't be a key"):
        client.read("count", "total", pa.record_batch({"name": [1.5]}))


def test_a_withdrawn_or_ended_server_is_a_clear_error(
    server: QueryServer, client: QueryClient
) -> None:
    server.withdraw("count")
    with pytest.raises(ConfigError, match="none yet"):
        client.read("count", "total", KEYS)
    server.close()
    with pytest.raises(UnavailableError):
        client.read("count", "total", KEYS)


def test_a_state_that_is_closed_meanwhile_is_no_answer_that_there_is_no_value(
    subtasks: list[tuple[StateOwner, HeapBackend]], client: QueryClient
) -> None:
    add(subtasks, 1)
    complete(subtasks, 1)
    for _, backend in subtasks:
        backend.close()
    for version in Version:
        with pytest.raises(UnavailableError, match="closed"):
            client.read("count", "total", KEYS, version)


@pytest.mark.parametrize(
    "address", ["grpc://10.0.0.7:5000", "grpc+tcp://db.example:5000", "grpc://127.0.0.1.example:1"]
)
def test_a_client_sends_its_token_in_the_clear_to_loopback_only(address: str) -> None:
    with pytest.raises(ConfigError, match=r"in the clear.*grpc\+tls://") as caught:
        QueryClient(address, TOKEN)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("address", ["", "127.0.0.1:5000", "http://127.0.0.1:1", "grpc://[::1"])
def test_a_client_refuses_what_is_no_address(address: str) -> None:
    with pytest.raises(ConfigError, match="not an address"):
        QueryClient(address, TOKEN)


@pytest.mark.parametrize(
    "address", ["grpc://localhost:1", "grpc://[::1]:1", "grpc+tls://db.example:1"]
)
def test_a_client_sends_its_token_on_loopback_or_encrypted(address: str) -> None:
    QueryClient(address, TOKEN).close()


def test_it_listens_on_loopback_or_with_a_certificate_and_never_without_a_token() -> None:
    with pytest.raises(ConfigError, match="in the clear"):
        QueryServer(TOKEN, host="0.0.0.0")
    with pytest.raises(ConfigError, match="needs a token"):
        QueryServer("")
    with QueryServer(TOKEN) as server:
        assert server.address.startswith("grpc://127.0.0.1:")
