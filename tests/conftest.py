"""Real services for tests, started when a test first asks for one.

One server of a kind per pytest process: under pytest-xdist each worker has its own, so a test may
kill it without disturbing another worker. They end with the process, even if it is SIGKILLed.
"""

from __future__ import annotations

import gc
import os
import secrets
import shutil
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
from hypothesis import settings

from abs_services import (
    KafkaService,
    PostgresService,
    Provider,
    S3Service,
    services,
)
from abs_services.contracts import Service
from tests import sample
from tests.campaign import Minutes
from tests.kit import kafka_late_markers
from tests.kit.databases import Databases
from tests.kit.kafka_classes import archive_classes
from tests.kit.kafka_cluster import NativeKafkaCluster
from tests.kit.threads import end_kafka_clients
from tests.seconds import Seconds

SLOWEST = ("spark", "long", "services")
"""Marks of the tests that take longest, the longest first."""

BROKER, SERVERS = 2, 3
"""The last ranks of files in which a broker is used, and any server."""

RANKS = pytest.StashKey[dict[Path, int]]()
"""Of each file, its place in the order of files."""

NEEDS = {"spark": "spark", "postgres": "services", "kafka": "services", "s3": "services"}
"""The mark of the tests that use a fixture."""

ServiceT = TypeVar("ServiceT", bound=Service)

_servers: list[Service] = []
"""Those of this process that are ours to kill."""

# Servers run beside the tests: how long one example takes says nothing of the code.
settings.register_profile("sample", deadline=None, max_examples=40)
settings.register_profile("campaign", deadline=None, max_examples=1000)
settings.load_profile("sample")


# No broker of a test lives long enough to earn what Java's second compiler costs.
os.environ.setdefault("ABS_KAFKA_JVM", "-XX:TieredStopAtLevel=1 -XX:-UsePerfData")

# Nothing here cuts the power: servers, which die alone, need not wait for a disk. Those of a run take
# two GB.
_memory = Path("/dev/shm")
if os.access(_memory, os.W_OK) and min(
    shutil.disk_usage(_memory).free, psutil.virtual_memory().available
) > (12 << 30):
    os.environ.setdefault("ABS_SERVICES_IN", str(_memory))


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--minutes``, for campaigns."""
    parser.addoption(
        "--minutes", type=float, default=0, help="begin tests for so long; 0: run all of them"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """What hypothesis draws begins at the run's seed, too: two runs of one commit try the same."""
    if config.getoption("hypothesis_seed") is None:
        config.option.hypothesis_seed = str(sample.seed())
    if config.getoption("hypothesis_profile") != "campaign":
        sample.draw_no_constants_of_loaded_modules()
    if minutes := config.getoption("minutes"):
        config.pluginmanager.register(Minutes(minutes))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Seconds(config))
    # xdist would begin with the files of most tests; they are not the ones that take longest.
    config.option.loadscopereorder = False


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests are made here and kept: nothing of them is for the garbage collector."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_unconfigure() -> None:
    """Before the interpreter ends, where C++ modules report what nobody has collected."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what is not in the sample; then files with Spark first, those with servers, and the rest.

    Of those with servers, the ones that name Kafka are first. Of each kind, those come first that
    took longest in earlier runs of this checkout. A worker that gets a long file when the others have
    nothing left makes the run as much longer.
    """
    sample.deal(items)
    for item in items:
        for fixture in NEEDS.keys() & getattr(item, "fixturenames", ()):
            if item.get_closest_marker(NEEDS[fixture]) is None:
                raise pytest.UsageError(f"{item.nodeid} uses {fixture} without the mark for it")
    ranks: dict[Path, int] = {}
    for item in items:
        of_item = next(
            (n for n, m in enumerate(SLOWEST) if item.get_closest_marker(m)), len(SLOWEST)
        )
        ranks[item.path] = min(of_item, ranks.get(item.path, of_item))
    for path, rank in ranks.items():
        if rank > BROKER or (rank == BROKER and "kafka" not in path.read_text()):
            ranks[path] += 1
    config.stash[RANKS] = ranks
    known = Seconds.known(config)
    items.sort(key=lambda item: (ranks[item.path], -known.get(item.nodeid.split("::")[0], 0.0)))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files are dealt out as ``tests/schedule.py`` says, single tests as xdist does."""
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.schedule import SparkOnHalf  # only the process that deals them out needs it

    return SparkOnHalf(config, log)


def pytest_report_header() -> str:
    """The seed, with which a failure can be repeated."""
    return f"seed: {sample.seed()} (ABS_TEST_SEED={sample.seed()} repeats what is drawn)"


@contextmanager
def _shared(server: ServiceT) -> Iterator[ServiceT]:
    with server:
        if server.controllable:
            _servers.append(server)
        yield server
        _servers.clear()  # the process ends


@pytest.fixture(autouse=True, scope="module")
def _no_idle_servers(request: pytest.FixtureRequest) -> None:
    """Servers end before the files that need none, which come last: an idle broker takes two hundredths
    of a core. A test that asks for one all the same has it started again.
    """
    rank = request.config.stash[RANKS].get(request.path, 0)
    for server in _servers:
        last = BROKER if isinstance(server, KafkaService) else SERVERS
        if rank > last and server.is_running:
            gc.collect()  # clients that refer to themselves would look for it, and say so
            server.kill()


@pytest.fixture(scope="session")
def _postgres() -> Iterator[PostgresService]:
    with _shared(services().postgres()) as server:
        yield server


@pytest.fixture(scope="module")
def postgres(_postgres: PostgresService) -> PostgresService:
    """A PostgreSQL server, shared by the tests of this process; its way is ``ABS_SERVICES``."""
    _postgres.start()
    return _postgres


@pytest.fixture(scope="session")
def databases(_postgres: PostgresService) -> Iterator[Databases]:
    """Empty databases of this server."""
    with closing(Databases(_postgres)) as databases:
        yield databases


@pytest.fixture(scope="module")
def shared_database(databases: Databases) -> Iterator[str]:
    """libpq URI of a database that the tests of one module share."""
    with databases.empty() as url:
        yield url


@pytest.fixture
def database(databases: Databases) -> Iterator[str]:
    """libpq URI of a database of this test's own, as the ordinary role that owns it.

    A test may leave the server killed: it is started before and after.
    """
    with databases.empty() as url:
        yield url


@pytest.fixture(scope="session")
def _kafka() -> Iterator[KafkaService]:
    if services().provider is Provider.NATIVE:
        archive_classes()
    late = kafka_late_markers.seconds()
    with _shared(kafka_late_markers.LateMarkers(late) if late else services().kafka()) as server:
        yield server


@pytest.fixture(scope="module")
def kafka(_kafka: KafkaService) -> KafkaService:
    """A Kafka broker, shared by the tests of this process."""
    _kafka.start()
    return _kafka


@pytest.fixture(scope="module")
def _brokers() -> Iterator[NativeKafkaCluster]:
    if services().provider is not Provider.NATIVE:
        pytest.skip("the brokers are not ours to kill one by one")
    archive_classes()
    with NativeKafkaCluster() as cluster:
        yield cluster


@pytest.fixture
def brokers(_brokers: NativeKafkaCluster) -> Iterator[NativeKafkaCluster]:
    """Three Kafka brokers, shared by the tests of a module; all run before and after a test.

    Not of the process: three idle brokers take a fifth of a core from the tests that follow.
    """
    _brokers.start()
    yield _brokers
    _brokers.start()
    gc.collect()


@pytest.fixture
def topic(kafka: KafkaService) -> str:
    """The name of a topic of this test's own; not created yet."""
    kafka.start()
    return f"t-{secrets.token_hex(6)}"


@pytest.fixture
def soon_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of a topic that is not there: it is looked for for two seconds, not for ten."""
    from abs_clients.kafka import timeouts

    monkeypatch.setattr(timeouts, "UNHEARD_PAUSES", (0.02, 0.05, 0.1, 0.2, 0.5, 1.0))


@pytest.fixture(scope="session")
def _s3() -> Iterator[S3Service]:
    with _shared(services().s3()) as server:
        yield server


@pytest.fixture(scope="module")
def s3(_s3: S3Service) -> S3Service:
    """An S3 server with one bucket, shared by the tests of this process."""
    _s3.start()
    return _s3


@pytest.fixture(scope="module")
def store(s3: S3Service) -> Iterator[S3Service]:
    """The S3 server, with its credentials in the environment: child processes have them too."""
    from abs_clients.s3.client import close_idle  # boto3 takes a while; few tests need it

    s3.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        close_idle()
        yield s3
        close_idle()


@pytest.fixture
def prefix(s3: S3Service) -> str:
    """A key prefix of this test's own in the server's bucket, without a slash at its end."""
    s3.start()
    return f"t-{secrets.token_hex(6)}"


@pytest.fixture(autouse=True, scope="session")
def _trail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests do by hand is noted in a folder of theirs, not in the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABS_TRAIL", str(tmp_path_factory.mktemp("trail") / "trail.jsonl"))
        yield


@pytest.fixture(autouse=True, scope="module")
def _no_clients_left() -> Iterator[None]:
    """No module leaves clients of Kafka, or threads that look for one, to the next one in its process.

    One whose broker has gone looks for it for ever, and draws its pauses from ``random``; hypothesis
    takes that for something that the test under it does.
    """
    yield
    if "abs_clients.kafka.cluster" in sys.modules:
        end_kafka_clients()


@pytest.fixture(autouse=True, scope="session")
def _quick_spark(request: pytest.FixtureRequest) -> Iterator[None]:
    """Spark's JVMs start as ``tests/spark/jvm.py`` says, those of other processes, too."""
    if not any(item.get_closest_marker("spark") for item in request.session.items):
        yield
        return
    from tests.spark import jvm  # needs Spark's Python, which takes a while to import

    jvm.make_class_archive(jvm.run_and_dump)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in jvm.environment().items():
            patch.setenv(name, value)
        yield
