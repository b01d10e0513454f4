"""Each fault does to a request of each server what it says, by what the server holds afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import boto3
import psycopg
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from confluent_kafka import Producer

from abs_chaos.faults import Faults, KafkaFaults, _Postgres, before
from abs_chaos.places import fresh_bucket, fresh_topic
from abs_core.errors import OptionError
from abs_services import KINDS, KafkaService, PostgresService, S3Service, fresh_database
from abs_testing.calls import Loss
from abs_testing.relay import Harm, Relay
from tests.kit.kafka_reading import messages
from tests.planted import Defect, planted

pytestmark = [pytest.mark.services, pytest.mark.timeout(120)]

FILLING = "x" * 800
"""Of each value: on the slow line a request takes two steps, and the first of them waits."""

READY = "ready"


@dataclass
class Target:
    """A server behind a relay.

    Args:
        name: of the requests that write.
        write: writes one value by one request; whether that was answered.
        written: the values, asked past the relay; what came twice, twice.
    """

    relay: Faults
    name: str
    write: Callable[[str], bool]
    written: Callable[[], list[str]]


@contextmanager
def in_postgres(server: PostgresService) -> Iterator[Target]:
    with (
        fresh_database(server) as url,
        psycopg.connect(url, autocommit=True) as straight,
        before(url) as relay,
    ):
        straight.execute("create table target (value text)")

        def write(value: str) -> bool:
            try:
                with psycopg.connect(relay.address, autocommit=True) as connection:
                    connection.execute(f"insert into target values ('{value}')")
            except psycopg.OperationalError:
                return False
            return True

        def written() -> list[str]:
            return [value for (value,) in straight.execute("select value from target")]

        yield Target(relay, "insert into target", write, written)


@contextmanager
def in_kafka(server: KafkaService) -> Iterator[Target]:
    with fresh_topic(server) as topic, before(server.bootstrap) as relay:

        def send(producer: Producer, value: str) -> bool:
            told: list[bool] = []
            producer.produce(
                topic.name, value, partition=0, on_delivery=lambda e, _: told.append(e is None)
            )
            producer.flush()
            return told == [True]

        # A new topic refuses records at first, and clients send those again without counting.
        assert send(Producer({"bootstrap.servers": topic.bootstrap, "log_level": 0}), READY)
        # Neither the client nor the broker hides a second record.
        plain = {"acks": "all", "retries": 0, "message.timeout.ms": 60_000, "log_level": 0}
        producer = Producer({"bootstrap.servers": relay.address, **plain})

        def written() -> list[str]:
            read = messages({"bootstrap.servers": topic.bootstrap}, topic.name)
            values = [(record.value() or b"").decode() for record in read]
            return [value for value in values if value != READY]

        yield Target(relay, "PRODUCE", partial(send, producer), written)


@contextmanager
def in_s3(server: S3Service) -> Iterator[Target]:
    """An upload that is begun is the request that two of can be told from one."""
    with fresh_bucket(server) as bucket, before(server.endpoint) as relay:
        keys = dict(zip(("aws_access_key_id", "aws_secret_access_key"), server.keys, strict=True))
        once = Config(retries={"total_max_attempts": 1})
        connect = partial(boto3.client, "s3", region_name=server.region, config=once, **keys)
        with (
            closing(connect(endpoint_url=relay.address)) as through,
            closing(connect(endpoint_url=server.endpoint)) as straight,
        ):

            def write(value: str) -> bool:
                try:
                    through.create_multipart_upload(Bucket=bucket.name, Key=value)
                except BotoCoreError:
                    return False
                return True

            def written() -> list[str]:
                found = straight.list_multipart_uploads(Bucket=bucket.name)
                return [upload["Key"] for upload in found.get("Uploads", [])]

            yield Target(relay, "POST", write, written)


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    opened: Any = {"postgres": in_postgres, "kafka": in_kafka, "s3": in_s3}[request.param]
    with opened(request.getfixturevalue(request.param)) as target:
        yield target


A, B, C = (f"{name}-{FILLING}" for name in "abc")


@pytest.mark.parametrize(
    ("fault", "heard", "holds"),
    [
        (None, True, [A, B, C]),
        (Loss.REQUEST, False, [A, C]),
        (Loss.REPLY, False, [A, B, C]),
        (Loss.DELAY, False, [A, C]),
        (Loss.DOUBLE, True, [A, B, B, C]),
        (Harm.CUT, False, [A, C]),
        (Harm.SLOW, True, [A, B, C]),
    ],
)
def test_a_fault_meets_the_request_of_its_number_and_no_other(
    target: Target, fault: Loss | Harm | None, heard: bool, holds: list[str]
) -> None:
    target.relay.arm(2, fault, target.name)
    began = time.monotonic()
    assert [target.write(value) for value in (A, B, C)] == [True, heard, True]
    seconds = time.monotonic() - began
    assert target.relay.fired is (fault is not None)
    assert target.relay.seen.count(target.name) == 3
    assert sorted(target.written()) == holds
    if fault is Loss.DELAY:
        target.relay.release()
        assert sorted(target.written()) == [A, B, C]
    if fault is Harm.SLOW:
        assert seconds >= 4 / 20, "two requests and their answers, a step each at least"


def test_a_line_that_stands_still_passes_nothing_and_breaks_nothing(target: Target) -> None:
    target.relay.arm(2, Harm.STILL, target.name)
    assert target.write(A)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(target.write, B)
        with pytest.raises(TimeoutError):
            waiting.result(0.5)
        assert target.relay.fired
        assert target.written() == [A]
        target.relay.__exit__()
        assert waiting.result(60) is False


@pytest.mark.parametrize(
    ("fault", "bug"),
    [
        (Loss.DOUBLE, (_Postgres, "_double", lambda relay, link, message: message)),
        (Loss.REQUEST, (Relay, "_harm", lambda *_: False)),
        (Harm.CUT, (Relay, "_harm", lambda *_: False)),
    ],
)
def test_a_fault_that_does_not_happen_is_found(
    fault: Loss | Harm, bug: Defect, postgres: PostgresService
) -> None:
    with planted(bug, match="as if nothing were wrong"), in_postgres(postgres) as target:
        target.relay.arm(1, fault, target.name)
        target.write(A)
        assert target.relay.fired
        assert target.written() != [A], "as if nothing were wrong"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("https://127.0.0.1:9000", "https://127.0.0.1(.|\n)*http://host:port"),
        ("mysql://127.0.0.1/x", "mysql"),
        ("postgresql:///shop?host=/tmp", "postgresql"),
        ("kafka.example.org:9092", "directly"),
    ],
)
def test_an_address_that_no_relay_fits_is_refused(address: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        before(address)


def test_who_connects_to_the_relay_keeps_user_and_database() -> None:
    with before("postgresql://me:se%20cret@127.0.0.1:1/shop?application_name=x") as relay:
        assert relay.address == (
            f"postgresql://me:se%20cret@127.0.0.1:{relay.port}/shop?application_name=x"
        )


def test_a_broker_that_calls_this_machine_by_another_name_is_reached_by_the_relay_only() -> None:
    with before("localhost:9092") as relay:
        assert isinstance(relay, KafkaFaults)
        for name in (b"localhost", b"127.0.0.1"):
            told = name + (9092).to_bytes(4, "big")
            assert relay._answer(told) == name + relay.port.to_bytes(4, "big")
