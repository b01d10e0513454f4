"""The same promises on each way to get a server: it serves, and a kill loses nothing durable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import psycopg
import pytest

from abs_core.errors import AbsError
from abs_services import KafkaService, PostgresService, Provider, S3Service, Services, services
from abs_services.buckets import s3_client
from tests.kit.kafka_reading import messages

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", params=[Provider.NATIVE, Provider.DOCKER])
def way(request: pytest.FixtureRequest) -> Services:
    if request.param is Provider.DOCKER:
        from tests.kit.containers import why_unusable

        if reason := why_unusable():
            pytest.skip(reason)
    return services(request.param)


@pytest.fixture(scope="module")
def a_postgres(request: pytest.FixtureRequest, way: Services) -> Iterator[PostgresService]:
    yield from _one(request, way, "postgres")


@pytest.fixture(scope="module")
def a_kafka(request: pytest.FixtureRequest, way: Services) -> Iterator[KafkaService]:
    yield from _one(request, way, "kafka")


@pytest.fixture(scope="module")
def an_s3(request: pytest.FixtureRequest, way: Services) -> Iterator[S3Service]:
    yield from _one(request, way, "s3")


def _one(request: pytest.FixtureRequest, way: Services, kind: str) -> Iterator[Any]:
    """That of the other tests, where it is of this way, or one of its own."""
    if way.provider is services().provider:
        server = request.getfixturevalue(kind)
        server.start()
        yield server
    else:
        with getattr(way, kind)() as server:
            yield server


def test_postgres_keeps_a_prepared_transaction_over_kill_and_over_stop(
    a_postgres: PostgresService,
) -> None:
    url = a_postgres.url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (v int)")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO kept VALUES (7)")
        connection.execute("PREPARE TRANSACTION 'kept'")
    for end in (a_postgres.kill, a_postgres.stop):
        end()
        assert not a_postgres.is_running
        a_postgres.start()
        assert a_postgres.url == url
        with psycopg.connect(url) as connection:
            found = connection.execute("SELECT gid FROM pg_prepared_xacts").fetchall()
        assert ("kept",) in found
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("COMMIT PREPARED 'kept'")
        assert connection.execute("SELECT v FROM kept").fetchall() == [(7,)]


def test_postgres_refuses_a_wrong_password(a_postgres: PostgresService) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(a_postgres.url, password="wrong")


def test_kafka_keeps_an_acknowledged_message_over_kill_and_over_stop(
    a_kafka: KafkaService,
) -> None:
    bootstrap = a_kafka.bootstrap
    produce(bootstrap, "kept", b"over kill")
    a_kafka.kill()
    assert not a_kafka.is_running
    a_kafka.start()
    produce(bootstrap, "kept", b"over stop")
    a_kafka.stop()
    assert not a_kafka.is_running
    a_kafka.start()
    assert a_kafka.bootstrap == bootstrap
    assert consume(bootstrap, "kept") == [b"over kill", b"over stop"]


def test_kafka_takes_transactions(a_kafka: KafkaService) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": a_kafka.bootstrap, "transactional.id": "t", "log_level": 0}
    )
    producer.init_transactions(30)
    for value, end in (
        (b"aborted", producer.abort_transaction),
        (b"kept", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce("transactional", value)
        assert producer.flush(30) == 0
        end(30)
    assert consume(a_kafka.bootstrap, "transactional") == [b"kept"]


def test_s3_keeps_an_object_over_kill_and_over_stop(an_s3: S3Service) -> None:
    endpoint = an_s3.endpoint
    body = b"x" * 200_000
    for end in (an_s3.kill, an_s3.stop):
        s3_client(an_s3).put_object(Bucket=an_s3.bucket, Key=end.__name__, Body=body)
        end()
        assert not an_s3.is_running
        an_s3.start()
        assert an_s3.endpoint == endpoint
        got = s3_client(an_s3).get_object(Bucket=an_s3.bucket, Key=end.__name__)
        assert got["Body"].read() == body


def test_s3_refuses_a_wrong_key(an_s3: S3Service) -> None:
    from botocore.exceptions import ClientError

    client = s3_client(cast("S3Service", Other(an_s3)))
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        client.list_objects_v2(Bucket=an_s3.bucket)


def test_what_finds_a_service_finds_it_as_an_external_one(
    a_postgres: PostgresService,
    a_kafka: KafkaService,
    an_s3: S3Service,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    external = services(Provider.EXTERNAL)
    pairs = ((a_postgres, external.postgres), (a_kafka, external.kafka), (an_s3, external.s3))
    for service, find in pairs:
        for name, value in service.env.items():
            monkeypatch.setenv(name, value)
        with find() as found:
            assert found.env == service.env
            with pytest.raises(AbsError, match="not ours to kill"):
                found.kill()
        assert service.is_running


class Other:
    """The same S3 server, with another secret."""

    def __init__(self, given: S3Service) -> None:
        self._given = given
        self.secret_key = "wrong"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._given, name)


def produce(bootstrap: str, topic: str, value: bytes) -> None:
    from confluent_kafka import Producer

    failures: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "on_delivery": lambda error, _: failures.append(error) if error else None,
        }
    )
    producer.produce(topic, value)
    assert producer.flush(30) == 0
    assert failures == []


def consume(bootstrap: str, topic: str) -> list[bytes | None]:
    return [message.value() for message in messages({"bootstrap.servers": bootstrap}, topic)]
