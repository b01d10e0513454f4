"""A change of a register on a server that stalls inside its call is not made after its deadline."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

import abs_sinks.kafka.register.store
import abs_sinks.postgres.register
import abs_sinks.s3.register
from abs_clients.postgres.pool import close_idle
from abs_clients.s3.objects import Objects
from abs_core.contracts import RegisterStore
from abs_core.model import JobState
from abs_services import KafkaService, S3Service
from abs_sinks.kafka.register.session import FencedProducer, Session
from abs_sinks.postgres import PostgresOptions, PostgresRegister
from abs_sinks.s3 import S3Options, S3Register
from tests.kit.stalls import Stalls
from tests.planted import planted
from tests.sample import cut
from tests.sinks.kafka.registers import options_of

pytestmark = [pytest.mark.services, pytest.mark.timeout(600)]

STATE = JobState("0" * 16, "job", "target", "lineage", 1, "run")


@dataclass(frozen=True)
class Server:
    """A register's system.

    Args:
        new_store: of a new process.
        sends: what has the function that sends a change, and its name.
        module: which looks at the clock.
        positions: so many are tried.
    """

    new_store: Callable[[], RegisterStore]
    sends: tuple[Any, str]
    module: Any
    positions: int = 10_000


@pytest.fixture
def of_postgres(shared_database: str) -> Server:
    options = PostgresOptions.parse({"url": shared_database, "dbtable": "t"})

    def new_store() -> RegisterStore:
        close_idle()
        return PostgresRegister(options)

    module = abs_sinks.postgres.register
    return Server(new_store, (module, "swapping"), module, 60)


@pytest.fixture
def of_s3(store: S3Service) -> Server:
    given = {"endpoint": store.endpoint, "region": store.region, "timeout": "20"}
    options = S3Options.parse({**given, "path": f"s3://{store.bucket}/{secrets.token_hex(6)}"})
    module = abs_sinks.s3.register
    return Server(lambda: S3Register(options), (Objects, "put_if"), module)


@pytest.fixture
def of_kafka(kafka: KafkaService) -> Server:
    kafka.start()
    options, module = options_of(kafka), abs_sinks.kafka.register.store
    new_store = lambda: module.KafkaRegister(options, Session(options))  # noqa: E731
    return Server(new_store, (FencedProducer, "commit"), module, 20)


@pytest.fixture(params=["of_postgres", "of_s3", "of_kafka"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def stalls(server: Server, monkeypatch: pytest.MonkeyPatch) -> Stalls:
    first = replace(STATE, job=f"job{secrets.token_hex(6)}")
    changed = replace(first, generation=2)
    return Stalls(server.new_store, first, changed, server.sends, monkeypatch)


def test_no_change_is_sent_after_its_deadline(server: Server, stalls: Stalls) -> None:
    tried = lambda count: cut(range(1, count + 1), server.positions, "stalls of registers")  # noqa: E731
    assert stalls.check(tried) > 5


def test_a_register_that_looks_at_no_clock_inside_its_change_is_found(
    server: Server, stalls: Stalls
) -> None:
    bug = server.module, "in_time", lambda *_: None
    with planted(bug, match="sent after its deadline"):
        stalls.check(lambda count: range(1, count + 1))
