"""Fixtures for tests of one's own jobs, on real servers and under kills. Extra ``testing``.

A server of a kind is started when a test first asks for it, once per session and worker of
pytest-xdist. Each test has a database, topic or bucket of its own. pytest loads this module in every
session of an environment that has the package, so it imports nothing that takes time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from abs_chaos.job import Job
    from abs_chaos.places import Bucket, Topic
    from abs_services import KafkaService, PostgresService, S3Service, Services
    from abs_testing.relay import Relay


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--abs-services``."""
    parser.getgroup("abs-sinks").addoption(
        "--abs-services",
        choices=("native", "docker", "external"),
        help="who provides PostgreSQL, Kafka and S3; default: ABS_SERVICES, or native",
    )


def pytest_configure(config: pytest.Config) -> None:
    """A session whose warnings are errors can use Kafka's client, which warns as it is imported."""
    for module in ("kafka.protocol.schemas.load_json", "importlib.resources._legacy"):
        line = f"ignore:(read|open)_text is deprecated:DeprecationWarning:{module}"
        config.addinivalue_line("filterwarnings", line)


@pytest.fixture(scope="session")
def _abs_services(pytestconfig: pytest.Config) -> Services:
    from abs_services import Provider, services

    named = pytestconfig.getoption("--abs-services")
    return services(None if named is None else Provider(named))


@pytest.fixture(scope="session")
def abs_postgres_server(_abs_services: Services) -> Iterator[PostgresService]:
    """The PostgreSQL server; a test may ``kill()`` it, the next one finds it started."""
    with _abs_services.postgres() as server:
        yield server


@pytest.fixture(scope="session")
def abs_kafka_server(_abs_services: Services) -> Iterator[KafkaService]:
    """The Kafka broker; a test may ``kill()`` it."""
    with _abs_services.kafka() as server:
        yield server


@pytest.fixture(scope="session")
def abs_s3_server(_abs_services: Services) -> Iterator[S3Service]:
    """The S3 server; a test may ``kill()`` it."""
    with _abs_services.s3() as server:
        yield server


@pytest.fixture
def abs_postgres(abs_postgres_server: PostgresService) -> Iterator[str]:
    """The libpq URI of a new database, with the password; it is dropped after the test."""
    from abs_services import fresh_database

    with fresh_database(abs_postgres_server) as url:
        yield url


@pytest.fixture
def abs_kafka(abs_kafka_server: KafkaService) -> Iterator[Topic]:
    """A new topic; it is deleted after the test."""
    from abs_chaos.places import fresh_topic

    with fresh_topic(abs_kafka_server) as topic:
        yield topic


@pytest.fixture
def abs_s3(abs_s3_server: S3Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A new bucket; its keys are in the environment, also a job's. It is deleted after the test."""
    from abs_chaos.places import fresh_bucket

    with fresh_bucket(abs_s3_server) as bucket:
        for name, value in bucket.environment.items():
            monkeypatch.setenv(name, value)
        yield bucket


@pytest.fixture
def abs_registry() -> Iterator[str]:
    """The URL of an empty schema registry: a stand-in with Confluent's API, in pytest's process.

    It does not check whether schemas are compatible.
    """
    from abs_services.registry import StandIn

    with StandIn() as served:
        yield served.url


@pytest.fixture
def abs_job(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Makes jobs: ``abs_job(script_or_function, *arguments, checkpoint=..., env=...)``.

    See ``abs_chaos.job.Job``. What still runs of them after the test is killed.
    """
    from abs_chaos.job import Job

    made: list[Job] = []

    def make(what: Any, *arguments: Any, **more: Any) -> Job:
        made.append(Job(what, *arguments, log=tmp_path / f"abs-job-{len(made)}.log", **more))
        return made[-1]

    yield make
    for job in made:
        job.kill()


@pytest.fixture
def abs_faults() -> Iterator[Callable[..., Relay]]:
    """Puts a relay before a server: ``abs_faults(address)``; clients connect to its ``address``.

    ``abs_chaos.faults.before`` says which addresses it knows. Before a server of another kind,
    ``abs_faults(host, port)``, clients connect to its ``port``, and no request can be doubled.
    """
    from abs_chaos.faults import before
    from abs_testing.relay import Relay

    def made(address: str, port: int | None = None) -> Relay:
        relay = before(address) if port is None else Relay((address, port), answers=False)
        return stack.enter_context(relay)

    with contextlib.ExitStack() as stack:
        yield made
