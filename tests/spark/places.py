"""Jobs that write to a table, a bucket or a topic, for tests that do the same to each of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import psycopg
import pytest

from abs_clients.kafka.cluster import close_clusters
from abs_clients.s3.objects import Objects
from abs_core.contracts import Inventory
from abs_core.errors import RegisterLostError
from abs_sinks.kafka.register.store import KafkaRegister
from abs_sinks.postgres import PostgresOptions, PostgresRegister
from abs_sinks.s3 import S3Options
from abs_sinks.s3.register import S3Register
from tests.kit.kafka import delete_topics
from tests.kit.kafka_modes import open_variant
from tests.kit.kafka_source import KafkaSourceHarness
from tests.spark.bucket import Bucket
from tests.spark.drivers import until
from tests.spark.jobs.stream_files import Job
from tests.spark.kafka_world import KafkaWorld
from tests.spark.world import JOB, Row, World


class Place(Protocol):
    """A job that writes somewhere, its input and its checkpoint."""

    elsewhere: dict[str, str]
    """Options by which the register would be looked for at another place."""

    @property
    def url(self) -> str | None:
        """Of the database, where the job needs one."""
        ...

    @property
    def job(self) -> Job: ...

    @property
    def checkpoint(self) -> Path: ...

    def register(self) -> Inventory: ...

    def drop_registers(self) -> None:
        """Delete every register, and what readers know by them."""
        ...

    def add(self) -> None:
        """Put more rows where the job reads."""
        ...

    def holds_all(self, times: int = 1) -> None:
        """Assert that the target has what was added, each row so often, and nothing else."""
        ...

    def left_behind(self) -> list[str]:
        """What the target still holds for the job besides rows and register."""
        ...

    def forget_commits(self, newest: int) -> None: ...


@dataclass
class OnPostgres:
    world: World
    added: list[Row] = field(default_factory=list)
    files: int = 0
    elsewhere: dict[str, str] = field(default_factory=lambda: {"stateschema": "elsewhere"})

    @property
    def url(self) -> str:
        return self.world.url

    @property
    def job(self) -> Job:
        return self.world.job

    @property
    def checkpoint(self) -> Path:
        return self.world.checkpoint

    def register(self) -> Inventory:
        return PostgresRegister(PostgresOptions.parse({"url": self.url, **self.job.options}))

    def drop_registers(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("drop schema abs cascade")

    def add(self) -> None:
        self.added += self.world.add_file(self.files)
        self.files += 1

    def holds_all(self, times: int = 1) -> None:
        self.world.holds(self.added * times)

    def left_behind(self) -> list[str]:
        return self.world.left_behind()

    def forget_commits(self, newest: int) -> None:
        self.world.forget_commits(newest)


@dataclass
class OnS3:
    world: World
    bucket: Bucket
    protocol: str
    added: list[Row] = field(default_factory=list)
    files: int = 0
    forgotten: bool = False
    """Whether there are files that no register names any more."""
    url: None = None
    elsewhere: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.elsewhere = {"statepath": f"{self.bucket.options['path']}-elsewhere"}
        self._options = S3Options.parse({**self.bucket.options, "protocol": self.protocol})

    @property
    def job(self) -> Job:
        options = {**self.bucket.options, "protocol": self.protocol, "job": JOB}
        return replace(self.world.job, format="abs-s3", options=options)

    @property
    def checkpoint(self) -> Path:
        return self.world.checkpoint

    def register(self) -> Inventory:
        return S3Register(self._options)

    def drop_registers(self) -> None:
        objects = Objects(self._options.bucket)
        objects.delete([one.key for one in objects.list(self._options.state.key("register", ""))])
        self.forgotten = self.protocol == "idempotent"  # the register names the files

    def add(self) -> None:
        self.added += self.world.add_file(self.files)
        self.files += 1

    def holds_all(self, times: int = 1) -> None:
        if self.forgotten:
            # Nobody knows which of these files are committed: a reader is refused, not misled.
            with pytest.raises(RegisterLostError):
                self.bucket.rows(self.protocol)
        else:
            self.bucket.holds(self.protocol, self.added * times)

    def left_behind(self) -> list[str]:
        return [*self.bucket.uploads(), *self.bucket.in_doubt()]

    def forget_commits(self, newest: int) -> None:
        self.world.forget_commits(newest)


@dataclass
class OnKafka:
    world: KafkaWorld
    added: list[object] = field(default_factory=list)
    url: None = None
    elsewhere: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.elsewhere = {"registertopic": f"{self.world.target.topic}-elsewhere"}

    @property
    def job(self) -> Job:
        return self.world.job()

    @property
    def checkpoint(self) -> Path:
        return self.world.checkpoint

    def register(self) -> Inventory:
        return KafkaRegister(self.world.target.options)

    def drop_registers(self) -> None:
        options = self.world.target.options
        delete_topics(options.kafka, [options.registertopic])
        until(lambda: self.register().load(JOB) is None, "the topic of registers is gone")

    def add(self) -> None:
        self.added += self.world.source.add(10)

    def holds_all(self, times: int = 1) -> None:
        self.world.holds(self.added * times, "now")

    def left_behind(self) -> list[str]:
        return list(self.world.target.leftovers(JOB))

    def forget_commits(self, newest: int) -> None:
        self.world.forget_commits(newest)


@contextmanager
def opened(request: pytest.FixtureRequest, name: str) -> Iterator[Place]:
    """The place of a system and a way to write, ``kafka-2pc``, with two additions in its input."""
    system, _, way = name.partition("-")
    opener = {"postgres": _on_postgres, "s3": _on_s3, "kafka": _on_kafka}[system]
    with opener(request, way) as place:
        place.add()
        place.add()
        yield place


@contextmanager
def _on_postgres(request: pytest.FixtureRequest, way: str) -> Iterator[Place]:
    yield OnPostgres(request.getfixturevalue("new_world")(way))


@contextmanager
def _on_s3(request: pytest.FixtureRequest, protocol: str) -> Iterator[Place]:
    world = World(request.getfixturevalue("tmp_path"), "", (("protocol", protocol),))
    yield OnS3(world, request.getfixturevalue("bucket"), protocol)


@contextmanager
def _on_kafka(request: pytest.FixtureRequest, protocol: str) -> Iterator[Place]:
    kafka = request.getfixturevalue("kafka")
    kafka.start()
    with ExitStack() as stack:
        target = stack.enter_context(open_variant(kafka.bootstrap, protocol))
        source = KafkaSourceHarness(kafka.bootstrap)
        folder = request.getfixturevalue("tmp_path")
        yield OnKafka(KafkaWorld(folder, kafka, source, target))
    close_clusters()
