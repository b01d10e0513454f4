"""A server that is away for some seconds under an epoch: the epoch goes on, and is there once.

Away under the commit, or under a task that writes; standing still, or stopped and started again. People
are told in the log who waits for what.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from abs_clients.kafka.cluster import close_clusters
from abs_core.coordinator import Coordinator, Report
from abs_core.errors import AbsError
from abs_core.patience import Patience, slow_writes, waiting
from abs_services import KafkaService, PostgresService, S3Service
from abs_services.contracts import Service
from abs_sinks.kafka import sink as kafka_sink
from abs_sinks.postgres.copyin import CopyWriter
from abs_sinks.postgres.testing import VARIANTS, TableHarness, open_table
from abs_sinks.s3 import writer as s3_writer
from abs_sinks.s3.taskfiles import TaskFiles
from abs_sinks.s3.testing import open_folder
from abs_testing.case import JOB, Case, rows
from abs_testing.harness import Harness
from tests import sample
from tests.kit.kafka import Variant as KafkaVariant
from tests.kit.kafka import open_topic
from tests.kit.kafka_modes import open_log
from tests.outage import Away, Way, standing_still, stopped
from tests.planted import Bug, Plant, planted
from tests.sample import members

pytestmark = [pytest.mark.services, pytest.mark.long, pytest.mark.timeout(300)]

SECONDS = 4.0
AT_LEAST: dict[Way, float] = {standing_still: SECONDS, stopped: 9.0}
"""Stopped for longer than boto3 tries on its own."""
AT_MOST = 20.0
LEFT, RIGHT, MORE = rows(0, 3), rows(10, 3), rows(20, 3)

Told = Callable[[], list[str]]

SYSTEMS = {"postgres": "PostgreSQL", "kafka": "Kafka", "s3": "S3"}
PROTOCOLS = ("2pc", "wal", "idempotent")


@dataclass(frozen=True)
class Outage:
    """How a target is away under a task.

    Args:
        begun: whether the task has written rows before.
    """

    kind: str
    protocol: str
    way: Way
    begun: bool

    def __str__(self) -> str:
        when = "between rows" if self.begun else "from the first row"
        return f"{self.kind} {self.protocol} {self.way.__name__} {when}"


@dataclass(frozen=True)
class Place:
    """A target of one kind under one protocol, and how it is to be away."""

    server: Service
    harness: Harness
    outage: Outage

    @property
    def is_asked(self) -> bool:
        """Whether a task asks this server: Kafka's segments lie elsewhere until the commit."""
        return (self.outage.kind, self.outage.protocol) != ("kafka", "wal") or not self.outage.begun


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """For an ``Outage``."""
    outage: Outage = request.param
    kind, protocol = outage.kind, outage.protocol
    with ExitStack() as stack:
        if kind == "postgres":
            server: PostgresService = request.getfixturevalue("postgres")
            url = request.getfixturevalue("database")
            write = "upsert" if protocol == "idempotent" else "append"
            variant = VARIANTS[f"{protocol}-{write}"]
            harness: Harness = stack.enter_context(open_table(url, variant))
            yield Place(server, harness, outage)
        elif kind == "kafka":
            broker: KafkaService = request.getfixturevalue("kafka")
            broker.start()
            stack.callback(close_clusters)
            opened = open_log if protocol == "wal" else open_topic
            harness = stack.enter_context(opened(broker.bootstrap, KafkaVariant(protocol)))
            yield Place(broker, harness, outage)
        else:
            s3: S3Service = request.getfixturevalue("store")
            s3.start()
            path = f"s3://{s3.bucket}/{request.getfixturevalue('prefix')}"
            given = {"endpoint": s3.endpoint, "region": s3.region, "protocol": protocol}
            harness = stack.enter_context(open_folder(path, given))
            yield Place(s3, harness, outage)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Told:
    """What the log says of waits, which are told of sooner than elsewhere."""
    monkeypatch.setattr(waiting, "SILENT_AFTER_SECONDS", 1.0)
    monkeypatch.setattr(slow_writes, "SILENT_SECONDS", 1.0)
    monkeypatch.setattr(logging.getLogger(waiting.LOGGER), "propagate", True)
    caplog.set_level(logging.WARNING, waiting.LOGGER)
    return lambda: caplog.messages


@sample.cases(1)
@pytest.mark.parametrize(
    "place",
    [Outage(kind, "2pc", standing_still, begun=False) for kind in SYSTEMS],
    indirect=True,
    ids=SYSTEMS,
)
def test_a_server_that_stands_still_for_seconds_ends_no_epoch(place: Place) -> None:
    case = Case(place.harness)
    run = case.run()
    run.epoch(0, LEFT)
    shares = run.tasks(1, RIGHT)
    patience = Patience(seconds=120.0, system=SYSTEMS[place.outage.kind])
    coordinator = Coordinator(
        run.who, run.store, run.committer, patience=patience, fence=run.sink.fence
    )
    with Away(place.server, place.outage.way, SECONDS) as outage:
        outage.begin()
        coordinator.commit(Report(1, shares, None))
        state, _ = coordinator.begin(2)
    assert state.frontier == 1
    run.epoch(2, MORE)
    case.finished(LEFT, RIGHT, MORE, when="after the server stood still")
    case.close()


OUTAGES = [
    Outage(kind, protocol, way, begun)
    for kind in SYSTEMS
    for protocol in PROTOCOLS
    for way in (standing_still, stopped)
    for begun in (False, True)
    # A session of PostgreSQL ends with its server, and takes the rows of the attempt with it.
    if (kind, way, begun) != ("postgres", stopped, True)
]


@pytest.mark.parametrize("place", members(OUTAGES, 4, "outages"), indirect=True, ids=str)
def test_a_target_that_is_away_while_a_task_writes_ends_no_task_and_is_named_in_the_log(
    place: Place, told: Told
) -> None:
    written_while_away(place, told)


def written_while_away(place: Place, told: Told) -> None:
    """The rule: an attempt outlasts the outage, and its rows are there once."""
    case, outage = Case(place.harness), place.outage
    run = case.run()
    run.epoch(0, LEFT)
    attempt = run.attempt(1)
    before, during = (RIGHT[:1], RIGHT[1:]) if outage.begun else ([], RIGHT)
    attempt.write(*before)
    if (outage.kind, outage.begun) == ("kafka", False) and outage.protocol != "2pc":
        close_clusters()  # as in a process that knows nothing of the topic yet
    began = time.monotonic()

    def named() -> bool:
        line = f"job {JOB}: waiting for {SYSTEMS[outage.kind]} at "
        return not place.is_asked or any(one.startswith(line) for one in told())

    def over() -> bool:
        return named() and time.monotonic() > began + AT_LEAST[outage.way]

    try:
        with Away(place.server, outage.way, AT_MOST, over) as away:
            away.begin()
            try:
                share = attempt.write(*during).pre_commit()
            except AbsError:
                attempt.writer.abort()
                raise
    finally:
        if isinstance(place.harness, TableHarness):
            place.harness.reconnect()  # its session went with the server
    assert named(), told()
    run.commit(1, [share])
    run.epoch(2, MORE)
    case.finished(LEFT, RIGHT, MORE, when="after the server was away")
    case.close()


def s3_is_tried_once(plant: Plant) -> None:
    """A task's requests to S3 are not repeated beyond what boto3 does."""
    plant(s3_writer, "TaskFiles", lambda *given: TaskFiles(*given[:3]))


def kafka_is_waited_for_in_silence(plant: Plant) -> None:
    """Nobody is told that records are not taken."""
    plant(kafka_sink, "SlowWriteReporter", lambda writer, *_: writer)


def postgres_is_tried_once(plant: Plant) -> None:
    """A task's first connection is not waited for."""
    plant(CopyWriter, "_begun", lambda writer: writer._begin())


PLANTS = {
    postgres_is_tried_once: (
        Outage("postgres", "2pc", stopped, begun=False),
        "Cannot connect to PostgreSQL|PostgreSQL went away",
    ),
    s3_is_tried_once: (
        Outage("s3", "2pc", stopped, begun=False),
        "S3 (cannot be reached|went away)",
    ),
    kafka_is_waited_for_in_silence: (
        Outage("kafka", "idempotent", standing_still, begun=True),
        "where False = ",
    ),
}


@pytest.mark.parametrize(
    ("place", "bug", "found"),
    [pytest.param(outage, bug, found, id=bug.__name__) for bug, (outage, found) in PLANTS.items()],
    indirect=["place"],
)
def test_the_rule_finds_a_planted_bug(place: Place, bug: Bug, found: str, told: Told) -> None:
    with planted(bug, by=(AbsError, AssertionError), match=found):
        written_while_away(place, told)
