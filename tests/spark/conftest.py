"""One Spark session per pytest process, and a world of its own for every test."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from abs_clients.s3.client import close_idle
from abs_services import KafkaService, S3Service
from tests.kit.kafka import Variant, open_topic
from tests.spark.bucket import Bucket
from tests.spark.epoch_world import EpochWorld
from tests.spark.jobs.folder_sink import FolderDataSource
from tests.spark.jobs.session import small_session
from tests.spark.lake import Lake
from tests.spark.places import Place, opened
from tests.spark.three import Three
from tests.spark.world import WAYS, World

CHECKPOINTS = {
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming"
    ".checkpointing.FileSystemBasedCheckpointFileManager"
}
"""Spark's default for a local folder starts a process, ``readlink``, for each file that it looks at:
7,700 in a run of these tests. Drivers of their own, which tests kill, keep it."""


@pytest.fixture(scope="session")
def spark_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The console of the shared session's JVM: Spark's log and what our Python processes print."""
    return tmp_path_factory.mktemp("spark") / "console.log"


@pytest.fixture(scope="session")
def spark(spark_log: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session. Its Python processes are the ones that run these tests' Python."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Its Python processes have the environment of this moment: a file can be filled later.
    os.environ["AWS_SHARED_CREDENTIALS_FILE"] = str(tmp_path_factory.mktemp("aws") / "credentials")
    with _console_to(spark_log):
        session = small_session(tmp_path_factory.mktemp("spark-scratch"), **CHECKPOINTS)
    session.dataSource.register(FolderDataSource)
    yield session
    session.stop()


@pytest.fixture
def new_world(tmp_path: Path, database: str) -> Callable[[str], World]:
    """Makes the world of a way: folder, database, empty table."""

    def make(way: str = "2pc") -> World:
        world = World(tmp_path, database, tuple(WAYS[way].items()))
        world.make_table()
        return world

    return make


@pytest.fixture
def bucket(s3: S3Service, prefix: str, spark: SparkSession) -> Iterator[Bucket]:
    """A folder of this test's own; Spark's processes find the keys in boto3's file of them."""
    close_idle()
    keys = f"aws_access_key_id={s3.access_key}\naws_secret_access_key={s3.secret_key}"
    Path(os.environ["AWS_SHARED_CREDENTIALS_FILE"]).write_text(f"[default]\n{keys}\n")
    yield Bucket(s3, prefix)
    close_idle()


@pytest.fixture
def world(
    new_world: Callable[[str], World], kafka: KafkaService, bucket: Bucket
) -> Iterator[EpochWorld]:
    """Three empty targets: a table, a topic and a folder."""
    kafka.start()
    with open_topic(kafka.bootstrap, Variant("2pc")) as topic:
        yield EpochWorld(new_world("2pc"), topic, bucket)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """The place that the test names, indirectly; see ``opened``."""
    with opened(request, str(request.param)) as place:
        yield place


@contextmanager
def _console_to(path: Path) -> Iterator[None]:
    """What is started meanwhile inherits this file as its standard output and error."""
    saved = os.dup(1), os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        for number, descriptor in zip((1, 2), saved, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)


@pytest.fixture
def new_three(
    new_world: Callable[[str], World], kafka: KafkaService, tmp_path: Path
) -> Iterator[Callable[[str], Three]]:
    """Makes the targets with a table of a kind."""
    kafka.start()
    with open_topic(kafka.bootstrap, Variant("2pc")) as topic:

        def make(kind: str, catalog: Mapping[str, str] | None = None) -> Three:
            return Three(new_world("2pc"), topic, Lake(kind, tmp_path, catalog))

        yield make
